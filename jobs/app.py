"""The application that commands register with."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="tagloom",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Turn logs of conversations into searchable memory graphs, and measure how well memories are found again.",
    epilog="Example: tagloom run --corpus ./corpus logs/   (docs: docs/ in the repository)",
)

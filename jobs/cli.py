"""The `tagloom` command: its commands are in the modules `jobs.cli_...`; this is where errors end."""

from __future__ import annotations

import os
import select
import sys
from typing import Annotated, Any, NoReturn

import typer

# Help lists commands in the order of these modules.
# isort: off
from jobs import cli_make, cli_cluster, cli_read, cli_experiment, cli_reader, cli_forget, console

# isort: on
from jobs.app import app
from jobs.options import take_beam_options
from schemas.errors import FAULT, TagloomError

__all__ = ["app", "cli_cluster", "cli_experiment", "cli_forget", "cli_make", "cli_read", "cli_reader", "main"]

INTERRUPTED = 130
STOPPED = "tagloom: stopped; finished parts stay, the same command goes on from there"

_CommandLineError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of what typer raises for a bad command line; typer keeps it in a private copy of click."""


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        console.emit(f"tagloom {installed('tagloom')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        console.emit(context.get_help())
        raise typer.Exit


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit.

    0 done, 1 failed, 2 bad usage, 3 finished with rejects above the limit or without some shards, 130 stopped by
    Ctrl-C, 143 by SIGTERM.
    """
    console.heed_sigterm()
    given = sys.argv[1:] if arguments is None else arguments
    verbose = "-v" in given or "--verbose" in given
    try:
        code = app(args=take_beam_options(given), standalone_mode=False, prog_name="tagloom")
        if code == INTERRUPTED:  # typer returns this where it caught Ctrl-C itself
            raise KeyboardInterrupt
    except TagloomError as error:
        if verbose:
            raise
        console.tell(f"tagloom: {error}", "error")
        sys.exit(error.exit_code)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except _CommandLineError as error:
        error.show(file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        console.tell(STOPPED, "warning")
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        broken = ended.__context__
        if isinstance(broken, BrokenPipeError):  # typer takes any for its output, also one of a worker or a server
            if not _nobody_reads():
                if verbose:
                    raise
                console.tell(f"tagloom: a connection broke: {broken}\n  Run the same command again.", "error")
                sys.exit(1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        console.tell(STOPPED, "warning")
        raise
    except OSError as error:
        if verbose:
            raise
        console.tell(f"tagloom: {error.filename or 'storage'}: {error.strerror or error}", "error")
        sys.exit(1)
    except Exception as error:  # the last resort: users never see a traceback unless they ask for it
        if verbose:
            raise
        console.tell(f"tagloom: {type(error).__name__}: {error}\n  {FAULT}", "error")
        sys.exit(1)
    sys.exit(code or 0)


def _nobody_reads() -> bool:
    """Tell whether standard output is a pipe that was closed at its other end."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


if __name__ == "__main__":
    main()

"""Calls the command as a person does."""

import pytest

from jobs import cli


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    """Run the command; returns its exit code and what it printed and told. No traceback may be in it."""
    with pytest.raises(SystemExit) as done:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err + out
    return int(done.value.code or 0), out, err

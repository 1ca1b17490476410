"""Cleans up after a process that is gone: ``python _guard.py PREFIX [FOLDER]``, started by that process.

vLLM's processes do not notice that the one which started them was killed, and would hold their GPU for ever. The guard
waits on its standard input, which the caller holds open and the system closes with it; then it kills those of the
caller's descendants whose command begins with the prefix, and removes the folder.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from contextlib import suppress

import psutil  # type: ignore[import-untyped]

INTERVAL = 2.0
"""Seconds between two looks at which processes there are."""


def main() -> None:
    """Keep a list of the caller's descendants until it is gone."""
    prefix, *folders = sys.argv[1:]
    caller = psutil.Process(os.getppid())
    known = caller.children(recursive=True)
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        with suppress(psutil.NoSuchProcess):
            found = caller.children(recursive=True)
        if os.getppid() != caller.pid:  # gone, though a fork of it holds the pipe; what was found may lack some
            break
        known = found
    for process in known:
        with suppress(psutil.Error):
            if "".join(process.cmdline()).startswith(prefix):
                process.kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

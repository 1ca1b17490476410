"""Ends the engine processes of a process that is gone: ``python _guard.py PREFIX``, started by that process.

vLLM's processes do not notice that the one which started them was killed, and would hold their GPU for ever. This
one waits on its standard input, which the caller holds open and the system closes with it.
"""

from __future__ import annotations

import os
import select
import sys

import psutil  # type: ignore[import-untyped]

INTERVAL = 2.0
"""Seconds between two looks at which processes there are."""


def main() -> None:
    """Look at the caller's descendants until it is gone, then kill those whose command begins with the prefix."""
    caller = psutil.Process(os.getppid())
    known: list[psutil.Process] = []
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        try:
            known = caller.children(recursive=True)
        except psutil.NoSuchProcess:
            break
    for process in known:
        try:
            if "".join(process.cmdline()).startswith(sys.argv[1]):
                process.kill()
        except psutil.Error:
            pass


if __name__ == "__main__":
    main()

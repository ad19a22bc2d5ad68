"""Run a Python program with the engine in place of kazoo's connection.

    python -m zkwire.kazoo PROGRAM ARGUMENTS...      a file, or a command of the PATH
    python -m zkwire.kazoo -m MODULE ARGUMENTS...

The program sees its own name and arguments.  Processes that it starts anew have kazoo's connection.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys

from zkwire.kazoo import install


def main() -> None:
    """Run what the arguments say."""
    arguments = sys.argv[1:]
    by_name = arguments[:1] == ["-m"]
    program, *_ = arguments[by_name:] or [""]
    if not program or program.startswith("-"):
        print((__doc__ or "").strip(), file=sys.stderr)
        raise SystemExit(2)
    install()
    sys.argv[:] = arguments[by_name:]
    if by_name:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    path = program if os.path.exists(program) else shutil.which(program)
    if path is None:
        raise SystemExit(f"there is no file and no command {program}")
    sys.argv[0], sys.path[0] = path, os.path.dirname(os.path.abspath(path))
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()

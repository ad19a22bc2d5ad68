"""Run all experiments, and compare the document with them, or write it anew."""

from __future__ import annotations

import argparse
import sys
import time

from tests.connection_loss import document, every
from tests.real_servers import find_backend


def main() -> int:
    """The exit status: 1 if the document says something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.connection_loss", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the document")
    arguments = parser.parse_args()
    started = time.monotonic()
    made = every.tables(find_backend())
    text = document.PATH.read_text()
    new = document.replaced(text, made)
    print(f"{every.cells(made)} lines of tables from runs in {time.monotonic() - started:.1f} s")
    if arguments.write:
        document.PATH.write_text(new)
    elif new != text:
        print(f"{document.PATH.name} says something else; --write puts it right")
        return 1
    return 0


sys.exit(main())

"""Refuse each request of each recipe with each plausible code, for both clients.

Fails if docs/refusals.md says something else; ``--write`` puts the tables into it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.refusals import document
from tests.refusals.lives import CELLS
from zkwire.testing.kit import sweep_refusals


def main() -> int:
    """The exit status: 1 if the page says something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.refusals", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    arguments = parser.parse_args()
    logging.getLogger("zkwire").setLevel(logging.CRITICAL)  # each refusal is logged
    started, runs = time.monotonic(), 0
    tables: dict[str, document.Rows] = {}
    for title, life, kind in CELLS:
        found = sweep_refusals(life, kind)
        runs += len(found)
        rows = tables.setdefault(document.recipe_of(title), {})
        for request, cells in document.rows_of(found).items():
            for outcome, codes in cells.items():
                rows.setdefault(request, {}).setdefault(outcome, set()).update(codes)
    print(f"{runs} refusals in {len(CELLS)} lives, {time.monotonic() - started:.1f} s")
    text = document.PATH.read_text()
    new = document.replaced(text, document.written(tables))
    if arguments.write:
        document.PATH.write_text(new)
    elif new != text:
        print(f"{document.PATH.name} says something else; --write mends it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

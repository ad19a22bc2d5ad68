"""Refuse each request of each recipe with each plausible code, for both clients.

Fails if a caller was told something that docs/refusals.md does not say; ``--write`` puts the tables
into it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.connection_loss.document import replaced
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
        document.add(tables.setdefault(document.recipe_of(title), {}), found)
    print(f"{runs} refusals in {len(CELLS)} lives, {time.monotonic() - started:.1f} s")
    text = document.PATH.read_text()
    if arguments.write:
        made = {recipe: document.told(rows) for recipe, rows in tables.items()}
        new = replaced(text, {document.MARKER: document.written(made)})
        document.PATH.write_text(new)
        return 0
    page = document.read(text)
    untold = [
        f"{recipe}: {line}"
        for recipe, rows in tables.items()
        for line in document.untold(page.get(recipe, {}), rows)
    ]
    print("\n".join(untold))
    return 1 if untold or page.keys() != tables.keys() else 0


if __name__ == "__main__":
    sys.exit(main())

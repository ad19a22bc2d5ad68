"""Run the atlas; compare it with what is written, or write it."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.interop.atlas import page
from tests.interop.atlas.clients import CLIENTS
from tests.interop.atlas.run import play, ready
from tests.interop.atlas.situations import SITUATIONS


def main() -> int:
    """The exit status: 1 if more than two cells of a hundred say something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.interop.atlas", description=__doc__)
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--write", action="store_true", help="put what is found into the page")
    parser.add_argument("--only", default="", help="points by the begin of a key, with commas")
    parser.add_argument("--add", action="store_true", help="... together with what is there")
    parser.add_argument("--times", type=int, default=100, help="of each trial at most")
    options = parser.parse_args()
    if unknown := set(options.clients) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    logging.disable()
    begun = tuple(options.only.split(","))
    points = [
        p._replace(times=min(p.times, options.times))
        for s in SITUATIONS
        for p in s.points
        if p.key.startswith(begun)
    ]
    chosen = [c for c in CLIENTS if not options.clients or c.name in options.clients]
    started = time.monotonic()
    clients, missing = ready(chosen)
    for name, why in missing.items():
        print(f"{name} cannot be had here, and stays as recorded: {why}")
    cells = play(clients, points)
    print(f"{sum(map(len, cells.values()))} cells in {time.monotonic() - started:.0f} s")
    return page.settle(cells, writing=options.write, fresh=not options.add)


if __name__ == "__main__":
    sys.exit(main())

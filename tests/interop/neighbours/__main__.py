"""Have zkwire, kazoo and Curator share paths; compare the documents' tables, or write them."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from tests.interop import pages
from tests.interop.curator.process import running
from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import PAIRS, contend_for
from tests.interop.neighbours.scenarios import CURATOR, KAZOO, SCENARIOS, Scene, outcome
from tests.interop.neighbours.sides import CuratorSide, Side, kazoo_side
from tests.support.installed_servers import find_installed
from tests.support.server_control import ZooKeeperServer
from zkwire import Client


def locks(server: ZooKeeperServer, seconds: float) -> dict[str, dict[str, int]]:
    """The outcomes of all pairs."""
    found = {}
    for number, pair in enumerate(PAIRS):
        seen = contend_for(server, f"/neighbours-{number}", pair, seconds)
        found[pair.title] = table.counts(seen)
        print(f"{pair.title}: {found[pair.title]}", flush=True)
    return found


def recipes(server: ZooKeeperServer) -> dict[str, dict[str, dict[str, str]]]:
    """The outcomes of all scenarios."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    with Client(server.hosts) as observer, running(server.hosts) as curator:
        sides: dict[str, Callable[[], AbstractContextManager[Side]]] = {
            KAZOO: lambda: kazoo_side(server.hosts),
            CURATOR: lambda: nullcontext(CuratorSide(curator)),
        }
        for page, scenarios in SCENARIOS.items():
            found[page] = {}
            for title, (scenario, libraries) in scenarios.items():
                found[page][title] = {}
                for library in libraries:
                    with sides[library]() as theirs, ExitStack() as stack:
                        path = f"/{page}-{len(found[page])}-{library.split()[0]}"
                        scene = Scene(server.hosts, path, observer, stack)
                        found[page][title][library] = outcome(scenario, scene, theirs)
                print(f"{title}: {found[page][title]}", flush=True)
    return found


def main() -> int:
    """The exit status: 1 if anything is not as the documents say."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.interop.neighbours", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="put the tables into the documents")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each pair of locks")
    options = parser.parse_args()
    logging.disable()  # of kazoo, which says much of each session's end
    with find_installed().standalone() as server:
        found: table.Outcomes = {
            "recipes": recipes(server), "locks": locks(server, options.seconds),
        }  # fmt: skip
    if options.write:
        return pages.settle({**table.pages(found), table.DATA: pages.as_json(found)}, write=True)
    stored = table.stored()
    differing = [
        title
        for title, counts in found["locks"].items()
        if (counts["wrong"] > 0) != (stored["locks"][title]["wrong"] > 0)
    ]
    if found["recipes"] != stored["recipes"]:
        differing.append(f"{found['recipes']}")
    print("\n".join(differing) or "as the documents say")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

"""A short part of each run of the pages' tables, made again by the tests."""

from __future__ import annotations

from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import Pair, contend
from tests.interop.neighbours.scenarios import SCENARIOS
from tests.support.server_control import ZooKeeperServer

GRANTS = 40  # of each library, if none is wrong


def assert_as_stored(server: ZooKeeperServer, path: str, pair: Pair) -> None:
    """Each grant is judged by the nodes that the server has at that moment."""
    seen = contend(server, path, pair, GRANTS)
    assert bool(seen.wrong) == bool(table.stored()["locks"][pair.title]["wrong"]), seen


def rows_with(library: str) -> list[tuple[str, str]]:
    """Page and title of each scenario that this library takes part in."""
    return [
        (page, title)
        for page, rows in SCENARIOS.items()
        for title, (_, libraries) in rows.items()
        if library in libraries
    ]

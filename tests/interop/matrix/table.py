"""The outcomes of every operation and recipe on each release, and the tables that show them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from tests.interop import pages
from tests.interop.matrix.rows import OPERATIONS, PATIENCE, RECIPES, Row
from tests.support.installed_servers import find_installed
from tests.support.server_control import ZooKeeperServer
from zkwire import Client, ConnectionLossError, ZooKeeperError

DATA = Path(__file__).with_name("outcomes.json")
DOCUMENT = pages.DOCUMENTS / "operations.md"
PARTS = {"operations": OPERATIONS, "recipes": RECIPES}
Outcomes = dict[str, dict[str, str]]
"""By the part and the row: `yes`, or the name of the error."""


def numbers(release: str) -> list[int]:
    """A release as something to compare."""
    return list(map(int, release.split(".")))


def outcomes(server: ZooKeeperServer, base: str) -> Outcomes:
    """What comes of each row on this server, all on paths below ``base``."""
    with Client(server.hosts, session_timeout=60.0) as observer:
        observer.create(base)
        try:
            return {
                part: {
                    title: outcome(server, observer, f"{base}/{part}-{number}", row)
                    for number, (title, row) in enumerate(rows.items())
                }
                for part, rows in PARTS.items()
            }
        finally:
            observer.delete_tree(base)


def outcome(server: ZooKeeperServer, observer: Client, path: str, row: Row) -> str:
    """`yes`, or the error that it raised; AssertionError unless its session goes on behind it."""
    observer.create(path)
    with Client(server.hosts, session_timeout=60.0, operation_timeout=PATIENCE) as client:
        client.connect()
        session_id = client.session_id
        refusal: ZooKeeperError | None = None
        try:
            row(client, path)
        except ZooKeeperError as error:
            refusal = error
        if refusal is not None:
            names_it = re.search("since|older than", str(refusal))
            assert names_it, f"does not name the release: {refusal}"
            assert observer.get_children(path) == [], "it was refused, and has done something"
        goes_on(client)
        assert client.session_id == session_id
    return "yes" if refusal is None else f"`{type(refusal).__name__}`"


def goes_on(client: Client) -> None:
    """Ask for something; an old server may end two connections for what is done behind a call."""
    for _ in range(3):
        with suppress(ConnectionLossError):
            client.sync("/")
            return
    raise AssertionError("the server ends one connection after the other")


def stored() -> dict[str, Outcomes]:
    """The outcomes of the last run, by the release."""
    loaded: dict[str, Outcomes] = json.loads(DATA.read_text())
    return loaded


def replaced(text: str, by_release: dict[str, Outcomes]) -> str:
    """The document with these tables: a column for each release."""
    releases = sorted(by_release, key=numbers)
    for part, rows in PARTS.items():
        lacking = [r for r in releases if not rows.keys() <= by_release[r][part].keys()]
        assert not lacking, f"{part} to be tried with ZOOKEEPER_HOME: releases {lacking}"
    return pages.with_parts(
        text,
        {
            f"releases of {part}": pages.table(
                ["", *releases],
                ([title, *(by_release[r][part][title] for r in releases)] for title in rows),
            )
            for part, rows in PARTS.items()
        },
    )


def found(_: str) -> Outcomes:
    """Everything on the release that is chosen."""
    with find_installed().standalone() as server:
        return outcomes(server, "/matrix")


def main() -> int:
    """The exit status: 1 if the document says something else."""
    return pages.on_each_release("tests.interop.matrix", found, DATA, DOCUMENT, replaced)

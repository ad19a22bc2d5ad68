"""The outcomes as data, and the tables that show them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from tests.interop.matrix.rows import OPERATIONS, PATIENCE, RECIPES, Row
from tests.interop.matrix.switches import SWITCHES
from tests.support.server_control import ZooKeeperServer
from zkwire import Client, ConnectionLossError, ZooKeeperError

DATA = Path(__file__).with_name("outcomes.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
PARTS = {"operations": OPERATIONS, "recipes": RECIPES}
SWITCHED = "switches"
TITLES = {**{part: list(rows) for part, rows in PARTS.items()}, SWITCHED: list(SWITCHES)}
Outcomes = dict[str, dict[str, str]]
"""By the part and the row: `yes`, or the name of the error; of what is switched on, `no`."""


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


def switched() -> dict[str, str]:
    """What comes of each switch, on servers of the release that `ZKWIRE_TEST_RELEASE` names."""
    return {title: "yes" if row() else "no" for title, row in SWITCHES.items()}


def outcome(server: ZooKeeperServer, observer: Client, path: str, row: Row) -> str:
    """`yes`, or the error that it raised; AssertionError unless its session goes on behind it."""
    observer.create(path)
    with Client(server.hosts, session_timeout=60.0, operation_timeout=PATIENCE) as client:
        client.connect()
        session_id = client.session_id
        refusal = refused(row, client, path)
        if refusal is not None:
            assert re.search("since|older than", str(refusal)), (
                f"does not name the release: {refusal}"
            )
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


def refused(row: Row, client: Client, path: str) -> ZooKeeperError | None:
    """What was raised."""
    try:
        row(client, path)
    except ZooKeeperError as error:
        return error
    return None


def stored() -> dict[str, Outcomes]:
    """The outcomes of the last run, by the release."""
    loaded: dict[str, Outcomes] = json.loads(DATA.read_text())
    return loaded


def written(by_release: dict[str, Outcomes]) -> str:
    """The data as text."""
    return json.dumps(dict(sorted(by_release.items())), indent=1, ensure_ascii=False) + "\n"


def rendered(by_release: dict[str, Outcomes], part: str) -> str:
    """The table of one part: a column for each release."""
    releases = sorted(by_release, key=lambda release: tuple(map(int, release.split("."))))
    lines = ["| " + " | ".join(["", *releases]) + " |", "| --- " * (len(releases) + 1) + "|"]
    for title in TITLES[part]:
        cells = [by_release[release][part][title] for release in releases]
        lines.append("| " + " | ".join([title, *cells]) + " |")
    return "\n".join(lines)


def replaced(text: str, by_release: dict[str, Outcomes]) -> str:
    """The document with these tables."""
    for part in TITLES:
        table = rendered(by_release, part)
        begin, end = f"<!-- begin: releases of {part} -->", f"<!-- end: releases of {part} -->"
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        text = re.sub(pattern, lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)  # noqa: B023
    return text

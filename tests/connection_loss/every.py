"""All experiments, in the order in which they share servers, and the document's tables of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from tests.connection_loss import (
    classic,
    document,
    losses,
    members,
    points,
    recipes,
    services,
    sessions,
    watches,
)
from tests.connection_loss.case import AT_ONCE, Rows, Setting
from tests.connection_loss.changes import CHANGES
from tests.connection_loss.clients import every_way
from tests.connection_loss.lagging import Lag, lagging_follower
from tests.connection_loss.points import Operation
from tests.connection_loss.reads import READS
from tests.simulation.scenarios import PARTS
from tests.support.lock_helpers import LONG
from tests.support.server_control import Backend, ZooKeeperServer
from zkwire import Client

Runs: TypeAlias = dict[str, Rows]
"""What the experiments have observed on the same servers, by section and title."""

OPERATIONS = CHANGES + READS
CLASSIC = (*classic.CALLS, *(call for part in PARTS for call in getattr(part, "CALLS", ())))
"""Those of older recipes; a newer one has its own beside its scenario."""

HEADS: dict[str, tuple[str, ...]] = {
    "operations": points.HEADS,
    "members": members.HEADS,
    "recipes": recipes.HEADS,
    "services": losses.HEADS,
    "classic": losses.HEADS,
    "watches": watches.HEADS,
    "sessions": sessions.HEADS,
}
IN_ONE_TABLE = {"members", "watches", "sessions"}


def run_operations(setting: Setting, *, by_ensemble: bool = False) -> Rows:
    """At every point that one server is enough for; in an ensemble one after the other."""
    asked = [op for op in known(setting) if op.by_ensemble == by_ensemble]
    cells = [(op, point) for op in asked for point in points.ON_ONE_SERVER]
    return points.run_points(setting, cells, 1 if by_ensemble else AT_ONCE)


def known(setting: Setting) -> list[Operation]:
    """What the servers know."""
    return [op for op in OPERATIONS if op.since <= setting.server.release]


def tables(backend: Backend) -> dict[str, dict[str, str]]:
    """For each client the contents of all the document's markers."""
    with backend.standalone() as server:
        on_one = on_one_server(server)
    behind = in_ensembles(backend)
    return {title: rendered(runs, behind[title]) for title, runs in on_one.items()}


def on_one_server(server: ZooKeeperServer) -> dict[str, Runs]:
    """What one server is enough for, by client."""
    root = f"/loss-{secrets.token_hex(4)}"
    with Client(server.hosts, session_timeout=LONG) as observer, every_way() as client_kinds:
        observer.create(root)
        return {
            client_kind.title: run_all(Setting(server, observer, root, client_kind))
            for client_kind in client_kinds
        }


def run_all(setting: Setting) -> Runs:
    """One client through all of it; the sessions wait for their ends beside the rest."""
    with ThreadPoolExecutor(1, thread_name_prefix="sessions") as pool:
        of_sessions = pool.submit(sessions.run_all, setting)
        return {
            "operations": run_operations(setting),
            "recipes": recipes.run_all(setting),
            "services": losses.run_all(setting, services.CALLS),
            "classic": losses.run_all(setting, CLASSIC),
            "watches": watches.run_all(setting),
            "sessions": of_sessions.result(),
        }


def in_ensembles(backend: Backend) -> dict[str, Runs]:
    """What needs an ensemble of one's own, or a server that is behind, by client."""
    root = "/loss"
    with (
        lagging_follower(backend) as lag,
        Client(lag.up_to_date.hosts, session_timeout=LONG) as observer,
        every_way() as client_kinds,
    ):
        observer.create(root)
        found = {
            client_kind.title: run_behind(Setting(lag.up_to_date, observer, root, client_kind), lag)
            for client_kind in client_kinds
        }
        for client_kind in client_kinds:  # and now it matters no more which of the members leads
            removals = members.run_removals(client_kind, lag.ensemble, root)
            found[client_kind.title]["members"][""] += removals
    return found


def run_behind(setting: Setting, lag: Lag) -> Runs:
    """One client through all of it."""
    in_ensemble = run_operations(setting, by_ensemble=True)
    moved = lag.around(partial(points.behind, lag=lag))
    in_ensemble = joined(
        in_ensemble, points.run_points(setting, [(op, moved) for op in known(setting)], 1)
    )
    return {
        "operations": in_ensemble,
        "recipes": recipes.run_behind(setting, lag),
        "watches": watches.run_behind(setting, lag),
        "sessions": sessions.run_behind(setting, lag),
        "members": members.run_behind(setting, lag),
    }


def joined(first: Rows, then: Rows) -> Rows:
    """The lines of both, below the same titles."""
    return {title: first.get(title, []) + then.get(title, []) for title in {**first, **then}}


def rendered(on_one: Runs, behind: Runs) -> dict[str, str]:
    """The tables' text, by marker."""
    return {
        section: render(section, joined(on_one.get(section, {}), behind.get(section, {})))
        for section in HEADS
    }


def render(section: str, rows: Rows) -> str:
    """One table, or one for each group of titles below which exactly the same is to be said."""
    heads = HEADS[section]
    if section in IN_ONE_TABLE:
        return document.table(heads, [row for lines in rows.values() for row in lines])
    above = {}
    if section == "operations":
        above = {op.title: f"Recover: {op.again}.\n\n" for op in OPERATIONS}
        rows = {title: [row for row in rows[title] if any(row[1:])] for title in above}
    groups: dict[str, list[str]] = {}
    for title, lines in rows.items():
        groups.setdefault(above.get(title, "") + document.table(heads, lines), []).append(title)
    return "\n\n".join(f"### {'; '.join(titles)}\n\n{body}" for body, titles in groups.items())


def cells(made: Mapping[str, str]) -> int:
    """How many lines of tables there are, heads not counted."""
    return sum(len(document.lines(section)) for section in made.values())

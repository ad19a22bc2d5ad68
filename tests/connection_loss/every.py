"""All experiments, in the order in which they share servers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.connection_loss import (
    barriers,
    classic,
    document,
    leading,
    losses,
    members,
    operations,
    recipes,
    services,
    sessions,
    watches,
)
from tests.connection_loss.case import Setting
from tests.connection_loss.clients import every_way
from tests.connection_loss.lagging import Lag, lagging_follower
from tests.support.lock_helpers import LONG
from tests.support.server_control import Backend, ZooKeeperServer
from zkwire import Client


@dataclass(frozen=True)
class Runs:
    """What the experiments have observed on the same servers."""

    operations: operations.Rows
    recipes: recipes.Rows
    services: losses.Rows
    classic: losses.Rows
    watches: list[watches.Row]
    sessions: list[sessions.Row]
    members: list[members.Row]


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
        return Runs(
            operations.run_all(setting),
            recipes.run_all(setting),
            losses.run_all(setting, services.CALLS + leading.CALLS),
            losses.run_all(setting, classic.CALLS + barriers.CALLS),
            watches.run_all(setting),
            of_sessions.result(),
            [],
        )


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
            found[client_kind.title].members.extend(
                members.run_removals(client_kind, lag.ensemble, root)
            )
    return found


def run_behind(setting: Setting, lag: Lag) -> Runs:
    """One client through all of it."""
    rows = operations.run_in_ensemble(setting)
    for title, moved in operations.run_behind(setting, lag).items():
        rows.setdefault(title, []).extend(moved)
    return Runs(
        rows,
        recipes.run_behind(setting, lag),
        {},
        {},
        watches.run_behind(setting, lag),
        sessions.run_behind(setting, lag),
        members.run_behind(setting, lag),
    )


def rendered(on_one: Runs, behind: Runs) -> dict[str, str]:
    """The tables' text, by marker."""
    of_operations = {
        op.title: [*on_one.operations.get(op.title, ()), *behind.operations.get(op.title, ())]
        for op in operations.OPERATIONS
    }
    of_recipes = {
        key: [*rows, *behind.recipes.get(key, ())] for key, rows in on_one.recipes.items()
    }
    return {
        "operations": operations.render(of_operations),
        "recipes": recipes.render(of_recipes),
        "services": losses.render(on_one.services),
        "classic": losses.render(on_one.classic),
        "sessions": sessions.render(on_one.sessions + behind.sessions),
        "members": members.render(behind.members),
        "watches": watches.render(on_one.watches + behind.watches),
    }


def cells(made: Mapping[str, str]) -> int:
    """How many lines of tables there are, heads not counted."""
    return sum(len(document.lines(section)) for section in made.values())

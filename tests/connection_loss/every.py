"""All experiments, in the order in which they share servers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from tests.connection_loss import document, operations, recipes, sessions, watches
from tests.connection_loss.lagging import lagging_follower
from tests.lock_helpers import LONG
from tests.server_control import Backend, ZooKeeperServer
from zkwire import Client


@dataclass(frozen=True)
class Runs:
    """What the experiments have observed on the same servers."""

    operations: operations.Rows
    recipes: recipes.Rows
    watches: list[watches.Row]
    sessions: list[sessions.Row]


def tables(backend: Backend) -> dict[str, str]:
    """The contents of all the document's markers."""
    with backend.standalone() as server:
        on_one = on_one_server(server)
    return rendered(on_one, with_lag(backend))


def on_one_server(server: ZooKeeperServer) -> Runs:
    """What one server is enough for."""
    root = f"/loss-{secrets.token_hex(4)}"
    with Client(server.hosts, session_timeout=LONG) as observer:
        observer.create(root)
        return Runs(
            operations.run_all(server, observer, root),
            recipes.run_all(server, observer, root),
            watches.run_all(server, observer, root),
            sessions.run_all(server, observer, root),
        )


def with_lag(backend: Backend) -> Runs:
    """What needs a server that is behind."""
    root = "/loss"
    with (
        lagging_follower(backend) as lag,
        Client(lag.up_to_date.hosts, session_timeout=LONG) as observer,
    ):
        observer.create(root)
        return Runs(
            operations.run_behind(lag, observer, root),
            recipes.run_behind(lag, observer, root),
            watches.run_behind(lag, observer, root),
            sessions.run_behind(lag, observer, root),
        )


def rendered(on_one: Runs, behind: Runs) -> dict[str, str]:
    """The tables' text, by marker."""
    of_operations = {
        title: [*rows, *behind.operations[title]] for title, rows in on_one.operations.items()
    }
    of_recipes = {
        key: [*rows, *behind.recipes.get(key, ())] for key, rows in on_one.recipes.items()
    }
    return {
        "operations": operations.render(of_operations),
        "recipes": recipes.render(of_recipes),
        "sessions": sessions.render(on_one.sessions + behind.sessions),
        "watches": watches.render(on_one.watches + behind.watches),
    }


def cells(made: Mapping[str, str]) -> int:
    """How many lines of tables there are, heads not counted."""
    return sum(len(document.lines(section)) for section in made.values())

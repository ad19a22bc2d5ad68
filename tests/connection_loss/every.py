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
from tests.connection_loss.case import Scene
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
    with Client(server.hosts, session_timeout=LONG) as observer, every_way() as ways:
        observer.create(root)
        return {way.title: run_all(Scene(server, observer, root, way)) for way in ways}


def run_all(scene: Scene) -> Runs:
    """One client through all of it; the sessions wait for their ends beside the rest."""
    with ThreadPoolExecutor(1, thread_name_prefix="sessions") as pool:
        of_sessions = pool.submit(sessions.run_all, scene)
        return Runs(
            operations.run_all(scene),
            recipes.run_all(scene),
            losses.run_all(scene, services.DEEDS + leading.DEEDS),
            losses.run_all(scene, classic.DEEDS + barriers.DEEDS),
            watches.run_all(scene),
            of_sessions.result(),
            [],
        )


def in_ensembles(backend: Backend) -> dict[str, Runs]:
    """What needs an ensemble of one's own, or a server that is behind, by client."""
    root = "/loss"
    with (
        lagging_follower(backend) as lag,
        Client(lag.up_to_date.hosts, session_timeout=LONG) as observer,
        every_way() as ways,
    ):
        observer.create(root)
        found = {
            way.title: run_behind(Scene(lag.up_to_date, observer, root, way), lag) for way in ways
        }
        for way in ways:  # and now it matters no more which of the members leads
            found[way.title].members.extend(members.run_removals(way, lag.ensemble, root))
    return found


def run_behind(scene: Scene, lag: Lag) -> Runs:
    """One client through all of it."""
    rows = operations.run_in_ensemble(scene)
    for title, moved in operations.run_behind(scene, lag).items():
        rows.setdefault(title, []).extend(moved)
    return Runs(
        rows,
        recipes.run_behind(scene, lag),
        {},
        {},
        watches.run_behind(scene, lag),
        sessions.run_behind(scene, lag),
        members.run_behind(scene, lag),
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

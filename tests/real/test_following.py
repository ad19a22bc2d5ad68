"""A node's states forever, as both clients show them: which come, and what each end leaves."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.shell.test_client_threads import forks, in_child
from tests.support.following_helpers import assert_in_order, watches
from tests.support.lock_helpers import PATIENCE, Running, Stage, requests
from tests.support.server_control import poll
from zkwire import ForkedError, SeenData
from zkwire.testing.proxy import cut_after, cut_before, rst_after, truncate

# --- the states -----------------------------------------------------------------------------------


FAULTS = {
    "cut before": (cut_before, False),
    "cut after": (cut_after, False),
    "reset after": (rst_after, False),
    "cut behind the reply": (cut_after, True),
    "a torn reply": (truncate(11), True),
}


@pytest.mark.parametrize(
    "fault",
    [
        "cut after",
        *(pytest.param(f, marks=pytest.mark.own_server) for f in FAULTS if f != "cut after"),
    ],
)
@pytest.mark.parametrize("kind", ["data", "children"])
def test_every_request_of_it_cut_off(stage: Stage, fresh_path: str, kind: str, fault: str) -> None:
    """And the node is other than before when the connection is back."""
    action, reply = FAULTS[fault]
    stage.observer.create(fresh_path, b"0")
    read = "get_data" if kind == "data" else "get_children2"
    before, client = watches(stage.server), stage.client()
    for op, nth in ((read, 1), (read, 2), ("exists", 1), ("set_watches", 1)):
        with getattr(client, f"watch_{kind}")(fresh_path) as watch:
            stage.proxy.on(op, action=action, nth=nth, reply=reply)
            seen = [watch.next(PATIENCE)]
            if op == "set_watches":
                stage.proxy.cut_all()
            stage.observer.set_data(fresh_path, f"{op}-{nth}".encode())
            stage.observer.create(f"{fresh_path}/{op}-{nth}")
            while not shows(seen[-1], op, nth):
                seen.append(watch.next(PATIENCE))
            if op == "exists":
                stage.observer.delete_tree(fresh_path)
                while seen[-1].stat is not None:
                    seen.append(watch.next(PATIENCE))
                stage.observer.create(fresh_path, b"back")
                while seen[-1].stat is None:
                    seen.append(watch.next(PATIENCE))
            assert_in_order(seen)
        assert not stage.proxy.unfired
        stage.proxy.clear()
    poll("no watch is left", lambda: watches(stage.server) <= before or None, PATIENCE)


def shows(seen: Any, op: str, nth: int) -> bool:
    """Whether this is the state behind the change that is about this request."""
    assert seen is not None
    if isinstance(seen, SeenData):
        return seen.data == f"{op}-{nth}".encode()
    return seen.children is not None and f"{op}-{nth}" in seen.children


def test_what_is_refused_at_once_leaves_nothing(stage: Stage, fresh_path: str) -> None:
    client = stage.client()

    async def later(_: SeenData) -> None: ...

    class Later:
        async def __call__(self, _: SeenData) -> None: ...

    for wrong, path, error in (
        (later, fresh_path, TypeError),
        (partial(later), fresh_path, TypeError),
        (Later(), fresh_path, TypeError),
        ("later", fresh_path, TypeError),
        (None, fresh_path[1:], ValueError),
    ):
        with pytest.raises(error):
            client.watch_data(path, wrong)  # type: ignore[arg-type]
    watch = client.watch_data(fresh_path)
    for limit, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="timeout"):
            watch.next(limit)  # type: ignore[arg-type]
    assert not client._driver.services
    assert not [frame for frame in requests(stage.proxy.frames()) if frame.path == fresh_path]


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_so_and_a_second_reader_refused(
    stage: Stage, fresh_path: str
) -> None:
    client = stage.client()
    watch, other = client.watch_data(fresh_path), client.watch_data(fresh_path)
    states = iter(watch)
    next(states)

    def refused() -> None:
        for one in (watch, other):
            with pytest.raises(ForkedError):
                one.next()
            one.close()

    in_child(refused)
    waiting = Running(lambda: next(states))
    while not watch._algorithm._wanted:
        pass
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.create(fresh_path, b"0")
    assert waiting.result().data == b"0"
    watch.close()

"""A lesson on a server: the same events in the same order as on the virtual clock, nothing left."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client
from zkwire.cli.lessons.events import PROSE, Event
from zkwire.cli.lessons.lesson import TABLE, find
from zkwire.cli.lessons.server_stage import ServerStage
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.main import main

# zkwire's own server is the one on the virtual clock; an older one does not know what lessons ask.
pytestmark = [pytest.mark.apache, pytest.mark.since("3.6")]

ALLOWED = [name for name in TABLE if not find(name).needs]
VARIANTS: list[tuple[str, dict[str, object]]] = [
    *[(name, dict[str, object](waiters=4) if name == "herd" else {}) for name in ALLOWED],
    ("lost-reply", {"op": "set", "lost": True}),
    ("lost-reply", {"op": "delete"}),
    ("lost-reply", {"expire": True}),
    ("herd", {"waiters": 2, "naive": True}),
    ("watch-gap", {"recursive": True}),
]
IDS = re.compile(r"[0-9a-f]{16,}")
# What the machine decides that this runs on, and no order.
IN_TIME = "the first ping leaves within"


def flags_of(name: str, given: dict[str, object]) -> Namespace:
    own = {flag.name[2:].replace("-", "_"): flag.default for flag in find(name).flags}
    return Namespace(**own | given)


def lanes(events: Iterable[Event], *, pings: bool) -> dict[str, list[tuple[object, ...]]]:
    """What each client has sent, what has happened to it, and the words.

    The answer to the first of two requests may come before or behind the second one.  Pings in a
    row are one, or none.
    """
    found: dict[str, list[tuple[object, ...]]] = {}
    for event in events:
        frame, said = event.frame, event.kind in PROSE
        what: tuple[object, ...] = (event.kind, event.passed)
        if frame is not None:
            what = (
                event.kind,
                frame.direction,
                frame.op,
                IDS.sub("", frame.path or ""),
                frame.error,
            )
        if said and event.text.startswith(IN_TIME):
            what = (event.kind,)
        ping = frame is not None and frame.kind == "ping"
        sent = frame is not None and frame.direction == "c2s"
        name = "words" if said else f"{event.actor} sends" if sent else event.actor
        lane = found.setdefault(name, [])
        if not ping or (pings and what not in lane[-2:]):
            lane.append(what)
    return found


def on_virtual_clock(name: str, flags: Namespace) -> list[Event]:
    stage = Stage(flags, lambda event: None)
    stage.run(find(name).run(stage))
    return stage.events


def on_server(name: str, flags: Namespace, server: ZooKeeperServer) -> list[Event]:
    stage: Any = ServerStage(flags, server.hosts)
    stage.run(find(name).run(stage))
    events: list[Event] = stage.events
    for event in events:
        if event.frame is not None and event.frame.path is not None:
            path = event.frame.path.removeprefix(stage.root) or "/"
            assert event.frame.path.startswith(stage.root)
            events[events.index(event)] = event._replace(frame=event.frame._replace(path=path))
    return events


@pytest.mark.parametrize(("name", "given"), VARIANTS, ids=str)
def test_a_server_and_the_virtual_clock_have_the_same_events(
    name: str, given: dict[str, object], zookeeper: ZooKeeperServer, observer: Client
) -> None:
    flags = flags_of(name, given)
    pings = name == "handshake"  # elsewhere only a slow machine has time for one
    expected = lanes(on_virtual_clock(name, flags), pings=pings)
    found = lanes(on_server(name, flags, zookeeper), pings=pings)
    assert expected.keys() == found.keys()
    assert expected["words"] == found["words"]
    for lane in expected:
        # A run ends with its words, in the middle of what clients do by themselves.
        size = min(len(expected[lane]), len(found[lane]))
        assert max(len(expected[lane]), len(found[lane])) - size <= 5
        assert expected[lane][:size] == found[lane][:size], lane
    assert [n for n in observer.get_children("/") if n.startswith("zkwire-lesson")] == []


def test_the_command_shows_a_run_on_a_server(
    zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lesson", "lost-reply", "--server", zookeeper.hosts]) == 0
    shown = capsys.readouterr().out
    assert f"Played on {zookeeper.hosts}, below /zkwire-lesson-" in shown
    assert "create /q/7f3a-" in shown

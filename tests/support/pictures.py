"""The pictures of the documentation, each made from a run or from what the package is."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.interop.atlas.document import picture as atlas
from tests.support.command import run as run_command
from tests.support.diagrams import layers, plot, states
from tests.support.speed_pictures import OPERATIONS, flame, speed_plot
from zkwire import AsyncSequentialLock, State, Watch
from zkwire.cli.lessons.herd import LESSON as HERD
from zkwire.cli.lessons.herd import Queue
from zkwire.cli.lessons.show import picture_of
from zkwire.cli.lessons.stage import Event, Stage
from zkwire.cli.picture import svg


def lesson_says(*words: str) -> str:
    """What a lesson writes at 90 columns, without a trailing blank."""
    with patch.dict(os.environ, COLUMNS="90"):
        return run_command("127.0.0.1:1", "lesson", *words).text


def lesson_drawn(*words: str) -> str:
    """The picture of a lesson."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lesson"
        lesson_says(*words, "--svg", str(file))
        return file.read_text()


def drawn(title: str, about: str, events: list[Event], pings_of: str = "", scale: float = 0) -> str:
    """Events as a picture."""
    return svg(picture_of(title, about, events, pings_of=pings_of, scale=scale))


def events_of(run: Callable[[Stage], Coroutine[Any, Any, None]], **flags: Any) -> list[Event]:
    """What is seen of a run; it must be as it expects."""
    seen: list[Event] = []
    stage = Stage(Namespace(**flags), seen.append)
    stage.run(run(stage))
    assert stage.failures == []
    return seen


async def _timeline(stage: Stage) -> None:
    """A holder whose network falls silent, until it is back."""
    with stage.quiet("A and B begin"):
        a, b = (stage.client(name, session_timeout=6.0) for name in "AB")
        await a.create("/lock")
        await b.connect()
        locks = [AsyncSequentialLock(client, "/lock") for client in (a, b)]
        for client, lock in zip((a, b), locks, strict=True):
            stage.follow(client, lock)
    await locks[0].acquire()
    await stage.sleep(0.1)
    with stage.quiet("B waits for the lock"):
        waiting = stage.start(b, locks[1].acquire())
        await stage.sleep(0.1)
    await stage.sleep(2.4)
    stage.silence(a, 8.0)
    await waiting
    await a.wait_for_state(State.EXPIRED)
    stage.expect(locks[1].held and not locks[0].held, "B holds")


async def _outage(stage: Stage) -> None:
    """Three changes while a watcher is away."""
    with stage.quiet("W and O begin"):
        w, o = stage.client("W"), stage.client("O")
        await w.connect()
        await o.create("/g")
    changed, brief = Watch(), Watch()
    await w.get_data("/g", watch=changed)
    await w.exists("/brief", watch=brief)
    stage.silence(w, 0.5)
    await stage.cut(w)
    await o.set_data("/g", b"v1")
    await o.set_data("/g", b"v2")
    await o.create("/brief")
    await o.delete("/brief")
    await stage.sleep(1.0)
    stage.note("W", "has not heard of /brief" if brief.take() is None else "has heard of /brief")
    data, stat = await w.get_data("/g")
    stage.note("W", f"has read {data!r}: {stat.version} changes, one event")
    stage.expect(changed.take(), "one event")


async def _release(stage: Stage) -> None:
    """One release, before it three contenders that all watch the list, or the one in front."""
    for mistake in ("herd", ""):
        path = f"/{mistake or 'line'}"
        words = "all watch the list" if mistake else "each watches the one in front"
        with stage.quiet(f"A holds; B, C and D wait: {words}"):
            clients = [stage.client(name) for name in "ABCD"]
            await clients[0].create(path)
            locks = [Queue(client, path, mistake) for client in clients]
            for client, lock in zip(clients, locks, strict=True):
                stage.start(client, lock.acquire())
                await stage.sleep(0.1)
        begin = stage.now
        await locks[0].release()
        await stage.sleep(0.1)
        woken = sum(frame.kind == "notification" for frame in stage.traffic(begin))
        stage.expect(woken == (3 if mistake else 1), "woken")
        with stage.quiet("all close"):
            for client in clients:
                await client.close()


def _plot() -> str:
    rows = next(e.rows for e in events_of(HERD.run, waiters=32, naive=False) if e.kind == "table")[
        1:
    ]
    numbers: list[int] = [int(str(row[0])) for row in rows[::2]]
    herd, line = ([int(str(row[-1])) for row in rows[start::2]] for start in (0, 1))
    return plot(numbers, {"all watch the list": herd, "each watches the one in front": line})


PICTURES: dict[str, Callable[[], str]] = {
    "session-timeline": lambda: drawn(
        "What the client and the server know when a holder is cut off",
        "A, whose network falls silent; B, which waits for the lock; a server; time to scale",
        events_of(_timeline),
        pings_of="A",
        scale=60.0,
    ),
    "watch-outage": lambda: drawn(
        "What a watch tells after an outage",
        "W, which watches; O, which writes while W is away; a server",
        events_of(_outage),
    ),
    "lesson-lost-reply": partial(lesson_drawn, "lost-reply"),
    "herd": lambda: drawn(
        "One release: three are woken, or one",
        "A holds a lock, and B, C and D wait for it; a server",
        events_of(_release),
    ),
    "herd-plot": _plot,
    "holder-with-fence": partial(lesson_drawn, "paused-holder"),
    "holder-without-fence": partial(lesson_drawn, "paused-holder", "--no-fence"),
    "states": states,
    "layers": layers,
    "speed-plot": speed_plot,
    "atlas": atlas,
    **{f"speed-{name}": partial(flame, name) for name in OPERATIONS},
}

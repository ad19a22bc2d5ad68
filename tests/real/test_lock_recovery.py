"""The recovery of locks from a lost connection while others come in between, forced step by step.

What a lost connection alone does is in `tests.connection_loss`, request by request, and with every
pair of losses in `test_lock_sweep`; what the delete of an attempt that failed does, in
`test_hazards_queue`. Here it meets another contender, an outsider, or a second loss further on.

Each test says beforehand what must be on the wire, request by request, and so that exactly that
branch is taken. A line of such a trace is an operation on the lock's path and what the server
answered to it::

    create2 x           the connection was cut before the server had it
    create2 ok x        it was cut after the server had carried it out; the answer was lost
    create2 exists      answered with "node exists"; `nonode`: "no such node"; `ok`: carried out
    sync *              expected, with any ending: the cut after it may have been faster, or not

What was under way behind the request that was cut is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest

from tests.support.lock_frames import meaning, refusal
from tests.support.lock_helpers import (
    GRACE,
    Lock,
    Stage,
    assert_no_blind_repeat,
    make_path,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import SequentialLock
from zkwire.jute.frames import frame as pack_frame
from zkwire.jute.records import GetChildrenResponse, ReplyHeader
from zkwire.testing.proxy import Action, Frame, Gate, cut_after, cut_before, hold, rewrite
from zkwire.testing.proxy.faults import Step

CUTS: dict[str, Action] = {"before": cut_before, "after": cut_after}
ANSWERS = {0: "ok", -110: "exists", -101: "nonode"}
GUARD = "get_children2 ok"

each_cut = pytest.mark.parametrize("cut", CUTS)


class Scene(Stage):
    """A stage with a script: which requests are cut, which are held, and how each has ended."""

    def __init__(self, server: ZooKeeperServer) -> None:
        super().__init__(server)
        self.path = ""
        self._cuts: list[tuple[Frame, str]] = []

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        assert_no_blind_repeat(self.proxy.frames())

    def cut(self, op: str, how: str, nth: int = 1) -> None:
        """Cut "before" or "after" the ``nth`` request of an operation from now on."""

        def action(frame: Frame) -> Iterable[Step]:
            self._cuts.append((frame, how))
            return CUTS[how](frame)

        self.proxy.on(op, nth=nth, action=action)

    def gate(self, op: str, nth: int = 1) -> Gate:
        """Hold the ``nth`` request of an operation from now on."""
        gate = Gate()
        self.proxy.on(op, nth=nth, action=hold(gate))
        return gate

    def trace(self, frames: list[Frame]) -> list[str]:
        """What was asked about the lock's path, and how it ended."""
        answers = {id(f.request): f for f in frames if f.direction == "s2c"}
        asked = [f for f in frames if f.number is not None and self._is_of_the_lock(f)]
        return [self._line(f, answers.get(id(f))) for f in asked if not self._behind_a_cut(f)]

    def _is_of_the_lock(self, frame: Frame) -> bool:
        return frame.op == "multi" or (frame.path or "").startswith(self.path)

    def _line(self, request: Frame, answer: Frame | None) -> str:
        cut = next((how for frame, how in self._cuts if frame is request), None)
        op, error = meaning(request), None if answer is None else refusal(answer)
        ending = "lost" if error is None else ANSWERS.get(error, str(error))
        if cut is None:
            return f"{op} {ending}"
        return f"{op} x" if cut == "before" else f"{op} {ending} x"

    def _behind_a_cut(self, request: Frame) -> bool:
        assert request.number is not None
        return any(
            cut.connection == request.connection and (cut.number or 0) < request.number
            for cut, _ in self._cuts
        )

    def expect(self, *lines: str) -> None:
        """Exactly this has been, or is about to be, on the wire, and nothing else."""
        expected = list(lines)

        def seen(frames: list[Frame]) -> list[str]:
            """The trace, with a line replaced by the one expected in its place if that fits."""
            pairs = itertools.zip_longest(self.trace(frames), expected, fillvalue="")
            return [want if fnmatchcase(line, want) else line for line, want in pairs if line]

        with suppress(TimeoutError):  # the comparison tells more
            self.proxy.wait_for(lambda frames: seen(frames)[: len(expected)] == expected, GRACE)
        assert seen(self.proxy.frames()) == expected

    def forget(self) -> None:
        """Begin a new trace: what has been is of no interest."""
        self.proxy.reset()
        self._cuts.clear()


@pytest.fixture
def scene(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Scene]:
    with Scene(zookeeper) as scene:
        scene.path = fresh_path
        yield scene


def assert_held_once(scene: Scene, lock: Lock) -> None:
    """The lock is held by one node, whose czxid is the fence."""
    assert lock.held
    (node,) = scene.nodes(scene.path)
    stat = scene.observer.exists(node)
    assert stat is not None
    assert lock.fence == stat.czxid
    assert not scene.rival(type(lock), scene.path).try_acquire()
    lock.release()
    assert scene.nodes(scene.path) == []


# --- a queue: the create --------------------------------------------------------------------------

ENTER = ["create2 ok", "get_children ok"]
LOOK_UP = ["sync ok", "get_children ok"]
FOUND = [*LOOK_UP, "exists ok"]


LOST_ENTRY = {"before": "create2 x", "after": "create2 ok x"}


@pytest.fixture
def queue(scene: Scene) -> Scene:
    """A scene with a queue that exists already."""
    make_path(scene.observer, scene.path)
    return scene


LOST_LOOK_UPS: dict[tuple[str, str], list[str]] = {
    ("sync", "before"): ["sync x"],
    ("sync", "after"): ["sync ok x"],
    ("get_children", "before"): ["sync *", "get_children x"],
    ("get_children", "after"): ["sync ok", "get_children ok x"],
}


@pytest.mark.since("3.5")
@pytest.mark.parametrize("second", LOST_LOOK_UPS, ids=str)
@each_cut
def test_lost_look_up_is_repeated_with_its_sync(
    queue: Scene, cut: str, second: tuple[str, str]
) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("create2", cut)
    op, how = second
    queue.cut(op, how, nth=1 if op == "sync" else 2)
    assert lock.try_acquire()
    rest = [*LOOK_UP, *ENTER] if cut == "before" else FOUND
    queue.expect(LOST_ENTRY[cut], *LOST_LOOK_UPS[second], *rest, GUARD)
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
def test_second_node_of_an_attempt_is_removed(queue: Scene) -> None:
    """A server that is behind in spite of the sync: the look-up shows nothing, there are two."""
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("create2", "after")
    empty = pack_frame(ReplyHeader(0, 0, 0).encode() + GetChildrenResponse(()).encode())
    queue.proxy.on(
        "get_children",
        nth=2,
        action=rewrite(lambda raw: empty[:4] + raw[4:20] + empty[20:]),
        reply=True,
    )
    assert lock.try_acquire()
    queue.expect(LOST_ENTRY["after"], *LOOK_UP, *ENTER, "delete ok", GUARD)
    assert_held_once(queue, lock)

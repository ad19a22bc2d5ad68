"""Every branch of the recovery from a lost connection, forced through the proxy one by one.

Each test says beforehand what must be on the wire, request by request, and so that exactly that
branch is taken. A line of such a trace is an operation on the lock's path and what the server
answered to it::

    create2 x           the connection was cut before the server had it
    create2 ok x        it was cut after the server had carried it out; the answer was lost
    create2 exists      answered with "node exists"; `nonode`: "no such node"; `ok`: carried out
    sync *              expected, with any ending: the cut after it may have been faster, or not

What was under way behind the request that was cut is left out.

Branches that lead to each other are enumerated, and small models below say what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_frames import meaning, refusal
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Lock,
    Running,
    Stage,
    acquire_as_third_party,
    all_kinds,
    answers,
    assert_exclusive,
    assert_no_blind_repeat,
    holding,
    make_path,
    single_kinds,
    wait_until_waiting,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import BlockingLock, SequentialLock
from zkwire.jute.frames import frame as pack_frame
from zkwire.jute.records import GetChildrenResponse, ReplyHeader
from zkwire.testing.proxy import Action, Frame, Gate, cut_after, cut_before, hold, rewrite
from zkwire.testing.proxy.faults import Step

CUTS: dict[str, Action] = {"before": cut_before, "after": cut_after}
ANSWERS = {0: "ok", -110: "exists", -101: "nonode"}
GUARD = "get_children2 ok"
# A time limit within which an attempt comes as far as the test wants it to, pauses included.
ENOUGH = 2.5

each_cut = pytest.mark.parametrize("cut", CUTS)


class Scene(Stage):
    """A stage with a script: which requests are cut, which are held, and what came of it."""

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

    def cut_each(self, op: str, cuts: Sequence[str], first: int = 1) -> None:
        """Cut the next requests of an operation, one after the other."""
        for nth, how in enumerate(cuts, first):
            self.cut(op, how, nth)

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


def hold_lock(scene: Scene, kind: Kind) -> Lock:
    """A lock behind the proxy that is held, with an empty trace."""
    lock = scene.lock(kind, scene.path)
    assert lock.acquire(GRACE)
    scene.proxy.wait_for(lambda frames: scene.trace(frames)[-1:] == [GUARD])
    scene.forget()
    return lock


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


def assert_free(scene: Scene, kind: Kind) -> None:
    """Nothing is left, and so nobody is kept out."""
    scene.wait_no_nodes(scene.path)
    acquire_as_third_party(scene, kind, scene.path)


# --- one node: the create -------------------------------------------------------------------------


OWN = ["get_data ok", "get_children ok", "exists ok"]  # and no other's token
NO_TOKEN = "delete nonode"


def creates(*cuts: str) -> tuple[list[str], bool]:
    """The trace of lost creates and the next one, and whether that finds an own node there."""
    lines, exists = [], False
    for cut in cuts:
        if cut == "before":
            lines.append("create2 x")
        else:
            lines.append("create2 exists x" if exists else "create2 ok x")
            exists = True
    return [*lines, "create2 exists" if exists else "create2 ok"], exists


LOST_CREATES = [
    cuts for count in (1, 2) for cuts in itertools.product(("before", "after"), repeat=count)
]


@single_kinds
@pytest.mark.parametrize("cuts", LOST_CREATES, ids="-".join)
def test_lost_create_is_created_again(scene: Scene, kind: Kind, cuts: tuple[str, ...]) -> None:
    """Once or several times, executed or not: acquired, and by one node."""
    lock = scene.lock(kind, scene.path)
    scene.cut_each("create2", cuts)
    assert lock.try_acquire()
    lines, exists = creates(*cuts)
    scene.expect(*lines, *(OWN if exists else []), GUARD)
    assert_held_once(scene, lock)


@single_kinds
@each_cut
def test_lost_look_at_an_own_node_is_looked_again(scene: Scene, kind: Kind, cut: str) -> None:
    lock = scene.lock(kind, scene.path)
    scene.cut("create2", "after")
    scene.cut("get_data", cut)
    assert lock.try_acquire()
    lost = {"before": "get_data x", "after": "get_data ok x"}[cut]
    scene.expect("create2 ok x", "create2 exists", lost, *OWN, GUARD)
    assert_held_once(scene, lock)


@single_kinds
@pytest.mark.parametrize("look", [None, "before", "after"])
def test_lost_create_and_then_anothers_node(scene: Scene, kind: Kind, look: str | None) -> None:
    lock, rival = scene.lock(kind, scene.path), scene.rival(kind, scene.path)
    scene.cut("create2", "before")
    gate = scene.gate("create2", nth=2)
    if look:
        scene.cut("get_data", look)
    trying = Running(lock.try_acquire)
    gate.wait_reached()
    assert rival.acquire(GRACE)
    gate.release()
    assert not trying.result()
    lost = {None: [], "before": ["get_data x"], "after": ["get_data ok x"]}[look]
    scene.expect("create2 x", "create2 exists", *lost, "get_data ok", NO_TOKEN)
    assert_exclusive(rival, lock)
    rival.release()
    assert_free(scene, kind)


@single_kinds
@pytest.mark.parametrize("look", [None, "before", "after"])
@pytest.mark.parametrize("again", [None, "before", "after"])
def test_lost_create_and_then_the_node_is_gone(
    scene: Scene, kind: Kind, look: str | None, again: str | None
) -> None:
    """Another has had the lock meanwhile and given it up: start over, maybe with another loss."""
    lock, rival = scene.lock(kind, scene.path), scene.rival(kind, scene.path)
    scene.cut("create2", "before")
    creating, looking = scene.gate("create2", nth=2), scene.gate("get_data", 1 if not look else 2)
    if look:
        scene.cut("get_data", look)
    if again:
        scene.cut("create2", again, nth=3)
    trying = Running(lock.try_acquire)
    creating.wait_reached()
    assert rival.acquire(GRACE)
    creating.release()
    looking.wait_reached()
    rival.release()
    looking.release()
    assert trying.result()
    lost = {None: [], "before": ["get_data x"], "after": ["get_data ok x"]}[look]
    lines, exists = creates(*([again] if again else []))
    found = OWN if exists else []
    gone = [*lost, "get_data nonode", NO_TOKEN]
    scene.expect("create2 x", "create2 exists", *gone, *lines, *found, GUARD)
    assert lock.fence > rival.fence
    assert_held_once(scene, lock)


@single_kinds
def test_lost_create_and_then_the_own_node_is_gone(scene: Scene, kind: Kind) -> None:
    lock = scene.lock(kind, scene.path)
    scene.cut("create2", "after")
    gate = scene.gate("get_data")
    trying = Running(lock.try_acquire)
    gate.wait_reached()
    scene.observer.delete(scene.path)
    gate.release()
    assert trying.result()
    scene.expect(
        "create2 ok x", "create2 exists", "get_data nonode", "delete ok", "create2 ok", GUARD
    )
    assert_held_once(scene, lock)


# --- one node: the wait ---------------------------------------------------------------------------


@each_cut
def test_lost_look_at_the_holder_is_looked_again(scene: Scene, cut: str) -> None:
    lock, rival = scene.lock(BlockingLock, scene.path), scene.rival(BlockingLock, scene.path)
    scene.cut("get_data", cut)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    lost = {"before": "get_data x", "after": "get_data ok x"}[cut]
    scene.expect("create2 exists", lost, "get_data ok")
    rival.release()
    assert waiter.result(GRACE)
    scene.expect("create2 exists", lost, "get_data ok", "create2 ok", GUARD)
    assert_held_once(scene, lock)


@pytest.mark.parametrize("cuts", LOST_CREATES, ids="-".join)
def test_lost_create_after_the_wait(scene: Scene, cuts: tuple[str, ...]) -> None:
    lock, rival = scene.lock(BlockingLock, scene.path), scene.rival(BlockingLock, scene.path)
    scene.cut_each("create2", cuts, first=2)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(scene)
    rival.release()
    assert waiter.result(GRACE)
    lines, exists = creates(*cuts)
    found = OWN if exists else []
    scene.expect("create2 exists", "get_data ok", *lines, *found, GUARD)
    assert_held_once(scene, lock)


def test_lost_create_after_which_another_holds_is_waited_out(scene: Scene) -> None:
    """The look that decides sets no watch; the one that follows does."""
    lock, rival = scene.lock(BlockingLock, scene.path), scene.rival(BlockingLock, scene.path)
    scene.cut("create2", "before")
    gate = scene.gate("create2", nth=2)
    waiter = Running(lock.acquire)
    gate.wait_reached()
    assert rival.acquire(GRACE)
    gate.release()
    scene.expect("create2 x", "create2 exists", "get_data ok", NO_TOKEN, "get_data ok")
    rival.release()
    assert waiter.result(GRACE)
    assert_held_once(scene, lock)


# --- one node: the release ------------------------------------------------------------------------

MINE = ["delete ok"]
ABSENT = ["delete nonode", "sync ok", "get_data nonode"]

second_loss = pytest.mark.parametrize(
    "second", [None, *itertools.product(("sync", "get_data"), CUTS)], ids=str
)


def lost_look(second: tuple[str, str] | None, node: str) -> list[str]:
    """The trace of a look in which the connection is lost again; ``node`` is "ok" or "nonode"."""
    match second:
        case None:
            return []
        case ("sync", "before"):
            return ["delete nonode", "sync x"]
        case ("sync", _):
            return ["delete nonode", "sync ok x"]
        case (_, "before"):
            return ["delete nonode", "sync *", "get_data x"]
        case _:
            return ["delete nonode", "sync ok", f"get_data {node} x"]


@single_kinds
def test_lost_delete_that_was_not_executed_is_deleted_again(scene: Scene, kind: Kind) -> None:
    lock = hold_lock(scene, kind)
    scene.cut("delete", "before")
    lock.release()
    assert not lock.held
    scene.expect("delete x", *MINE)
    assert_free(scene, kind)


@single_kinds
@second_loss
def test_lost_delete_that_was_executed_is_left_at_that(
    scene: Scene, kind: Kind, second: tuple[str, str] | None
) -> None:
    lock = hold_lock(scene, kind)
    scene.cut("delete", "after")
    if second:
        scene.cut(*second)
    lock.release()
    scene.expect("delete ok x", *lost_look(second, "nonode"), *ABSENT)
    assert_free(scene, kind)


@single_kinds
@second_loss
@each_cut
def test_lost_delete_and_then_anothers_node(
    scene: Scene, kind: Kind, second: tuple[str, str] | None, cut: str
) -> None:
    """The next holder has the path already, maybe with an administrator's help: hands off."""
    lock, rival = hold_lock(scene, kind), scene.rival(kind, scene.path)
    scene.cut("delete", cut)
    if second:
        scene.cut(*second)
    gate = scene.gate("delete", nth=2)
    releasing = Running(lock.release)
    gate.wait_reached()
    if cut == "before":
        scene.observer.delete(scene.path)
    assert rival.acquire(GRACE)
    gate.release()
    releasing.result()
    first = {"before": "delete x", "after": "delete ok x"}[cut]
    scene.expect(first, *lost_look(second, "ok"), "delete nonode", "sync ok", "get_data ok")
    assert_exclusive(rival, lock)
    rival.release()
    assert_free(scene, kind)


@single_kinds
@each_cut
def test_second_delete_lost_as_well(scene: Scene, kind: Kind, cut: str) -> None:
    lock = hold_lock(scene, kind)
    scene.cut("delete", "before")
    scene.cut("delete", cut, nth=2)
    lock.release()
    if cut == "before":
        scene.expect("delete x", "delete x", *MINE)
    else:
        scene.expect("delete x", "delete ok x", *ABSENT)
    assert_free(scene, kind)


@single_kinds
@each_cut
def test_attempt_that_ends_in_doubt_is_cleaned_up(scene: Scene, kind: Kind, cut: str) -> None:
    """The time is over before anybody knows what became of the create."""
    lock = scene.lock(kind, scene.path)
    scene.cut("create2", cut)
    gate = scene.gate("create2", nth=2)
    assert not lock.acquire(ENOUGH)
    gate.wait_reached()
    gate.release()
    if cut == "before":
        scene.expect("create2 x", "create2 ok", *MINE)
    else:
        scene.expect("create2 ok x", "create2 exists", *MINE)
    assert_free(scene, kind)


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


@pytest.mark.since("3.5")
@pytest.mark.parametrize("losses", [1, 2, 3])
def test_lost_create_that_is_not_found_is_created_again(queue: Scene, losses: int) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut_each("create2", ["before"] * losses)
    assert lock.try_acquire()
    queue.expect(*[LOST_ENTRY["before"], *LOOK_UP] * losses, *ENTER, GUARD)
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
@pytest.mark.parametrize("losses", [0, 1, 2])
def test_lost_create_that_is_found_is_not_repeated(queue: Scene, losses: int) -> None:
    """Also after others that had not been executed: one node, whatever came before."""
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut_each("create2", [*["before"] * losses, "after"])
    assert lock.try_acquire()
    queue.expect(*[LOST_ENTRY["before"], *LOOK_UP] * losses, LOST_ENTRY["after"], *FOUND, GUARD)
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
def test_lost_first_listing(queue: Scene) -> None:
    """Only its answer is lost.  Cut before it, the create would be lost, executed or not."""
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("get_children", "after")
    assert lock.try_acquire()
    queue.expect("create2 ok", "get_children ok x", "get_children ok", GUARD)
    assert_held_once(queue, lock)


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
@each_cut
def test_lost_look_at_the_found_child_is_repeated(queue: Scene, cut: str) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("create2", "after")
    queue.cut("exists", cut)
    assert lock.try_acquire()
    lost = {"before": "exists x", "after": "exists ok x"}[cut]
    queue.expect(LOST_ENTRY["after"], *LOOK_UP, lost, "exists ok", GUARD)
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
def test_found_child_that_goes_again_is_created_again(queue: Scene) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("create2", "after")
    gate = queue.gate("exists")
    trying = Running(lock.try_acquire)
    gate.wait_reached()
    (node,) = queue.nodes(queue.path)
    queue.observer.delete(node)
    gate.release()
    assert trying.result()
    queue.expect(LOST_ENTRY["after"], *LOOK_UP, "exists nonode", *ENTER, GUARD)
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
def test_lost_create_after_the_whole_queue_was_deleted(queue: Scene) -> None:
    """What was known of the first node does not count for the second."""
    lock = queue.lock(SequentialLock, queue.path)
    gate = queue.gate("get_children")
    queue.cut("create2", "after", nth=2)
    trying = Running(lock.try_acquire)
    gate.wait_reached()
    queue.proxy.wait_for(lambda frames: answers(frames, "create2"))
    (node,) = queue.nodes(queue.path)
    queue.observer.delete(node)
    queue.observer.delete(queue.path)
    gate.release()
    assert trying.result()
    gone = ["create2 ok", "get_children nonode", "create_container ok"]
    queue.expect(*gone, LOST_ENTRY["after"], *FOUND, GUARD)
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


@pytest.mark.since("3.5")
@each_cut
def test_queued_attempt_that_ends_in_doubt_is_cleaned_up(queue: Scene, cut: str) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut("create2", cut)
    gate = queue.gate("sync")
    assert not lock.acquire(ENOUGH)
    gate.wait_reached()
    gate.release()
    rest = [] if cut == "before" else ["delete ok"]
    queue.expect(LOST_ENTRY[cut], *LOOK_UP, *LOOK_UP, *rest)
    assert_free(queue, SequentialLock)


@pytest.mark.since("3.5")
@pytest.mark.parametrize(("op", "cut"), [*itertools.product(("create2", "create_container"), CUTS)])
def test_lost_making_of_the_queue(scene: Scene, op: str, cut: str) -> None:
    """The lock's own path is missing, so a try fails before the path is made."""
    lock = scene.lock(SequentialLock, scene.path)
    scene.cut(op, cut)
    missing = ["create2 nonode", "get_children *"]
    look_up, made = ["sync ok", "get_children nonode"], "create_container ok"
    assert lock.try_acquire()
    match op, cut:
        case "create2", "before":
            scene.expect(LOST_ENTRY["before"], *look_up, *missing, made, *ENTER, GUARD)
        case "create2", _:
            scene.expect("create2 nonode x", *look_up, *missing, made, *ENTER, GUARD)
        case _, "before":  # what has ended the connection is not asked for again
            scene.expect(*missing, "create_container x", "create ok", *ENTER, GUARD)
        case _:
            scene.expect(*missing, f"{made} x", "create exists", *ENTER, GUARD)
    assert_held_once(scene, lock)


# --- a queue: the wait and the way out ------------------------------------------------------------


@pytest.mark.since("3.5")
@each_cut
def test_lost_look_at_the_predecessor_is_looked_again(queue: Scene, cut: str) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    rival = queue.rival(SequentialLock, queue.path)
    queue.cut("get_data", cut)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    lost = {"before": "get_data x", "after": "get_data ok x"}[cut]
    guard = "get_children2 *"  # in the same write
    again = ["get_children2 ok"] * (cut == "before")  # nobody has answered it
    queue.expect(*ENTER, guard, lost, *again, "get_data ok")
    rival.release()
    assert waiter.result(GRACE)
    # Set again by a reconnection, watches fire in another order: so it looks.
    queue.expect(*ENTER, guard, lost, *again, "get_data ok", "get_children ok")
    assert_held_once(queue, lock)


@pytest.mark.since("3.5")
@each_cut
def test_lost_listing_after_the_wait_is_listed_again(queue: Scene, cut: str) -> None:
    lock = queue.lock(SequentialLock, queue.path)
    rivals = [queue.rival(SequentialLock, queue.path) for _ in range(2)]
    queue.cut("get_children", cut, nth=2)
    assert rivals[0].acquire(GRACE)
    second = Running(rivals[1].acquire)
    soon("it stands in the queue", lambda: len(queue.nodes(queue.path)) == 2)
    waiter = Running(lock.acquire)
    wait_until_waiting(queue)
    rivals[0].release()
    assert second.result(GRACE)
    rivals[1].release()
    assert waiter.result(GRACE)
    lost = {"before": "get_children x", "after": "get_children ok x"}[cut]
    queue.expect(*ENTER, "get_data ok", lost, "get_children ok", GUARD)
    assert_held_once(queue, lock)


LOST_DELETES = [
    (["before"], ["delete x", "delete ok"]),
    (["after"], ["delete ok x", "delete nonode"]),
    (["before", "before"], ["delete x", "delete x", "delete ok"]),
    (["before", "after"], ["delete x", "delete ok x", "delete nonode"]),
    (["after", "before"], ["delete ok x", "delete x", "delete nonode"]),
    (["after", "after"], ["delete ok x", "delete nonode x", "delete nonode"]),
]
lost_deletes = pytest.mark.parametrize(
    ("cuts", "trace"), LOST_DELETES, ids=["-".join(cuts) for cuts, _ in LOST_DELETES]
)


@lost_deletes
def test_lost_delete_of_a_unique_node_is_deleted_again(
    queue: Scene, cuts: list[str], trace: list[str]
) -> None:
    """No look is needed: the name is this attempt's alone."""
    lock = hold_lock(queue, SequentialLock)
    queue.cut_each("delete", cuts)
    lock.release()
    assert not lock.held
    queue.expect(*trace)
    assert_free(queue, SequentialLock)


@pytest.mark.since("3.5")
@lost_deletes
def test_lost_delete_of_a_try(queue: Scene, cuts: list[str], trace: list[str]) -> None:
    lost_delete(queue, cuts, lambda lock: lock.try_acquire(), [*ENTER, *trace])


@pytest.mark.since("3.5")
@lost_deletes
def test_lost_delete_of_a_timed_out_attempt(
    queue: Scene, cuts: list[str], trace: list[str]
) -> None:
    waited = [GUARD, "get_data ok", "remove_watches *"]
    lost_delete(queue, cuts, lambda lock: lock.acquire(ENOUGH), [*ENTER, *waited, *trace])


def lost_delete(
    queue: Scene, cuts: list[str], attempt: Callable[[Lock], bool], trace: list[str]
) -> None:
    rival = queue.rival(SequentialLock, queue.path)
    lock = queue.lock(SequentialLock, queue.path)
    queue.cut_each("delete", cuts)
    with holding(rival):
        assert not attempt(lock)
        queue.expect(*trace)
        assert len(queue.nodes(queue.path)) == 1
    assert_free(queue, SequentialLock)


# --- the guard ------------------------------------------------------------------------------------


@all_kinds
@each_cut
def test_lost_guard_stands_at_the_next_connection(scene: Scene, kind: Kind, cut: str) -> None:
    lock = scene.lock(kind, scene.path)
    scene.cut("get_children2", cut)
    assert lock.acquire(GRACE)
    scene.proxy.wait_for(lambda frames: answers(frames, "set_watches"))
    assert lock.held
    (node,) = scene.nodes(scene.path)
    scene.observer.delete(node)
    assert lock.lost.wait(PATIENCE)
    assert not lock.held

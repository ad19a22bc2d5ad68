"""Every single cut and many pairs of cuts at each request of a queue's put, take and get.

A cycle is run once without a fault, and then once for each request that it has sent and each cut
that can happen to it or to its reply; and for a third of the pairs of cuts, at a request and at a
later one (which: :mod:`tests.support.sweeping`), or at the greeting of the next connection.
Whatever happens: each item is put once and delivered once, and no claim, no mark and no place in
the line is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import distances, some
from zkwire import Client, NoNodeError, Queue, QueueEmptyError, QueueItem
from zkwire.testing.proxy import Action, cut_after, cut_before, truncate

pytestmark = pytest.mark.real

AT_ONCE = 12  # the runs spend their time waiting for each other's sockets


class Cut(NamedTuple):
    """What happens to a request, to its ``reply``, or to the next ``greeting``; how much later."""

    action: Action
    reply: bool = False
    greeting: bool = False
    later: int = 0


SINGLES = {
    "cut before": Cut(cut_before),
    "cut after": Cut(cut_after),
    "cut behind the reply": Cut(cut_after, reply=True),
    "reply torn": Cut(truncate(11), reply=True),
}
BOTH = {"cut before": Cut(cut_before), "cut after": Cut(cut_after)}


def cuts(at: int, count: int) -> dict[str, tuple[Cut, ...]]:
    """What happens at one of ``count`` requests, and later."""
    all_cuts: dict[str, tuple[Cut, ...]] = {name: (cut,) for name, cut in SINGLES.items()}
    for (first, a), (second, b) in itertools.product(BOTH.items(), repeat=2):
        all_cuts[f"{first}, then the greeting {second}"] = (a, b._replace(greeting=True))
        for later in distances(at, count):
            all_cuts[f"{first}, then {second} {later} later"] = (a, b._replace(later=later))
    return all_cuts


class Run(Stage):
    """One run, with a queue whose client is behind the proxy, and one of an observer."""

    def __init__(self, server: ZooKeeperServer, observer: Client, path: str) -> None:
        super().__init__(server, observer)
        self.path = self.side = path
        self.behind = self.client()
        self.own = Queue(self.behind, path)
        self.other = Queue(observer, path)
        self.begun = 0

    def lay_flat(self) -> None:
        """Before anything is asked for: the other layout."""
        self.own = Queue(self.behind, self.path, flat=True)
        self.other = Queue(self.observer, self.path, flat=True)
        self.side = f"{self.path}-zkwire-queue"

    def begin(self) -> None:
        """What is asked for from here on is enumerated."""
        self.begun = len(requests(self.proxy.frames()))

    def plan(self, at: int, cuts: tuple[Cut, ...]) -> None:
        for cut in cuts:
            if cut.greeting:
                self.proxy.on("connect", action=cut.action)
            else:
                self.proxy.on_frame(self.begun + at + cut.later, cut.action, reply=cut.reply)

    def asked(self) -> int:
        return len(requests(self.proxy.frames())) - self.begun

    def left(self) -> list[bytes]:
        """The items that are left, in order."""
        items: list[bytes] = []
        with suppress(QueueEmptyError):
            while True:
                items.append(self.other.get(0).data)
        return items

    def assert_nothing_stays(self) -> None:
        def below() -> list[str]:
            found: list[str] = []
            for folder in ("taken", "marks", "waiting"):
                with suppress(NoNodeError):
                    found += self.observer.get_children(f"{self.side}/{folder}")
            return found

        poll(f"no node is left: {below()}", lambda: not below() or None, GRACE)


Begin = Callable[[], None]
Cycle = Callable[[Run, Begin], None]


def put(run: Run, begin: Begin) -> None:
    """Put two items into a queue that nothing is known of."""
    begin()
    first = Running(lambda: run.own.put(b"a")).result()
    second = Running(lambda: run.own.put(b"b")).result()
    assert 0 < first < second
    seen = run.other.peek()
    assert seen is not None
    assert (seen.data, seen.zxid) == (b"a", first)
    assert run.left() == [b"a", b"b"]


def put_many(run: Run, begin: Begin) -> None:
    items = [b"%d" % number for number in range(150)]
    begin()
    zxids = Running(lambda: run.own.put_many(items)).result()
    assert zxids == sorted(zxids)
    assert len(set(zxids)) == 2
    assert len(zxids) == len(items)
    assert run.left() == items


def put_taken(run: Run, begin: Begin) -> None:
    """Put an item that a consumer removes at once, before any look for it."""
    run.other.put(b"first")
    run.other.get()
    delivered: list[QueueItem] = []
    consumer = Running(lambda: delivered.append(run.other.get(PATIENCE)))
    begin()
    zxid = Running(lambda: run.own.put(b"a")).result()
    consumer.result()
    assert [(item.data, item.zxid) for item in delivered] == [(b"a", zxid)]
    assert run.left() == []


def get(run: Run, begin: Begin) -> None:
    run.other.put_many([b"a", b"b", b"c"])
    begin()
    assert Running(run.own.get).result().data == b"a"
    assert Running(run.own.get).result().data == b"b"
    assert run.left() == [b"c"]


def get_flat(run: Run, begin: Begin) -> None:
    """A removal without a claim."""
    run.lay_flat()
    get(run, begin)


def get_waiting(run: Run, begin: Begin) -> None:
    run.other.put(b"first")
    run.other.get()
    begin()
    consumer = Running(lambda: run.own.get(PATIENCE))
    poll("it waits", lambda: run.asked() >= 4 or None, GRACE)
    run.other.put(b"a")
    assert consumer.result().data == b"a"
    assert run.left() == []


def get_nothing(run: Run, begin: Begin) -> None:
    begin()
    with pytest.raises(QueueEmptyError):
        Running(lambda: run.own.get(0)).result()


def take(run: Run, begin: Begin) -> None:
    run.other.put_many([b"a", b"b", b"c"])

    def work() -> list[bytes]:
        done: list[bytes] = []
        for _ in range(2):
            with run.own.take() as item:
                done.append(item.data)
        return done

    begin()
    assert Running(work).result() == [b"a", b"b"]
    assert run.left() == [b"c"]


def take_failing(run: Run, begin: Begin) -> None:
    """The item is given back, and is the first one again."""
    run.other.put_many([b"a", b"b"])

    def work() -> bytes:
        with suppress(ZeroDivisionError), run.own.take():
            raise ZeroDivisionError
        with run.own.take() as item:
            return item.data

    begin()
    done = Running(work).result()
    run.assert_nothing_stays()
    assert sorted([done, *run.left()]) == [b"a", b"b"]


CYCLES: tuple[Cycle, ...] = (
    put, put_many, put_taken, get, get_flat, get_waiting, get_nothing, take, take_failing,
)  # fmt: skip


@pytest.mark.parametrize("cycle", CYCLES, ids=lambda cycle: cycle.__name__)
def test_every_cut_and_every_pair_at_every_request(
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
    cycle: Cycle,
) -> None:
    def live(name: str, at: int = 0, planned: tuple[Cut, ...] = ()) -> int:
        with Run(zookeeper, observer, f"{fresh_path}-{name}") as run:

            def begin() -> None:
                run.begin()
                run.plan(at, planned)

            cycle(run, begin)
            run.assert_nothing_stays()
            return run.asked()

    def wrong(point: tuple[int, str, tuple[Cut, ...]]) -> str | None:
        at, name, planned = point
        try:
            live(f"{at}-{name.replace(' ', '-').replace(',', '')}", at, planned)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            return f"{name} at request {at}: {type(error).__name__}: {reason}"
        return None

    count = live("clean")
    points = [(at, *cut) for at in range(count) for cut in cuts(at, count).items()]
    pairs = [point for point in points if len(point[2]) == 2]
    points = [*(point for point in points if len(point[2]) == 1), *some(pairs)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sweep") as pool:
        failures = [line for line in pool.map(wrong, points) if line]
    with capsys.disabled():
        print(f"\n{cycle.__name__}: {count} requests, {len(points)} runs, {len(failures)} wrong")
    assert not failures, "\n".join(failures)

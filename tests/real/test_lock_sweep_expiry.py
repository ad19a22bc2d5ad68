"""A session that is ended from outside, at every request of a lock's life: before it, or behind it.

Whatever was under way: every call ends, in SessionExpiredError or LockLostError unless it had what
it needed before; the lock is not held any more and says so; no node stays behind; and somebody new
gets the lock soon, with a higher fence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import pytest

from tests.real.test_lock_sweep import AT_ONCE, Run, named
from tests.support.lock_helpers import (
    ALL_KINDS,
    GRACE,
    PATIENCE,
    WAITING_KINDS,
    Kind,
    Running,
    acquire_as_third_party,
    answers,
    calm,
    make_path,
    requests,
)
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, LockLostError, SessionExpiredError, State
from zkwire.testing.proxy import Gate, hold

ENDINGS = (SessionExpiredError, LockLostError)


class EndedRun(Run):
    """One life of a lock, whose session somebody else ends at the ``at``-th request.

    Its client knows what the server lacks: of the requests behind one that a server does not know,
    chance decides which are answered, and only one that is answered can be counted.
    """

    def __init__(
        self, server: ZooKeeperServer, observer: Client, kind: Kind, path: str, at: int = 0
    ) -> None:
        super().__init__(server, observer, kind, path, at)
        calm(self.subject, server)
        self.proxy.reset()

    def end_session_at(self, *, behind: bool) -> None:
        """When the server has not seen that request, or has answered it, ``behind``."""
        self._gate = Gate()
        self._exit.callback(self._gate.release)
        self.proxy.on_frame(self._at, hold(self._gate), reply=behind)
        self.ending = Running(self._end)

    def _end(self) -> None:
        try:
            self._gate.wait_reached(PATIENCE)
            self.expire(self.subject)
        finally:
            self.heal()
            self._gate.release()


Life = Callable[[EndedRun], None]


def free(run: EndedRun) -> None:
    """Acquire a free lock, and release it."""
    assert run.own.acquire(PATIENCE)
    run.own.release()


def waited(run: EndedRun) -> None:
    """Wait for the holder's release, acquire, and release."""
    assert run.other.acquire(GRACE)
    waiter = Running(lambda: run.own.acquire(PATIENCE))
    poll("it waits", lambda: waiter.ended or _looked(run) or None, PATIENCE)
    run.other.release()
    assert waiter.result()
    run.own.release()


def _looked(run: EndedRun) -> bool:
    return bool(answers(run.proxy.frames(), "get_data"))


def tried(run: EndedRun) -> None:
    """Try, while somebody else holds."""
    assert run.other.acquire(GRACE)
    try:
        assert not run.own.try_acquire()
    finally:
        run.other.release()


def closed(run: EndedRun) -> None:
    """Acquire a free lock, and close the client."""
    assert run.own.acquire(PATIENCE)
    run.subject.close()


LIVES = [
    named(kind.__name__, life, kind, life, longest=life is longest)
    for kind in ALL_KINDS
    for longest in (waited if kind in WAITING_KINDS else free,)
    for life in (free, waited, tried, closed)
    if kind in WAITING_KINDS or life is not waited
]


class EndedSweep:
    """All runs of one life, each with the session's end at another place."""

    def __init__(
        self, server: ZooKeeperServer, observer: Client, path: str, kind: Kind, life: Life
    ) -> None:
        self._server = server
        self._observer = observer
        self._path = path
        self._kind = kind
        self._life = life

    def run_all(self) -> tuple[int, list[str]]:
        """How many runs there were, and what was wrong with each that was not as it must be."""
        make_path(self._observer, self._path)
        with self._run("plain", 0) as run:
            self._life(run)
            count = len(requests(run.proxy.frames()))
        points = list(itertools.product(range(count), (False, True)))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sweep") as pool:
            found = list(pool.map(lambda point: self._point(*point), points))
        return len(points), [line for line in found if line]

    def _run(self, name: str, at: int) -> EndedRun:
        path = f"{self._path}/{name}/lock"
        return EndedRun(self._server, self._observer, self._kind, path, at)

    def _point(self, at: int, behind: bool) -> str | None:
        name = f"{'behind' if behind else 'before'} request {at}"
        try:
            with self._run(name.replace(" ", "-"), at) as run:
                run.end_session_at(behind=behind)
                self._ended(run)
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}".partition("\n")[0]
        return None

    def _ended(self, run: EndedRun) -> None:
        living = Running(lambda: self._life(run))
        try:
            living.result()
        except ENDINGS:
            assert run.subject.state is State.EXPIRED
        # A client that closes may have been faster, or the server be at it just now: then it greets
        # and may answer nothing.
        with (
            suppress(LookupError, EOFError, TimeoutError) if self._life is closed else nullcontext()
        ):
            run.ending.result()
        over = (State.EXPIRED, State.CLOSED)
        poll("the client knows", lambda: run.subject.state in over or None, GRACE)
        assert not run.own.held
        run.wait_no_nodes(run.path)
        assert acquire_as_third_party(run, run.kind, run.path) > run.last_fence
        if run.subject.state is State.EXPIRED:
            with pytest.raises(SessionExpiredError):
                run.own.try_acquire()


@pytest.mark.parametrize(("kind", "life"), LIVES)
def test_a_session_that_ends_at_every_request(
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
    kind: Kind,
    life: Life,
) -> None:
    count, wrong = EndedSweep(zookeeper, observer, fresh_path, kind, life).run_all()
    with capsys.disabled():
        print(f"\n{kind.__name__} {life.__name__}: {count} ends of a session, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)

"""A user's code that runs on top of the client's own work, in the same thread.

A finalizer, a signal handler or a trace function can come wherever Python calls something, so also
where its thread has the client's state lock.  It must not stand still there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, within
from tests.shell.test_client_threads import _INTERRUPTED, opnames
from tests.support.fake_server import FakeServer
from tests.support.family_helpers import soon
from tests.support.lock_helpers import Running
from zkwire import Client, SequentialLock, State, Watch, testing


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    with Client(fake.hosts, session_timeout=20) as client:
        client.create("/a")
        yield client


def nested(client: Client, function: Callable[[], object]) -> None:
    """Call it in a thread that has the state lock."""

    def call() -> None:
        with client._driver.mutex:
            function()

    Running(call).result()


def refused_here(ask: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="leave the call to another thread"):
        ask()


def refused(client: Client, ask: Callable[[], object]) -> None:
    """It is refused there, at once."""
    nested(client, lambda: refused_here(ask))


# --- what can be done later -----------------------------------------------------------------------


def test_closing_many_watches_and_the_client_takes_no_time(client: Client) -> None:
    watches = [Watch() for _ in range(8)]
    for number, watch in enumerate(watches):
        client.exists(f"/{number}", watch=watch)
    with within(CLOSE_BOUND):
        nested(client, lambda: [*map(Watch.close, watches)])
    soon("all are closed", lambda: client._session.watch_count == 0)
    with within(CLOSE_BOUND):
        nested(client, client.close)
    soon("it is closed", lambda: client.state is State.CLOSED, CLOSE_BOUND)


def test_listeners_come_and_go(client: Client) -> None:
    heard, others = list[State](), list[State]()
    client.add_state_listener(heard.append)

    def change() -> None:
        client.remove_state_listener(heard.append)
        client.add_state_listener(others.append)

    nested(client, change)
    client.sync()
    soon("it has been done", lambda: not client._driver.tasks)
    client.close()
    assert (heard, others) == ([], [State.CLOSED])


# --- what needs an answer -------------------------------------------------------------------------


def test_a_question_is_refused_at_once_and_what_is_waited_for_not_given_up(client: Client) -> None:
    watch = Watch()
    client.get_data("/a", watch=watch)
    asks: list[Callable[[], object]] = [
        lambda: client.get_data("/a"),
        lambda: client.pipeline.get_data("/a"),
        lambda: client.wait_for_state(State.CLOSED),
        watch.wait,
    ]
    for ask in asks:
        refused(client, ask)
        assert client.get_data("/a").data == b""
        assert not client._session.unanswered
    client.set_data("/a", b"")
    assert watch.wait(PATIENCE) is not None
    reply = client.pipeline.get_data("/a")
    nested(client, lambda: None if reply.ready else refused_here(reply.result))
    assert reply.result().data == b""


def test_a_refused_release_is_done_behind_it() -> None:
    with testing.Server() as server, Client(server.hosts) as client, Client(server.hosts) as other:
        lock = SequentialLock(client, "/lock")
        assert lock.acquire()
        refused(client, lock.release)
        assert not lock.held
        assert SequentialLock(other, "/lock").acquire(PATIENCE)


# --- a handler at every point ---------------------------------------------------------------------


class Handler:
    """Calls a function on top of this thread's n-th point in the client at which a signal can come.

    Where those are: see `tests.shell.test_client_threads.Interruption`.
    """

    def __init__(self, n: int, function: Callable[[], object]) -> None:
        self.called = False
        self._left = n
        self._function = function
        self._last: tuple[FrameType, int] | None = None
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._previous)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        last, self._last = self._last, None
        if event == "call":
            if not frame.f_code.co_filename.startswith(_INTERRUPTED):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._point()
        elif event == "opcode":
            self._last = frame, frame.f_lasti
            if last is not None and last[0] is frame:
                name = opnames(frame.f_code)[last[1]]
                if name.startswith(("CALL", "JUMP_BACKWARD")):
                    self._point()
        return self._trace

    def _point(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.called = True
            sys.settrace(None)
            self._function()


@pytest.mark.parametrize("how", ["alone", "pipeline"])
def test_hazard_E11_a_signal_handler_may_ask_wherever_it_comes(client: Client, how: str) -> None:
    """It gets its answer or is refused, at once, and what it has interrupted goes on."""
    outcomes: Counter[str] = Counter()

    def ask() -> None:
        try:
            outcomes[client.get_data("/a").data.decode() or "answered"] += 1
        except RuntimeError:
            outcomes["refused"] += 1

    def all_points() -> int:
        for n in range(1, 10_000):
            with Handler(n, ask) as handler:
                if how == "alone":
                    client.get_data("/a")
                else:
                    client.pipeline.get_data("/a")
                    client.pipeline.get_data("/a").result()
            if not handler.called:
                return n
        raise AssertionError("there is no end")

    link = client._driver.current_connection
    points = Running(all_points).result(60.0)
    assert sum(outcomes.values()) == points - 1 > (20 if sys.version_info >= (3, 13) else 30)
    assert set(outcomes) == {"answered", "refused"}
    assert client._driver.current_connection is link

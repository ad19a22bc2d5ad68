"""Who is told of the session's states: each once, in order, and no short one is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.support.scripted import TERMINAL, script_in
from zkwire.session.states import Listener, Observers, StateWait
from zkwire.wire.model import State

if TYPE_CHECKING:
    from zkwire.session.waitable import Waker


class Observer:
    """Writes down what it sees, and again when its waker is called."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.seen: list[State] = []
        self._log, self._name = log, name

    def see(self, state: State) -> list[Waker]:
        self.seen.append(state)
        return [lambda: self._log.append(f"{self._name}{state.value}")]


def test_who_waits_for_a_connection_is_woken_once_and_in_order() -> None:
    change = script_in(State.DISCONNECTED).session.change
    woken: list[int] = []
    wakers: list[Waker] = [lambda n=n: woken.append(n) for n in range(4)]  # type: ignore[misc]
    for waker in wakers:
        change._add_waker(waker)
    change._drop_waker(wakers[1])
    change._drop_waker(wakers[1])
    for waker in (*change._take_wakers(), *change._take_wakers()):
        waker()
    assert woken == [0, 2, 3]


def test_a_lone_waker_is_forgotten_and_no_other() -> None:
    change = script_in(State.DISCONNECTED).session.change
    for forgotten, left in ((dir, (print,)), (print, ())):
        change._add_waker(print)
        change._drop_waker(forgotten)
        assert change._take_wakers() == left


@pytest.mark.parametrize("current", State)
def test_a_state_that_is_already_there(current: State) -> None:
    wait = StateWait({State.CONNECTED}, current)
    assert wait.ready == (current is State.CONNECTED or current.terminal)
    assert wait.reached is (current if wait.ready else None)


@pytest.mark.parametrize("end", [State.CONNECTED, State.CONNECTED_READ_ONLY, *TERMINAL])
def test_a_wait_ends_with_a_state_that_is_asked_for_or_the_last(end: State) -> None:
    """The waiter may look long after it is over."""
    wait, woken = StateWait([State.CONNECTED, State.CONNECTED_READ_ONLY], State.CONNECTING), []
    wait._add_waker(lambda: woken.append("woken"))
    for state in (State.HANDSHAKE, State.DISCONNECTED, State.CONNECTING):
        assert not wait.see(state)
    for waker in wait.see(end):
        waker()
    assert not wait.see(State.DISCONNECTED)
    assert woken == ["woken"]
    assert wait.reached is end


def test_a_listener_is_called_by_way_of_the_shell_and_is_its_function() -> None:
    """Who takes one back makes another one for the same function."""
    told, dispatched = list[State](), list[Callable[[], object]]()
    observers, function = Observers(), told.append
    for _ in range(2):
        observers.add(Listener(function, dispatched.append))
    (waker,) = observers.tell(State.CONNECTED)
    assert dispatched == [], "not in the state machine"
    waker()
    assert told == [], "and not in who wakes"
    for work in dispatched:
        work()
    assert told == [State.CONNECTED]
    assert Listener(function, print) not in (Listener(print, print), function)
    observers.remove(Listener(function, print))
    assert observers.tell(State.DISCONNECTED) == []


def test_all_are_told_in_their_order_who_have_not_left() -> None:
    """Somebody may leave while all are told."""
    observers, log = Observers(), list[str]()

    class Leaving(Observer):
        def see(self, state: State) -> list[Waker]:
            observers.remove(self)
            return super().see(state)

    one, other = Leaving(log, "1 "), Observer(log, "2 ")
    for observer in (one, other, one):
        observers.add(observer)
    for _ in range(2):
        for waker in observers.tell(State.CONNECTED):
            waker()
    assert log == ["1 connected", "2 connected", "2 connected"]
    observers.remove(other)
    observers.remove(other)
    assert observers.tell(State.CONNECTED) == []


def test_a_session_tells_every_transition() -> None:
    script, log = script_in(State.NOT_STARTED), list[str]()
    onlooker = Observer(log)
    script.session.observers.add(onlooker)
    script.connect()
    script.reconnect()
    script.session.closed()
    way = [State.CONNECTING, State.HANDSHAKE, State.CONNECTED]
    assert onlooker.seen == [*way, State.DISCONNECTED, *way, State.CLOSED]
    script.wake()
    assert log == [state.value for state in onlooker.seen]

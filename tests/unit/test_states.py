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


# --- waiting for a connection ---------------------------------------------------------------------


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


# --- waiting for a state --------------------------------------------------------------------------


@pytest.mark.parametrize("current", State)
def test_a_state_that_is_already_there(current: State) -> None:
    wait = StateWait({State.CONNECTED}, current)
    assert wait.ready == (current is State.CONNECTED or current.terminal)
    assert wait.reached is (current if wait.ready else None)


def test_waiting_for_one_of_several_states() -> None:
    wait, woken = StateWait([State.CONNECTED, State.CONNECTED_READ_ONLY], State.CONNECTING), []
    wait._add_waker(lambda: woken.append("woken"))
    for state in (State.HANDSHAKE, State.DISCONNECTED, State.CONNECTING):
        assert not wait.see(state)
    for waker in wait.see(State.CONNECTED_READ_ONLY):
        waker()
    assert woken == ["woken"]
    assert wait.reached is State.CONNECTED_READ_ONLY


def test_a_short_state_is_not_missed() -> None:
    """The waiter may look long after it is over."""
    wait = StateWait([State.CONNECTED], State.CONNECTING)
    wait.see(State.CONNECTED)
    assert not wait.see(State.DISCONNECTED)
    assert wait.reached is State.CONNECTED


@pytest.mark.parametrize("end", TERMINAL)
def test_the_end_ends_every_wait(end: State) -> None:
    wait = StateWait([State.CONNECTED], State.CONNECTING)
    wait.see(end)
    assert wait.reached is end


# --- listeners ------------------------------------------------------------------------------------


def test_a_listener_is_called_by_way_of_the_shell() -> None:
    told, dispatched = list[State](), list[Callable[[], object]]()
    listener = Listener(told.append, dispatched.append)
    (waker,) = listener.see(State.CONNECTED)
    assert dispatched == [], "not in the state machine"
    waker()
    assert told == [], "and not in who wakes"
    for function in dispatched:
        function()
    assert told == [State.CONNECTED]


def test_listeners_are_the_same_if_their_function_is() -> None:
    """Who takes one back makes another one for the same function."""

    def function(state: State) -> None: ...

    one, other = Listener(function, print), Listener(function, repr)
    assert one == other
    assert hash(one) == hash(other)
    assert one != Listener(print, print)
    assert one != function


# --- observers ------------------------------------------------------------------------------------


def test_all_are_told_in_the_order_in_which_they_came() -> None:
    observers, log = Observers(), list[str]()
    one, other = Observer(log, "1 "), Observer(log, "2 ")
    observers.add(one)
    observers.add(other)
    observers.add(one)
    for waker in observers.tell(State.CONNECTED):
        waker()
    assert log == ["1 connected", "2 connected"]


def test_who_has_gone_is_not_told() -> None:
    observers, log = Observers(), list[str]()
    one = Observer(log)
    observers.add(one)
    observers.remove(one)
    observers.remove(one)
    assert observers.tell(State.CONNECTED) == []


def test_a_function_is_told_once_and_taken_back_by_itself() -> None:
    observers, told = Observers(), list[State]()
    run: Callable[[Callable[[], object]], object] = lambda work: work()  # noqa: E731
    function = told.append
    observers.add(Listener(function, run))
    observers.add(Listener(function, run))
    for waker in observers.tell(State.CONNECTED):
        waker()
    assert told == [State.CONNECTED]
    observers.remove(Listener(function, run))
    assert observers.tell(State.DISCONNECTED) == []


def test_somebody_may_leave_while_all_are_told() -> None:
    observers = Observers()

    class Leaving(Observer):
        def see(self, state: State) -> list[Waker]:
            observers.remove(self)
            return super().see(state)

    first, second = Leaving([]), Observer([])
    observers.add(first)
    observers.add(second)
    observers.tell(State.CONNECTED)
    assert first.seen == second.seen == [State.CONNECTED]


# --- in a session ---------------------------------------------------------------------------------


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


def test_a_wait_in_a_session_sees_a_state_that_is_over_when_it_wakes() -> None:
    script = script_in(State.DISCONNECTED)
    wait = StateWait([State.CONNECTED], script.state)
    script.session.observers.add(wait)
    script.log_when_ready(wait, "reached")
    script.connect()
    script.lose()
    assert script.wake() == ["reached"]
    assert wait.reached is State.CONNECTED

"""The states of a session: which follows which, and who is told.

TRANSITIONS is the whole of the state machine; :meth:`StateMachine.enter` is the only place that
assigns the state.  Whoever wants to know is told in the step that makes the transition, so nobody
who waits for a state can miss a short one.  When a transition is taken is the automaton's business.
"""

from __future__ import annotations

from functools import partial

from zkwire.session.waitable import Waitable
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from zkwire.session.waitable import Waker

    class Observer(Protocol):
        """Something that sees every state; returns what is to be called on its behalf."""

        def see(self, state: State) -> Sequence[Waker]: ...


_WITH_CONNECTION = {
    "lost": State.DISCONNECTED,
    "expire": State.EXPIRED,
    "reject": State.AUTH_FAILED,
    "close": State.CLOSED,
}
TRANSITIONS: dict[State, dict[str, State]] = {
    State.NOT_STARTED: {"start": State.CONNECTING, "close": State.CLOSED},
    State.CONNECTING: {
        "dialled": State.HANDSHAKE,
        "lost": State.DISCONNECTED,
        "close": State.CLOSED,
    },
    State.HANDSHAKE: {
        "usable": State.CONNECTED,
        "usable read-only": State.CONNECTED_READ_ONLY,
        **_WITH_CONNECTION,
    },
    State.CONNECTED: _WITH_CONNECTION,
    State.CONNECTED_READ_ONLY: _WITH_CONNECTION,
    State.DISCONNECTED: {"start": State.CONNECTING, "close": State.CLOSED},
    State.EXPIRED: {},
    State.AUTH_FAILED: {},
    State.CLOSED: {},
}


class StateChange(Waitable):
    """Ready once the session is usable or over: calls go out at once, or never will."""

    __slots__ = ("_machine",)

    def __init__(self, machine: StateMachine) -> None:
        super().__init__()
        self._machine = machine

    @property
    def ready(self) -> bool:
        """Whether it is."""
        return self._machine.state.usable or self._machine.state.terminal


class StateWait(Waitable):
    """Ready once one of some states has been seen; ``reached`` is the first of them."""

    __slots__ = ("_wanted", "reached")

    def __init__(self, wanted: Iterable[State], current: State) -> None:
        super().__init__()
        self._wanted = frozenset(wanted)
        self.reached: State | None = None
        self.see(current)

    @property
    def ready(self) -> bool:
        """Whether it has been seen."""
        return self.reached is not None

    def see(self, state: State) -> Sequence[Waker]:
        """The session is in ``state`` now.  A terminal one ends every wait."""
        if self.reached is None and (state in self._wanted or state.terminal):
            self.reached = state
            return self.take_wakers()
        return ()


class Listener:
    """A function that is to be told of every state, by way of ``dispatch``."""

    __slots__ = ("_dispatch", "function")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listener) and other.function == self.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __init__(
        self,
        function: Callable[[State], object],
        dispatch: Callable[[Callable[[], object]], object],
    ) -> None:
        self.function = function
        self._dispatch = dispatch

    def see(self, state: State) -> list[Waker]:
        """The session is in ``state`` now."""
        return [partial(self._dispatch, partial(self.function, state))]


class Observers:
    """All observers of one session."""

    __slots__ = ("_observers",)

    def __init__(self) -> None:
        self._observers: dict[Observer, None] = {}  # a set in the order of its making

    def add(self, observer: Observer) -> None:
        """Tell this one of every transition from now on."""
        self._observers[observer] = None

    def remove(self, observer: Observer) -> None:
        """The opposite.  Idempotent."""
        self._observers.pop(observer, None)

    def tell(self, state: State) -> list[Waker]:
        """The session is in ``state`` now; returns what is to be called."""
        return [waker for observer in list(self._observers) for waker in observer.see(state)]


class StateMachine:
    """The state of one session; ``callbacks`` is the automaton's list of functions to call."""

    __slots__ = ("_callbacks", "_told", "change", "observers", "state")

    def __init__(self, callbacks: list[Waker]) -> None:
        self.state = State.NOT_STARTED
        self.observers = Observers()
        self.change = StateChange(self)
        self._callbacks = callbacks
        self._told = self.state

    def enter(self, by: str) -> None:
        """Take the transition ``by``; KeyError if there is none."""
        self.state = TRANSITIONS[self.state][by]
        self.tell()

    def tell(self) -> None:
        """Let everybody know where the session stands, who does not yet."""
        if self._told is not self.state:
            self._callbacks += self.observers.tell(self.state)
            self._told = self.state
        if self.change.ready:
            self._callbacks += self.change.take_wakers()

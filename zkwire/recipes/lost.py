"""How a holder learns that it holds no longer.

A lock is lost when its session is over, when the session may have expired because no answer has
prolonged its lease for a session timeout, or when its node is deleted.  Each of these reaches the
holder without its asking; none of them is ever taken back.
"""

from __future__ import annotations

from zkwire.session.waitable import Waitable, check_timeout
from zkwire.session.watch import Watch
from zkwire.wire.model import Event, EventType, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Self

    from zkwire.errors import ZooKeeperError
    from zkwire.operations import Reply
    from zkwire.recipes.runtime import Runtime
    from zkwire.session.waitable import Waker


class Loss(Waitable):
    """A loss: something to wait for, and to be called back by."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime

    def __repr__(self) -> str:
        state = self.reason or ("released" if self.ready else "not lost")
        return f"<{type(self).__name__}: {state}>"

    @property
    def reason(self) -> str | None:
        """Why the lock was lost; None if it was not."""
        raise NotImplementedError

    def is_set(self) -> bool:
        """Whether the lock has been lost, as far as has been noticed; ``lock.held`` is stricter."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lock is lost or released, at most ``timeout`` seconds; is it lost?"""
        self._runtime.wait(self, check_timeout("timeout", timeout))
        return self.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        """Under asyncio: wait until the lock is lost or released; is it lost?"""
        return self._until().__await__()

    async def _until(self) -> bool:
        await self._runtime.ready(self)
        return self.is_set()

    def add_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(self)`` once, in the client's callback thread, if the lock is lost."""
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r}")
        self._call_back(callback)

    def _call_back(self, callback: Callable[[Self], object]) -> Waker:
        """:meth:`add_callback`; returns what ``_drop_waker`` takes back."""

        def waker() -> None:
            self._call(callback)

        self._runtime.when_ready(self, waker)
        return waker

    def _call(self, callback: Callable[[Self], object]) -> None:
        if self.is_set():
            self._runtime.dispatch(lambda: callback(self))


class Lost(Loss):
    """The loss of one acquisition."""

    __slots__ = ("_over", "_reason")

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._over = False
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the lock was lost; None if it was not."""
        return self._reason

    @property
    def ready(self) -> bool:
        """Whether the lock has been lost or released: nothing more will happen."""
        return self._over

    # --- for the automaton, under the shell's state lock ---

    def _lose(self, message: str) -> tuple[Waker, ...]:
        """The lock is lost; returns what to call.  The first reason counts."""
        if not self._over:
            self._reason, self._over = message, True
        return self._take_wakers()

    def _let_go(self) -> tuple[Waker, ...]:
        """The lock is being released; it cannot be lost any more."""
        self._over = True
        return self._take_wakers() if self._wakers else ()


class AnyLost(Loss):
    """The loss of any of several locks."""

    __slots__ = ("_parts",)

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._parts: list[Lost] = []  # none before all of them are held

    @property
    def ready(self) -> bool:
        """Whether one has been lost or released: nothing more will happen."""
        return any(part.ready for part in self._parts)

    @property
    def reason(self) -> str | None:
        """Why the first one was lost; None if none was."""
        return next((part._reason for part in self._parts if part._reason is not None), None)

    def watch(self, parts: list[Lost]) -> None:
        """All are held: from now on their losses count."""
        self._parts = parts
        for part in parts:
            self._runtime.when_ready(part, self._wake)

    def _wake(self) -> None:
        for waker in self._take_wakers():
            waker()


class OwnNodeWatch(Watch):
    """The watch of a holder, or of the next one in line, on its own node.

    What deletes it takes the lock away, or the place: ``gone``; so it is if the watch is refused.
    ``lost`` is for a holder.  ``stands``: its ``request`` has been asked for, or is just being.
    """

    __slots__ = ("gone", "lost", "refused", "request", "stands")

    def __init__(self) -> None:
        super().__init__()
        self.gone: bool = False
        self.refused: bool = False
        self.lost: Lost | None = None
        self.stands: bool = False
        self.request: Reply[object] | None = None

    def dismiss(self) -> None:
        """From here on it is not to be asked for."""
        self._closed = True

    def _deliver(self, event: Event, spent: bool = True) -> None:
        """Lose the lock: whatever has happened to the children, the node is not this lock's.

        An ephemeral node has none.  After a reconnection NODE_CHILDREN_CHANGED means that the node
        has been deleted and made anew by another contender.
        """
        self._disarm()
        self.refused = event.type is EventType.CHILD_WATCH_REMOVED
        self.gone = True  # first: a caller that becomes a holder meanwhile says so, and then looks
        if self.lost is not None:
            what = "may not be watched" if self.refused else "was deleted"
            self._wakers = (*self._wakers, *self.lost._lose(f"its node {event.path} {what}"))

    def _end(self, state: State, error: Callable[[], ZooKeeperError]) -> None:
        """The end of the session reaches the lock as a hold."""

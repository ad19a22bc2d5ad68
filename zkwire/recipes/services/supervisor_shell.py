"""What a supervisor needs of threads, of an event loop, or of a simulation."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from zkwire.session.waitable import Waitable

    class Shell(Protocol):
        """See the module's docstring."""

        mutex: AbstractContextManager[object]
        now: Callable[[], float]

        @property
        def forked(self) -> bool:
            """Whether this is a forked child."""
            ...

        def check(self) -> None:
            """Raise where the supervisor cannot be used: in a forked child, in another loop."""
            ...

        def jitter(self) -> float:
            """A random number from 0.5 to 1."""
            ...

        def make_client(self) -> Any:
            """A client that nothing has used."""
            ...

        async def close_client(self, client: Any) -> None:
            """Close it.  Idempotent."""
            ...

        async def until_idle(self, client: Any) -> None:
            """Wait until nothing runs in the session of a client that has been closed."""
            ...

        def make_lock(self, client: Any, path: str, text: str) -> Any:
            """A fair lock of that client."""
            ...

        async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
            """Acquire the lock, call the function with it, release it."""
            ...

        def check_function(self, function: Any) -> None:
            """TypeError for a user's function that the shell cannot call."""
            ...

        def begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
            """Run ``work()`` in a thread or a task of its own."""
            ...

        async def within(self, waitable: Waitable, timeout: float | None) -> bool:
            """Wait until it is ready, at most ``timeout`` seconds; whether it is."""
            ...

        def dispatch(self, function: Callable[[], object]) -> None: ...

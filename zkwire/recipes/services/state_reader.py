"""What reads what is followed: one reader at a time, each newest state once, or a callback.

A state is kept until the reader has taken it, and there is one at most.  When a state is read
from the server is :mod:`zkwire.recipes.services.following`'s matter: it does so when ``_asked``
holds, delivers in ``_next`` and says so, or has the callback called.
"""

from __future__ import annotations

from zkwire.recipes.services.service import Condition, Service, sessions_of, until_closed
from zkwire.session.waitable import check_timeout
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.problem import OnProblem


class StateReader(Service):
    """See the module's docstring; the session's side is a subclass's."""

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        callback: Callable[[Any], object] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"the callback must be callable: {callback!r}")
        sessions = sessions_of(client)
        sessions.check_callback(callback)
        super().__init__(sessions, on_problem)
        self._path = check_path(path)
        self._callback: Any = callback
        self._readers: list[object] = [] if callback is None else [callback]  # calls of ``next``
        self._next: Any = None  # the state that was delivered last, until the reader has taken it
        self._wanted = self._started = callback is not None
        self._asked = Condition(lambda: self._wanted and self._next is None)
        if self._started:
            self._begin()

    def _call(self) -> object:
        """Call the callback; the next read follows its end."""
        if self._closed:
            return None
        result: Any = None
        try:
            result = self._callback(self._next)
        finally:
            if not hasattr(result, "__await__"):
                self._take()
        return self._until_end(result) if hasattr(result, "__await__") else None

    async def _until_end(self, callback: Any) -> None:
        try:
            await callback
        finally:
            self._take()

    def _take(self) -> Any:
        self._wanted = self._callback is not None
        taken, self._next = self._next, None
        self._asked.notify()
        return taken

    async def next(self, timeout: float | None = None) -> Any:
        """The next state, the first one at once; None if ``timeout`` seconds pass without one.

        A state that comes behind the time limit is kept for the next call.  A lost connection is no
        error: the state is read again on the next one.  Raises what ended the client, or the
        supervisor; NoAuthError if the node may not be read, and a later call may succeed;
        ClientClosedError behind :meth:`close`; RuntimeError while another reader waits, or if there
        is a callback.
        """
        limit, reader = check_timeout("timeout", timeout), object()
        try:
            self._readers.append(reader)
            if self._readers[0] is not reader:
                raise RuntimeError("a state goes to one reader: make another watch for this one")
            self._check()
            if not self._started:
                self._begin()
                self._started = True  # last: it may be refused here and now alone
            self._wanted = True
            self._asked.notify()
            there = await self._until(lambda: self._next is not None, limit)
            return self._take() if there else None
        finally:
            if reader in self._readers:  # else an interrupt came before
                self._readers.remove(reader)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        # The second reader, which is refused, leaves the first its watch.
        return until_closed(
            self.next, lambda: self._closed, lambda: None if self._readers else self.close()
        )

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        self.close()

    def _abandon(self) -> None:
        self.close()

    def close(self) -> None:
        """Watch no longer: no watch stays on the server, no callback is called.  Idempotent."""
        self._end_well()

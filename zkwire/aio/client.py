"""The asyncio client: the operations, the session and the driver put together."""

from __future__ import annotations

from zkwire.aio.driver import LoopDriver
from zkwire.aio.replies import AsyncReply
from zkwire.aio.runtime import AsyncWorld
from zkwire.net.client import CLOSE_SECONDS, ClientBase
from zkwire.net.pipeline import Pipeline
from zkwire.operations.multi import TransactionBase
from zkwire.recipes import trees
from zkwire.session.states import StateWait
from zkwire.session.waitable import check_timeout
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from random import Random
    from ssl import SSLContext
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.wire.model import Credentials


class AsyncClient(ClientBase, Pipeline):
    """A ZooKeeper session under asyncio, to be shared by any number of tasks of one event loop.

        async with AsyncClient("127.0.0.1:2181") as client:
            await client.create("/hello", b"world")
            replies = [client.get_data(path) for path in paths]  # all on their way
            values = [await reply for reply in replies]

    Options, operations, arguments, results and errors are those of :class:`zkwire.Client`.  Every
    operation is sent when it is called and returns a coroutine that can be awaited, or made a task,
    any number of times; requests leave in the order of the calls.  Cancelling an await takes back
    what had not been sent; the rest is still executed, in its place.  ``asyncio.timeout`` limits
    any of them; ``operation_timeout`` limits each.  An operation that was not awaited and that ends
    with an error is reported to the loop's exception handler, as a future is.

    The client belongs to the loop of its first use.  Operations that other threads call for
    ``asyncio.run_coroutine_threadsafe`` are sent by the loop, and what a thread does to a watch
    (``close``) or a loss (``add_callback``) is done there; anything else raises RuntimeError.

    Watches: ``await watch`` for the next event, ``async for event in watch``; a callback may be a
    coroutine function.  Callbacks, listeners and ``trace`` are called from the event loop.

    Close it, or it is closed with a ResourceWarning once nothing refers to it any more; a task that
    awaits something of it does, and is kept alive with it.

    Nothing is started before the first use, and no thread at all, unless a name must be looked up.
    """

    _pump: LoopDriver
    _world: AsyncWorld

    def _make_shell(
        self,
        name: str,
        tls: SSLContext | None,
        sasl: Mechanism | None,
        rng: Random,
        resolver: Resolver | None,
        now: Callable[[], float] | None,
    ) -> None:
        pump = LoopDriver(self._session, tls, sasl, self._operation_timeout, resolver, now)
        Pipeline.__init__(self, pump, self._session.chroot, AsyncReply, acl=self._acl)
        self._world = AsyncWorld(pump, self._session.chroot, rng, self._acl)

    # --- the session ------------------------------------------------------------------------------

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until the client is connected, at most ``timeout`` seconds (None: session timeout).

        Raises UnreachableError (a NotSentError and a TimeoutError), which says what each server
        answered, when no server can be reached: the client goes on looking for one.
        SessionExpiredError or ClientClosedError when the client is past use.
        """
        limit = check_timeout("timeout", timeout)
        limit = self._session.timeout if limit is None else limit
        if not await self._pump.until(self._session.change, limit):
            raise self._unreachable(limit)
        if self._session.ended:
            raise self._session.ending()

    async def close(self) -> None:
        """End the session: its ephemeral nodes and locks go at once.  Idempotent; takes a second
        at most, and when no server can be told, the server ends the session at its timeout."""
        await self._pump.close(CLOSE_SECONDS)

    async def detach(self) -> Credentials:
        """Close the client without ending the session; see :meth:`zkwire.Client.detach`."""
        self._credentials_to_leave()
        await self._pump.cleaned_up(CLOSE_SECONDS)
        credentials = self._credentials_to_leave()  # another task may have acquired a lock since
        await self._pump.close(CLOSE_SECONDS, detach=True)
        return credentials

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()  # for want of an __aexit__
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_for_state(self, *states: State, timeout: float | None = None) -> State | None:
        """Wait until the client is in one of ``states``; returns it, or None after ``timeout``.

        A state that lasted only a moment counts.  When the session ends in another state, no other
        can come: that one is returned.
        """
        if not states or not all(isinstance(state, State) for state in states):
            raise TypeError("wait_for_state takes one or more State")
        limit = check_timeout("timeout", timeout)
        self._pump.start()
        wait = StateWait(states, self._session.state)
        self._pump.attach(wait)
        try:
            await self._pump.until(wait, limit)
        finally:
            self._pump.detach(wait)
        return wait.reached

    # --- operations: documented in zkwire.operations ----------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """Collect operations and execute them all or not at all; see :class:`AsyncTransaction`."""
        return AsyncTransaction(self)

    # --- several operations, not atomic: documented in zkwire.Client ------------------------------

    async def ensure_path(self, path: str, acl: Sequence[ACL] | None = None) -> None:
        """Create a node and whatever is missing above it, each with this ACL."""
        await trees.ensure_path(self._world, path, acl, self._deadline())

    async def delete_tree(self, path: str) -> None:
        """Delete a node and everything below it, if it is there."""
        await trees.delete_tree(self._world, path, self._deadline())

    def walk(self, path: str = "/") -> AsyncIterator[str]:
        """The paths of a node and of all below it, parents before their children."""
        return trees.walk(self._world, path, self._deadline)


class AsyncTransaction(TransactionBase):
    """Operations that are executed together at the end of an ``async with`` block, all or none.

    See :class:`zkwire.Transaction`.
    """

    results: list[Any]

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client._chroot, client._acl)
        self._client = client

    async def commit(self) -> list[Any]:
        """Execute what has been collected; returns the results.  RuntimeError the second time."""
        self.results = await self._sent_by(self._client)
        return self.results

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None and not self._committed:
            await self.commit()

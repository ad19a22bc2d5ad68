"""The asyncio client: the operations, the session and the driver put together."""

from __future__ import annotations

from zkwire.aio.replies import AsyncReply, KeptReply
from zkwire.net.client import ClientCoroutines
from zkwire.net.pipeline import Pipeline, TransactionBase
from zkwire.recipes._recipe import public
from zkwire.session.waitable import Bound

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from typing import Any, Self

    from zkwire.aio.driver import LoopDriver
    from zkwire.recipes._service import OnProblem
    from zkwire.recipes.watching import (
        AsyncChildrenWatch,
        AsyncDataWatch,
        ChildrenCallback,
        DataCallback,
    )


class AsyncNodeWatches(Bound):
    """What clients and supervisors have in common: watches forever."""

    def watch_data(
        self,
        path: str,
        callback: DataCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> AsyncDataWatch:
        """The data of a node, forever: an iterator of :class:`SeenData`.

            async for seen in client.watch_data("/config"):
                configure(seen.data)  # yours to write

        It yields the state at this moment first, then each newer one, and ``data`` is None while
        the node does not exist.  The last state is never missed, and none comes after a newer one.
        A reader that is slow gets the newest state when it asks for it, not those between
        (``skipped`` says so).  Leaving the loop, or ``close``, ends the watch, here and on the
        server.  ``next(timeout)`` waits for one state only.

        With a ``callback`` each state goes to the callback, one call at a time, in the callback
        thread (under asyncio in the loop, and it may be a coroutine function); ``close`` ends it,
        and so does a callback that returns False.  ``wait_called(timeout)`` of the watch that this
        returns waits until the first call of the callback has ended.  ``with_event``: the callback
        is called with the state and the :class:`Event` that has led to the read, None for the first
        state and after a lost connection.  A callback that cannot be called in this way is a
        TypeError.

        A lost connection is not an error.  From a client it raises what ended the session; from a
        supervisor it goes on in the next session.  Raises NoAuthError if the node may not be read;
        with a ``callback`` that is logged, and the read is repeated.  ``problem`` and
        ``on_problem``: see docs/supervisor.md#refusals.
        """
        from zkwire.recipes.watching import AsyncDataWatch

        client: Any = self
        return AsyncDataWatch(client, path, callback, on_problem, with_event)

    def watch_children(
        self,
        path: str,
        callback: ChildrenCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> AsyncChildrenWatch:
        """The names of a node's children, forever: an iterator of :class:`SeenChildren`.

        Like :meth:`watch_data`; ``children`` is None while the node does not exist.
        """
        from zkwire.recipes.watching import AsyncChildrenWatch

        client: Any = self
        return AsyncChildrenWatch(client, path, callback, on_problem, with_event)


@public
class AsyncClient(ClientCoroutines, AsyncNodeWatches, Pipeline):
    """A ZooKeeper session under asyncio, to be shared by any number of tasks of one event loop.

        async with AsyncClient("127.0.0.1:2181") as client:
            await client.create("/hello", b"world")
            replies = [client.get_data(path) for path in paths]  # all on their way
            values = [await reply for reply in replies]

    Options, operations, arguments, results and errors are those of :class:`zkwire.Client`.  Every
    operation is sent when it is called and returns a coroutine that can be awaited, or made a task,
    any number of times; requests leave in the order of the calls.  Cancelling an await withdraws
    what had not been sent; the rest is still executed, in its place.  ``asyncio.timeout`` limits
    any of them; ``operation_timeout`` limits each.  An operation that was not awaited and that ends
    with an error is reported to the loop's exception handler, as a future is.

    The client belongs to the loop of its first use.  Operations that other threads call for
    ``asyncio.run_coroutine_threadsafe`` are sent by the loop, and what a thread does to a watch
    (``close``) or a loss (``add_callback``) is done there.  Properties and state listeners work in
    any thread; anything else raises RuntimeError.

    Watches: ``await watch`` for the next event, ``async for event in watch``.  Callbacks, listeners
    and ``trace`` are called from the event loop, and may be coroutine functions.  Each call has a
    copy of the context (``contextvars``) in which the client, or the supervisor, was made.  A
    coroutine that a callback has begun is not ended by ``close``, nor does that wait for it.

    Close it.  Otherwise it is closed, with a ResourceWarning, once nothing refers to it any more; a
    task that awaits something of the client refers to it, and is kept alive with it.

    Nothing is started before the first use, and no thread at all, unless a name must be looked up.
    """

    _driver: LoopDriver
    _kind = KeptReply

    @staticmethod
    def _driver_class() -> type[LoopDriver]:
        from zkwire.aio.driver import LoopDriver

        return LoopDriver

    def _submit(self, request: Any) -> AsyncReply:
        request.driver = self._driver
        self._driver.submit(request, True)
        reply = AsyncReply()  # without an __init__: one call less for each of thousands
        reply._request = request
        return reply

    @property
    def _recipe_runtime(self) -> LoopDriver:
        return self._driver

    _sessions = _recipe_runtime

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()  # no __aexit__ will
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def transaction(self) -> AsyncTransaction:
        """Collect operations and execute them all or not at all; see :class:`AsyncTransaction`."""
        return AsyncTransaction(self)


@public
class AsyncTransaction(TransactionBase):
    """Operations that are executed together at the end of an ``async with`` block, all or none.

    See :class:`zkwire.Transaction`.
    """

    results: list[Any]

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
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

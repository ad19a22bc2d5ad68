"""The supervisor for asyncio: one task makes the sessions, each leadership has one of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from random import Random

from zkwire.aio.client import AsyncClient, AsyncNodeWatches
from zkwire.aio.driver import Calling, cancelled_by, within
from zkwire.errors import ForkedError
from zkwire.net.timing import clock
from zkwire.recipes._recipe import public
from zkwire.recipes.supervisor import SessionLoop, SupervisorView, Turn
from zkwire.session.states import StateWait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import Any, Final, Self, Unpack

    from zkwire.net.options import ClientOptions
    from zkwire.recipes.sequential import AsyncSequentialLock, Names
    from zkwire.session.waitable import Waitable

CLOSE_SECONDS = 5.0  # for what a cancelled function still does


class LoopBackend(Calling):
    """What a supervisor needs of an event loop."""

    now: Final = staticmethod(clock)
    awaits: Final = True

    def __init__(self, hosts: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.mutex: Any = nullcontext()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.make_client: Callable[[], AsyncClient] = partial(AsyncClient, hosts, **options)
        self._pid = os.getpid()
        self.jitter: Callable[[], float] = partial(Random().uniform, 0.5, 1.0)

    async def close_client(self, client: AsyncClient) -> None:
        """Close it.  Idempotent."""
        await client.close()

    async def until_idle(self, client: AsyncClient) -> None:
        """Let the loop carry out what it has been given to end."""
        await asyncio.sleep(0)

    def make_lock(
        self, client: AsyncClient, path: str, text: str, names: Names
    ) -> AsyncSequentialLock:
        """A fair lock of that client."""
        from zkwire.recipes.sequential import AsyncSequentialLock

        return AsyncSequentialLock(client, path, text, names=names)

    async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
        """Acquire the lock, call the function with it, release it; a loss cancels the function."""
        async with lock, lock.cancel_on_loss():
            work = function(lock)
            if not hasattr(work, "__await__"):
                raise TypeError(f"{function!r} must return something to await, not {work!r}")
            try:
                await work
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                raise RuntimeError(f"{function!r} has ended with a CancelledError") from error

    def check_function(self, function: object) -> None:
        """What it returns tells whether it can be used."""

    @property
    def forked(self) -> bool:
        """Whether this is a forked child."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise ForkedError in a forked child, RuntimeError in another event loop."""
        if self.forked:
            raise ForkedError(
                "this supervisor belongs to the parent process; make one in this process"
            )
        loop = asyncio.get_running_loop()
        if self.loop not in (None, loop):
            raise RuntimeError("this AsyncSupervisor belongs to another event loop")
        self.loop = loop

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work()`` in a task of its own."""
        run = self.context.copy().run
        self.tasks.append(run(asyncio.create_task, work(), name=f"zkwire-{name}"))

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        """Wait until it is ready, at most ``timeout`` seconds; whether it is."""
        return await within(asyncio.get_running_loop(), waitable, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        asyncio.get_running_loop().call_soon(partial(self._call, function))

    async def end(self) -> None:
        """Cancel the tasks and the callbacks, and wait for them."""
        tasks = {*self.tasks, *self._running} - {asyncio.current_task()}
        for task in tasks:
            if not task.cancelling():  # the end of its term may have cancelled it already
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_cancelled() -> bool:
    """Whether a cancellation of this task has been asked for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@public
class AsyncSupervisor(SupervisorView, AsyncNodeWatches):
    """Sessions one after another, under asyncio; see :class:`zkwire.Supervisor`.

        async with AsyncSupervisor("127.0.0.1:2181") as supervisor:
            supervisor.lead("/election", work)  # yours to write: await work(lock)
            await supervisor.wait()

    A function that leads is a coroutine function, and is cancelled when its term is lost.
    """

    _client_kind = AsyncClient
    _client_call = "(await supervisor.client())"

    def __init__(self, hosts: str, **options: Unpack[ClientOptions]) -> None:
        self._backend = LoopBackend(hosts, self._checked(options))
        self._algorithm = SessionLoop(self._backend)

    @property
    def _sessions(self) -> SessionLoop:
        return self._algorithm

    @property
    def _recipe_runtime(self) -> Any:
        return self._algorithm._recipe_runtime

    async def wait(self, timeout: float | None = None) -> bool:
        return await self._algorithm.wait(timeout)

    async def client(self, timeout: float | None = None) -> AsyncClient:
        client: AsyncClient = await self._algorithm.client(timeout)
        return client

    wait.__doc__, client.__doc__ = SessionLoop.wait.__doc__, SessionLoop.client.__doc__

    async def __aiter__(self) -> AsyncGenerator[AbstractAsyncContextManager[AsyncClient], None]:
        """The sessions, as they come; the end of the supervisor ends it.

            async for session in supervisor:
                async with session as client:
                    ...  # cancelled when this session is over

        The ``async with`` swallows the errors that say that this session is over, and no other:
        behind a lost connection it waits for the next, to know.  It swallows the loss of a lock of
        this session, too; if the session lives, it comes once more.
        """
        number = 0
        while (later := await self._algorithm.later(number)) is not None:
            number, client = later
            turn = Turn(client)
            yield _scope(client, turn)
            number -= turn.again

    async def __aenter__(self) -> Self:
        self._algorithm.begin()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close()
        if kind is None:
            self._algorithm.raise_error()

    async def close(self) -> None:
        """End the session, cancel the functions that still run, and wait for them.  Idempotent."""
        if self._backend.forked:
            return
        try:
            await self._algorithm.stop()
        finally:
            await self._backend.end()


@asynccontextmanager
async def _scope(client: AsyncClient, turn: Turn) -> AsyncGenerator[AsyncClient, None]:
    driver, session = client._driver, client._session
    over = StateWait((), session.state)

    def add(cancel: Callable[[object], None]) -> Callable[[], None]:
        driver.attach(over)
        # Not from within the task: what it is given while it runs, it gets at a later await.
        driver.when_ready(over, lambda: driver.dispatch(lambda: cancel(None)))
        return lambda: driver.detach(over)

    try:
        async with cancelled_by(add, session.ending):
            yield client
    except Exception as error:
        if not await turn.is_ended_by(error):
            raise

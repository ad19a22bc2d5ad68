"""The supervisor for threads: one thread makes the sessions, each leadership has one of its own."""

from __future__ import annotations

import threading
from functools import partial
from itertools import count

from zkwire.blocking.client import Client, ThreadNodeWatches
from zkwire.blocking.sync import complete, run, wrapped
from zkwire.net.background import Callbacks
from zkwire.net.lifetime import close_in_child
from zkwire.net.listeners import warn
from zkwire.net.timing import clock
from zkwire.net.wakeup import Sleeper
from zkwire.recipes._recipe import public, shield_from_interrupts
from zkwire.recipes.supervisor import SessionLoop, SupervisorView, Turn
from zkwire.session.waitable import Waitable, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any, Self, Unpack

    from zkwire.net.client import ClientOptions
    from zkwire.recipes.sequential import AsyncSequentialLock

CLOSE_SECONDS = 5.0
_numbers = count(1)


class ThreadSessions(SessionLoop):
    """The sessions of a supervisor in threads."""

    def __init__(self, hosts: str, options: dict[str, Any]) -> None:
        self.name: str = f"zkwire-supervisor-{next(_numbers)}"
        self.mutex: Any = threading.RLock()
        self.threads: list[threading.Thread] = []
        self.callbacks: Callbacks = Callbacks(f"{self.name}-callbacks")
        self.make_client: Callable[[], Client] = partial(Client, hosts, **options)
        super().__init__()
        close_in_child(self)

    async def close_client(self, client: Client) -> None:
        """Close it.  Idempotent."""
        client.close()

    async def until_idle(self, client: Client) -> None:
        """Wait for the I/O thread, in which services run: a SASL mechanism may keep it for long."""
        thread = client._driver.thread
        if thread is not None:
            thread.join()

    async def lead(self, function: Callable[[Any], Any], lock: AsyncSequentialLock) -> None:
        """Call the function."""
        from zkwire.blocking.locks import SequentialLock

        function(wrapped(SequentialLock, lock))

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work()`` in a thread of its own."""
        name = f"{self.name}-{name}"
        thread = threading.Thread(target=lambda: run(work()), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        """Wait until it is ready, at most ``timeout`` seconds; whether it is."""
        latest = None if timeout is None else clock() + timeout
        while not waitable.ready and (latest is None or clock() < latest):
            sleeper = Sleeper(waitable)
            waitable._add_waker(sleeper)
            try:
                sleeper.sleep(None if latest is None else latest - clock())
            finally:
                waitable._drop_waker(sleeper)
        return waitable.ready

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function in the supervisor's callback thread."""
        self.callbacks.put(function)

    def join(self, seconds: float | None) -> None:
        """Wait until the threads have ended, all together at most so long."""
        latest = None if seconds is None else clock() + seconds
        for thread in self.threads:
            begun = thread.ident is not None  # else there was no thread to be had, or an interrupt
            if begun and thread is not threading.current_thread():
                thread.join(None if latest is None else max(0.0, latest - clock()))
                if thread.is_alive():
                    warn(f"{thread.name} has not ended: it goes on, without a session")
        self.callbacks.close(
            threading.TIMEOUT_MAX if latest is None else max(0.0, latest - clock())
        )


@public
class Supervisor(SupervisorView, ThreadNodeWatches):
    """Sessions one after another: for programs that go on when a session has expired.

        with Supervisor("127.0.0.1:2181") as supervisor:
            supervisor.lead("/election", work)  # yours to write: work(lock), in each term
            supervisor.wait()

    Every recipe takes a supervisor instead of a client.  :class:`PersistentNode`, :class:`Group`,
    :class:`Cache` and :class:`Partitioner`, and :meth:`watch_data`, begin again in each new
    session.  With all other recipes, each call uses the session in which it begins, and raises
    SessionExpiredError if that session ends during the call; a lock is lost with its session.  An
    operation needs the :meth:`client` of one session.
    ``hosts`` and options are those of :class:`Client`, without ``resume``; wrong ones are refused
    at once.  No server has to be there yet: the supervisor tries to connect until there is one.
    """

    _client_kind = Client
    _client_call = "supervisor.client()"

    def __init__(self, hosts: str, **options: Unpack[ClientOptions]) -> None:
        self._core = self._algorithm = ThreadSessions(hosts, self._checked(options))

    def wait(self, timeout: float | None = None) -> bool:
        return complete(self._algorithm.wait, timeout)

    def client(self, timeout: float | None = None) -> Client:
        return complete(self._algorithm.client, timeout)

    wait.__doc__, client.__doc__ = SessionLoop.wait.__doc__, SessionLoop.client.__doc__

    def __iter__(self) -> Iterator[SessionScope]:
        """The sessions, as they come; the end of the supervisor ends it.

            for session in supervisor:
                with session as client:
                    ...  # with this client alone

        The ``with`` swallows the errors that say that this session is over, and no other: behind a
        lost connection it waits for the next, to know.  It swallows the loss of a lock of this
        session, too; if the session lives, it comes once more.
        """
        number = 0
        while (later := run(self._algorithm.later(number))) is not None:
            number, client = later
            scope = SessionScope(client)
            yield scope
            number -= scope.again

    def __enter__(self) -> Self:
        try:
            self._algorithm.begin()
        except BaseException:
            self.close()  # no __exit__ will
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None:
            self._algorithm.raise_error()

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """End the session, and wait up to ``timeout`` seconds for the functions that still run.

        Idempotent.  A warning in the log names each function that has not returned by then.  An
        interrupt of this call (Ctrl-C) is raised when the session has been ended.
        """
        limit = check_timeout("timeout", timeout)
        if not self._algorithm.forked:
            shield_from_interrupts(lambda: run(self._algorithm.stop()))
            self._algorithm.join(limit)


class SessionScope(Turn):
    """One session of a supervisor, for a ``with``."""

    _client: Client

    def __enter__(self) -> Client:
        return self._client

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> bool:
        return run(self.is_ended_by(error))

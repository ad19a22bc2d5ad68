"""The supervisor for threads: one thread makes the sessions, each leadership has one of its own."""

from __future__ import annotations

import threading
from itertools import count
from random import Random

from zkwire.blocking.client import Client
from zkwire.blocking.run import blocking, iterate, run
from zkwire.blocking.waiting import Sleeper
from zkwire.blocking.watching import ThreadNodeWatches
from zkwire.errors import ForkedError
from zkwire.net.background import Callbacks
from zkwire.net.forking import remember
from zkwire.net.observe import warn
from zkwire.net.pacing import clock
from zkwire.recipes.leadership import SupervisorView, is_session_end
from zkwire.recipes.supervisor import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any, Final, Self

    from zkwire.blocking.locks import SequentialLock
    from zkwire.recipes.service import Condition

CLOSE_SECONDS = 5.0
_numbers = count(1)


class ThreadShell:
    """What a supervisor needs of threads."""

    now: Final = staticmethod(clock)

    def __init__(self, hosts: str, options: dict[str, Any]) -> None:
        self.name = f"zkwire-supervisor-{next(_numbers)}"
        self.mutex: Any = threading.RLock()
        self.threads: list[threading.Thread] = []
        self.forked = False
        self.callbacks = Callbacks(f"{self.name}-callbacks")
        self._arguments = hosts, options
        self._rng = Random()
        remember(self)

    def jitter(self) -> float:
        """A random number from 0.5 to 1."""
        return self._rng.uniform(0.5, 1.0)

    def make_client(self) -> Client:
        """A client that nothing has used."""
        hosts, options = self._arguments
        return Client(hosts, **options)

    async def close_client(self, client: Client) -> None:
        """Close it; with its I/O thread end the services that run there."""
        client.close()

    def make_lock(self, client: Client, path: str, text: str) -> SequentialLock:
        """A fair lock of that client."""
        from zkwire.blocking.locks import SequentialLock

        return SequentialLock(client, path, text)

    async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
        """Acquire the lock, call the function with it, release it."""
        with lock:
            function(lock)

    def check(self) -> None:
        """Raise ForkedError in a forked child."""
        if self.forked:
            raise ForkedError(
                "this supervisor belongs to the parent process; make one in this process"
            )

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` in a thread of its own."""
        name = f"{self.name}-{name}"
        thread = threading.Thread(target=run, args=(work,), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    async def within(self, condition: Condition, timeout: float | None) -> bool:
        """Wait until it holds, at most ``timeout`` seconds; whether it does."""
        latest = None if timeout is None else clock() + timeout
        while not condition.ready and (latest is None or clock() < latest):
            sleeper = Sleeper(condition)
            condition._add_waker(sleeper)
            try:
                sleeper.sleep(None if latest is None else latest - clock())
            finally:
                condition._drop_waker(sleeper)
        return condition.ready

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function in the supervisor's callback thread."""
        self.callbacks.put(function)

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, all together at most so long."""
        latest = clock() + seconds
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, latest - clock()))
                if thread.is_alive():
                    warn(f"{thread.name} has not ended: its function goes on without a session")
        self.callbacks.close(max(0.0, latest - clock()))

    def after_fork(self) -> None:
        """In a forked child: there are no threads."""
        self.forked = True
        self.mutex = threading.RLock()


class Supervisor(SupervisorView, ThreadNodeWatches):
    """Sessions one after another: for programs that go on when a session has expired.

        with Supervisor("127.0.0.1:2181") as supervisor:
            supervisor.lead("/election", work)  # work(lock) in each term
            supervisor.wait()

    Whatever takes a client and lasts takes a supervisor too: :meth:`watch_data`,
    :class:`PersistentNode`, :class:`Group`, :class:`Cache`.  It is begun again in each new session.
    ``hosts`` and options are those of :class:`Client`, without ``resume``; they are refused at
    once.  A server need not be there yet: connecting goes on until one is.
    """

    def __init__(self, hosts: str, **options: Any) -> None:
        self._shell = ThreadShell(hosts, self._checked(options))
        self._algorithm = Sequence(self._shell)

    wait: Final = blocking(Sequence.wait)
    client: Final = blocking(Sequence.client)

    def __iter__(self) -> Iterator[SessionScope]:
        """The sessions, as they come, each once; the end of the supervisor ends it.

            for session in supervisor:
                with session as client:
                    ...  # with this client alone

        The ``with`` swallows the errors that say that this session is over, and no other: behind a
        lost connection it waits for the next, to know.
        """
        for client in iterate(self._sessions.clients()):
            yield SessionScope(client)

    def __enter__(self) -> Self:
        self._sessions.begin()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None:
            self._algorithm.raise_error()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """End the session, and wait up to ``timeout`` seconds for the functions that still run.

        Idempotent.  One that has not returned by then is named in a warning of the log.
        """
        if not self._shell.forked:
            run(self._algorithm.stop())
            self._shell.join(timeout)


class SessionScope:
    """One session of a supervisor, for a ``with``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Client:
        return self._client

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> bool:
        return run(is_session_end(self._client, error))

"""Leadership for ever: in each session a candidacy, in each term a call of the user's function.

A term is a fair lock.  What it promises, its ``fence`` and its ``lost`` are the lock's; this adds
only that a candidate comes back: behind a term, a lost lock, and a session that has ended.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import ConnectionLossError, LockLostError, OperationTimeoutError
from zkwire.recipes.services.service import SESSION_OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from zkwire.recipes.services.supervisor import SessionSequence
    from zkwire.recipes.services.supervisor_shell import Shell

_NETWORK = (ConnectionLossError, LockLostError, OperationTimeoutError)
SESSION_END = (*SESSION_OVER, *_NETWORK)
"""What the end of a session makes of the requests and locks of a caller."""


def is_over(client: Any) -> bool:
    """Whether the client's session is."""
    try:
        client._driver.check_open()
    except SESSION_OVER:
        return True
    return False


def parts(error: BaseException) -> Iterator[BaseException]:
    """The error, or those of a group of tasks."""
    group: Any = error
    if isinstance(error, BaseExceptionGroup):
        for part in group.exceptions:
            yield from parts(part)
    else:
        yield error


async def is_session_end(client: Any, error: BaseException | None) -> bool:
    """Whether the error says no more than that the client's session is over.

    A lost connection does not tell by itself: that waits for the next one.
    """
    if error is None or not all(isinstance(part, SESSION_END) for part in parts(error)):
        return False
    if any(isinstance(part, _NETWORK) for part in parts(error)):
        with suppress(*SESSION_OVER):
            await client._driver.connected(None)
    return is_over(client)


def _ends_a_term(client: Any, error: Exception) -> bool:
    """Whether it says no more than that the network, or the session, has ended a term."""
    over = is_over(client)
    return all(
        isinstance(part, _NETWORK) or (over and isinstance(part, SESSION_OVER))
        for part in parts(error)
    )


async def lead(
    sessions: SessionSequence, shell: Shell, path: str, function: Callable[[Any], Any], text: str
) -> None:
    """Run for leader for ever; errors of the function that are not the network's are raised."""
    number = 0
    while (later := await sessions.later(number)) is not None:
        number, client = later
        lock = shell.make_lock(client, path, text)
        while not is_over(client):
            try:
                await shell.under(lock, function)
            except Exception as error:
                if not _ends_a_term(client, error):
                    raise


class SupervisorView:
    """What the supervisor for threads and the one for asyncio have in common."""

    _algorithm: SessionSequence
    _shell: Any
    _client_kind: type
    _client_call: str

    if not TYPE_CHECKING:  # else any name would be an attribute

        def __getattr__(self, name: str) -> object:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(self._client_kind, name):
                message += f": a client has it, {self._client_call}.{name}"
            raise AttributeError(message, name=name, obj=self)

    @property
    def _sessions(self) -> SessionSequence:
        self._algorithm.begin()
        return self._algorithm

    @staticmethod
    def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
        if "resume" in options:
            raise TypeError("a supervisor makes sessions of its own: it cannot resume another's")
        return dict(options)

    def lead(self, path: str, function: Callable[[Any], Any], text: str = "") -> None:
        """Run for leader at ``path``, now and in each later session, until the supervisor ends.

            supervisor.lead("/election", work)

        In each term ``function(lock)`` is called, in a thread of its own, with the fair lock that
        it leads by (a :class:`SequentialLock`): ``lock.fence`` is the term's token, higher than
        those of all terms before; ``lock.lost`` tells when the term is over, and ``lock.check()``
        raises then.  A thread cannot be stopped: the function has to look at one of them.  Under
        asyncio it is a coroutine function, and is cancelled.

        When it returns, the term ends and it runs for leader again.  The same when it raises
        because of the network (ConnectionLossError, OperationTimeoutError, LockLostError, the end
        of its session).  Any other error ends the supervisor, and ``wait`` and the end of the
        ``with`` raise it.  ``text`` is for other candidates to read (:class:`Election`).

        Raises ValueError or TypeError for bad arguments, at once.
        """
        if not callable(function):
            raise TypeError(f"the function must be callable: {function!r}")
        self._shell.check_function(function)
        sessions, shell = self._algorithm, self._shell
        shell.make_lock(sessions._newest, path, text)  # checks the arguments
        sessions.run(lambda: lead(sessions, shell, path, function, text), f"lead-{path}")

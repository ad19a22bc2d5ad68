"""Leadership for ever: in each session a candidacy, in each term a call of the user's function.

A term is a fair lock.  What it promises, its ``fence`` and its ``lost`` are the lock's; this adds
only that a candidate comes back: behind a term, a lost lock, and a session that has ended.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    ConnectionLossError,
    LockLostError,
    OperationTimeoutError,
    ServerError,
)
from zkwire.operations.base import rehearse
from zkwire.recipes.services.problem import Problem, check_on_problem
from zkwire.recipes.services.service import SESSION_OVER
from zkwire.recipes.view import PathView, ServiceView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import Any

    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.supervisor import SessionSequence

_NETWORK = (ConnectionLossError, LockLostError, OperationTimeoutError)
LONGEST_NAME = 80  # of a contender's node
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


class Turn:
    """What a loop over the sessions does with one of them, from its ``with`` to the end of that.

    ``again``: it has ended with the loss of a lock although its session lives: that session has
    another turn.
    """

    def __init__(self, client: Any) -> None:
        self.again: bool = False
        self._client = client
        self._session_id: int = client.session_id

    async def is_ended_by(self, error: BaseException | None) -> bool:
        """Whether the error says no more than that the session is over, or a lock of it is lost.

        A lost connection does not tell by itself: that waits for the next one.
        """
        if error is None or not all(isinstance(part, SESSION_END) for part in parts(error)):
            return False
        if any(isinstance(part, _NETWORK) for part in parts(error)):
            with suppress(*SESSION_OVER):
                await self._client._driver.connected(None)
        over = is_over(self._client)
        lost = [getattr(part, "session_id", 0) for part in parts(error)]
        self.again = not over and set(lost) == {self._session_id}
        return over or self.again


def _ends_a_term(client: Any, error: Exception) -> bool:
    """Whether it says no more than that the network, or the session, has ended a term."""
    over = is_over(client)
    return all(
        isinstance(part, _NETWORK) or (over and isinstance(part, SESSION_OVER))
        for part in parts(error)
    )


class Term:
    """The user's function, in one term; ``error`` is what it has raised."""

    def __init__(self, function: Callable[[Any], Any], begun: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self._function = function
        self._begun = begun

    def __repr__(self) -> str:
        return repr(self._function)

    def __call__(self, lock: Any) -> Any:
        self._begun()
        try:
            work = self._function(lock)
        except Exception as error:
            self.error = error
            raise
        return self._until_end(work) if hasattr(work, "__await__") else work

    async def _until_end(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:
            self.error = error
            raise


class Leadership(PathView, ServiceView):
    """A candidacy for ever, as :meth:`Supervisor.lead` returns it: its ``path``, its ``problem``.

    It ends with its supervisor.
    """

    _called = "candidacy"

    def __init__(
        self,
        sessions: SessionSequence,
        function: Callable[[Any], Any],
        path: str,
        text: str,
        on_problem: OnProblem | None,
    ) -> None:
        check_on_problem(on_problem)
        self._path = path
        self._text = text
        self._sessions = sessions
        self._function = function
        self._trouble = Problem(on_problem, sessions.dispatch)
        sessions._shell.make_lock(sessions._newest, path, text)  # checks the arguments
        longest = f"{path}/{'x' * LONGEST_NAME}"
        rehearse(sessions.operations).create(longest, text.encode())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    @property
    def _shown_problem(self) -> Exception | None:
        return self._trouble.error

    async def run(self) -> None:
        """Run for leader for ever; errors of the function that are not the network's are raised."""
        number = 0
        while (later := await self._sessions.later(number)) is not None:
            number, client = later
            lock = self._sessions._shell.make_lock(client, self._path, self._text)
            self._trouble.afresh()
            while not is_over(client):
                await self._run_once(client, lock)

    async def _run_once(self, client: Any, lock: Any) -> None:
        """One candidacy, with the term that it comes to, or a pause after a refusal."""
        shell = self._sessions._shell
        term = Term(self._function, self._trouble.is_over)
        try:
            await shell.under(lock, term)
        except Exception as error:
            ended = term.error or error
            if _ends_a_term(client, ended):
                return
            if not isinstance(ended, ServerError) or ended is term.error:
                raise ended from None
            what = f"the {self._called} at {self._path} is refused, and tried again"
            pause = self._trouble.stands(what, ended, client._driver.warn)
            with suppress(*SESSION_OVER):
                await client._driver.holds(self._sessions._stopped, pause * shell.jitter())


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

    @staticmethod
    def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
        if "resume" in options:
            raise TypeError("a supervisor makes sessions of its own: it cannot resume another's")
        return dict(options)

    def lead(
        self,
        path: str,
        function: Callable[[Any], Any],
        text: str = "",
        *,
        on_problem: OnProblem | None = None,
    ) -> Leadership:
        """Run for leader at ``path``, now and in each later session, until the supervisor ends.

            supervisor.lead("/election", work)

        In each term ``function(lock)`` is called, in a thread of its own, with the fair lock that
        it leads by (a :class:`SequentialLock`): ``lock.fence`` is the term's token, higher than
        those of all terms before; ``lock.lost`` tells when the term is over, and ``lock.check()``
        raises then.  A thread cannot be stopped: the function has to look at one of them.  Under
        asyncio it is a coroutine function, and is cancelled.

        When it returns, the term ends and it runs for leader again.  The same when it raises
        because of the network (ConnectionLossError, OperationTimeoutError, LockLostError, the end
        of its session).  Any other error of the function ends the supervisor: it is logged at once
        with its traceback, and ``wait`` and the end of the ``with`` raise it.  ``text`` is for
        other candidates to read (:class:`Election`).

        A candidacy that the server refuses is logged and tried again; ``problem`` of the
        :class:`Leadership` that this returns, and ``on_problem``: see docs/supervisor.md#refusals.

        Raises ValueError or TypeError for bad arguments, at once.
        """
        if not callable(function):
            raise TypeError(f"the function must be callable: {function!r}")
        self._shell.check_function(function)
        self._shell.check_function(on_problem)
        leadership = Leadership(self._algorithm, function, path, text, on_problem)
        self._algorithm.run(leadership.run, f"lead-{path}")
        return leadership

"""What a command's exit status says, and which error is which.

124 to 127 and 128 + n mean what they mean with timeout(1) and env(1).
"""

from __future__ import annotations

from zkwire import errors
from zkwire.errors import (
    AuthFailedError,
    ClientClosedError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ServerError,
    SessionExpiredError,
    ZooKeeperError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T", bound=BaseException)

DONE = 0
REFUSED = 1  # the server said no, or the answer of a question is no
USAGE = 2
NOT_SENT = 3  # no server could be reached; nothing has been sent
UNKNOWN = 4  # sent, and the connection broke before an answer: perhaps done
EXPIRED = 5
BEHIND = 6  # all is copied, but a counter of sequential names is behind them
LOCK_LOST = 122
TIMED_OUT = 124
FAILED = 125  # the command itself failed: before the program that it was to run, or by a defect
NOT_EXECUTABLE = 126
NOT_FOUND = 127
BY_SIGNAL = 128  # and the number of the signal


def with_status(error: T, status: int) -> T:
    """The same error, which ends the command with this exit status."""
    error.__dict__["exit_status"] = status
    return error


def status_of(error: BaseException) -> int:
    """The exit status for an error that has ended a command."""
    chosen: int | None = error.__dict__.get("exit_status")
    if chosen is not None:
        return chosen
    if isinstance(error, KeyboardInterrupt):
        return BY_SIGNAL + 2
    if isinstance(error, BrokenPipeError):
        return BY_SIGNAL + 13
    if isinstance(error, NotSentError):
        return NOT_SENT
    if isinstance(error, OutcomeUnknownError):
        return UNKNOWN
    if isinstance(error, SessionExpiredError):
        return EXPIRED
    if isinstance(error, ServerError):
        return UNKNOWN if _is_uncertain(error) else REFUSED
    if isinstance(error, ZooKeeperError) and error.maybe_applied:
        return UNKNOWN
    if isinstance(error, OperationTimeoutError):
        return TIMED_OUT
    if isinstance(error, ValueError):
        return USAGE
    return REFUSED if is_foreseen(error) else FAILED


def is_foreseen(error: BaseException) -> bool:
    """Whether the outside world causes such errors; any other one is a defect of zkwire."""
    return isinstance(error, (ZooKeeperError, ValueError, OSError))


def outcome_of(error: BaseException) -> str:
    """What a script may conclude: ``refused``, ``not_sent``, ``unknown`` or ``failed``."""
    if isinstance(error, ServerError):
        return "unknown" if _is_uncertain(error) else "refused"
    maybe_applied = isinstance(error, ZooKeeperError) and error.maybe_applied
    if maybe_applied or isinstance(error, OutcomeUnknownError):
        return "unknown"
    if isinstance(error, NotSentError):
        return "not_sent"
    if isinstance(error, AuthFailedError | ClientClosedError):
        return "refused"
    return "failed"


def _is_uncertain(refusal: ServerError) -> bool:
    """Whether the request that was refused may be executed all the same.

    That steps before it were executed (also ``maybe_applied``) makes no refusal of it uncertain.
    """
    return refusal.maybe_applied and refusal.code in errors.UNCERTAIN

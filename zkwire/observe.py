"""What a client lets others see of itself: lines in the log, and the trace.

Logger ``zkwire``: INFO for each state of a session, DEBUG for each frame; names, numbers and sizes,
never payloads or secrets.  A program that has not loaded ``logging`` wants no log, so it is not
loaded for it.  Both log and trace are a user's code: they are called in the callback thread.
"""

from __future__ import annotations

import sys
from functools import partial

from zkwire.model import session_name
from zkwire.states import Listener
from zkwire.trace import Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.calls import Waker
    from zkwire.model import State
    from zkwire.session import Session
    from zkwire.trace import TraceFrame

    Dispatch = Callable[[Callable[[], object]], object]

LOGGER = "zkwire"
INFO, DEBUG = 20, 10  # as in logging


def attach(
    session: Session,
    name: str,
    trace: Callable[[TraceFrame], object] | None,
    dispatch: Dispatch,
) -> None:
    """Have the session's states logged and its frames traced, as far as anybody wants that."""
    session.audience.add(_StateLog(session, name, dispatch))
    wanted = [trace] if trace is not None else []
    if _logger(DEBUG) is not None:
        wanted.append(partial(_log_frame, name))
    if wanted:
        session.trace = Tracer(
            lambda frame: session.call(partial(dispatch, partial(_to_all, wanted, frame)))
        )


def _to_all(functions: list[Callable[[TraceFrame], object]], frame: TraceFrame) -> None:
    for function in functions:
        function(frame)


def _logger(level: int) -> Any:
    """The logger if it takes lines of this level, else None."""
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    logger = logging.getLogger(LOGGER)
    return logger if logger.isEnabledFor(level) else None


class _StateLog(Listener):
    """One line for each state."""

    __slots__ = ("_name", "_session")

    def __init__(self, session: Session, name: str, dispatch: Dispatch) -> None:
        super().__init__(self._log, dispatch)
        self._session = session
        self._name = name

    def see(self, state: State) -> list[Waker]:
        """The session is in ``state`` now."""
        return super().see(state) if _logger(INFO) is not None else []

    def _log(self, state: State) -> None:
        logger, session = _logger(INFO), self._session
        if logger is not None:
            where = "{}:{}".format(*session.server) if session.server else "no server"
            logger.info(
                "%s: %s, session %s, %s, last failure: %s", self._name, state.value,
                session_name(session.session_id), where, session.last_failure,
            )  # fmt: skip


def _log_frame(name: str, frame: TraceFrame) -> None:
    logger = _logger(DEBUG)
    if logger is not None:
        logger.debug(
            "%s: %s xid %s %s %s, %s bytes, zxid %s, error %s",
            name, "sent" if frame.sent else "received", frame.xid, frame.op, frame.path or "",
            frame.size, frame.zxid, frame.error,
        )  # fmt: skip

"""What can be seen of a client from outside: lines in the log, and the trace.

Logger ``zkwire``: ERROR for an error of the program's own that ends something, WARNING for what an
operator has to act on, INFO for what becomes of a session, DEBUG for each attempt to connect and
each frame.  Lines have names, numbers and sizes, never payloads or secrets.  A program that has not
loaded ``logging`` wants no INFO or DEBUG, so ``logging`` is not loaded for these.  For WARNING and
ERROR it is loaded, and writes them to the standard error; but not in the command, which itself says
what is refused.  Both log and trace are a user's code: they are called in the callback thread.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from math import inf

from zkwire.session.outcomes import NEW_CLIENT, perhaps_older
from zkwire.wire.model import State, session_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.session.session import Session
    from zkwire.session.trace import TraceFrame
    from zkwire.session.waitable import Waker

LOGGER = "zkwire"
ERROR, WARNING, INFO, DEBUG = 40, 30, 20, 10  # as in logging
_ATTEMPTS = frozenset({State.CONNECTING, State.HANDSHAKE})


def attach(driver: Any, trace: Callable[[TraceFrame], object] | None) -> None:
    """Log the states of a driver's session and trace its frames, as far as the program wants it."""
    session: Session = driver.session
    session.observers.add(_SessionLog(driver))
    wanted = [trace] if trace is not None else []
    if _logger(DEBUG) is not None:
        wanted.append(partial(_log_frame, driver.name))
    if wanted:
        from zkwire.session.trace import Tracer

        def emit(frame: TraceFrame) -> None:
            session.callbacks.extend(partial(driver.dispatch, partial(f, frame)) for f in wanted)

        session.trace = Tracer(emit)


@cache
def _logger_of(logging: Any) -> Any:
    return logging.getLogger(LOGGER)


def _logger(level: int) -> Any:
    """The logger if its level takes such lines, else None.

    After the first time it does not take the lock of ``logging``, as the session may be locked: a
    thread that configures handlers holds the lock of ``logging``, and may wait for this client.
    """
    logging: Any = sys.modules.get("logging")
    usable = hasattr(logging, "getLogger")  # else another thread is just loading it
    logger: Any = _logger_of(logging) if usable else None
    return logger if logger and logger.getEffectiveLevel() <= level else None


def warn(message: str) -> None:
    """Log what an operator has to act on."""
    _load()
    _log(WARNING, message)


def log_failure(message: str, error: BaseException) -> None:
    """Log an error that ends something, with its traceback."""
    _load()
    if (logger := _logger(ERROR)) is not None:
        logger.error("%s", message, exc_info=error)


_may_load = [True]


def be_silent_without_logging() -> None:
    """For the command: a WARNING or ERROR does not load ``logging``."""
    _may_load[:] = [False]


def _load() -> None:
    if _may_load[0]:
        import logging  # noqa: F401  # pyright: ignore[reportUnusedImport]


class _SessionLog:
    """One line for each state, with what is known of it at that moment.

    A lost connection is logged once, and not again with each attempt to make another.  What a line
    says it also has as fields, for formatters that want them.  Two more lines are for operators:
    when no server could be reached for a session timeout, once until one is reached; and when a
    server has granted too short a session timeout for the lease margin.
    """

    def __init__(self, driver: Any) -> None:
        self._session: Session = driver.session
        self._name: str = driver.name
        self._dispatch, self._now = driver.dispatch, driver.now
        self._news: State | None = None
        self._outage_began: float | None = None  # inf: its line is written
        self._margin = self._wanted = self._session.lease_margin

    def see(self, state: State) -> list[Waker]:
        """The session is in ``state`` now."""
        lines = (self._state_line(state), self._outage_line(state), self._margin_line(state))
        return [partial(self._dispatch, line) for line in lines if line is not None]

    def _state_line(self, state: State) -> Waker | None:
        is_news = state is not self._news and state not in _ATTEMPTS
        if is_news:
            self._news = state
        level = INFO if is_news else DEBUG
        if _logger(level) is None:
            return None
        session = self._session
        name, server = session_name(session.session_id), session.server
        line = f"{self._name}: {state.value}, session {name}, {self._detail(state)}"
        fields = {
            "client": self._name,
            "state": state.value,
            "session": name,
            "server": "{}:{}".format(*server) if server else None,
        }
        return partial(_log, level, line, fields)

    def _detail(self, state: State) -> str:
        session = self._session
        if state is State.DISCONNECTED:
            return session.last_failure
        if state.terminal:
            return str(session.ending()).removesuffix(NEW_CLIENT)
        return "{}:{}".format(*session.server) if session.server else "no server"

    def _outage_line(self, state: State) -> Waker | None:
        now, session = self._now(), self._session
        if self._outage_began is None or state.usable:
            self._outage_began = None if state.usable else now
            return None
        seconds = now - self._outage_began
        # Each attempt ends in this state, within a session timeout: no timer is needed.
        if state is not State.DISCONNECTED or seconds < session.timeout:
            return None
        self._outage_began = inf
        line = (
            f"{self._name}: no server could be reached for {seconds:.1f} s (last: "
            f"{session.last_failure}){perhaps_older(session.last_failure, session.last_zxid)}; "
            "the client continues to try"
        )
        return partial(warn, line)

    def _margin_line(self, state: State) -> Waker | None:
        margin, before = self._session.lease_margin, self._margin
        if state.usable:
            self._margin = margin
        if self._margin in (before, self._wanted):
            return None
        line = (
            f"{self._name}: the server has granted a session timeout of {self._session.timeout:g} "
            f"s, so the lease_margin is {margin:g} s, a fifth of that, and not {self._wanted:g} s: "
            f"enough if the servers' tickTime is less than {2 * margin:g} s"
        )
        return partial(_log, WARNING, line)


def _log(level: int, line: str, fields: dict[str, str | None] | None = None) -> None:
    if (logger := _logger(level)) is not None:
        logger.log(level, "%s", line, extra=fields)


def _log_frame(name: str, frame: TraceFrame) -> None:
    logger, zxid = _logger(DEBUG), frame.zxid
    if logger is not None:
        logger.debug(
            "%s: %s xid %s %s %s, %s bytes, zxid %s, error %s",
            name, "sent" if frame.sent else "received", frame.xid, frame.op, frame.path or "",
            frame.size, hex(zxid) if zxid is not None and zxid > 0 else zxid, frame.error,
        )  # fmt: skip

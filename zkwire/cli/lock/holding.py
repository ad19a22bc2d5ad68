"""A lock of the kind that was asked for: acquired, held until it is time, and released for certain.

A session that expires while this waits costs the place in the queue and nothing else: it queues
again with a new session, within the same time.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from signal import SIGTERM
from typing import Any, Self

import zkwire
from zkwire import errors
from zkwire.cli.context import Context
from zkwire.cli.output import FAILED, Output, describe, hex_id, with_status
from zkwire.net.timing import clock

LONGEST_WAIT = 1.0


class Grant:
    """A lock that is held, of any kind: its client, and the path of its node.

    ``longest_wait``: seconds after which a look at the lock is due, whatever has been heard.
    """

    def __init__(self, client: zkwire.Client, lock: Any) -> None:
        self.client = client
        self.lock = lock
        self.longest_wait: float = min(LONGEST_WAIT, client.session_timeout / 10)
        self.node: str = f"{lock.path}/{lock._algorithm._node_name}"

    def lease_end(self) -> float:
        """Until then, on :func:`clock`, the session is surely alive."""
        now = clock()  # first: rather too early than too late
        return now + self.client.lease_remaining()


def signature(text: str) -> str:
    """What the lock's node says: host, process, and ``text``."""
    return f"{socket.gethostname()}:{os.getpid()} {text}".rstrip()


def lock_of(client: zkwire.Client, asked: Namespace) -> Any:
    """A lock of the kind that was asked for; all kinds but a semaphore exclude each other."""
    text, names = signature(asked.id), asked.names
    if asked.holders:
        return zkwire.Semaphore(client, asked.path, asked.holders, text, names=names).lease()
    if asked.shared or asked.exclusive:
        table = zkwire.ReadWriteLock(client, asked.path, text, names=names)
        return table.read if asked.shared else table.write
    return zkwire.SequentialLock(client, asked.path, text, names=names)


def acquire(context: Context, asked: Namespace) -> Grant:
    """The lock, held.

    LockTakenError if it is not free in time (with the exit status for that); what else keeps it
    from being held has the exit status 125.
    """
    until = None if asked.wait is None else clock() + asked.wait
    try:
        while True:
            try:
                return _acquired(context.client, asked, until)
            except (errors.SessionExpiredError, errors.LockLostError) as error:
                context.output.note(f"{describe(error)}; queueing again")
                context.close()
    except errors.LockTakenError as error:
        raise with_status(error, asked.conflict_exit_code) from None
    except (errors.ZooKeeperError, OSError, ValueError) as error:
        raise with_status(error, FAILED) from None


def _acquired(client: zkwire.Client, asked: Namespace, until: float | None) -> Grant:
    lock = lock_of(client, asked)
    if until is None:
        lock.acquire()
    elif not asked.wait:
        if not lock.try_acquire():
            raise errors.LockTakenError(f"{asked.path} is held by another contender")
    elif not lock.acquire(max(0.0, until - clock())):
        raise errors.LockTimeoutError(f"{asked.path} was not free within {asked.wait:g} s")
    return Grant(client, lock)


def release(context: Context, grant: Grant, timeout: float | None) -> str | None:
    """Release the lock and see it confirmed, unless the session ends first.

    Returns why the lock had been lost, if it had.  A release in doubt is a note: the caller closes
    the session, whose end is the lock's.
    """
    try:
        grant.lock.release(timeout)
        # After a lost connection the client deletes the node in the background.
        grant.client._driver._clean_up(grant.client.lease_remaining())
    except errors.LockLostError as error:
        return str(error)
    except Interrupted:
        pass  # the client goes on, and the end of the session does the rest
    except errors.ZooKeeperError as error:
        context.output.note(f"zkwire: {error}")
    return None


def environment_of(context: Context, grant: Grant) -> dict[str, str]:
    """The environment of the command: an inner lock's values replace those of an outer one."""
    return {
        **os.environ,
        "ZKWIRE_LOCK_PATH": grant.node,
        "ZKWIRE_LOCK_TOKEN": str(grant.lock.fence),
        "ZKWIRE_LOCK_SESSION": hex_id(grant.client.session_id),
        "ZKWIRE_SERVER": context.server,
    }


# --- signals --------------------------------------------------------------------------------------
# The signals of the process, for one thread that waits for them together with other things.
#
# A signal is a byte in a socket, written by the interpreter when it comes
# (``signal.set_wakeup_fd``), so none gets lost between a look and a wait.  While something blocks
# that knows of no socket, as the client's own waits do, ``raising`` makes the next ending signal an
# exception in the main thread instead.
#
# Invariant: a signal that was ignored when the process was started stays so, for the command too
# (``nohup``).


def known(*names: str) -> tuple[signal.Signals, ...]:
    """Those of them that the system has."""
    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


# What ends a process by default.
ENDING = known("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# What else there is to hear while a command runs.
FOR_COMMAND = known("SIGCHLD", "SIGWINCH", "SIGTSTP", "SIGCONT")
_ALWAYS = set(known("SIGCHLD"))  # ignoring it means something else


class Interrupted(BaseException):
    """An ending signal has come while ``raising`` was set."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The ending signals from here to the end of the ``with``; in the main thread alone."""

    def __init__(self) -> None:
        self.raising: bool = False
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._former: dict[int, Any] = {}
        self._former_fd = -1

    def __enter__(self) -> Self:
        self._former_fd = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self.hear(ENDING)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._reading.close()
        self._writing.close()

    def hear(self, numbers: Iterable[int]) -> None:
        """Hear of these signals too, if they are not ignored."""
        for number in numbers:
            former = signal.getsignal(number)
            if former is not signal.SIG_IGN or number in _ALWAYS:
                self._former.setdefault(number, former)
                signal.signal(number, self._came)

    def _came(self, number: int, _: object) -> None:
        if self.raising and number in ENDING:
            self.raising = False  # first: one exception is enough
            raise Interrupted(number)

    @property
    def forwarded(self) -> Iterable[int]:
        """Those that are heard for another process."""
        return self._former.keys() - _ALWAYS

    def fileno(self) -> int:
        """To wait until something has come."""
        return self._reading.fileno()

    def take(self) -> bytes:
        """The numbers of the signals that have come, in order; 0 for a :meth:`wake`."""
        with suppress(BlockingIOError):
            return self._reading.recv(4096)
        return b""

    def wake(self, _: object = None) -> None:
        """End the wait, from any thread."""
        with suppress(OSError):  # it is full, so the wait ends anyway; or closed
            self._writing.send(b"\0")

    def stop_here(self) -> None:
        """Stop the process, as the terminal's key would have done, until it is continued."""
        heard = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, heard)


# --- deadline -------------------------------------------------------------------------------------
# When a command has to end because its lock may be lost: arithmetic on the caller's clock.
#
# The server cannot give the lock to another contender before the lease ends.  So TERM is due a
# margin and ``kill_after`` before that, and KILL a margin before.  These times follow from what the
# client itself has sent and received; no news from a server is needed for them.
#
# Invariants: a longer lease moves both times, until TERM is due; from then on the command ends,
# whatever comes.  KILL is never due later than a margin before the end of the longest known lease,
# unless that is past.

# Windows has one way to end a process.
SIGKILL: signal.Signals = getattr(signal, "SIGKILL", SIGTERM)
NOT_PROLONGED = "no answer has prolonged the session's lease in time"


class Deadline:
    """The two times for one command, in seconds; ``kill_after`` 0: KILL alone."""

    def __init__(self, margin: float, kill_after: float) -> None:
        self._margin = margin
        self._kill_after = kill_after
        self._lease_end = -inf
        self._lost = False
        self.ending: bool = False
        self._sent_kill = False
        self._kill_at = -inf

    def prolong(self, lease_end: float) -> None:
        """The lease lasts until then, at least."""
        self._lease_end = max(self._lease_end, lease_end)

    def lose(self) -> None:
        """The lock is lost, be the lease what it is."""
        self._lost = True

    @property
    def term_at(self) -> float:
        """When TERM is due; infinity once it has been."""
        if self.ending:
            return inf
        return -inf if self._lost else self._lease_end - self._margin - self._kill_after

    @property
    def kill_at(self) -> float:
        """When KILL is due; infinity once it has been."""
        if self._sent_kill:
            return inf
        return self._kill_at if self.ending else self._lease_end - self._margin

    @property
    def next(self) -> float:
        """When something is due next."""
        return min(self.term_at, self.kill_at)

    def due(self, now: float) -> signal.Signals | None:
        """What is to be sent now, each once."""
        begins = now >= self.term_at
        if begins:
            last = max(now, self._lease_end - self._margin)
            self.ending, self._kill_at = True, min(now + self._kill_after, last)
        if self.ending and now >= self.kill_at:
            self._sent_kill = True
            return SIGKILL
        return SIGTERM if begins else None

    def look(self, grant: Grant) -> signal.Signals | None:
        """Take in what is known of the lock; what is to be sent now."""
        self.prolong(grant.lease_end())
        if grant.lock.lost.is_set():
            self.lose()
        return self.due(clock())

    def pause(self, longest: float) -> float:
        """Seconds until the next look."""
        return max(0.0, min(longest, self.next - clock()))


# --- holding --------------------------------------------------------------------------------------
# No command: show what is held, and hold it until standard input ends or a signal comes.


def show_grant(output: Output, grant: Grant) -> None:
    """The path of the node and the token, a line each."""
    token, session = grant.lock.fence, hex_id(grant.client.session_id)
    fields = {"path": grant.node, "token": token, "session": session}
    output.result(fields, [grant.node, str(token)])
    output.flush()


def hold(grant: Grant, signals: Signals, margin: float) -> str | None:
    """Hold the lock until it is to be released (None), or lost: then why."""
    deadline, ended = Deadline(margin, 0.0), threading.Event()

    def read() -> None:
        """Standard input, which Windows cannot wait for together with anything else."""
        more = sys.__stdin__ is not None
        with suppress(OSError, ValueError):
            while more:
                if os.name == "posix":  # to read stops a process that the terminal has not in front
                    select.select([0], [], [])
                more = bool(os.read(0, 4096))
        ended.set()
        signals.wake()

    threading.Thread(target=read, name="zkwire-input", daemon=True).start()
    grant.lock.lost.add_callback(signals.wake)
    with selectors.DefaultSelector() as selector:
        selector.register(signals, selectors.EVENT_READ)
        while True:
            if deadline.look(grant):
                return grant.lock.lost.reason or NOT_PROLONGED
            selector.select(deadline.pause(grant.longest_wait))
            if any(signals.take()) or ended.is_set():
                return None

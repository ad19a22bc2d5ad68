"""A lock of the kind that was asked for: acquired, held, and released for certain.

A session that expires while this waits costs the place in the queue and nothing else: it queues
again with a new session, within the same time.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from argparse import Namespace
from typing import Any

import zkwire
from zkwire import errors
from zkwire.cli.context import Context
from zkwire.cli.lock.deadline import NOT_PROLONGED, Deadline
from zkwire.cli.lock.signals import Interrupted, Signals
from zkwire.cli.output import FAILED, Output, describe, hex_id, with_status
from zkwire.net.pacing import clock

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
    deadline = Deadline(margin, 0.0)
    grant.lock.lost.add_callback(signals.wake)
    poll = select.poll()
    poll.register(signals, select.POLLIN)
    if sys.__stdin__ is None:
        return None
    poll.register(0, select.POLLIN)
    while True:
        deadline.prolong(grant.lease_end())
        if grant.lock.lost.is_set():
            deadline.lose()
        if deadline.due(clock()):
            return grant.lock.lost.reason or NOT_PROLONGED
        pause = max(0.0, min(grant.longest_wait, deadline.next - clock()))
        ready = {fd for fd, _ in poll.poll(pause * 1000)}
        if any(signals.take()) or (0 in ready and _ended()):
            return None


def _ended() -> bool:
    """Whether standard input has ended; what it has is read."""
    try:
        return not os.read(0, 4096)
    except OSError:
        return True

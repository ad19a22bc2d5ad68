"""``zkwire lock``: its words, and what happens in which order.

Exit statuses are those of timeout(1) and env(1), so a command's own passes through.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from argparse import Namespace
from datetime import timedelta
from typing import Any

import zkwire
from zkwire.cli import output as statuses
from zkwire.cli.command import Command, UsageError, arg, duration, flag, integer, one_of
from zkwire.cli.context import Context
from zkwire.cli.lock import holding
from zkwire.cli.lock.holding import Grant, Interrupted, Signals
from zkwire.cli.output import Output, hex_id
from zkwire.errors import LockLostError, LockTakenError, NoAuthError, NoNodeError
from zkwire.net.client import check_lease_margin
from zkwire.session.liveness import LEAST_MARGINS
from zkwire.wire.paths import check_path

KILL_AFTER = 3.0
PINGS_APART = 2.5  # lease margins, at most, until an answer counts
LEFT = 1 / 15  # of the session timeout, for the answers to pings
IN_DOUBT = 1.0  # seconds for the release of a lock that is probably lost


def _lock(context: Context, asked: Namespace) -> int | None:
    """
    zkwire lock /locks/report -- report.sh         # wait, then run it
    zkwire lock -n /locks/report -- report.sh      # 124 if it is held
    zkwire lock --list /locks/report               # the holder, the queue

    COMMAND runs while the lock is held, and its exit status is passed on.  If the
    lock may be lost, COMMAND is ended before another contender can get it: TERM,
    then KILL, to its process group; the exit status is 122.  It finds the lock's
    node, the fencing token and the session in its environment: ZKWIRE_LOCK_PATH,
    ZKWIRE_LOCK_TOKEN, ZKWIRE_LOCK_SESSION.

    Without COMMAND it prints the node and the token, and holds the lock until
    standard input ends or a signal comes.
    """
    asked.path = check_path(context.path(asked.path))
    _check(asked)
    if asked.list:
        show(context.output, asked.path, contenders_of(context.client, asked.path))
        return None
    with Signals() as signals:
        try:
            try:
                return _locked(context, asked, signals)
            finally:
                context.close()
        except Interrupted as end:
            context.output.drop()
            return statuses.BY_SIGNAL + end.number
        except LockTakenError:
            if context.output.quiet:
                return int(asked.conflict_exit_code)
            raise


def _check(asked: Namespace) -> None:
    """Bring the words into one form; UsageError if they contradict each other."""
    if asked.command[:1] == ["--"]:  # newer versions of argparse leave it
        del asked.command[0]
    if asked.command and asked.command[0].startswith("-"):
        raise UsageError(f"put options such as {asked.command[0]} before PATH")
    if asked.shell is not None:
        if asked.command:
            raise UsageError("give either a COMMAND or --shell")
        asked.command = ["/bin/sh", "-c", asked.shell]
    if asked.list and asked.command:
        raise UsageError("--list runs no COMMAND")
    if asked.path == "/":
        raise UsageError("the root cannot be a lock")
    if asked.nonblock:
        asked.wait = 0.0
    asked.foreground = asked.foreground or (sys.__stdin__ is not None and os.isatty(0))
    check_lease_margin(asked.lease_margin, asked.session_timeout)
    _limits(asked, asked.session_timeout)


def _limits(asked: Namespace, timeout: float) -> tuple[float, float]:
    """The margin and the time between TERM and KILL in a session with this timeout.

    UsageError if they do not fit into it.
    """
    kill_after = min(KILL_AFTER, timeout * 0.3) if asked.kill_after is None else asked.kill_after
    margin = timeout / 10 if asked.margin is None else asked.margin
    if not kill_after < timeout / 2:
        raise UsageError(
            f"--kill-after {kill_after:g} must be less than half the session timeout, {timeout:g} s"
        )
    lease_margin = min(asked.lease_margin, timeout / LEAST_MARGINS)
    pings = max(timeout / 3, lease_margin * PINGS_APART)
    if kill_after + margin + pings > timeout * (1 - LEFT):
        raise UsageError(
            f"--kill-after {kill_after:g} and --margin {margin:g} leave too little of the session "
            f"timeout, {timeout:g} s, of which pings need {pings:.3g} s"
        )
    return margin, kill_after


def _locked(context: Context, asked: Namespace, signals: Signals) -> int:
    signals.raising = True
    grant = holding.acquire(context, asked)
    signals.raising = False
    loss = None
    try:
        status, loss = _used(context, asked, grant, signals)
    finally:
        signals.raising = True
        found = holding.release(context, grant, IN_DOUBT if loss else None)
        signals.raising = False
    loss = loss or found
    if loss is not None:
        raise statuses.with_status(
            LockLostError(f"{asked.path} was lost: {loss}"), statuses.LOCK_LOST
        )
    return status


def _used(
    context: Context, asked: Namespace, grant: Grant, signals: Signals
) -> tuple[int, str | None]:
    """The exit status, and why the lock was lost meanwhile."""
    try:
        margin, kill_after = _limits(asked, grant.client.session_timeout)
    except UsageError as error:  # the server has granted another timeout
        raise statuses.with_status(ValueError(str(error)), statuses.FAILED) from None
    if not asked.command:
        try:
            signals.raising = True  # while the output waits for its reader
            holding.show_grant(context.output, grant)
            signals.raising = False
        except Interrupted:
            if context.output.is_full():  # the line has not been written
                raise
            context.output.drop()  # its reader may have had the line already
            return 0, None
        return 0, holding.hold(grant, signals, margin)
    from zkwire.cli.lock.running import Running

    try:
        running = Running(context, asked, grant, signals, (margin, kill_after))
    except OSError as error:
        raise statuses.cannot_run(asked.command[0], error) from None
    return running.wait(), running.loss


# --- list -----------------------------------------------------------------------------------------
# The holders of a lock and its queue, whatever its kind and whatever client has made the nodes.
#
# The names of the nodes say the kind: below a semaphore stand ``leases`` and ``locks``, and readers
# have names of their own.  The age of a node is this machine's time of day less the server's time
# of its creation: it is as exact as the two clocks agree.

SIGNATURE = re.compile(r"(\S+):([0-9]{1,10})(?: (.*))?", re.DOTALL)
READERS = ("__READ__", "__rlock__")
DIGITS = 10
HEADER = f"{'#':>3} {'state':5} {'session':18} {'age':>8}  {'process':20} id"
WIDTH = 80


def contenders_of(client: zkwire.Client, path: str) -> list[dict[str, Any]]:
    """The holders and behind them the queue, in order, as JSON has them."""
    try:
        names = set(client.get_children(path))
    except NoNodeError:
        return []
    if names & {"leases", "locks"}:
        queue, holders = _semaphore(client, path)
    else:
        queue = zkwire.SequentialLock(client, path).contenders()
        readers = [is_reader(c.path) for c in queue]
        holders = max(1, ([*readers, False]).index(False))
    ages = [client.pipeline.exists(contender.path) for contender in queue]
    found: list[dict[str, Any]] = []
    for contender, reply in zip(queue, ages, strict=True):
        try:
            stat = reply.result()
        except NoAuthError:
            age = None  # the server shows nothing of it
        else:
            if stat is None:
                continue  # gone meanwhile
            age = max(0.0, round(time.time() - stat.ctime / 1000, 1))
        found.append(_fields(contender, len(found), len(found) < holders, age))
    return found


def is_reader(path: str) -> bool:
    """Whether the contender with this node shares the lock with others."""
    return path[:-DIGITS].endswith(READERS)


def _semaphore(client: zkwire.Client, path: str) -> tuple[list[zkwire.Contender], int]:
    """The leases and behind them those that have none yet; how many leases hold."""
    data = client.get_data(path).data or b""
    count = int(data) if data.isdigit() else 1
    places = (f"{path}/{name}" for name in ("leases", "locks"))
    leases, queue = (zkwire.SequentialLock(client, place).contenders() for place in places)
    waiting = {contender.session_id for contender in leases[count:]}
    return [*leases, *(c for c in queue if c.session_id not in waiting)], count


def _fields(
    contender: zkwire.Contender, position: int, held: bool, age: float | None
) -> dict[str, Any]:
    shown = contender.text or ""
    signed = SIGNATURE.fullmatch(shown)
    host, pid, text = signed.groups() if signed else (None, None, shown)
    process = {"host": host, "pid": None if pid is None else int(pid), "id": text or "", "age": age}
    session, shared = hex_id(contender.session_id), is_reader(contender.path)
    held_by = {"position": position, "held": held, "shared": shared, "session": session}
    return {**held_by, **process, "path": contender.path}


def show(output: Output, path: str, found: list[dict[str, Any]]) -> None:
    """A line for each, below a head, which fits into a terminal."""
    lines = [HEADER, *map(_line, found)] if found else []
    width = WIDTH if output.terminal else None
    output.result({"path": path, "contenders": found}, [line[:width] for line in lines])


def _line(one: dict[str, Any]) -> str:
    process = "-" if one["pid"] is None else f"{one['host']}:{one['pid']}"
    how = ("reads" if one["shared"] else "holds") if one["held"] else "waits"
    age = "-" if one["age"] is None else timedelta(seconds=int(one["age"]))
    words = f"{one['position']:>3} {how:5} {one['session']:18} {age!s:>8}"
    return f"{words}  {process:20} {one['id']}".rstrip()


# fmt: off
COMMANDS = {
    "lock": Command(_lock,
        arg("path", metavar="PATH", help="the node of the lock; it is made if it is missing"),
        arg("command", nargs=argparse.REMAINDER, metavar="COMMAND",
            help="what to run, without a shell"),
        flag("-n", "--nonblock", "fail if it is not free"),
        arg("-w", "--wait", "--timeout", dest="wait", type=duration, metavar="SECS",
            help="wait no longer than this"),
        one_of(
            flag("-s", "--shared", "share it with other readers"),
            flag("-x", "--exclusive", "share it with nobody (default)"),
            arg("--holders", type=integer("number of holders", 1), metavar="N",
                help="how many may hold it at a time")),
        arg("--names", choices=("zkwire", "kazoo"), default="zkwire",
            help="kazoo: its locks contend on the same path"),
        arg("-E", "--conflict-exit-code", default=statuses.TIMED_OUT, metavar="N",
            type=integer("exit status, a number from 0 to 255", 0, 255),
            help="the exit status if it is not free in time (124)"),
        arg("--on-lost", choices=("term", "kill", "warn"), default="term",
            help="what happens to COMMAND if the lock is lost"),
        arg("-k", "--kill-after", type=duration, metavar="SECS", help="between TERM and KILL (3)"),
        arg("--margin", type=duration, metavar="SECS",
            help="end this long before the session can (a tenth of its timeout)"),
        arg("--lease-margin", type=duration, default=0.0, metavar="SECS",
            help="count an answer once the server has had this long to tell its leader (0)"),
        arg("-c", "--shell", metavar="STRING", help="run this with sh -c"),
        arg("--id", default="", metavar="TEXT", help="shown to others by --list"),
        flag("--list", "show the holder and the queue"),
        flag("--foreground",
             "COMMAND keeps the terminal (as it does if that is standard input)"),
        usage="zkwire lock [OPTIONS] PATH [--] [COMMAND [ARG ...]]", in_shell=False),
}

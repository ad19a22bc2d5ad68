"""``zkwire watch``, a line for each change of a node, and ``zkwire wait``."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, Full, Queue
from threading import Thread
from time import monotonic
from typing import Any, NoReturn, Self

import zkwire
from zkwire import SeenChildren
from zkwire.cli import output as outputs
from zkwire.cli.command import Command, arg, duration, flag, integer, one_of
from zkwire.cli.context import Context
from zkwire.cli.output import CHANGES, DONE, TIMED_OUT, Output
from zkwire.errors import BUSY, ConnectionLossError, NoNodeError, ZooKeeperError
from zkwire.wire.model import EventType, State
from zkwire.wire.paths import check_path

# ``zkwire watch``: a line for each change of a node, of its children, or of its tree.
#
# Without ``-r`` and ``--persistent`` it compares states: each newest one is seen, behind a lost
# connection and behind an expired session as well, but not each of two that follow one another
# closely.  With one of them the server reports every change, but none of those during an outage.

Seen = zkwire.SeenData | SeenChildren


def _watch(context: Context, asked: Namespace) -> int:
    """
    zkwire watch /config            # each new state of one node
    zkwire watch -r / --json        # every change, an object on each line
    zkwire watch -n 1 --timeout 1h /go  # one change, or 124 after an hour

    Lines begin with created, changed, deleted; added, removed (--children);
    children (--persistent: the list has changed); exists, missing (--initial).
    It goes on when the connection is lost and when the session has expired:
      reconnected  the connection was lost, and is back
      resynced     the session had expired, and a new one watches
      gap          changes before this line may have been missed
    Without -r and --persistent the newest state is never missed.
    """
    path = check_path(context.path(asked.path))
    late = TIMED_OUT if asked.count else DONE
    if context.in_shell and context.output.terminal:
        context.output.note("Ctrl-C ends it; `addWatch` shows changes while you go on")
    stream = Stream(context.output, asked.count, asked.timeout, late)
    with context.supervisor() as supervisor, stream:
        context.await_session(supervisor, context.options.connect_timeout)
        if asked.recursive or asked.persistent:
            begin: Callable[[zkwire.Client], object] = Events(stream, path, asked)
        else:
            watch = supervisor.watch_children if asked.children else supervisor.watch_data
            begin = States(stream, path, iter(watch(path)), initial=asked.initial)
        stream.start(lambda: _follow(supervisor, stream, begin))
        return stream.run()


def _follow(
    supervisor: zkwire.Supervisor, stream: Stream, begin: Callable[[zkwire.Client], object]
) -> None:
    """Call ``begin(client)`` in each session; all but the first have their line."""
    for number, session in enumerate(supervisor):
        with session as client:
            if number:
                stream.put(stream.change, "resynced")
            begin(client)


class Events:
    """Every change, as the server reports it: one watch in each session."""

    def __init__(self, stream: Stream, path: str, asked: Namespace) -> None:
        self._stream, self._path = stream, path
        self._recursive, self._initial = asked.recursive, asked.initial
        self._began = False

    def __call__(self, client: zkwire.Client) -> None:
        while True:
            try:
                client.add_watch(self._path, zkwire.Watch(self._event), recursive=self._recursive)
                break
            except (ConnectionLossError, *BUSY):  # the lost request has not set the watch
                pass
        if self._began:
            self._stream.put(self._stream.gap, self._path)
        elif self._initial:
            self._show(client)
        self._began = True

    def _show(self, client: zkwire.Client) -> None:
        path = self._path
        there = client.exists(path) is not None
        with suppress(NoNodeError):
            for node in client.walk(path) if self._recursive and there else [path] * there:
                self._stream.put(self._stream.change, "exists", node)
        if not there:
            self._stream.put(self._stream.change, "missing", path)

    def _event(self, event: zkwire.Event) -> None:
        if event.type == EventType.REREAD:
            self._stream.put(self._stream.change, "reconnected")
            self._stream.put(self._stream.gap, event.path)
        elif event.type in CHANGES:
            self._stream.put(self._stream.change, CHANGES[event.type], event.path, zxid=event.zxid)


class States:
    """Each newest state, as the difference to the one before.

    Called in each session: tells of a connection that comes back.  Reading begins in the first,
    when a loss would be told.
    """

    def __init__(self, stream: Stream, path: str, states: Iterator[Seen], *, initial: bool) -> None:
        self._stream, self._path, self._initial = stream, path, initial
        self._states: Iterator[Seen] | None = states
        self._last: Seen | None = None
        self._lost = False

    def __call__(self, client: zkwire.Client) -> None:
        self._lost = False
        client.add_state_listener(self._state)
        if self._states is not None:
            states, self._states = self._states, None
            self._stream.start(lambda: self._stream.put_all(self.show, states))

    def _state(self, state: State) -> None:
        if state.usable and self._lost:
            self._lost = False
            self._stream.put(self._stream.change, "reconnected")
        self._lost = self._lost or state is State.DISCONNECTED

    def show(self, seen: Seen) -> None:
        """The lines for this state."""
        last, self._last = self._last, seen
        before, after = _names(last), _names(seen)
        if last is None:
            if self._initial:
                self._node("missing" if seen.stat is None else "exists", seen)
                self._children([], after, added="exists")
            return
        if seen.stat is not None and last.stat is not None and seen.skipped:
            self._stream.gap(self._path)
        if seen.stat is None:
            self._children(before, after)
            self._node("deleted", seen)
        elif last.stat is None or last.stat.czxid != seen.stat.czxid:
            if last.stat is not None:
                self._node("deleted", seen)
                before = []
            self._node("created", seen)
            self._children(before, after)
        elif isinstance(seen, SeenChildren):
            self._children(before, after)
        else:
            self._node("changed", seen)

    def _node(self, kind: str, seen: Seen) -> None:
        if seen.stat is None or isinstance(seen, SeenChildren):
            self._stream.change(kind, self._path)
            return
        says = f"version {seen.stat.version}"
        if seen.data:
            says += ", " + seen.data.decode(errors="backslashreplace")
        more = {"version": seen.stat.version, "data": outputs.data_fields(seen.data)}
        self._stream.change(kind, self._path, says, seen.stat.mzxid, **more)

    def _children(self, before: list[str], after: list[str], *, added: str = "added") -> None:
        below = self._path.rstrip("/")
        for name in sorted({*before} - {*after}):
            self._stream.change("removed", f"{below}/{name}")
        for name in sorted({*after} - {*before}):
            self._stream.change(added, f"{below}/{name}")


def _names(seen: Seen | None) -> list[str]:
    return (seen.children or []) if isinstance(seen, SeenChildren) else []


# --- stream ---------------------------------------------------------------------------------------
# What ``zkwire watch`` writes: a line for each change, until there are enough.
#
# Each line is written at once, by the main thread alone: other threads put calls into a queue,
# which is bounded, so a slow reader of the output slows them down.  A reader that has ended is
# noticed within a second, even if nothing changes.

WIDTH = 80
LOOK_SECONDS = 1.0
QUEUED = 100
MISSED = "changes before this line may have been missed"


class EnoughError(Exception):
    """There were as many changes as were asked for, or the time is over; its status."""


class Stream:
    """The lines; ``count`` changes end it with the status 0, ``seconds`` with ``late``."""

    def __init__(self, output: Output, count: int | None, seconds: float | None, late: int) -> None:
        self._output, self._left, self._late = output, count, late
        self._began = monotonic()
        self._until = None if seconds is None else self._began + seconds
        self._queue: Queue[Callable[[], object]] = Queue(QUEUED)
        self._closed = False

    def start(self, work: Callable[[], object]) -> None:
        """Run ``work`` in a thread; an error of it ends the command."""

        def run() -> None:
            try:
                work()
            except ZooKeeperError as error:
                self.put(_raise, error)

        Thread(target=run, name="zkwire-watch", daemon=True).start()

    def put(self, write: Callable[..., object], *args: object, **more: object) -> None:
        """Have ``write`` called by the main thread; blocks while there are too many."""
        while not self._closed:
            with suppress(Full):
                self._queue.put(partial(write, *args, **more), timeout=LOOK_SECONDS)
                return

    def put_all(self, write: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Have ``write`` called with each."""
        for item in items:
            self.put(write, item)

    def run(self) -> int:
        """Write until there are enough changes; the exit status.  Raises what ``write`` raises."""
        try:
            while True:
                self._next()()
        except EnoughError as enough:
            return int(enough.args[0])

    def _next(self) -> Callable[[], object]:
        while True:
            left = LOOK_SECONDS if self._until is None else self._until - monotonic()
            try:
                return self._queue.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except Empty:
                if left <= 0.0:
                    raise EnoughError(self._late) from None
                self._output.check_reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        while not self._queue.empty():  # a thread may wait for room
            self._queue.get()

    def change(
        self, kind: str, path: str = "", says: str = "", zxid: int | None = None, **more: object
    ) -> None:
        """One line; EnoughError behind the last that is wanted."""
        if self._output.json:
            when = {"time": outputs.now(), "t": round(monotonic() - self._began, 3)}
            place = {"path": path} if path else {}
            known = {"zxid": outputs.hex_id(zxid)} if zxid is not None else {}
            self._output.record({"event": kind, **when, **place, **known, **more}, flush=True)
        else:
            line = outputs.one_line(f"{kind} {path}".rstrip())
            self._output.line(_fitting(line, says), flush=True)
        if kind in {*CHANGES.values(), "added", "removed"} and self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise EnoughError(0)

    def gap(self, path: str) -> None:
        """Changes may have been missed."""
        self.change("gap", path, MISSED)


def _raise(error: ZooKeeperError) -> NoReturn:
    raise error


def _fitting(line: str, says: str) -> str:
    """``line: says``, where ``says`` is cut to what a line of a terminal has room for."""
    room = WIDTH - len(line) - 2
    said = outputs.one_line(says)
    if len(said) > room:
        said = said[: max(0, room - 3)] + "..."
    return f"{line}: {said}" if said and room > 3 else line


# --- wait -----------------------------------------------------------------------------------------
# ``zkwire wait``: it ends when a node is as it shall be.


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


def _fits(asked: Namespace, seen: Seen) -> bool:
    """Whether the state is the one that is waited for."""
    if seen.stat is None:
        return bool(asked.gone)
    if asked.children is not None:
        count = seen.stat.num_children
        return count >= asked.children if asked.children else count == 0
    if asked.data is not None:
        return asked.data.search(getattr(seen, "data", None) or b"") is not None
    return not asked.gone


def _wait(context: Context, asked: Namespace) -> int:
    """
    zkwire wait /ready --timeout 2m        # before a program that needs it
    zkwire wait /workers --children 3      # until three are there
    zkwire wait /config --data '"v": *2'   # until the data match

    It writes nothing (with --json the node), and exits with 0, or with 124 when
    the time is over. A lost connection and an expired session only take time;
    the first connection has to come within --connect-timeout.
    """
    path, patience = context.path(asked.path), asked.timeout
    until = None if patience is None else monotonic() + patience
    connecting = context.options.connect_timeout
    with context.supervisor() as supervisor:
        context.await_session(supervisor, min(connecting, patience or connecting))
        watch = supervisor.watch_data if asked.children is None else supervisor.watch_children
        with watch(path) as states:
            first = True
            while True:
                left = None if until is None else max(0.0, until - monotonic())
                # The first state is there as soon as the server answers: 0 seconds see it, too.
                seen = states.next(connecting if first and not left and until else left)
                first = False
                if seen is None:
                    return TIMED_OUT
                if _fits(asked, seen):
                    _tell(context, path, seen)
                    return DONE


def _tell(context: Context, path: str, seen: Seen) -> None:
    data = outputs.data_fields(getattr(seen, "data", None))
    shown = {"data": data, "stat": outputs.stat_fields(seen.stat)} if seen.stat else {}
    context.output.result({"path": path, "exists": seen.stat is not None, **shown})


# fmt: off
COMMANDS = {
    "watch": Command(_watch, arg("path", nargs="?", default=".", metavar="PATH"),
        one_of(
            flag("-r", "--recursive", "every change of the node and of all nodes below it"),
            flag("--persistent", "every change of the node, and of its list of children"),
            flag("--children", "the children that come and go, not the data")),
        flag("--initial", "begin with what is there now"),
        arg("-n", dest="count", type=integer("number of changes, from 1 on", 1), metavar="COUNT",
            help="exit after this many changes"),
        arg("--timeout", type=duration, metavar="DUR",
            help="exit after this long: with 0, or 124 if -n changes have not come")),
    "wait": Command(_wait, arg("path", metavar="PATH"),
        one_of(
            flag("--exists", "until the node exists (the default)"),
            flag("--gone", "until the node does not exist"),
            arg("--data", type=_pattern, metavar="REGEX",
                help="until its data match: anywhere, or from ^ to $"),
            arg("--children", type=integer("number of children"), metavar="N",
                help="until it has at least this many children; 0: none")),
        arg("--timeout", type=duration, metavar="DUR",
            help="wait at most this long, then exit with 124; 0 looks once")),
}

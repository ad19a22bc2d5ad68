"""``zkwire watch``: a line for each change of a node, of its children, or of its tree.

Without ``-r`` and ``--persistent`` it compares states: each newest one is seen, behind a lost
connection and behind an expired session as well, but not each of two that follow one another
closely.  With one of them the server reports every change, but none of those during an outage.
"""

from __future__ import annotations

from functools import partial
from threading import Thread

from zkwire import SeenChildren
from zkwire.cli.arguments import duration, wrong_word
from zkwire.cli.command import Command
from zkwire.cli.exits import DONE, TIMED_OUT
from zkwire.cli.nodes.stream import Stream
from zkwire.cli.output import data_fields
from zkwire.errors import BUSY, ConnectionLossError, NoNodeError, ZooKeeperError
from zkwire.wire.model import EventType, State
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from zkwire import Client, Event, SeenData, Supervisor
    from zkwire.cli.context import Context

KINDS: dict[int, str] = {
    EventType.NODE_CREATED: "created",
    EventType.NODE_DELETED: "deleted",
    EventType.NODE_DATA_CHANGED: "changed",
    EventType.NODE_CHILDREN_CHANGED: "children",
}


def _some(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise wrong_word(f"{text!r} is no number of changes, from 1 on")
    return int(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default=".", metavar="PATH")
    kind = parser.add_mutually_exclusive_group()
    does = "every change of the node and of all nodes below it"
    kind.add_argument("-r", "--recursive", action="store_true", help=does)
    does = "every change of the node, and of its list of children"
    kind.add_argument("--persistent", action="store_true", help=does)
    does = "the children that come and go, not the data"
    kind.add_argument("--children", action="store_true", help=does)
    does = "what is there now, first"
    parser.add_argument("--initial", action="store_true", help=does)
    does = "exit after so many changes"
    parser.add_argument("-n", dest="count", type=_some, metavar="COUNT", help=does)
    does = "exit after so long: with 0, or 124 if -n changes have not come"
    parser.add_argument("--timeout", type=duration, metavar="DUR", help=does)


def _watch(context: Context, asked: Namespace) -> int:
    path = check_path(context.path(asked.path))
    late = TIMED_OUT if asked.count else DONE
    if context.in_shell and context.output.terminal:
        context.output.note("Ctrl-C ends it; `addWatch` shows changes while you go on")
    stream = Stream(context.output, asked.count, asked.timeout, late)
    with context.supervisor() as supervisor, stream:
        context.await_session(supervisor, context.options.connect_timeout)
        if asked.recursive or asked.persistent:
            begin: Callable[[Client], object] = Events(stream, path, asked)
        else:
            show = States(stream, path, initial=asked.initial)
            watch = supervisor.watch_children if asked.children else supervisor.watch_data
            states: Iterator[SeenData | SeenChildren] = iter(watch(path))
            begin = Connections(stream, lambda: _read(states, stream, show)).listen
        _start(stream, lambda: _follow(supervisor, stream, begin))
        return stream.run()


def _start(stream: Stream, work: Callable[[], object]) -> None:
    """Run ``work`` in a thread; an error of it ends the command."""

    def run() -> None:
        try:
            work()
        except ZooKeeperError as error:
            stream.put(partial(_raise, error))

    Thread(target=run, name="zkwire-watch", daemon=True).start()


def _raise(error: ZooKeeperError) -> NoReturn:
    raise error


def _follow(supervisor: Supervisor, stream: Stream, begin: Callable[[Client], object]) -> None:
    """Call ``begin(client)`` in each session; all but the first have their line."""
    for number, session in enumerate(supervisor):
        with session as client:
            if number:
                stream.put(partial(stream.change, "resynced"))
            begin(client)


def _read(states: Iterator[SeenData | SeenChildren], stream: Stream, show: States) -> None:
    for seen in states:
        stream.put(partial(show, seen))


class Connections:
    """Tells of a connection that comes back; ``read`` begins when the first loss would be told."""

    def __init__(self, stream: Stream, read: Callable[[], object]) -> None:
        self._stream = stream
        self._read: Callable[[], object] | None = read
        self._lost = False

    def listen(self, client: Client) -> None:
        """From now on, in a new session."""
        self._lost = False
        client.add_state_listener(self._state)
        if self._read is not None:
            _start(self._stream, self._read)
            self._read = None

    def _state(self, state: State) -> None:
        if state.usable and self._lost:
            self._lost = False
            self._stream.put(partial(self._stream.change, "reconnected"))
        self._lost = self._lost or state is State.DISCONNECTED


class Events:
    """Every change, as the server reports it: one watch in each session."""

    def __init__(self, stream: Stream, path: str, asked: Namespace) -> None:
        self._stream = stream
        self._path = path
        self._recursive: bool = asked.recursive
        self._initial: bool = asked.initial
        self._began = False

    def __call__(self, client: Client) -> None:
        from zkwire import Watch

        while True:
            try:
                client.add_watch(self._path, Watch(self._event), recursive=self._recursive)
                break
            except (ConnectionLossError, *BUSY):  # the lost request has not set the watch
                pass
        if self._began:
            self._stream.put(partial(self._stream.gap, self._path))
        elif self._initial:
            self._show(client)
        self._began = True

    def _show(self, client: Client) -> None:
        change, put = self._stream.change, self._stream.put
        try:
            for path in client.walk(self._path) if self._recursive else [self._path]:
                if self._recursive or client.exists(path) is not None:
                    put(partial(change, "exists", path))
                else:
                    put(partial(change, "missing", path))
        except NoNodeError:
            put(partial(change, "missing", self._path))

    def _event(self, event: Event) -> None:
        if event.type == EventType.REREAD:
            self._stream.put(partial(self._stream.change, "reconnected"))
            self._stream.put(partial(self._stream.gap, event.path))
        elif event.type in KINDS:
            kind = KINDS[event.type]
            self._stream.put(partial(self._stream.change, kind, event.path, zxid=event.zxid))


class States:
    """Each newest state, as the difference to the one before."""

    def __init__(self, stream: Stream, path: str, *, initial: bool) -> None:
        self._stream = stream
        self._path = path
        self._shown = initial
        self._last: SeenData | SeenChildren | None = None

    def __call__(self, seen: SeenData | SeenChildren) -> None:
        last, self._last = self._last, seen
        if last is None:
            if self._shown:
                self._node("missing" if seen.stat is None else "exists", seen)
                self._children([], _names(seen), added="exists")
            return
        if seen.stat is not None and last.stat is not None and seen.skipped:
            self._stream.gap(self._path)
        before, after = _names(last), _names(seen)
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

    def _node(self, kind: str, seen: SeenData | SeenChildren) -> None:
        if seen.stat is None or isinstance(seen, SeenChildren):
            self._stream.change(kind, self._path)
            return
        says = f"version {seen.stat.version}"
        if seen.data:
            says += ", " + seen.data.decode(errors="backslashreplace")
        more = {"version": seen.stat.version, "data": data_fields(seen.data)}
        self._stream.change(kind, self._path, says, seen.stat.mzxid, **more)

    def _children(self, before: list[str], after: list[str], *, added: str = "added") -> None:
        below = self._path.rstrip("/")
        for name in sorted({*before} - {*after}):
            self._stream.change("removed", f"{below}/{name}")
        for name in sorted({*after} - {*before}):
            self._stream.change(added, f"{below}/{name}")


def _names(seen: SeenData | SeenChildren) -> list[str]:
    return (seen.children or []) if isinstance(seen, SeenChildren) else []


COMMANDS = {
    "watch": Command(
        _watch,
        _arguments,
        examples=(
            "zkwire watch /config            # each new state of one node",
            "zkwire watch -r / --json        # every change, an object on each line",
            "zkwire watch -n 1 --timeout 1h /go  # one change, or 124 after an hour",
        ),
        details="Lines begin with created, changed, deleted; added, removed (--children);\n"
        "children (--persistent: the list has changed); exists, missing (--initial).\n"
        "It goes on when the connection is lost and when the session has expired:\n"
        "  reconnected  the connection was lost, and is back\n"
        "  resynced     the session had expired, and a new one watches\n"
        "  gap          changes before this line may have been missed\n"
        "Without -r and --persistent the newest state is never missed.",
    ),
}

"""Whether two states of a simulation are the same one, however they were reached.

A state is what can still matter: the server's tree, sessions and watches; of each client its
automaton, its tasks (where each one stands, with its variables, or how it has ended) and its locks;
the frames that are under way; what checks remember; and all times, as seconds from now.  Two
objects are the same if everything is that can be reached from them, and if they are shared by the
same others.  What is not known to be without effect counts, so that at worst equal states are taken
for different ones.

Not part of it: what runs count for their reports, the names of connections, and what nobody reads:
when a node was made and written.  Numbers that a server has given out (zxids, sequence numbers) and
xids are part of it.  What cannot be looked into is an error.
"""

from __future__ import annotations

import copyreg
import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from random import Random
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

from zkwire.aio.runtime import AsyncWorld
from zkwire.operations import Operations
from zkwire.session.session import Session
from zkwire.testing.server.connection import Connection
from zkwire.testing.simulation.client import Client, Link, Shell, Task
from zkwire.testing.simulation.simulation import Check, Simulation
from zkwire.testing.simulation.stale_reads import tree_fingerprint
from zkwire.wire.ops import Op

_EARLIEST: Final = 99.0
"""The simulation begins a second later; no span of time that stands in a state is as long."""
_PLAIN: Final = frozenset({str, bytes, bool, type(None)})
_NAMED: Final = (
    AsyncWorld, Shell, Operations, Op, Simulation, ModuleType, MethodDescriptorType, type, property,
)  # fmt: skip
"""What does not change, or only in what is looked at anyway; the name is enough."""
_WITHOUT_EFFECT: Final[dict[type, frozenset[str]]] = {
    Client: frozenset({"print", "sim", "link", "ghosts", "locks"}),
    Task: frozenset({"awaits", "result"}),
    Session: frozenset({"failures", "last_failure", "trace"}),
}
"""Attributes that are told elsewhere, or to people only."""
_NOT_ON_THE_STACK: Final = (FrameType, CodeType, FunctionType)
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement has made it
_NOTHING: Final = object()


class Reader:
    """Reads everything that can be reached from an object, always in the same order."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is used twice
        self._out: list[object] = []

    def fingerprint(self, root: object) -> int:
        """A number that is equal for equal things."""
        self._read(root)
        return hash(tuple(self._out))

    def _read(self, value: Any) -> None:
        kind = value.__class__
        if kind in _PLAIN:
            self._out.append(value)
        elif kind is int:
            self._out.append(_told(value))
        elif kind is float:
            self._out.append(self._span(value) if value > _EARLIEST else _told(value))
        elif issubclass(kind, tuple):  # has no identity that anybody could tell
            self.each(value)
        elif isinstance(value, Enum):
            self._out.append(value.name)
        elif (number := self._numbers.get(id(value))) is not None:
            self._out += ("again", number)
        else:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            reader = _READERS.get(kind)
            if reader is None:
                reader = _READERS[kind] = _reader_for(kind)
            self._out.append(kind.__name__)
            reader(self, value)

    def _span(self, moment: float) -> float | str:
        seconds = moment - self._now
        # Rounding must not hide whether it has come.
        return _told(round(seconds, 5)) if abs(seconds) > 1e-5 else str(seconds > 0)

    def each(self, values: Iterable[Any]) -> None:
        """One after the other, and how many."""
        before = len(self._out)
        for value in values:
            self._read(value)
        self._out.append(len(self._out) - before)

    def _sorted(self, values: Iterable[Any]) -> None:
        self.each(sorted(values, key=lambda value: Reader(self._now).fingerprint(value)))

    def _dict(self, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            self._read("itself" if key == id(value) else key)
            self._read(value)
        self._out.append("}")

    def _name(self, value: Any) -> None:
        self._out.append(getattr(value, "__qualname__", type(value).__qualname__))

    def _random(self, value: Random) -> None:
        words = value.getstate()[1]
        self._out += (words[0], words[-1])  # the latter says how often it was used

    def _bytes(self, value: bytearray) -> None:
        self._out.append(bytes(value))

    def _function(self, value: FunctionType) -> None:
        self._out += (value.__qualname__, value.__code__)
        self.each((value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ())))

    def _builtin(self, value: BuiltinFunctionType) -> None:
        self._out.append(value.__qualname__)
        self._read(value.__self__)

    def _reduced(self, value: Any) -> None:
        self.each(value.__reduce__()[1:])  # of an iterator: over what, and where

    def _awaited(self, value: Any) -> None:
        self.each(gc.get_referents(value))  # of `coroutine.__await__()`: the coroutine

    def _cell(self, value: CellType) -> None:
        try:
            self._read(value.cell_contents)
        except ValueError:
            self._out.append("empty")

    def _method(self, value: MethodType) -> None:
        self._out.append(value.__func__.__qualname__)
        self._read(value.__self__)

    def _partial(self, value: partial[Any]) -> None:
        self.each((value.func, value.args, value.keywords))

    def _coroutine(self, value: CoroutineType[Any, Any, Any]) -> None:
        self._frame(value, value.cr_frame)
        self._read(value.cr_await)

    def _generator(self, value: GeneratorType[Any, Any, Any]) -> None:
        self._frame(value, value.gi_frame)
        self._read(value.gi_yieldfrom)

    def _frame(
        self,
        value: CoroutineType[Any, Any, Any] | GeneratorType[Any, Any, Any],
        frame: FrameType | None,
    ) -> None:
        self._out.append(value.__qualname__)
        if frame is None:
            return
        self._out.append(frame.f_lasti)
        variables = frame.f_locals
        # Sorted: their order tells when somebody has looked at this frame before.
        self._dict(dict(sorted(variables.items())))
        # What has no name: the error that a `finally` will raise again, where a loop has got to.
        for found in gc.get_referents(value):
            if not isinstance(found, _NOT_ON_THE_STACK) and found is not variables:
                self._read(found)

    def _error(self, value: BaseException) -> None:
        self.each((value.args, vars(value)))

    def _connection(self, value: Connection) -> None:
        self._out += (value.member, value.ended, value.greeted)

    def _instance(self, value: Any, names: tuple[str, ...], without: frozenset[str]) -> None:
        for name in names:
            if (found := getattr(value, name, _NOTHING)) is not _NOTHING:
                self._out.append(name)
                self._read(found)
        for name, found in getattr(value, "__dict__", {}).items():
            if name not in without:
                self._out.append(name)
                self._read(found)


_READERS: dict[type, Callable[[Reader, Any], None]] = {
    bytearray: Reader._bytes,
    list: Reader.each,
    deque: Reader.each,
    dict: Reader._dict,
    set: Reader._sorted,
    frozenset: Reader._sorted,
    Random: Reader._random,
    FunctionType: Reader._function,
    CellType: Reader._cell,
    MethodType: Reader._method,
    partial: Reader._partial,
    BuiltinFunctionType: Reader._builtin,
    range: Reader._reduced,
    CoroutineType: Reader._coroutine,
    GeneratorType: Reader._generator,
    Connection: Reader._connection,
}


def _told(number: float) -> float | str:
    """What tells numbers apart by their hashes: those of -1 and -2 are the same."""
    return str(number) if number < 0 else number


def _reader_for(kind: type) -> Callable[[Reader, Any], None]:
    reduces = "__reduce__" in vars(kind)
    if issubclass(kind, _NAMED):
        return Reader._name
    if issubclass(kind, BaseException):
        return Reader._error
    if not kind.__flags__ & _HEAP_TYPE:
        if issubclass(kind, Iterator):
            return Reader._reduced if reduces else Reader._awaited
        raise TypeError(f"nobody can look into a {kind.__qualname__}")
    slots = getattr(copyreg, "_slotnames")(kind)  # noqa: B009 - known to no stub
    without = frozenset[str]().union(
        *(names for known, names in _WITHOUT_EFFECT.items() if issubclass(kind, known))
    )
    names = tuple(name for name in slots if name not in without and name != "__weakref__")
    return lambda reader, value: reader._instance(value, names, without)


# --- a state --------------------------------------------------------------------------------------


Known = dict[tuple[object, ...], int]
"""Prints of processes, by what has happened to them.

Other runs of the same scenario may use them: whoever has gone through the same is the same.  In
3,000 states of two contenders are some 600 processes.
"""


def parts(sim: Simulation, known: Known | None = None) -> tuple[int, ...]:
    """Prints of the clock, the server and what checks remember; then of each client two.

    One is of its process, with its tasks, the other of what is under way between it and the server.
    """
    known = {} if known is None else known
    found = [_clock(sim), _server(sim), _checks(sim)]
    by_client: dict[Client, list[Task]] = {client: [] for client in sim.clients}
    for task in sim.tasks:
        by_client[task.client].append(task)
    for client, tasks in by_client.items():
        found += (_process(sim, client, tasks, known), _network(sim, client))
    return tuple(found)


def state_fingerprint(sim: Simulation, known: Known | None = None) -> int:
    """Equal for equal states, up to accidents of one in 2**60."""
    return hash(parts(sim, known))


def _clock(sim: Simulation) -> int:
    stolen = sorted((czxid, round(sim.now - at, 5)) for czxid, at in sim.stolen.items())
    return hash((round(sim.now % sim.tick, 5), *stolen))


def _checks(sim: Simulation) -> int:
    """What they remember, and how tasks have ended, which they may look at in the end.

    In which order is no part of it; nor are those in the background, whose names are used again.
    """
    ended = {t.name: (t.error, t.result) for t in sim.ended if not t.background}
    return Reader(sim.now).fingerprint(
        [list(map(_comparison_key, sim.checks)), sorted(ended.items())]
    )


def _comparison_key(check: Check) -> object:
    """The check's own key, or else everything that can be reached from the check."""
    key = getattr(check, "comparison_key", None)
    return key() if key is not None else (check, type(check).step, type(check).end)


def _process(sim: Simulation, client: Client, tasks: list[Task], known: Known) -> int:
    key = (client.name, client.print, sim.now, len(tasks))
    found = known.get(key)
    if found is None:
        found = known[key] = Reader(sim.now).fingerprint([tasks, client])
    return found


def _network(sim: Simulation, client: Client) -> int:
    links = [*client.ghosts, *([client.link] if client.link is not None else ())]
    return hash((client.link is None, *(_link(sim, link) for link in links)))


def _link(sim: Simulation, link: Link) -> tuple[object, ...]:
    connection, stale = link.connection, sim.stale_servers.get(link.connection)
    handshake_until = sim.processor._without_session.get(connection)
    session = connection.session
    return (
        (*map(tuple, link.up), "|", *link.down, link.written),
        (connection.ended, connection.greeted, connection.member, connection.first_bytes is None),
        session and session.session_id,
        handshake_until and round(handshake_until - sim.now, 5),
        stale and stale.fingerprint(),
    )


def _server(sim: Simulation) -> int:
    tree, now = sim.tree, sim.now * 1000
    names = {
        link.connection: (client.name, number)
        for client in sim.clients
        for number, link in enumerate([client.link, *client.ghosts])
        if link is not None
    }
    sessions = [
        (s.session_id, s.passwd, s.timeout, s.local, round(s.expires - now), s.member,
         *((member, names.get(connection)) for member, connection in s.connections.items()))
        for s in sim.sessions
    ]  # fmt: skip
    watchers = sim.processor.state.watchers
    watches = [
        (path, str(names.get(connection)), int(mode), number)
        for number, table in enumerate((watchers._data, watchers._child))
        for path, entries in table.watchers.items()
        for connection, mode in entries.items()
    ]
    return hash((
        tree_fingerprint(tree), *sim.tree_history.fingerprint(_oldest_zxid(sim)),
        *sessions, *sorted(watches),
        sim.sessions._next_id, round(sim.processor._reap_at - sim.now, 5),
        *(round(now - tree.nodes[path].mtime) for path in tree._reapable),
    ))  # fmt: skip


def _oldest_zxid(sim: Simulation) -> int:
    """No client can be shown anything older."""
    known = (c.session.last_zxid for c in sim.clients if not (c.dead or c.session.ended))
    return min(known, default=sim.tree.zxid)

"""Whether two states of a simulation are the same one, however they were reached.

A state is what can still matter: the server's tree, sessions and watches; of each client its
automaton, its tasks (where each one stands, with its variables) and its locks; the frames that are
under way; and all times, as seconds from now.  Two objects are the same if everything is that can
be reached from them, and if they are shared by the same others.  What is not known to be without
effect counts, so that at worst equal states are taken for different ones.

Not part of it: what runs count for their reports, texts for people, and the names of connections.
Numbers that a server has given out (zxids, sequence numbers) and xids are part of it.
"""

from __future__ import annotations

import copyreg
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from random import Random
from types import (
    BuiltinFunctionType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, Final

from zkwire.aio.world import AsyncWorld
from zkwire.ops import Op
from zkwire.testing.connection import Connection
from zkwire.testing.simulated_client import Client, Shell, Task
from zkwire.verbs import Verbs

if TYPE_CHECKING:
    from zkwire.testing.simulation import Simulation

_EARLIEST: Final = 99.0
"""The simulation begins a second later; no span of time that stands in a state is as long."""
_PLAIN: Final = frozenset({int, str, bytes, bool, type(None)})
_NAMED: Final = (AsyncWorld, Shell, Verbs, Op, ModuleType, type, BuiltinFunctionType, property)
"""What does not change, or only in what is looked at anyway; the name is enough."""
_WITHOUT_EFFECT: Final = frozenset({
    "print", "sim", "awaits", "failures", "last_failure", "trace", "__weakref__",
    "result", "seen", "link", "ghosts",
})  # fmt: skip
_NOTHING: Final = object()


class Reader:
    """Reads everything that can be reached from an object, always in the same order."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is used twice
        self._out: list[object] = []

    def print(self, root: object) -> int:
        """A number that is equal for equal things."""
        self._read(root)
        return hash(tuple(self._out))

    def _read(self, value: Any) -> None:
        kind = value.__class__
        if kind in _PLAIN:
            self._out.append(value)
        elif kind is float:
            self._out.append(round(value - self._now, 5) if value > _EARLIEST else value)
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

    def each(self, values: Iterable[Any]) -> None:
        """One after the other, and how many."""
        before = len(self._out)
        for value in values:
            self._read(value)
        self._out.append(len(self._out) - before)

    def _sorted(self, values: Iterable[Any]) -> None:
        self._out += sorted(Reader(self._now).print(value) for value in values)

    def _dict(self, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            if key not in _WITHOUT_EFFECT:
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
        self._out.append(value.__qualname__)
        self.each(value.__closure__ or ())

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
        self._frame(value.__qualname__, value.cr_frame)
        self._read(value.cr_await)

    def _generator(self, value: GeneratorType[Any, Any, Any]) -> None:
        self._frame(value.__qualname__, value.gi_frame)
        self._read(value.gi_yieldfrom)

    def _frame(self, name: str, frame: FrameType | None) -> None:
        self._out.append(name)
        if frame is not None:
            self._out.append(frame.f_lasti)
            self._dict(frame.f_locals)

    def _error(self, value: BaseException) -> None:
        self.each((value.args, vars(value)))

    def _connection(self, value: Connection) -> None:
        self._out += (value.member, value.ended, value.greeted)

    def _instance(self, value: Any, names: tuple[str, ...]) -> None:
        for name in names:
            if (found := getattr(value, name, _NOTHING)) is not _NOTHING:
                self._out.append(name)
                self._read(found)
        if (found := getattr(value, "__dict__", None)) is not None:
            self._dict(found)


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
    CoroutineType: Reader._coroutine,
    GeneratorType: Reader._generator,
    Connection: Reader._connection,
}


def _reader_for(kind: type) -> Callable[[Reader, Any], None]:
    if issubclass(kind, _NAMED):
        return Reader._name
    if issubclass(kind, BaseException):
        return Reader._error
    slots = getattr(copyreg, "_slotnames")(kind)  # noqa: B009 - known to no stub
    names = tuple(name for name in slots if name not in _WITHOUT_EFFECT)
    return lambda reader, value: reader._instance(value, names)


def state_print(sim: Simulation) -> int:
    """Equal for equal states, up to accidents of one in 2**60."""
    parts: list[object] = [_server(sim), round(sim.now % sim.tick, 5), bool(sim.stolen)]
    for client in sim.clients:
        tasks = [task for task in sim.tasks if task.client is client]
        parts.append(_client(sim, client, tasks))
    for check in sim.checks:
        memory = getattr(check, "memory", None)
        parts.append(memory() if memory is not None else 0)
    return hash(tuple(parts))


def _client(sim: Simulation, client: Client, tasks: list[Task]) -> int:
    """Its part of the state, which is made anew only if something has happened to it."""
    key = (client.print, sim.now, len(tasks))
    if client.seen is None or client.seen[0] != key:
        client.seen = (key, Reader(sim.now).print([tasks, client]))
    links = [*client.ghosts, *([client.link] if client.link is not None else ())]
    frames = [(*link.up, "|", *link.down, link.written, link.connection.ended) for link in links]
    behind = client.link and sim.behind.get(client.link.connection)
    held = (behind.tree.zxid, *behind.held) if behind else ()
    return hash((client.seen[1], client.link is None, held, *frames))


def _server(sim: Simulation) -> int:
    tree, now = sim.tree, sim.now * 1000
    names = {
        link.connection: (client.name, number)
        for client in sim.clients
        for number, link in enumerate([client.link, *client.ghosts])
        if link is not None
    }
    nodes = [
        (path, n.owner, n.czxid, n.mzxid, n.pzxid, n.version, n.created, n.data)
        for path, n in sorted(tree.nodes.items())
    ]
    sessions = [
        (s.session_id, round(s.expires - now), s.member, *map(names.get, s.connections.values()))
        for s in sim.sessions
    ]
    watchers = sim.processor.world.watchers
    watches = [
        (path, str(names.get(connection)), int(mode), number)
        for number, table in enumerate((watchers._data, watchers._child))
        for path, entries in table.watchers.items()
        for connection, mode in entries.items()
    ]
    return hash((tree.zxid, *sim.past.memory(), *nodes, *sessions, *sorted(watches)))

"""Fingerprints of the states of a simulation: equal states have equal ones, however reached.

A state has everything that can still have an effect: the server's tree, sessions and watches; of
each client its state machine, its tasks (the position and the variables of each, or how it has
ended) and its locks; the frames under way; the comparison keys of checks; and all times, as seconds
from now.  Two objects are equal if everything that can be reached from them is equal and is shared
in the same way.  Whatever may have an effect counts, so at worst equal states count as different.

A state does not have: figures for reports, names of connections, and the times at which nodes were
created and written, which no recipe reads.  Numbers from a server (zxids, sequence numbers) and
xids are part of it.  An object that cannot be read is an error.
"""

from __future__ import annotations

import copyreg
import gc
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any, Final

from zkwire.net.pipeline import Pipeline
from zkwire.session.session import Session
from zkwire.testing.server.sessions import Connection
from zkwire.testing.simulation.client import Client, Link, SimulatedDriver, Task
from zkwire.testing.simulation.simulation import Check, Simulation
from zkwire.testing.simulation.stage import tree_fingerprint
from zkwire.wire.ops import Op

_EARLIEST: Final = 99.0
"""Larger floats are moments, since a simulation starts at 100.0 and no duration is as long."""
_PLAIN: Final = frozenset({str, bytes, bool, type(None), types.CodeType})
_NAMED: Final = frozenset({
    SimulatedDriver, Pipeline, Op, Simulation,
    types.ModuleType, types.MethodDescriptorType, type, property,
})  # fmt: skip
"""Objects that do not change, or whose changing parts are read elsewhere: the name is enough."""
_WITHOUT_EFFECT: Final[dict[type, frozenset[str]]] = {
    Client: frozenset({"print", "sim", "link", "ghosts", "locks"}),
    Task: frozenset({"awaits", "result"}),
    Session: frozenset({"failures", "last_failure", "trace"}),
}
"""Attributes that are read elsewhere, or that only reports and histories use."""
_NOT_ON_THE_STACK: Final = (types.FrameType, types.CodeType, types.FunctionType)
_UNTIL_USES: Final = 624  # the last number of a generator's state counts its uses
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement has made it
_UNORDERED: Final = (set, frozenset)
_NOTHING: Final = object()


class Reader:
    """Reads everything that can be reached from an object, always in the same order."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # a kept object's id is not used again
        self._out: list[object] = []

    def fingerprint(self, root: object) -> int:
        """A number that is equal for equal objects."""
        self._read(root)
        return hash(tuple(self._out))

    def _read(self, value: Any) -> None:
        kind = value.__class__
        if kind in _PLAIN:
            self._out.append(value)
        elif kind is int:
            self._out.append(_distinct(value))
        elif kind is float:
            self._out.append(self._span(value) if value > _EARLIEST else _distinct(value))
        elif issubclass(kind, tuple):  # for a tuple it makes no difference whether it is shared
            self.each(value)
        elif isinstance(value, Enum):
            self._out.append(value.name)
        elif (number := self._numbers.get(id(value))) is not None:
            self._out += ("again", number)
        else:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            parts_of = _PARTS.get(kind)
            if parts_of is None:
                parts_of = _PARTS[kind] = _parts_of(kind)
            self._out.append(kind.__name__)
            self.each(self._sorted(value) if kind in _UNORDERED else parts_of(value))

    def _span(self, moment: float) -> float | str:
        seconds = moment - self._now
        # Rounding must not hide whether the moment has come.
        return _distinct(round(seconds, 5)) if abs(seconds) > 1e-5 else str(seconds > 0)

    def each(self, values: Iterable[Any]) -> None:
        """Read the values in order, then their number."""
        before = len(self._out)
        for value in values:
            self._read(value)
        self._out.append(len(self._out) - before)

    def _sorted(self, values: Iterable[Any]) -> list[Any]:
        return sorted(values, key=lambda value: Reader(self._now).fingerprint(value))


def _items(values: dict[Any, Any]) -> Iterator[Any]:
    for key, value in values.items():
        yield "itself" if key == id(value) else key
        yield value


def _attributes(value: Any, names: tuple[str, ...], without: frozenset[str]) -> Iterator[Any]:
    for name in names:
        if (found := getattr(value, name, _NOTHING)) is not _NOTHING:
            yield from (name, found)
    for name, found in getattr(value, "__dict__", {}).items():
        if name not in without:
            yield from (name, found)


def _cell(value: types.CellType) -> tuple[Any, ...]:
    try:
        return (value.cell_contents,)
    except ValueError:  # it is empty
        return ()


def _suspended(value: Any, frame: types.FrameType | None, awaited: object) -> Iterator[Any]:
    """What the frame of a coroutine or a generator has."""
    yield value.__qualname__
    if frame is not None:
        yield frame.f_lasti
        variables = frame.f_locals
        # Sorted: their order depends on whether this frame was read before.
        yield tuple(sorted(variables.items(), key=itemgetter(0)))
        # Values without a name: the error that a `finally` raises again, the iterator of a loop.
        for found in gc.get_referents(value):
            if not isinstance(found, _NOT_ON_THE_STACK) and found is not variables:
                yield found
    yield awaited


_Parts = Callable[[Any], Iterable[Any]]
_PARTS: Final[dict[type, _Parts]] = {
    **dict.fromkeys((list, deque, set, frozenset), iter),
    **dict.fromkeys((dict, defaultdict), _items),
    bytearray: lambda value: (bytes(value),),
    Random: lambda value: value.getstate()[1][:: _UNTIL_USES],
    types.FunctionType: lambda value: (
        value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__,
        *(value.__closure__ or ()),
    ),
    types.CellType: _cell,
    types.MethodType: lambda value: (value.__func__.__qualname__, value.__self__),
    partial: lambda value: (value.func, value.args, value.keywords),
    types.BuiltinFunctionType: lambda value: (value.__qualname__, value.__self__),
    range: lambda value: (value.start, value.stop, value.step),
    types.CoroutineType: lambda value: _suspended(value, value.cr_frame, value.cr_await),
    types.GeneratorType: lambda value: _suspended(value, value.gi_frame, value.gi_yieldfrom),
    Connection: lambda value: (value.member, value.ended, value.greeted),
}  # fmt: skip
"""What is read in the place of an object of one of these types, and of those met so far."""


def _distinct(number: float) -> float | str:
    """The number, or a string for a negative one: -1 and -2 have the same hash."""
    return str(number) if number < 0 else number


def _parts_of(kind: Any) -> _Parts:
    """What gives the parts of an object of this type."""
    name: str = kind.__qualname__
    bases = kind.__mro__
    if not _NAMED.isdisjoint(bases):
        return lambda value: (getattr(value, "__qualname__", name),)
    if BaseException in bases:
        return lambda value: (value.args, value.__dict__)
    if kind.__flags__ & _HEAP_TYPE:
        slots = getattr(copyreg, "_slotnames")(kind)  # noqa: B009 - known to no stub
        without = frozenset[str]().union(
            *(names for known, names in _WITHOUT_EFFECT.items() if issubclass(kind, known))
        )
        names = tuple(name for name in slots if name not in without and name != "__weakref__")
        return lambda value: _attributes(value, names, without)
    if not hasattr(kind, "__next__"):
        raise TypeError(f"a state of a simulation cannot contain a {name}")
    if "__reduce__" in vars(kind):
        return lambda value: value.__reduce__()[1:]  # for an iterator: its object and its position
    return gc.get_referents  # of `coroutine.__await__()`: the coroutine


# --- a state --------------------------------------------------------------------------------------


Known = dict[tuple[object, ...], int]
"""Fingerprints of processes, by the fingerprint of their history.

All runs of a scenario share them: processes with equal histories are equal.  In 3,000 states of
two contenders there are some 600 different processes.
"""


def parts(sim: Simulation, known: Known | None = None) -> tuple[int, ...]:
    """Fingerprints of the clock, the server and the checks; then two of each client.

    The first is of its process, with its tasks, the second of the frames under way.
    """
    known = {} if known is None else known
    found = [_clock(sim), _server(sim), _checks(sim)]
    all_tasks = sim.tasks
    for client in sim.clients:
        tasks = [task for task in all_tasks if task.client is client]
        found += (_process(sim, client, tasks, known), _network(sim, client))
    return tuple(found)


def state_fingerprint(sim: Simulation, known: Known | None = None) -> int:
    """The fingerprint of a state; two different states share one with a chance of 2**-60."""
    return hash(parts(sim, known))


def _clock(sim: Simulation) -> int:
    stolen = sorted((czxid, round(sim.now - at, 5)) for czxid, at in sim.stolen.items())
    return hash((round(sim.now % sim.tick, 5), *stolen))


def _checks(sim: Simulation) -> int:
    """The keys of the checks, and how tasks have ended, which checks may look at in the end.

    The order in which they ended does not count, nor do tasks in the background, whose names are
    used again.
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
        for number, table in enumerate((watchers.data, watchers.child))
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
    """The last zxid of the client that has seen least: no client may see an older tree."""
    known = (client.session.last_zxid for client in sim.clients if client.lives)
    return min(known, default=sim.tree.zxid)

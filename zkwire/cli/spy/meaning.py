"""What the numbers of the protocol mean, in words: opcodes, errors, flags, events, special xids."""

from __future__ import annotations

from zkwire.cli.output import hex_id, moment
from zkwire.errors import SERVER_ERRORS, error_for
from zkwire.testing.proxy.frames import OPCODES
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms, WatchType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.cli.spy.rows import Row

HIDDEN = "•••"
NAMES = {opcode: name for name, opcode in OPCODES.items()}
XIDS = {
    ops.NOTIFICATION_XID: "a watch event",
    ops.PING_XID: "a ping",
    ops.AUTH_XID: "an authentication",
    ops.SET_WATCHES_XID: "watches set again",
}
STATES = {0: "disconnected", 3: "sync_connected", 5: "connected_read_only", -112: "expired"}
FLAGS = {
    0: (),
    1: ("ephemeral",),
    2: ("sequential",),
    3: ("ephemeral", "sequential"),
    4: ("container",),
    5: ("ttl",),
    6: ("ttl", "sequential"),
}
MODES = {0: "persistent", 1: "persistent_recursive"}
# Other spellings of operations, and all operations that a word stands for.
FAMILIES = {
    "create": ("create", "create2", "create_container", "create_ttl"),
    "get_children": ("get_children", "get_children2"),
    "set_watches": ("set_watches", "set_watches2"),
    "notification": ("watch",),
}
_EVENTS = {1: "created", 2: "deleted", 3: "data_changed", 4: "children_changed"}
_IDS = frozenset({"session_id", "zxid", "last_zxid_seen", "relative_zxid", "cur_config_id"})
_STAT_IDS = frozenset({"czxid", "mzxid", "pzxid", "ephemeral_owner"})


def operations(word: str) -> tuple[str, ...]:
    """The operations that a word means: ``getData``, ``get_data``, ``create`` and its kinds.

    Raises ValueError for a word that names none.
    """
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in word)
    name = {"create_t_t_l": "create_ttl", "get_a_c_l": "get_acl", "set_a_c_l": "set_acl"}.get(
        name, name
    )
    if name not in OPCODES and name not in {"connect", "watch", "notification"}:
        known = ", ".join(sorted(set(OPCODES) | {"connect", "watch"}))
        raise ValueError(f"there is no operation {word!r}; there are {known}")
    return FAMILIES.get(name, (name,))


def error_name(code: int) -> str:
    """``ok``, ``NoNode`` and so on; the number of an error that zkwire does not know."""
    if code == 0:
        return "ok"
    name = type(error_for(code, None, None)).__name__.removesuffix("Error")
    return name if name != "Server" or code in SERVER_ERRORS else str(code)


def event_name(number: int) -> str:
    """What has happened to a node, or the number."""
    if number in _EVENTS:
        return _EVENTS[number]
    known = number in EventType.__members__.values()
    return EventType(number).name.lower() if known else str(number)


def shown(row: Row) -> str:
    """The value of a row for people: ids in hexadecimal digits, times in UTC."""
    value, last = row.value, row.name.rpartition(".")[2]
    if row.secret:
        return HIDDEN
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, int) and (last in _IDS or last in _STAT_IDS):
        return hex_id(value)
    if last in {"ctime", "mtime"} and isinstance(value, int):
        return moment(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flags(code: int) -> str:
    return " ".join(FLAGS[code]) or "persistent" if code in FLAGS else ""


def _perms(code: int) -> str:
    return " ".join(perm.name.lower() for perm in Perms if perm in Perms(code) and perm.name)


# Of the fields whose numbers have names.
_NOTES: dict[str, Callable[[int], str]] = {
    "err": error_name,
    "flags": _flags,
    "mode": lambda code: MODES.get(code, ""),
    "state": lambda code: STATES.get(code, ""),
    "perms": lambda code: _perms(code) if 0 <= code < 32 else "",
    "version": lambda code: "any" if code == -1 else "",
    "zxid": lambda code: "none" if code == -1 else "",
    "time_out": lambda code: "milliseconds" if code else "",
    "ttl": lambda _: "milliseconds",
}


def note(row: Row, *, event: bool) -> str:
    """What the value of a row says, in a few words; "" where the value says it all."""
    value, last = row.value, row.name.rpartition(".")[2]
    if not isinstance(value, int):
        return ""
    if last == "xid":
        return XIDS.get(value, "")
    if last == "type" and event:
        return event_name(value)
    if last == "type" and (row.at <= 8 or row.name.startswith("[")):  # of a header
        return NAMES.get(value, "")
    if last == "type":
        return watch_type(value) if value else ""
    say = _NOTES.get(last)
    text = say(value) if say is not None else ""
    return "" if text == str(value) else text


def watch_type(number: int) -> str:
    """The kind of watch that a request removes or asks for."""
    known = number in WatchType.__members__.values()
    return WatchType(number).name.lower() if known else str(number)

"""Records from a file, as ``spy -f jsonl`` has written them.

A line that is no record is a ValueError with its number: nothing later has to look at types again.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Record = dict[str, Any]

_TEXT = (
    "session dir op path created error fault peer by zxid last_zxid type state scheme mode secret "
    "problem word"
)
_WHOLE = (
    "v n conn xid bytes err re timeout_ms version ttl opcode watches children ephemerals acl "
    "client_info"
)
# What an operation without a direction must have, and all that have one.
NEEDS = {"open": "peer", "close": "by", "fault": "fault"}


def records_of(lines: Iterable[str], source: str) -> Iterator[Record]:
    """The records of these lines; those of the statistics are left out."""
    for number, line in enumerate(lines, 1):
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        wrong = _wrong(record)
        if wrong:
            raise ValueError(f"{source}, line {number}: {wrong}")
        if "stats" not in record:
            yield record


def _wrong(record: Any) -> str:
    """What is wrong with it; "" for a record."""
    if not _is(record, dict) or record.get("v") != 1:
        return "this is no record of `zkwire spy -f jsonl`"
    if "stats" in record:
        return ""
    name = record.get("op")
    needs = ["n", "t", "conn", "op", "bytes" if "dir" in record else NEEDS.get(str(name), "dir")]
    missing = next((name for name in needs if name not in record), None)
    if missing is not None:
        return f"a record without {missing!r}"
    strange = (name for name, value in record.items() if not CHECKS.get(name, _any)(value))
    return next((f"a record with a strange {name!r}" for name in strange), "")


def _is(value: Any, *kinds: type) -> bool:
    """Whether it is of one of these types; a bool is no int."""
    return type(value) in kinds


def _any(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    return _is(value, str)


def _whole(value: Any) -> bool:
    return _is(value, int) and abs(value) < 1 << 63


def _number(value: Any) -> bool:
    return _is(value, int, float) and abs(value) < 1e12


def _flag(value: Any) -> bool:
    return _is(value, bool)


def _texts(value: Any) -> bool:
    return _is(value, list) and all(_is(item, str) for item in value)


def _parts(value: Any) -> bool:
    """The operations of a multi."""
    return _is(value, list) and all(
        _is(part, dict)
        and _is(part.get("op"), str)
        and "path" in part
        and _is(part["path"], str, type(None))
        for part in value
    )


def _data(value: Any) -> bool:
    kinds = {"size": int, "cut": bool, "text": str, "hex": str}
    return _is(value, dict) and all(_is(item, kinds.get(name, int)) for name, item in value.items())


def _rows(value: Any) -> bool:
    return _is(value, list) and all(
        _is(row, list) and [type(cell) for cell in row] == [int, str, str, str, str]
        for row in value
    )


CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_TEXT.split(), _text),
    **dict.fromkeys(_WHOLE.split(), _whole),
    **dict.fromkeys(("granted", "resumes", "watch", "read_only", "lost"), _flag),
    **dict.fromkeys(("t", "rtt_ms"), _number),
    **dict.fromkeys(("flags", "results"), _texts),
    "dir": lambda value: value in ("c2s", "s2c"),
    "timeout_ms": lambda value: value is None or _whole(value),
    "ops": _parts,
    "data": _data,
    "rows": _rows,
}

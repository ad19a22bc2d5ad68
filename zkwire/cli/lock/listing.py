"""The holders of a lock and its queue, whatever its kind and whatever client has made the nodes.

The names of the nodes say the kind: below a semaphore stand ``leases`` and ``locks``, and readers
have names of their own.  The age of a node is this machine's time of day less the server's time of
its creation: it is as exact as the two clocks agree.
"""

from __future__ import annotations

import re
import time
from typing import Any

import zkwire
from zkwire.cli.output import Output, hex_id
from zkwire.errors import NoAuthError, NoNodeError

SIGNATURE = re.compile(r"(\S+):([0-9]{1,10})(?: (.*))?", re.DOTALL)
READERS = ("__READ__", "__rlock__")
DIGITS = 10
HEADER = f"{'#':>3} {'state':5} {'session':18} {'age':>6}  {'process':20} id"
WIDTH = 80
UNITS = (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1))


def contenders_of(client: zkwire.Client, path: str) -> list[dict[str, Any]]:
    """The holders and behind them the queue, in order, as JSON has them."""
    try:
        names = set(client.get_children(path))
    except NoNodeError:
        return []
    if names & {"leases", "locks"}:
        queue, holders = _semaphore(client, path)
    else:
        queue = _queue(client, path)
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


def _queue(client: zkwire.Client, path: str) -> list[zkwire.Contender]:
    return zkwire.SequentialLock(client, path).contenders()


def is_reader(path: str) -> bool:
    """Whether the contender with this node shares the lock with others."""
    return path[:-DIGITS].endswith(READERS)


def _semaphore(client: zkwire.Client, path: str) -> tuple[list[zkwire.Contender], int]:
    """The leases and behind them those that have none yet; how many leases hold."""
    data = client.get_data(path).data or b""
    count = int(data) if data.isdigit() else 1
    leases, queue = (_queue(client, f"{path}/{n}") for n in ("leases", "locks"))
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
    words = f"{one['position']:>3} {how:5} {one['session']:18} {_age(one['age']):>6}"
    return f"{words}  {process:20} {one['id']}".rstrip()


def _age(seconds: float | None) -> str:
    """Two units at most; ``-`` if it is not known."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    for unit, size, smaller, part in UNITS:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{smaller}"
    return f"{whole}s"

"""The command for quotas: limits of how many nodes and bytes there may be at and below a node.

A quota is two nodes below ``/zookeeper/quota<path>``, as ``StatsTrack`` and the commands of
ZooKeeper's own shell write them: the limits, and the statistics, which the server keeps.  They
stand outside every chroot.  If one quota is inside another the server counts for the inner one
alone, so such a pair is refused; one on the root would crash the server.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress

from zkwire.cli.arguments import wrong_word
from zkwire.cli.command import Command, UsageError
from zkwire.errors import NodeExistsError, NoNodeError, NotEmptyError, error_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Generator

    from zkwire import Client
    from zkwire.cli.context import Context

QUOTAS = "/zookeeper/quota"
LIMITS = "/zookeeper_limits"
STATISTICS = "/zookeeper_stats"
NONE = -1
KEYS = {"nodes": ("count", "countHardLimit"), "bytes": ("bytes", "byteHardLimit")}

ALL_KEYS = tuple(key for pair in KEYS.values() for key in pair)


def _limit(text: str) -> int:
    if text == "none":
        return NONE
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise wrong_word(f"{text!r} is no limit, a number or none")
    return int(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("get", "set", "del"), help="what to do")
    parser.add_argument("path", metavar="PATH")

    def limit(letter: str, name: str, dest: str, does: str) -> None:
        parser.add_argument(letter, name, dest=dest, type=_limit, metavar="N", help=does)

    limit("-n", "--nodes", "count", "how many nodes; above it the server logs a warning")
    limit("-b", "--bytes", "bytes", "how many bytes of data; above it the same")
    limit("-N", "--hard-nodes", "countHardLimit", "how many nodes the server allows")
    limit("-B", "--hard-bytes", "byteHardLimit", "how many bytes of data the server allows")


def _quota(context: Context, asked: Namespace) -> None:
    limits = {key: value for key in ALL_KEYS if (value := getattr(asked, key)) is not None}
    if (asked.action == "set") != bool(limits):
        raise UsageError("quota set takes one limit or more; get and del take none")
    path = context.path(asked.path)
    full = _chroot(context) + path.rstrip("/")
    if not full or f"{full}/".startswith("/zookeeper/"):
        raise UsageError(f"there can be no quota on {full or '/'}")
    with _without_chroot(context) as client:
        if asked.action == "set":
            _set(client, full, limits)
        if asked.action == "del":
            _delete(client, full)
        else:
            _show(context, client, path, full, shown=asked.action == "get")


def _chroot(context: Context) -> str:
    _, slash, chroot = context.server.partition("/")
    return (slash + chroot).rstrip("/")


@contextmanager
def _without_chroot(context: Context) -> Generator[Client]:
    if not _chroot(context):
        yield context.client
        return
    client = context.connect(context.server.partition("/")[0])
    try:
        yield client
    finally:
        client.close()


def _read(text: bytes) -> dict[str, int]:
    """What ``StatsTrack`` has written; ValueError if it cannot be read."""
    found: dict[str, int] = {}
    for part in filter(None, re.split("[,;]+", text.decode())):
        key, _, number = part.partition("=")
        number = number.rstrip("=") or str(NONE)
        if re.fullmatch("-?[0-9]+", number) is None:
            raise ValueError(f"no quota can be read in {text[:60]!r}")
        found[key] = int(number)
    return found


def _written(numbers: dict[str, int]) -> bytes:
    """As ``StatsTrack`` writes it: releases before 3.7 read no more than the part before ``=;``."""
    rest = dict(sorted(numbers.items()))
    first = f"count={rest.pop('count', NONE)},bytes={rest.pop('bytes', NONE)}"
    return ";".join([first + "=" * bool(rest), *(f"{k}={v}" for k, v in rest.items())]).encode()


def _show(context: Context, client: Client, path: str, full: str, *, shown: bool) -> None:
    try:
        limits = _read(client.get_data(f"{QUOTAS}{full}{LIMITS}").data)
    except NoNodeError:
        raise NoNodeError(f"{path} has no quota", path=path) from None
    used = _read(client.get_data(f"{QUOTAS}{full}{STATISTICS}").data)
    rows: dict[str, dict[str, int | None]] = {}
    for name, (key, hard_key) in KEYS.items():
        numbers = used.get(key), _or_none(limits.get(key)), _or_none(limits.get(hard_key))
        rows[name] = dict(zip(("used", "limit", "hard_limit"), numbers, strict=True))
    if context.output.json:
        context.output.record({"path": path, **rows})
        return
    for name, row in rows.items() if shown else ():
        used_now, soft, hard = ("none" if n is None else str(n) for n in row.values())
        context.output.line(f"{name} = {used_now}, limit {soft}, hard limit {hard}")


def _or_none(number: int | None) -> int | None:
    return None if number == NONE else number


def _set(client: Client, path: str, limits: dict[str, int]) -> None:
    if client.exists(path) is None:
        raise error_for(NoNodeError.code, "quota", path)
    _refuse_beside_another(client, path)
    node = f"{QUOTAS}{path}"
    try:
        data, stat = client.get_data(node + LIMITS)
    except NoNodeError:
        client.ensure_path(node)
        with client.transaction() as both:
            both.create(node + LIMITS, _written(dict.fromkeys(ALL_KEYS, NONE) | limits))
            both.create(node + STATISTICS, b"count=0,bytes=0")
    else:
        client.set_data(node + LIMITS, _written(_read(data) | limits), stat.version)


def _refuse_beside_another(client: Client, path: str) -> None:
    above = [path[:i] for i, letter in enumerate(path) if letter == "/" and i]
    for other in above:
        if client.exists(f"{QUOTAS}{other}{LIMITS}"):
            raise NodeExistsError(f"{other} above it has a quota", op="quota", path=path)
    with suppress(NoNodeError):
        for node in client.walk(QUOTAS + path):
            other = node.removeprefix(QUOTAS).removesuffix(LIMITS)
            if node.endswith(LIMITS) and other != path:
                raise NodeExistsError(f"{other} below it has a quota", op="quota", path=path)


def _delete(client: Client, path: str) -> None:
    """Delete both nodes, and those above that have no other purpose."""
    node = f"{QUOTAS}{path}"
    try:
        client.delete(node + LIMITS)
    except NoNodeError:
        raise NoNodeError(f"{path} has no quota", path=path) from None
    with suppress(NoNodeError):
        client.delete(node + STATISTICS)
    with suppress(NoNodeError, NotEmptyError):
        while node != QUOTAS:
            client.delete(node)
            node = node.rpartition("/")[0]


COMMANDS = {
    "quota": Command(
        _quota,
        _arguments,
        examples=(
            "zkwire quota set /jobs --nodes 1000 --hard-bytes 5000000",
            "zkwire quota get /jobs             # what is used, and the limits",
            "zkwire quota set /jobs -n none     # one limit less",
            "zkwire quota del /jobs",
        ),
        details="Hard limits are for servers of 3.7 and later that run with enforceQuota=true.",
    ),
}

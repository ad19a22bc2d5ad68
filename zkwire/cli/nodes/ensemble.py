"""The commands about the ensemble, the session and quotas."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from contextlib import closing, suppress
from posixpath import join

import zkwire
from zkwire.cli.command import Command, UsageError, arg, flag
from zkwire.cli.context import Context
from zkwire.cli.output import host_port
from zkwire.errors import NodeExistsError, NoNodeError, NotEmptyError, error_for
from zkwire.session.hosts import parse_config

# The commands about the ensemble and the session: config, reconfig, whoami, ephemerals.

VERSION = "version="


def _config(context: Context, asked: Namespace) -> None:
    """
    zkwire config     # the servers of the ensemble, and its version
    zkwire config -c  # where clients connect, with commas between

    A server that is alone has an empty configuration.
    """
    _show(context, context.client.get_config().data, clients=asked.clients)


def _show(context: Context, config: bytes, *, clients: bool = False) -> None:
    lines = config.decode("utf-8", "backslashreplace").splitlines()
    hosts = [host_port(*each) for each in parse_config(config)]
    version = next((line[len(VERSION) :] for line in lines if line.startswith(VERSION)), None)
    members = [line for line in lines if not line.startswith(VERSION)]
    shown = [",".join(hosts)] if clients and hosts else [] if clients else lines
    context.output.result({"version": version, "members": members, "clients": hosts}, shown)


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        wants = "hexadecimal digits, as `zkwire config` prints it"
        raise ArgumentTypeError(f"{text!r} is not a version: {wants}") from None


def _reconfig(context: Context, asked: Namespace) -> None:
    """
    zkwire reconfig --add 'server.4=host4:2888:3888;2181'
    zkwire reconfig --remove 3 -v 100000000

    It prints the new configuration.  Ensembles allow it with reconfigEnabled=true,
    and only to those with rights on /zookeeper/config.
    """
    if (asked.file is None) == (asked.add is None and asked.remove is None):
        raise UsageError("reconfig takes --add and --remove, or --file")
    members = None
    if asked.file is not None:
        with open(asked.file, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        members = [line for line in lines if line and not line.startswith(("#", VERSION))]
    config = context.client.reconfig(
        joining=asked.add, leaving=asked.remove, members=members, version=asked.version
    )
    _show(context, config.data)


def _whoami(context: Context, _: Namespace) -> None:
    """
    zkwire whoami  # such as ip:127.0.0.1
    zkwire --auth digest:secret.txt whoami

    The server says it, since ZooKeeper 3.7.
    """
    identities = context.client.who_am_i()
    known = [{"scheme": each.auth_scheme, "user": each.user} for each in identities]
    lines = [f"{each.auth_scheme}:{each.user}" for each in identities]
    context.output.result({"identities": known}, lines)


def _ephemerals(context: Context, asked: Namespace) -> None:
    """
    zkwire ephemerals         # in the shell
    zkwire ephemerals /locks/

    They are those of the session itself, so it is for the shell: a single command
    has none (since ZooKeeper 3.6).
    """
    prefix = join(context.directory, asked.prefix)
    paths = sorted(context.client.get_ephemerals(prefix))
    context.output.result({"ephemerals": paths}, paths)


# --- quota ----------------------------------------------------------------------------------------
# The command for quotas: limits of how many nodes and bytes there may be at and below a node.
#
# A quota is two nodes below ``/zookeeper/quota<path>``, as ``StatsTrack`` and the commands of
# ZooKeeper's own shell write them: the limits, and the statistics, which the server keeps.  They
# stand outside every chroot.  If one quota is inside another the server counts for the inner one
# alone, so such a pair is refused; one on the root would crash the server.

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
        raise ArgumentTypeError(f"{text!r} is not a limit: a number or none")
    return int(text)


def _quota(context: Context, asked: Namespace) -> None:
    """
    zkwire quota set /jobs --nodes 1000 --hard-bytes 5000000
    zkwire quota get /jobs             # what is used, and the limits
    zkwire quota set /jobs -n none     # one limit less
    zkwire quota del /jobs

    Hard limits are for servers of 3.7 and later that run with enforceQuota=true.
    """
    limits = {key: value for key in ALL_KEYS if (value := getattr(asked, key)) is not None}
    if (asked.action == "set") != bool(limits):
        raise UsageError("quota set takes one limit or more; get and del take none")
    path = context.path(asked.path)
    hosts, slash, chroot = context.server.partition("/")
    full = (slash + chroot).rstrip("/") + path.rstrip("/")
    if not full or f"{full}/".startswith("/zookeeper/"):
        raise UsageError(f"there can be no quota on {full or '/'}")
    with closing(context.connect(hosts)) as client:
        if asked.action == "set":
            _set_quota(client, full, limits)
        if asked.action == "del":
            _delete_quota(client, full)
        elif asked.action == "get" or context.output.json:
            _show_quota(context, client, path, full)


def _numbers_in(text: bytes) -> dict[str, int]:
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


def _show_quota(context: Context, client: zkwire.Client, path: str, full: str) -> None:
    """What is used, and the limits."""
    try:
        limits = _numbers_in(client.get_data(f"{QUOTAS}{full}{LIMITS}").data)
    except NoNodeError:
        raise NoNodeError(f"{path} has no quota", path=path) from None
    used = _numbers_in(client.get_data(f"{QUOTAS}{full}{STATISTICS}").data)
    rows, lines = dict[str, dict[str, int | None]](), list[str]()
    for name, (key, hard_key) in KEYS.items():
        known = used.get(key), limits.get(key), limits.get(hard_key)
        numbers = [None if number == NONE else number for number in known]
        rows[name] = dict(zip(("used", "limit", "hard_limit"), numbers, strict=True))
        now, soft, hard = ("none" if n is None else str(n) for n in numbers)
        lines.append(f"{name} = {now}, limit {soft}, hard limit {hard}")
    context.output.result({"path": path, **rows}, lines)


def _set_quota(client: zkwire.Client, path: str, limits: dict[str, int]) -> None:
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
        client.set_data(node + LIMITS, _written(_numbers_in(data) | limits), stat.version)


def _refuse_beside_another(client: zkwire.Client, path: str) -> None:
    above = [path[:i] for i, letter in enumerate(path) if letter == "/" and i]
    for other in above:
        if client.exists(f"{QUOTAS}{other}{LIMITS}"):
            raise NodeExistsError(f"{other} above it has a quota", op="quota", path=path)
    with suppress(NoNodeError):
        for node in client.walk(QUOTAS + path):
            other = node.removeprefix(QUOTAS).removesuffix(LIMITS)
            if node.endswith(LIMITS) and other != path:
                raise NodeExistsError(f"{other} below it has a quota", op="quota", path=path)


def _delete_quota(client: zkwire.Client, path: str) -> None:
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


# fmt: off
COMMANDS = {
    "config": Command(_config,
        flag("-c", "only the addresses for clients, as --server takes them", dest="clients")),
    "reconfig": Command(_reconfig,
        arg("--add", action="append", metavar="SERVER",
            help="a server that joins, such as server.4=host:2888:3888;2181"),
        arg("--remove", action="append", metavar="ID", help="the id of a server that leaves"),
        arg("--file", metavar="FILE",
            help="all servers, one on each line as `zkwire config` prints them"),
        arg("-v", dest="version", type=_hexadecimal, default=-1, metavar="VERSION",
            help="only if the configuration has this version")),
    "whoami": Command(_whoami),
    "ephemerals": Command(_ephemerals,
        arg("prefix", nargs="?", default="/", metavar="PREFIX",
            help="only paths that begin with this (default: /)")),
    "quota": Command(_quota,
        arg("action", choices=("get", "set", "del"), help="what to do"),
        arg("path", metavar="PATH"),
        arg("-n", "--nodes", dest="count", type=_limit, metavar="N",
            help="how many nodes; above it the server logs a warning"),
        arg("-b", "--bytes", dest="bytes", type=_limit, metavar="N",
            help="how many bytes of data; above it the same"),
        arg("-N", "--hard-nodes", dest="countHardLimit", type=_limit, metavar="N",
            help="how many nodes the server allows"),
        arg("-B", "--hard-bytes", dest="byteHardLimit", type=_limit, metavar="N",
            help="how many bytes of data the server allows")),
}

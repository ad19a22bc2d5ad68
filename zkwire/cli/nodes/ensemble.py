"""The commands about the ensemble and the session: config, reconfig, whoami, ephemerals."""

from __future__ import annotations

from posixpath import join

from zkwire.cli.arguments import wrong_word
from zkwire.cli.command import Command, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context

VERSION = "version="


def _config_arguments(parser: ArgumentParser) -> None:
    does = "only where clients connect, as --server takes it"
    parser.add_argument("-c", dest="clients", action="store_true", help=does)


def _config(context: Context, asked: Namespace) -> None:
    _show(context, context.client.get_config().data, clients=asked.clients)


def _show(context: Context, config: bytes, *, clients: bool = False) -> None:
    from zkwire.session.hosts import parse_config

    lines = config.decode("utf-8", "backslashreplace").splitlines()
    hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
             for host, port in parse_config(config)]  # fmt: skip
    if context.output.json:
        version = next((line[len(VERSION) :] for line in lines if line.startswith(VERSION)), None)
        members = [line for line in lines if not line.startswith(VERSION)]
        context.output.record({"version": version, "members": members, "clients": hosts})
        return
    for line in [",".join(hosts)] if clients and hosts else [] if clients else lines:
        context.output.line(line)


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        wants = "hexadecimal digits, as `zkwire config` prints it"
        raise wrong_word(f"{text!r} is no version: {wants}") from None


def _reconfig_arguments(parser: ArgumentParser) -> None:
    option = parser.add_argument
    does = "a server that joins, such as server.4=host:2888:3888;2181"
    option("--add", action="append", metavar="SERVER", help=does)
    option("--remove", action="append", metavar="ID", help="the id of a server that leaves")
    does = "all servers, one on each line as `zkwire config` prints them"
    option("--file", metavar="FILE", help=does)
    does = "only if the configuration has this version"
    option("-v", dest="version", type=_hexadecimal, default=-1, metavar="VERSION", help=does)


def _reconfig(context: Context, asked: Namespace) -> None:
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
    identities = context.client.who_am_i()
    if context.output.json:
        known = [{"scheme": each.auth_scheme, "user": each.user} for each in identities]
        context.output.record({"identities": known})
        return
    for each in identities:
        context.output.line(f"{each.auth_scheme}:{each.user}")


def _ephemerals_arguments(parser: ArgumentParser) -> None:
    does = "only paths that begin with this (default: /)"
    parser.add_argument("prefix", nargs="?", default="/", metavar="PREFIX", help=does)


def _ephemerals(context: Context, asked: Namespace) -> None:
    prefix = join(context.directory, asked.prefix)
    paths = sorted(context.client.get_ephemerals(prefix))
    if context.output.json:
        context.output.record({"ephemerals": paths})
        return
    for path in paths:
        context.output.line(path)


COMMANDS = {
    "config": Command(
        _config,
        _config_arguments,
        examples=(
            "zkwire config     # the servers of the ensemble, and its version",
            "zkwire config -c  # where clients connect, with commas between",
        ),
        details="A server that is alone has an empty configuration.",
    ),
    "reconfig": Command(
        _reconfig,
        _reconfig_arguments,
        examples=(
            "zkwire reconfig --add 'server.4=host4:2888:3888;2181'",
            "zkwire reconfig --remove 3 -v 100000000",
        ),
        details="It prints the new configuration.  Ensembles allow it with reconfigEnabled=true,\n"
        "and only to those with rights on /zookeeper/config.",
    ),
    "whoami": Command(
        _whoami,
        lambda _: None,
        examples=(
            "zkwire whoami  # such as ip:127.0.0.1",
            "zkwire --auth digest:secret.txt whoami",
        ),
        details="The server says it, since ZooKeeper 3.7.",
    ),
    "ephemerals": Command(
        _ephemerals,
        _ephemerals_arguments,
        examples=(
            "zkwire ephemerals         # in the shell",
            "zkwire ephemerals /locks/",
        ),
        details="They are those of the session itself, so it is for the shell: a single command\n"
        "has none (since ZooKeeper 3.6).",
    ),
}

"""The command that reads and replaces access lists."""

from __future__ import annotations

from zkwire.cli.access import entry_text
from zkwire.cli.command import Command, UsageError
from zkwire.cli.nodes.words import access_list, add_version
from zkwire.cli.output import stat_fields, stat_lines
from zkwire.errors import NoNodeError, ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from zkwire import ACL
    from zkwire.cli.context import Context


def _arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s get [-s] PATH\n       %(prog)s set [-s] [-v N | -R] PATH ACL [ACL ...]"
    parser.add_argument("action", choices=("get", "set"), help="what to do")
    parser.add_argument("path", metavar="PATH")
    does = "set: SCHEME:ID:PERMS[,...], PERMS of the letters cdrwa"
    parser.add_argument("acl", nargs="*", type=access_list, metavar="ACL", help=does)
    does = "the stat after the list, or after its new version"
    parser.add_argument("-s", dest="stat", action="store_true", help=does)
    add_version(parser, "set: the access list has")
    does = "set: all nodes below as well"
    parser.add_argument("-R", dest="recursive", action="store_true", help=does)


def _acl(context: Context, asked: Namespace) -> None:
    getting = asked.action == "get"
    if getting and (asked.acl or asked.recursive or asked.version >= 0):
        raise UsageError("acl get takes a path, and -s")
    if not getting and not asked.acl:
        raise UsageError("acl set takes a path and an access list, -s, -v and -R")
    if asked.recursive and (asked.version >= 0 or asked.stat):
        raise UsageError("-v and -s are for one node, without -R")
    if getting:
        _get(context, asked)
    else:
        _set(context, asked)


def _get(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    entries, stat = context.client.get_acl(path)
    texts = [entry_text(entry) for entry in entries]
    if out.json:
        shown = {"stat": stat_fields(stat)} if asked.stat else {}
        out.record({"path": path, "acl": texts, "acl_version": stat.aversion, **shown})
        return
    for line in texts + (stat_lines(stat) if asked.stat else []):
        out.line(line)


def _set(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    acl = [entry for entries in asked.acl for entry in entries]
    if asked.recursive:
        stat, name, number = None, "nodes", _set_all(context, path, acl)
    else:
        stat = context.client.set_acl(path, acl, asked.version)
        name, number = "acl_version", stat.aversion
    shown = stat if asked.stat else None
    if out.json:
        out.record({"path": path, name: number, **({"stat": stat_fields(shown)} if shown else {})})
        return
    for line in [str(number), *(stat_lines(shown) if shown else [])]:
        out.line(line)


def _set_all(context: Context, path: str, acl: Sequence[ACL]) -> int:
    """The number of nodes that have the list now.

    The list may take the right to look below a node: a walk yields each once it has looked there.
    """
    number = 0
    for node in context.client.walk(path):
        try:
            context.client.set_acl(node, acl)
            number += 1
        except NoNodeError:  # deleted meanwhile
            if node == path:
                raise
        except ZooKeeperError as error:
            if number:
                error.add_note(f"nodes that have the list by then: {number}")
            raise
    return number


COMMANDS = {
    "acl": Command(
        _acl,
        _arguments,
        examples=(
            "zkwire acl get /config  # an entry on each line, as set takes it",
            "zkwire acl set /config world:anyone:r auth::cdrwa  # prints the new version",
            "zkwire acl set -R /jobs sasl:worker:cdrwa  # prints how many nodes",
        ),
        details="PERMS: c create, d delete, r read, w write, a admin.  A list is replaced as a\n"
        "whole, and one without an entry that may `a` can never be changed again.",
    ),
}

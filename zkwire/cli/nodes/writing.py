"""The commands that change nodes: create, set, rm, txn, acl."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import zkwire
from zkwire.cli.command import Command, Parser, UsageError, duration, version, wrong_word
from zkwire.cli.context import Context, standard_input
from zkwire.cli.output import entry_of, entry_text, stat_fields, stat_lines
from zkwire.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
    error_for,
)
from zkwire.operations.sequence import behind, highest_number, next_number
from zkwire.wire.paths import check_path, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.operations.multi import Operation


# The commands that change nodes: create, set, rm.


# --- words ----------------------------------------------------------------------------------------
# Arguments that several data commands have: the data of a node, its kind, and its access list.


def add_version(parser: ArgumentParser, of: str = "the node has") -> None:
    """``-v``: the version that is expected, -1 without it."""
    does = f"only if {of} this version"
    parser.add_argument("-v", dest="version", type=version, default=-1, metavar="N", help=does)


def add_data(parser: ArgumentParser) -> None:
    """``DATA`` and ``--data-file``."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="the data, as text")
    does = "take the data from this file; -: standard input"
    parser.add_argument("--data-file", metavar="FILE", help=does)


def data_of(context: Context, asked: Namespace) -> bytes | None:
    """The bytes that ``DATA`` or ``--data-file`` gives; None without both."""
    if asked.data_file is None:
        return None if asked.data is None else as_bytes(asked.data)
    if asked.data is not None:
        raise UsageError("the data stands in the command or in --data-file, not in both")
    if asked.data_file != "-":
        with open(asked.data_file, "rb") as file:
            return file.read()
    if context.in_shell:
        raise UsageError("in the shell, standard input has the commands: name a file")
    from zkwire.cli.context import standard_input

    return standard_input().buffer.read()


def as_bytes(text: str) -> bytes:
    """A word as the bytes that it came as, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")


def add_kind(parser: ArgumentParser) -> None:
    """What kind of node is created, and its access list."""
    does = "the server deletes it when the session ends"
    parser.add_argument("-e", dest="ephemeral", action="store_true", help=does)
    does = "the server appends ten digits to the name, which count up"
    parser.add_argument("-s", dest="sequential", action="store_true", help=does)
    does = "a container: the server deletes it some time after its last child"
    parser.add_argument("-c", dest="container", action="store_true", help=does)
    does = "the server deletes it when it has no child and was not set for so long"
    parser.add_argument("-t", "--ttl", type=duration, metavar="DUR", help=does)
    does = "SCHEME:ID:PERMS[,...], such as world:anyone:r,auth::cdrwa"
    parser.add_argument("--acl", type=access_list, metavar="ACL", help=does)


def kind_of(asked: Namespace) -> dict[str, object]:
    """The arguments of ``Client.create`` for what ``add_kind`` has parsed."""
    names = ("ephemeral", "sequential", "container", "ttl", "acl")
    return {name: getattr(asked, name) for name in names}


def new_path(context: Context, asked: Namespace) -> str:
    """Where a node is created: behind a ``/`` at the end the number becomes the name."""
    path = context.path(asked.path)
    return path.rstrip("/") + "/" if asked.sequential and asked.path.endswith("/") else path


def access_list(text: str) -> list[zkwire.ACL]:
    """An access list from ``SCHEME:ID:PERMS``, several with commas between them."""
    entries = re.split(r",(?=[A-Za-z0-9_]+:)", text)  # the name of a certificate has commas
    for entry in entries:
        if entry.endswith(":"):  # it would allow nothing
            raise wrong_word(f"{entry!r} is no entry of an access list: it has no PERMS")
    try:
        return [entry_of(entry) for entry in entries]
    except ValueError as error:
        raise wrong_word(str(error)) from None


# --- create, set, rm ------------------------------------------------------------------------------


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    add_data(parser)
    add_kind(parser)
    does = "also what is missing above it, with the default access list"
    parser.add_argument("-p", "--parents", action="store_true", help=does)


def _create(context: Context, asked: Namespace) -> None:
    """
    zkwire create /config 'a=1'          # prints /config
    zkwire create -p -s /jobs/job- work  # prints /jobs/job-0000000000
    zkwire create /logo --data-file logo.png

    It prints the path of the new node and nothing else.  An ephemeral node of a
    single command (-e) goes at once, as its session does: -e is for the shell.
    """
    from zkwire.operations.nodes import check_create_mode

    out, path = context.output, new_path(context, asked)
    data = data_of(context, asked) or b""
    check_path(path, asked.sequential)  # before anything is sent
    check_create_mode(asked.ephemeral, asked.sequential, asked.container, asked.ttl)
    made = _created(context.client, path, data, asked)
    if out.json:
        out.record({"path": made})
    else:
        out.line(made)
    if asked.ephemeral and not context.in_shell:
        out.note(f"{made} is ephemeral: it goes now, with the session of this command")


def _created(client: zkwire.Client, path: str, data: bytes, asked: Namespace) -> str:
    """The path of the new node.  Parents come last, so what can be refused leaves none."""
    kind: dict[str, Any] = kind_of(asked)
    with suppress(NoNodeError):
        try:
            return client.create(path, data, **kind)
        except NodeExistsError as error:
            if asked.sequential:
                _tell_counter(client, path, error)
            raise
    above = parent(path)
    if not asked.parents or above == "/":
        raise error_for(NoNodeError.code, "create", path)
    client.ensure_path(above)
    return client.create(path, data, **kind)


def _tell_counter(client: zkwire.Client, path: str, error: NodeExistsError) -> None:
    """Add to the error where the counter is whose next number is taken, if that can be read."""
    with suppress(ZooKeeperError):
        above = parent(path)
        names, stat = client.get_children_with_stat(above)
        number, highest = next_number(stat.cversion, stat.num_children), highest_number(names)
        if number <= highest:
            error.add_note(behind(above, number, highest))
            cure = "a dump of the node, loaded into its place, brings the counter past it"
            error.add_note(cure if highest - number < 1_000_000 else "that is too far to mend")


def _set_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    add_data(parser)
    add_version(parser)
    parser.add_argument("--create", action="store_true", help="create the node if it is missing")


def _set(context: Context, asked: Namespace) -> None:
    """
    zkwire set /config 'a=2'         # prints the new version
    zkwire set -v 3 /config 'a=2'    # only if nothing has changed since version 3
    make-config | zkwire set --create /config --data-file -
    """
    path, data = context.path(asked.path), data_of(context, asked)
    if data is None:
        raise UsageError("set takes PATH DATA, or PATH --data-file FILE; DATA '' empties a node")
    if asked.create and asked.version >= 0:
        raise UsageError("a node that --create makes has no version yet: no -v")
    if asked.create:
        stat = _set_or_create(context.client, path, data)
    else:
        stat = context.client.set_data(path, data, asked.version)
    if context.output.json:
        context.output.record({"path": path, "version": stat.version, "stat": stat_fields(stat)})
    else:
        context.output.line(str(stat.version))


def _set_or_create(client: zkwire.Client, path: str, data: bytes) -> zkwire.Stat:
    """Another client may create or delete the node between the two requests: then once more."""
    while True:
        with suppress(NoNodeError):
            return client.set_data(path, data)
        with suppress(NodeExistsError):
            return client.create_with_stat(path, data).stat


def _rm_arguments(parser: ArgumentParser) -> None:
    flag = parser.add_argument
    flag("paths", nargs="+", metavar="PATH")
    add_version(parser)
    flag("-r", dest="recursive", action="store_true", help="and all nodes below")
    flag("-f", dest="force", action="store_true", help="a node that is missing is no error")
    flag("--dry-run", action="store_true", help="only print what would be deleted")


def _rm(context: Context, asked: Namespace) -> None:
    """
    zkwire rm /config
    zkwire rm -r --dry-run /jobs  # what would be deleted
    zkwire rm -r -f /jobs         # no error if there is no /jobs
    """
    out, paths = context.output, [check_path(context.path(path)) for path in asked.paths]
    if "/" in paths:
        raise UsageError("the root cannot be deleted")
    if asked.version >= 0 and (asked.recursive or len(paths) > 1):
        raise UsageError("-v is for one node, without -r")
    deleted: list[str] = []
    for path in paths:
        try:
            if asked.dry_run:
                deleted += _would_delete(context.client, path, asked)
            else:
                _delete(context.client, path, asked)
                deleted.append(path)
        except ZooKeeperError as error:
            if isinstance(error, NoNodeError) and asked.force:
                continue
            if deleted and not asked.dry_run:
                error.add_note(f"deleted before: {', '.join(deleted)}")
            raise
    if out.json:
        out.record({"would_delete" if asked.dry_run else "deleted": deleted})
    for path in deleted if asked.dry_run and not out.json else ():
        out.line(path)


def _would_delete(client: zkwire.Client, path: str, asked: Namespace) -> list[str]:
    """What would be deleted, children first; raises what the server would refuse it with."""
    if asked.recursive:
        return list(client.walk(path))[::-1]
    stat = client.exists(path)
    if stat is None:
        raise error_for(NoNodeError.code, "delete", path)
    if asked.version not in (-1, stat.version):
        raise error_for(BadVersionError.code, "delete", path)
    if stat.num_children:
        raise error_for(NotEmptyError.code, "delete", path)
    return [path]


def _delete(client: zkwire.Client, path: str, asked: Namespace) -> None:
    if not asked.recursive:
        client.delete(path, asked.version)
    elif client.exists(path) is None:
        raise error_for(NoNodeError.code, "delete", path)
    else:
        client.delete_tree(path)


# --- txn ------------------------------------------------------------------------------------------
# The command that executes several operations, all or none.


def _txn_arguments(parser: ArgumentParser) -> None:
    does = "one operation, in quotes; without any, standard input has one on each line"
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=does)


def _txn(context: Context, asked: Namespace) -> None:
    """
    zkwire txn 'check /config 3' 'set /config new' 'rm /old'
    zkwire txn < operations.txt  # one on each line

    Operations, all of them executed or none:
      check PATH [VERSION]   the node exists, and has this version
      create PATH [DATA]     with -e -s -c -t and --acl as `zkwire create` has them
      set PATH DATA          with -v
      rm PATH                with -v
    It prints a line for each: the operation, the path, and after a set the version.
    """
    if context.in_shell and not asked.operations:
        raise UsageError("in the shell, standard input has the commands: give the operations here")
    parsed = _parsed(asked.operations or standard_input())
    if not parsed:
        raise UsageError("there is no operation")
    results = context.client.multi([_operation(context, each) for each in parsed])
    done = [_outcome(context, *pair) for pair in zip(parsed, results, strict=True)]
    if context.output.json:
        context.output.record({"results": done})
        return
    for each in done:
        context.output.line(" ".join(str(word) for word in each.values()))


def _parsed(lines: Iterable[str]) -> list[Namespace]:
    """The operations; UsageError names the one that cannot be understood."""
    parsed: list[Namespace] = []
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
            if words:
                parsed.append(_operation_parser(words[0]).parse_args(words[1:]))
        except ValueError as error:
            raise UsageError(f"{line.strip()!r}: {error}") from None
    return parsed


def _operation_parser(op: str) -> Parser:
    from zkwire.cli.command import Parser

    if op not in OPERATIONS:
        raise UsageError(f"an operation begins with one of {', '.join(OPERATIONS)}")
    parser = Parser(prog="zkwire txn", add_help=False, allow_abbrev=False)
    parser.set_defaults(op=op)
    parser.add_argument("path", metavar="PATH")
    OPERATIONS[op](parser)
    return parser


def _add_create(parser: ArgumentParser) -> None:
    parser.add_argument("data", nargs="?", default="", metavar="DATA")
    add_kind(parser)


def _add_set(parser: ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA")
    add_version(parser)


def _add_check(parser: ArgumentParser) -> None:
    parser.add_argument("version", nargs="?", type=version, default=-1, metavar="VERSION")


OPERATIONS: dict[str, Callable[[ArgumentParser], None]] = {
    "check": _add_check,
    "create": _add_create,
    "set": _add_set,
    "rm": add_version,
}


def _operation(context: Context, each: Namespace) -> Operation:
    if each.op == "create":
        kind: dict[str, Any] = kind_of(each)
        return zkwire.Create(new_path(context, each), as_bytes(each.data), **kind)
    path = context.path(each.path)
    if each.op == "set":
        return zkwire.SetData(path, as_bytes(each.data), each.version)
    return (zkwire.Delete if each.op == "rm" else zkwire.Check)(path, each.version)


def _outcome(context: Context, each: Namespace, result: Any) -> dict[str, Any]:
    path = result if each.op == "create" else context.path(each.path)
    version = {"version": result.version} if each.op == "set" else {}
    return {"op": each.op, "path": path, **version}


# --- acl ------------------------------------------------------------------------------------------
# The command that reads and replaces access lists.


def _acl_arguments(parser: ArgumentParser) -> None:
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
    """
    zkwire acl get /config  # an entry on each line, as set takes it
    zkwire acl set /config world:anyone:r auth::cdrwa  # prints the new version
    zkwire acl set -R /jobs sasl:worker:cdrwa  # prints how many nodes

    PERMS: c create, d delete, r read, w write, a admin.  A list is replaced as a
    whole, and one without an entry that may `a` can never be changed again.
    """
    getting = asked.action == "get"
    if getting and (asked.acl or asked.recursive or asked.version >= 0):
        raise UsageError("acl get takes a path, and -s")
    if not getting and not asked.acl:
        raise UsageError("acl set takes a path and an access list, -s, -v and -R")
    if asked.recursive and (asked.version >= 0 or asked.stat):
        raise UsageError("-v and -s are for one node, without -R")
    if getting:
        _get_acl(context, asked)
    else:
        _set_acl(context, asked)


def _get_acl(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    entries, stat = context.client.get_acl(path)
    texts = [entry_text(entry) for entry in entries]
    if out.json:
        shown = {"stat": stat_fields(stat)} if asked.stat else {}
        out.record({"path": path, "acl": texts, "acl_version": stat.aversion, **shown})
        return
    for line in texts + (stat_lines(stat) if asked.stat else []):
        out.line(line)


def _set_acl(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    acl = [entry for entries in asked.acl for entry in entries]
    if asked.recursive:
        stat, name, number = None, "nodes", _set_acl_of_all(context, path, acl)
    else:
        stat = context.client.set_acl(path, acl, asked.version)
        name, number = "acl_version", stat.aversion
    shown = stat if asked.stat else None
    if out.json:
        out.record({"path": path, name: number, **({"stat": stat_fields(shown)} if shown else {})})
        return
    for line in [str(number), *(stat_lines(shown) if shown else [])]:
        out.line(line)


def _set_acl_of_all(context: Context, path: str, acl: Sequence[zkwire.ACL]) -> int:
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
    "create": Command(_create, _create_arguments),
    "set": Command(_set, _set_arguments),
    "rm": Command(_rm, _rm_arguments),
    "txn": Command(_txn, _txn_arguments),
    "acl": Command(_acl, _acl_arguments),
}

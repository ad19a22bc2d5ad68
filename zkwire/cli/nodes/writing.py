"""The commands that change nodes: create, set, rm, txn, acl."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import zkwire
from zkwire import errors
from zkwire.cli.command import Arg, Command, Parser, UsageError, arg, duration, flag, integer
from zkwire.cli.context import Context, standard_input
from zkwire.cli.output import entry_of, entry_text, stat_fields, stat_lines
from zkwire.operations.nodes import check_create_mode
from zkwire.operations.sequence import behind, highest_number, next_number
from zkwire.wire.paths import check_path, parent

# --- words ----------------------------------------------------------------------------------------
# Arguments that several data commands have: the data of a node, its kind, and its access list.

VERSION = integer("version, a number from 0 on")


def data_of(context: Context, asked: Namespace) -> bytes | None:
    """The bytes that ``DATA`` or ``--data-file`` gives; None without both."""
    if asked.data_file is None:
        return None if asked.data is None else as_bytes(asked.data)
    if asked.data is not None:
        raise UsageError("give the data in the command or in --data-file, not in both")
    if asked.data_file != "-":
        with open(asked.data_file, "rb") as file:
            return file.read()
    if context.in_shell:
        raise UsageError("in the shell, standard input has the commands: name a file")
    return standard_input().buffer.read()


def as_bytes(text: str) -> bytes:
    """A word as the bytes that it came as, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")


def kind_of(asked: Namespace) -> dict[str, object]:
    """The arguments of ``Client.create`` for what ``KIND`` has parsed."""
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
            raise ArgumentTypeError(f"{entry!r} is not an entry of an access list: it has no PERMS")
    try:
        return [entry_of(entry) for entry in entries]
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


# fmt: off
PATH = arg("path", metavar="PATH")
ONLY = arg("-v", dest="version", type=VERSION, default=-1, metavar="N",
           help="only if the node has this version")
DATA = (
    arg("data", nargs="?", metavar="DATA", help="the data, as text"),
    arg("--data-file", metavar="FILE", help="take the data from this file; -: standard input"),
)
KIND = (
    flag("-e", "the server deletes it when the session ends", dest="ephemeral"),
    flag("-s", "the server appends ten digits to the name, which count up", dest="sequential"),
    flag("-c", "a container: the server deletes it some time after its last child",
         dest="container"),
    arg("-t", "--ttl", type=duration, metavar="DUR",
        help="the server deletes it when it has no child and was not set for this long"),
    arg("--acl", type=access_list, metavar="ACL",
        help="SCHEME:ID:PERMS[,...], such as world:anyone:r,auth::cdrwa"),
)
# fmt: on

# --- create, set, rm ------------------------------------------------------------------------------


def _create(context: Context, asked: Namespace) -> None:
    """
    zkwire create /config 'a=1'          # prints /config
    zkwire create -p -s /jobs/job- work  # prints /jobs/job-0000000000
    zkwire create /logo --data-file logo.png

    It prints the path of the new node and nothing else.  An ephemeral node of a
    single command (-e) goes at once, as its session does: -e is for the shell.
    """
    out, path = context.output, new_path(context, asked)
    data = data_of(context, asked) or b""
    check_path(path, asked.sequential)  # before anything is sent
    check_create_mode(asked.ephemeral, asked.sequential, asked.container, asked.ttl)
    made = _created(context.client, path, data, asked)
    out.result({"path": made}, [made])
    if asked.ephemeral and not context.in_shell:
        out.note(f"{made} is ephemeral: it is deleted as soon as this command ends")


def _created(client: zkwire.Client, path: str, data: bytes, asked: Namespace) -> str:
    """The path of the new node.  Parents come last, so what can be refused leaves none."""
    kind: dict[str, Any] = kind_of(asked)
    with suppress(errors.NoNodeError):
        try:
            return client.create(path, data, **kind)
        except errors.NodeExistsError as error:
            if asked.sequential:
                _tell_counter(client, path, error)
            raise
    above = parent(path)
    if not asked.parents:
        raise errors.error_for(errors.NoNodeError.code, "create", path)
    client.ensure_path(above)
    return client.create(path, data, **kind)


def _tell_counter(client: zkwire.Client, path: str, error: errors.NodeExistsError) -> None:
    """Add to the error where the counter is whose next number is taken, if that can be read."""
    with suppress(errors.ZooKeeperError):
        above = parent(path)
        names, stat = client.get_children_with_stat(above)
        number, highest = next_number(stat.cversion, stat.num_children), highest_number(names)
        if number <= highest:
            error.add_note(behind(above, number, highest))
            cure = "a dump of the node, loaded into its place, brings the counter past it"
            error.add_note(cure if highest - number < 1_000_000 else "that is too far to mend")


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
    fields = {"path": path, "version": stat.version, "stat": stat_fields(stat)}
    context.output.result(fields, [str(stat.version)])


def _set_or_create(client: zkwire.Client, path: str, data: bytes) -> zkwire.Stat:
    """Another client may create or delete the node between the two requests: then once more."""
    while True:
        with suppress(errors.NoNodeError):
            return client.set_data(path, data)
        with suppress(errors.NodeExistsError):
            return client.create_with_stat(path, data).stat


def _rm(context: Context, asked: Namespace) -> None:
    """
    zkwire rm /config
    zkwire rm -r --dry-run /jobs  # what would be deleted
    zkwire rm -r -f /jobs         # no error if there is no /jobs
    """
    out = context.output
    paths = [check_path(context.path(path)) for path in asked.paths]
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
        except errors.ZooKeeperError as error:
            if isinstance(error, errors.NoNodeError) and asked.force:
                continue
            if deleted and not asked.dry_run:
                error.add_note(f"deleted before: {', '.join(deleted)}")
            raise
    key = "would_delete" if asked.dry_run else "deleted"
    out.result({key: deleted}, deleted if asked.dry_run else ())


def _would_delete(client: zkwire.Client, path: str, asked: Namespace) -> list[str]:
    """What would be deleted, children first; raises what the server would refuse it with."""
    if asked.recursive:
        return list(client.walk(path))[::-1]
    stat = client.exists(path)
    if stat is None:
        raise errors.error_for(errors.NoNodeError.code, "delete", path)
    if asked.version not in (-1, stat.version):
        raise errors.error_for(errors.BadVersionError.code, "delete", path)
    if stat.num_children:
        raise errors.error_for(errors.NotEmptyError.code, "delete", path)
    return [path]


def _delete(client: zkwire.Client, path: str, asked: Namespace) -> None:
    if not asked.recursive:
        client.delete(path, asked.version)
    elif client.exists(path) is None:
        raise errors.error_for(errors.NoNodeError.code, "delete", path)
    else:
        client.delete_tree(path)


# --- txn ------------------------------------------------------------------------------------------
# The command that executes several operations, all or none.


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
        raise UsageError("no operation is given")
    results = context.client.multi([_operation(context, each) for each in parsed])
    done = [_outcome(context, *pair) for pair in zip(parsed, results, strict=True)]
    lines = [" ".join(map(str, each.values())) for each in done]
    context.output.result({"results": done}, lines)


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


OPERATIONS: dict[str, tuple[Arg, ...]] = {
    "check": (arg("version", nargs="?", type=VERSION, default=-1, metavar="VERSION"),),
    "create": (arg("data", nargs="?", default="", metavar="DATA"), *KIND),
    "set": (arg("data", metavar="DATA"), ONLY),
    "rm": (ONLY,),
}


def _operation_parser(op: str) -> Parser:
    if op not in OPERATIONS:
        raise UsageError(f"an operation begins with one of {', '.join(OPERATIONS)}")
    parser = Parser(PATH, *OPERATIONS[op], prog="zkwire txn", add_help=False)
    parser.set_defaults(op=op)
    return parser


def _operation(context: Context, each: Namespace) -> Any:
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
    path = context.path(asked.path)
    entries, stat = context.client.get_acl(path)
    texts = [entry_text(entry) for entry in entries]
    shown = {"stat": stat_fields(stat)} if asked.stat else {}
    fields = {"path": path, "acl": texts, "acl_version": stat.aversion, **shown}
    context.output.result(fields, texts + (stat_lines(stat) if asked.stat else []))


def _set_acl(context: Context, asked: Namespace) -> None:
    path, out = context.path(asked.path), context.output
    acl = [entry for entries in asked.acl for entry in entries]
    if asked.recursive:
        count = _set_acl_of_all(context, path, acl)
        out.result({"path": path, "nodes": count}, [str(count)])
        return
    stat = context.client.set_acl(path, acl, asked.version)
    shown = {"stat": stat_fields(stat)} if asked.stat else {}
    lines = [str(stat.aversion), *(stat_lines(stat) if asked.stat else [])]
    out.result({"path": path, "acl_version": stat.aversion, **shown}, lines)


def _set_acl_of_all(context: Context, path: str, acl: Sequence[zkwire.ACL]) -> int:
    """The number of nodes that have the list now.

    The list may take the right to look below a node: a walk yields each once it has looked there.
    """
    count = 0
    for node in context.client.walk(path):
        try:
            context.client.set_acl(node, acl)
            count += 1
        except errors.NoNodeError:  # deleted meanwhile
            if node == path:
                raise
        except errors.ZooKeeperError as error:
            if count:
                error.add_note(f"nodes that had the new list by then: {count}")
            raise
    return count


# fmt: off
COMMANDS = {
    "create": Command(_create, PATH, *DATA, *KIND,
        flag("-p", "--parents", "also what is missing above it, with the default access list")),
    "set": Command(_set, PATH, *DATA, ONLY,
        flag("--create", "create the node if it is missing")),
    "rm": Command(_rm, arg("paths", nargs="+", metavar="PATH"), ONLY,
        flag("-r", "and all nodes below", dest="recursive"),
        flag("-f", "a node that is missing is no error", dest="force"),
        flag("--dry-run", "only print what would be deleted")),
    "txn": Command(_txn, arg("operations", nargs="*", metavar="OPERATION",
        help="one operation, in quotes; without any, standard input has one on each line")),
    "acl": Command(_acl,
        arg("action", choices=("get", "set"), help="what to do"),
        PATH,
        arg("acl", nargs="*", type=access_list, metavar="ACL",
            help="set: SCHEME:ID:PERMS[,...], PERMS of the letters cdrwa"),
        flag("-s", "the stat after the list, or after its new version", dest="stat"),
        arg("-v", dest="version", type=VERSION, default=-1, metavar="N",
            help="only if set: the access list has this version"),
        flag("-R", "set: all nodes below as well", dest="recursive"),
        usage="%(prog)s get [-s] PATH\n       %(prog)s set [-s] [-v N | -R] PATH ACL [ACL ...]"),
}

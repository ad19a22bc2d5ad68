"""The commands that change nodes: create, set, rm."""

from __future__ import annotations

from contextlib import suppress

from zkwire.cli.command import Command, UsageError
from zkwire.cli.nodes.words import (
    add_data,
    add_kind,
    add_version,
    data_of,
    kind_of,
    new_path,
)
from zkwire.cli.output import stat_fields
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
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from zkwire import Client, Stat
    from zkwire.cli.context import Context


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    add_data(parser)
    add_kind(parser)
    does = "also what is missing above it, with the default access list"
    parser.add_argument("-p", "--parents", action="store_true", help=does)


def _create(context: Context, asked: Namespace) -> None:
    from zkwire.operations.checks import check_create_mode

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


def _created(client: Client, path: str, data: bytes, asked: Namespace) -> str:
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


def _tell_counter(client: Client, path: str, error: NodeExistsError) -> None:
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
    does = "create the node if it is missing"
    parser.add_argument("--create", action="store_true", help=does)


def _set(context: Context, asked: Namespace) -> None:
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


def _set_or_create(client: Client, path: str, data: bytes) -> Stat:
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


def _would_delete(client: Client, path: str, asked: Namespace) -> list[str]:
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


def _delete(client: Client, path: str, asked: Namespace) -> None:
    if not asked.recursive:
        client.delete(path, asked.version)
    elif client.exists(path) is None:
        raise error_for(NoNodeError.code, "delete", path)
    else:
        client.delete_tree(path)


COMMANDS = {
    "create": Command(
        _create,
        _create_arguments,
        examples=(
            "zkwire create /config 'a=1'          # prints /config",
            "zkwire create -p -s /jobs/job- work  # prints /jobs/job-0000000000",
            "zkwire create /logo --data-file logo.png",
        ),
        details="It prints the path of the new node and nothing else.  An ephemeral node of a\n"
        "single command (-e) goes at once, as its session does: -e is for the shell.",
    ),
    "set": Command(
        _set,
        _set_arguments,
        examples=(
            "zkwire set /config 'a=2'         # prints the new version",
            "zkwire set -v 3 /config 'a=2'    # only if nothing has changed since version 3",
            "make-config | zkwire set --create /config --data-file -",
        ),
    ),
    "rm": Command(
        _rm,
        _rm_arguments,
        examples=(
            "zkwire rm /config",
            "zkwire rm -r --dry-run /jobs  # what would be deleted",
            "zkwire rm -r -f /jobs         # no error if there is no /jobs",
        ),
    ),
}

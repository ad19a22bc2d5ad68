"""The commands that read nodes: get, exists, stat, sync, ls, tree, count."""

from __future__ import annotations

from argparse import Namespace
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import zkwire
from zkwire.cli import output as outputs
from zkwire.cli.command import Command, arg, flag, integer, one_of
from zkwire.cli.context import Context
from zkwire.cli.output import DONE, REFUSED, moment, only_ascii
from zkwire.errors import NoNodeError, error_for


def stat_if(asked: Namespace, stat: zkwire.Stat) -> dict[str, Any]:
    """The stat as JSON, where it was asked for."""
    return {"stat": outputs.stat_fields(stat)} if asked.stat else {}


def _get(context: Context, asked: Namespace) -> None:
    """
    zkwire get /config            # a terminal gets a new line behind it
    zkwire get /config | sha1sum  # a pipe gets exactly the bytes
    zkwire get --hex -s /config   # a table of the bytes, and the stat
    """
    out, path = context.output, context.path(asked.path)
    data, stat = context.client.get_data(path)
    shown: dict[str, Any] = {"data": outputs.data_fields(data)}
    if asked.file is not None:
        from zkwire.cli.files import whole

        with whole(asked.file) as file:
            file.write(data)
        shown = {"file": asked.file, "bytes": len(data)}
    if not out.json:
        if asked.hex:
            out.result({}, hex_lines(data))
        elif asked.base64:
            out.line(b64encode(data).decode())
        elif asked.raw or not (out.terminal or context.in_shell or asked.stat or asked.file):
            out.bytes(data)
        elif asked.file is None:
            out.text(data.decode("utf-8", "backslashreplace"))
    fields = {"path": path, **shown, **stat_if(asked, stat)}
    out.result(fields, outputs.stat_lines(stat) if asked.stat else ())


def hex_lines(data: bytes) -> Iterator[str]:
    """16 bytes on each line: where they are, in hexadecimal digits, and as ASCII."""
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}  |{text}|"


def _exists(context: Context, asked: Namespace) -> int:
    """
    zkwire exists /config && echo yes  # exit status 0: it exists, 1: no
    zkwire exists --json /config

    It prints nothing without --json.
    """
    path = context.path(asked.path)
    there = context.client.exists(path) is not None
    context.output.result({"path": path, "exists": there})
    return DONE if there else REFUSED


def _stat(context: Context, asked: Namespace) -> None:
    """
    zkwire stat /config
    zkwire stat --json /config | jq .stat.version
    """
    path = context.path(asked.path)
    stat = context.client.exists(path)
    if stat is None:
        raise error_for(NoNodeError.code, "stat", path)
    context.output.result(
        {"path": path, "stat": outputs.stat_fields(stat)}, outputs.stat_lines(stat)
    )


def _sync(context: Context, asked: Namespace) -> None:
    """
    zkwire sync /  # in the shell: what is read next is up to date
    zkwire sync --json /config

    It prints nothing without --json.  Its promise is for its own connection, so it
    is for the shell; a single command that has an answer has reached a server.
    """
    path = context.path(asked.path)
    context.client.sync(path)
    context.output.result({"path": path, "synced": True})


# --- listing --------------------------------------------------------------------------------------
# The commands that list nodes: ls, tree, count.

WINDOW = 500  # requests in one write, as in a walk
HEADER = "  children     bytes  version  modified              name"


def _ls(context: Context, asked: Namespace) -> None:
    """
    zkwire ls /services          # a name on each line
    zkwire ls -l /services       # with children, size, version and time
    zkwire ls --count /services  # how many there are
    """
    out, client, path = context.output, context.client, context.path(asked.path)
    names, stat = client.get_children_with_stat(path)
    key, name, names = "children", "name", sorted(names)
    if asked.recursive:
        key, name = "nodes", "path"
        names = sorted(node for node in client.walk(path) if node != path)
    listed: dict[str, Any] = {key: names}
    lines = names
    if asked.count:
        listed, lines = {"count": len(names)}, [str(len(names))]
    elif asked.long:
        paths = [name if name.startswith("/") else below(path, name) for name in names]
        found = zip(names, each(client.pipeline.exists, paths), strict=True)
        stats = [(name, stat) for name, (_, stat) in found if stat is not None]
        listed = {key: [{name: each, "stat": outputs.stat_fields(stat)} for each, stat in stats]}
        lines = [HEADER, *(_row(*pair) for pair in stats)] if names else []
    shown = outputs.stat_lines(stat) if asked.stat else []
    out.result({"path": path, **listed, **stat_if(asked, stat)}, [*lines, *shown])


def _row(name: str, stat: zkwire.Stat) -> str:
    kind = "e" if stat.ephemeral_owner else "-"
    numbers = f"{stat.num_children:8}  {stat.data_length:8}  {stat.version:7}"
    return f"{kind} {numbers}  {moment(stat.mtime)[:19]}Z  {name}"


def each(ask: Callable[[str], Any], paths: list[str]) -> Iterator[tuple[str, Any]]:
    """The answer for each path, many asked in one write; None for a node that is gone by now."""
    for start in range(0, len(paths), WINDOW):
        window = paths[start : start + WINDOW]
        for path, reply in zip(window, [ask(path) for path in window], strict=True):
            try:
                answer = reply.result()
            except NoNodeError:
                answer = None
            yield path, answer


def below(path: str, name: str) -> str:
    """The path of the child of this name."""
    return f"{path.rstrip('/')}/{name}"


STROKES, ASCII = ("└── ", "├── ", "│   ", "    "), ("`-- ", "|-- ", "|   ", "    ")


# --- tree -----------------------------------------------------------------------------------------


def _tree(context: Context, asked: Namespace) -> None:
    """
    zkwire tree /services
    zkwire tree -L 2 -l /  # two levels, with sizes
    """
    client, path = context.client, context.path(asked.path)
    children = _levels(client, path, asked.depth)
    stats: dict[str, zkwire.Stat] = {}
    if asked.long:
        paths = [below(parent, name) for parent, names in children.items() for name in names]
        stats = {node: stat for node, stat in each(client.pipeline.exists, paths) if stat}
    fields = {"path": path, "children": _nested(children, path, stats)}
    context.output.result(fields, [path, *_drawing(children, path, stats)])


def _levels(client: zkwire.Client, path: str, depth: int | None) -> dict[str, list[str]]:
    """The children of each node down to this depth, sorted."""
    children = {path: sorted(client.get_children(path))}
    level = [below(path, name) for name in children[path]]
    while level and (depth is None or depth > 1):
        depth = depth and depth - 1
        found = [
            (p, sorted(names)) for p, names in each(client.pipeline.get_children, level) if names
        ]
        children.update(found)
        level = [below(parent, name) for parent, names in found for name in names]
    return children


def _nested(children: dict[str, list[str]], path: str, stats: dict[str, zkwire.Stat]) -> list[Any]:
    """Objects in objects; made without recursion, as a tree may be deeper than Python's stack."""
    made: dict[str, list[Any]] = {path: []}
    for parent, names in children.items():  # parents before their children
        for name in names:
            node: dict[str, Any] = {"name": name}
            inner = below(parent, name)
            if inner in stats:
                node["stat"] = outputs.stat_fields(stats[inner])
            node["children"] = made[inner] = []
            made[parent].append(node)
    return made[path]


def _drawing(
    children: dict[str, list[str]], path: str, stats: dict[str, zkwire.Stat]
) -> Iterator[str]:
    last, inner, bar, blank = ASCII if only_ascii() else STROKES
    todo = [(path, name, "") for name in reversed(children.get(path, []))]
    while todo:
        parent, name, indent = todo.pop()
        is_last = name == children[parent][-1]
        node = below(parent, name)
        remark = ""
        if stat := stats.get(node):
            remark = f"  ({stat.data_length} bytes{', ephemeral' if stat.ephemeral_owner else ''})"
        yield indent + (last if is_last else inner) + name + remark
        deeper = indent + (blank if is_last else bar)
        todo += [(node, child, deeper) for child in reversed(children.get(node, []))]


def _count(context: Context, asked: Namespace) -> None:
    """
    zkwire count /services
    zkwire count --json /

    The server counts them, at any depth (since ZooKeeper 3.6).
    """
    path = context.path(asked.path)
    there = context.client.get_all_children_number(path)
    context.output.result({"path": path, "count": there}, [str(there)])


PATH = arg("path", metavar="PATH")
HERE = arg("path", nargs="?", default=".", metavar="PATH")
# fmt: off
COMMANDS = {
    "get": Command(_get, PATH,
        flag("-s", "the stat after the data", dest="stat"),
        one_of(
            flag("--raw", "exactly the bytes, at a terminal, too"),
            flag("--hex", "a table of the bytes"),
            flag("--base64", "the bytes in base64, on one line"),
            arg("-o", dest="file", metavar="FILE", help="write exactly the bytes to this file"))),
    "exists": Command(_exists, PATH),
    "stat": Command(_stat, PATH),
    "sync": Command(_sync, arg("path", nargs="?", default="/", metavar="PATH")),
    "ls": Command(_ls, HERE,
        flag("-l", "with children, size, version and time", dest="long"),
        flag("-R", "the paths of all nodes below, too", dest="recursive"),
        flag("-s", "the node's own stat after the list", dest="stat"),
        flag("--count", "only how many there are")),
    "tree": Command(_tree, HERE,
        arg("-L", dest="depth", type=integer("number from 1 on", 1), metavar="DEPTH",
            help="no deeper than this"),
        flag("-l", "with the size of the data, and e for ephemeral", dest="long")),
    "count": Command(_count, HERE),
}

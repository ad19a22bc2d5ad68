"""The commands that list nodes: ls, tree, count."""

from __future__ import annotations

import sys

from zkwire.cli.command import Command
from zkwire.cli.output import moment, stat_fields, stat_lines
from zkwire.errors import NoNodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from zkwire import Client, Stat
    from zkwire.cli.context import Context

WINDOW = 500  # requests in one write, as in a walk
HEADER = "  children     bytes  version  modified              name"


def _ls_arguments(parser: ArgumentParser) -> None:
    flag = parser.add_argument
    flag("path", nargs="?", default=".", metavar="PATH")
    flag("-l", dest="long", action="store_true", help="with children, size, version and time")
    flag("-R", dest="recursive", action="store_true", help="the paths of all nodes below, too")
    flag("-s", dest="stat", action="store_true", help="the node's own stat after the list")
    flag("--count", action="store_true", help="only how many there are")


def _ls(context: Context, asked: Namespace) -> None:
    out, client, path = context.output, context.client, context.path(asked.path)
    names, stat = client.get_children_with_stat(path)
    names = sorted(names)
    if asked.recursive:
        names = sorted(node for node in client.walk(path) if node != path)
    if out.json:
        out.record(_ls_fields(client, asked, path, names, stat))
        return
    if asked.count:
        names = [str(len(names))]
    elif asked.long:
        names = [HEADER, *_rows(client, path, names)] if names else []
    for line in names:
        out.line(line)
    for line in stat_lines(stat) if asked.stat else ():
        out.line(line)


def _ls_fields(
    client: Client, asked: Namespace, path: str, names: list[str], stat: Stat
) -> dict[str, Any]:
    key, name = ("nodes", "path") if asked.recursive else ("children", "name")
    listed: dict[str, Any] = {key: names}
    if asked.count:
        listed = {"count": len(names)}
    elif asked.long:
        stats = _stats(client, path, names)
        listed = {key: [{name: each, "stat": stat_fields(stat)} for each, stat in stats]}
    return {"path": path, **listed, **({"stat": stat_fields(stat)} if asked.stat else {})}


def _rows(client: Client, path: str, names: list[str]) -> Iterator[str]:
    for name, stat in _stats(client, path, names):
        kind = "e" if stat.ephemeral_owner else "-"
        numbers = f"{stat.num_children:8}  {stat.data_length:8}  {stat.version:7}"
        yield f"{kind} {numbers}  {moment(stat.mtime)[:19]}Z  {name}"


def _stats(client: Client, path: str, names: Sequence[str]) -> Iterator[tuple[str, Stat]]:
    """Each name, or path, and its stat."""
    paths = [name if name.startswith("/") else below(path, name) for name in names]
    for name, (_, stat) in zip(names, each(client.pipeline.exists, paths), strict=True):
        if stat is not None:
            yield name, stat


def each(ask: Callable[[str], Any], paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The answer for each path, many asked in one write; None for a node that is gone by now."""
    rest = list(paths)
    while rest:
        window, rest = rest[:WINDOW], rest[WINDOW:]
        for path, reply in zip(window, [ask(path) for path in window], strict=True):
            try:
                answer = reply.result()
            except NoNodeError:
                answer = None
            yield path, answer


def below(path: str, name: str) -> str:
    """The path of the child of this name."""
    return f"{path.rstrip('/')}/{name}"


# --- tree -----------------------------------------------------------------------------------------


def _tree_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default=".", metavar="PATH")
    does = "no deeper than this"
    parser.add_argument("-L", dest="depth", type=int, metavar="DEPTH", help=does)
    does = "with the size of the data, and e for ephemeral"
    parser.add_argument("-l", dest="long", action="store_true", help=does)


def _tree(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    if asked.depth is not None and asked.depth < 1:
        raise ValueError("-L takes a number from 1 on")
    client = context.client
    children = _levels(client, path, asked.depth)
    stats: dict[str, Stat] = {}
    if asked.long:
        paths = [below(parent, name) for parent, names in children.items() for name in names]
        stats = {node: stat for node, stat in each(client.pipeline.exists, paths) if stat}
    if out.json:
        out.record({"path": path, "children": _nested(children, path, stats)})
        return
    out.line(path)
    for line in _drawing(children, path, stats):
        out.line(line)


def _levels(client: Client, path: str, depth: int | None) -> dict[str, list[str]]:
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


def _nested(children: dict[str, list[str]], path: str, stats: dict[str, Stat]) -> list[Any]:
    """Objects in objects; made without recursion, as a tree may be deeper than Python's stack."""
    made: dict[str, list[Any]] = {path: []}
    for parent, names in children.items():  # parents before their children
        for name in names:
            node: dict[str, Any] = {"name": name}
            inner = below(parent, name)
            if inner in stats:
                node["stat"] = stat_fields(stats[inner])
            node["children"] = made[inner] = []
            made[parent].append(node)
    return made[path]


def _drawing(children: dict[str, list[str]], path: str, stats: dict[str, Stat]) -> Iterator[str]:
    last, inner, bar, blank = _strokes()
    todo = [(path, name, "") for name in reversed(children.get(path, []))]
    while todo:
        parent, name, indent = todo.pop()
        is_last = name == children[parent][-1]
        node = below(parent, name)
        yield indent + (last if is_last else inner) + name + _remark(stats.get(node))
        deeper = indent + (blank if is_last else bar)
        todo += [(node, child, deeper) for child in reversed(children.get(node, []))]


def _remark(stat: Stat | None) -> str:
    if stat is None:
        return ""
    return f"  ({stat.data_length} bytes{', ephemeral' if stat.ephemeral_owner else ''})"


def _strokes() -> tuple[str, str, str, str]:
    strokes = "└── ", "├── ", "│   ", "    "
    try:
        "".join(strokes).encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return "`-- ", "|-- ", "|   ", "    "
    return strokes


def _count_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default=".", metavar="PATH")


def _count(context: Context, asked: Namespace) -> None:
    path = context.path(asked.path)
    number = context.client.get_all_children_number(path)
    if context.output.json:
        context.output.record({"path": path, "count": number})
    else:
        context.output.line(str(number))


COMMANDS = {
    "ls": Command(
        _ls,
        _ls_arguments,
        examples=(
            "zkwire ls /services          # a name on each line",
            "zkwire ls -l /services       # with children, size, version and time",
            "zkwire ls --count /services  # how many there are",
        ),
    ),
    "tree": Command(
        _tree,
        _tree_arguments,
        examples=(
            "zkwire tree /services",
            "zkwire tree -L 2 -l /  # two levels, with sizes",
        ),
    ),
    "count": Command(
        _count,
        _count_arguments,
        examples=(
            "zkwire count /services",
            "zkwire count --json /",
        ),
        details="The server counts them, at any depth (since ZooKeeper 3.6).",
    ),
}

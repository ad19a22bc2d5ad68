"""The command that executes several operations, all or none."""

from __future__ import annotations

import shlex

from zkwire.cli.arguments import version
from zkwire.cli.command import Command, UsageError
from zkwire.cli.context import standard_input
from zkwire.cli.nodes.words import add_kind, add_version, as_bytes, kind_of, new_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable
    from typing import Any

    from zkwire.cli.context import Context
    from zkwire.cli.parser import Parser
    from zkwire.operations.multi import Operation


def _arguments(parser: ArgumentParser) -> None:
    does = "one operation, in quotes; without any, standard input has one on each line"
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=does)


def _txn(context: Context, asked: Namespace) -> None:
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
                parsed.append(_parser(words[0]).parse_args(words[1:]))
        except ValueError as error:
            raise UsageError(f"{line.strip()!r}: {error}") from None
    return parsed


def _parser(op: str) -> Parser:
    from zkwire.cli.parser import Parser

    if op not in OPERATIONS:
        raise UsageError(f"an operation begins with one of {', '.join(OPERATIONS)}")
    parser = Parser(prog="zkwire txn", add_help=False, allow_abbrev=False)
    parser.set_defaults(op=op)
    parser.add_argument("path", metavar="PATH")
    OPERATIONS[op](parser)
    return parser


def _create(parser: ArgumentParser) -> None:
    parser.add_argument("data", nargs="?", default="", metavar="DATA")
    add_kind(parser)


def _set(parser: ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA")
    add_version(parser)


def _check(parser: ArgumentParser) -> None:
    parser.add_argument("version", nargs="?", type=version, default=-1, metavar="VERSION")


OPERATIONS: dict[str, Callable[[ArgumentParser], None]] = {
    "check": _check,
    "create": _create,
    "set": _set,
    "rm": add_version,
}


def _operation(context: Context, each: Namespace) -> Operation:
    from zkwire import Check, Create, Delete, SetData

    if each.op == "create":
        kind: dict[str, Any] = kind_of(each)
        return Create(new_path(context, each), as_bytes(each.data), **kind)
    path = context.path(each.path)
    if each.op == "set":
        return SetData(path, as_bytes(each.data), each.version)
    return (Delete if each.op == "rm" else Check)(path, each.version)


def _outcome(context: Context, each: Namespace, result: Any) -> dict[str, Any]:
    path = result if each.op == "create" else context.path(each.path)
    version = {"version": result.version} if each.op == "set" else {}
    return {"op": each.op, "path": path, **version}


COMMANDS = {
    "txn": Command(
        _txn,
        _arguments,
        examples=(
            "zkwire txn 'check /config 3' 'set /config new' 'rm /old'",
            "zkwire txn < operations.txt  # one on each line",
        ),
        details="\n".join(
            (
                "Operations, all of them executed or none:",
                "  check PATH [VERSION]   the node exists, and has this version",
                "  create PATH [DATA]     with -e -s -c -t and --acl as `zkwire create` has them",
                "  set PATH DATA          with -v",
                "  rm PATH                with -v",
                "It prints a line for each: the operation, the path, and after a set the version.",
            )
        ),
    ),
}

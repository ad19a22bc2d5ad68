"""The commands that read one node: get, exists, stat, sync."""

from __future__ import annotations

from zkwire.cli.command import Command
from zkwire.cli.exits import DONE, REFUSED
from zkwire.cli.output import data_fields, stat_fields, stat_lines
from zkwire.errors import NoNodeError, error_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from zkwire.cli.context import Context


def _path_argument(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")


def _get_arguments(parser: ArgumentParser) -> None:
    _path_argument(parser)
    does = "the stat after the data"
    parser.add_argument("-s", dest="stat", action="store_true", help=does)
    form = parser.add_mutually_exclusive_group()
    does = "exactly the bytes, at a terminal, too"
    form.add_argument("--raw", action="store_true", help=does)
    does = "a table of the bytes"
    form.add_argument("--hex", action="store_true", help=does)
    does = "the bytes in base64, on one line"
    form.add_argument("--base64", action="store_true", help=does)
    does = "write exactly the bytes to this file"
    form.add_argument("-o", dest="file", metavar="FILE", help=does)


def _get(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    data, stat = context.client.get_data(path)
    if asked.file is not None:
        from zkwire.cli.files import whole

        with whole(asked.file) as file:
            file.write(data)
    if out.json:
        shown: dict[str, object] = {"data": data_fields(data)}
        if asked.file is not None:
            shown = {"file": asked.file, "bytes": len(data)}
        out.record({"path": path, **shown, **({"stat": stat_fields(stat)} if asked.stat else {})})
        return
    if asked.hex:
        for line in hex_lines(data):
            out.line(line)
    elif asked.base64:
        from base64 import b64encode

        out.line(b64encode(data).decode())
    elif asked.raw or not (out.terminal or context.in_shell or asked.stat or asked.file):
        out.bytes(data)
    elif asked.file is None:
        out.text(data.decode("utf-8", "backslashreplace"))
    for line in stat_lines(stat) if asked.stat else ():
        out.line(line)


def hex_lines(data: bytes) -> Iterator[str]:
    """16 bytes on each line: where they are, in hexadecimal digits, and as ASCII."""
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}  |{text}|"


def _exists(context: Context, asked: Namespace) -> int:
    path = context.path(asked.path)
    there = context.client.exists(path) is not None
    if context.output.json:
        context.output.record({"path": path, "exists": there})
    return DONE if there else REFUSED


def _stat(context: Context, asked: Namespace) -> None:
    path = context.path(asked.path)
    stat = context.client.exists(path)
    if stat is None:
        raise error_for(NoNodeError.code, "stat", path)
    if context.output.json:
        context.output.record({"path": path, "stat": stat_fields(stat)})
        return
    for line in stat_lines(stat):
        context.output.line(line)


def _sync_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default="/", metavar="PATH")


def _sync(context: Context, asked: Namespace) -> None:
    path = context.path(asked.path)
    context.client.sync(path)
    if context.output.json:
        context.output.record({"path": path, "synced": True})


COMMANDS = {
    "get": Command(
        _get,
        _get_arguments,
        examples=(
            "zkwire get /config            # a terminal gets a new line behind it",
            "zkwire get /config | sha1sum  # a pipe gets exactly the bytes",
            "zkwire get --hex -s /config   # a table of the bytes, and the stat",
        ),
    ),
    "exists": Command(
        _exists,
        _path_argument,
        examples=(
            "zkwire exists /config && echo yes  # exit status 0: it exists, 1: no",
            "zkwire exists --json /config",
        ),
        details="It prints nothing without --json.",
    ),
    "stat": Command(
        _stat,
        _path_argument,
        examples=(
            "zkwire stat /config",
            "zkwire stat --json /config | jq .stat.version",
        ),
    ),
    "sync": Command(
        _sync,
        _sync_arguments,
        examples=(
            "zkwire sync /  # in the shell: what is read next is up to date",
            "zkwire sync --json /config",
        ),
        details="It prints nothing without --json.  Its promise is for its own connection, so it\n"
        "is for the shell; a single command that has an answer has reached a server.",
    ),
}

"""The ``zkwire`` command: it runs the command that is asked for, and turns errors into words.

Options of all commands may stand before the command and behind it.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from zkwire import __version__
from zkwire.cli.arguments import CONNECTION, OUTPUT, add_again, add_options, defaults
from zkwire.cli.command import TABLE, UsageError, find
from zkwire.cli.context import Context
from zkwire.cli.exits import DONE, USAGE, status_of
from zkwire.cli.output import Output, tell
from zkwire.cli.plain import PARSER, PlainLine
from zkwire.errors import ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.cli.command import Command
    from zkwire.cli.parser import Parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command of these words (None: those of the process); returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        tell(_parser().format_help())
        return USAGE
    own = words[: words.index("--")] if "--" in words else words  # the others are a program's
    output, debug = Output(json="--json" in own), "--debug" in own
    try:
        return _flushed(_status(words))
    except BrokenPipeError as error:  # the reader of the output has ended
        output.drop()
        return status_of(error)
    except UsageError as error:
        output.error(error)
        return USAGE
    except (ZooKeeperError, ValueError, OSError, KeyboardInterrupt) as error:
        if debug:
            raise
        interrupted = isinstance(error, KeyboardInterrupt)
        if not interrupted:
            output.error(error)
        _end_output(output, interrupted=interrupted)
        return status_of(error)


def _status(words: list[str]) -> int:
    try:
        return _run(words)
    except SystemExit as end:  # argparse has shown a help, or the version
        return end.code if isinstance(end.code, int) else DONE


def _parser() -> Parser:
    from zkwire.cli.parser import Parser

    parser = Parser(
        prog="zkwire",
        usage="zkwire [OPTIONS] COMMAND ...",
        description="\n".join(
            ["zkwire, a ZooKeeper client in pure Python.", "", "commands:"]
            + [f"  {name:10}  {does}" for name, (_, does) in TABLE.items()]
        ),
        epilog='"zkwire COMMAND --help" shows examples and options of a command.',
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zkwire {__version__}")
    _add_arguments(parser)
    return parser


def _add_arguments(parser: Parser | PlainLine) -> None:
    """What stands before the command, and all that follows."""
    add_options(parser, "the connection", CONNECTION)
    add_options(parser, "the output", OUTPUT)
    parser.add_argument("words", nargs=PARSER, metavar="COMMAND", hidden=True)


def _run(arguments: list[str]) -> int:
    options: Any = SimpleNamespace(**defaults(), words=arguments)
    if arguments[0].startswith("-"):
        line = PlainLine()
        _add_arguments(line)
        if not line.read(arguments, options):
            _parser().parse_args(arguments, options)
    name, *rest = options.words
    command = find(name)
    if command.runs_program:
        at = rest.index("--") if "--" in rest else len(rest)
        rest, options.program = rest[:at], rest[at + 1 :]
    _parse(name, command, rest, options)
    context = Context(options)
    try:
        return command.run(context, options) or DONE
    finally:
        context.end()


def _parse(name: str, command: Command, words: list[str], options: Any) -> None:
    common = (*CONNECTION, *OUTPUT) if command.connects else OUTPUT
    line: Any = PlainLine()
    command.arguments(line)
    add_again(line, common, words)
    if not line.read(words, options):
        from zkwire.cli.parser import parser_of

        parser = parser_of(name, command)
        add_again(parser, common, words)
        parser.parse_args(words, options)


def _flushed(status: int) -> int:
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def _end_output(output: Output, *, interrupted: bool) -> None:
    """Write what is buffered, or drop it: where that is impossible Python would exit with 120.

    After an interrupt it is not written to a full pipe, where nobody may read it.
    """
    try:
        if not (interrupted and _is_full()):
            _flushed(DONE)
            return
    except (OSError, KeyboardInterrupt):
        pass
    output.drop()


def _is_full() -> bool:
    """Whether standard output is a pipe, or a terminal, that takes nothing now."""
    import select

    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):  # it is no file
        return False
    return not poll.poll(0)

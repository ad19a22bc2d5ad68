"""The ``zkwire`` command: it runs the command that is asked for, and turns errors into words.

Options of all commands may stand before the command and behind it.
"""

from __future__ import annotations

import argparse
import sys

from zkwire.cli.command import UsageError, defaults, find, parser_of, parser_of_all
from zkwire.cli.context import Context
from zkwire.cli.output import DONE, USAGE, Output, status_of, tell


def main(arguments: list[str] | None = None) -> int:
    """Run the command of these words (None: those of the process); returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        tell(parser_of_all().format_help())
        return USAGE
    own = words[: words.index("--")] if "--" in words else words  # the others are a program's
    output, debug = Output(json="--json" in own), "--debug" in own
    try:
        try:
            status = _run(words)
        except SystemExit as end:  # argparse has shown a help, or the version
            status = end.code if isinstance(end.code, int) else DONE
        output.flush()
        return status
    except BrokenPipeError as error:  # the reader of the output has ended
        output.drop()
        return status_of(error)
    except UsageError as error:
        output.error(error)
        return USAGE
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        interrupted = isinstance(error, KeyboardInterrupt)
        if not interrupted:
            output.error(error)
        _end_output(output, interrupted=interrupted)
        return status_of(error)


def _run(arguments: list[str]) -> int:
    options = argparse.Namespace(**defaults(), words=arguments)
    if arguments[0].startswith("-"):
        parser_of_all().parse_args(arguments, options)
    name, *rest = options.words
    command = find(name)
    if command.runs_program:
        at = rest.index("--") if "--" in rest else len(rest)
        rest, options.program = rest[:at], rest[at + 1 :]
    parser_of(name, command).parse_args(rest, options)
    context = Context(options)
    try:
        return command.run(context, options) or DONE
    finally:
        context.close()


def _end_output(output: Output, *, interrupted: bool) -> None:
    """Write what is buffered, or drop it: where that is impossible Python would exit with 120.

    After an interrupt it is not written to a full pipe, where nobody may read it.
    """
    try:
        if not (interrupted and output.is_full()):
            output.flush()
            return
    except (OSError, KeyboardInterrupt):
        pass
    output.drop()

"""The ``zkwire`` command: it runs the command that is asked for, and turns errors into words.

Options of all commands may stand before the command and behind it.
"""

from __future__ import annotations

import argparse
import os
import sys

from zkwire.cli.arguments import CONNECTION, OUTPUT, defaults
from zkwire.cli.command import UsageError, find
from zkwire.cli.context import Context
from zkwire.cli.exits import DONE, USAGE, status_of
from zkwire.cli.output import Output, tell
from zkwire.cli.parser import parser_of


def main(arguments: list[str] | None = None) -> int:
    """Run the command of these words (None: those of the process); returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        from zkwire.cli.help import overview

        tell(overview() + "\n")
        return USAGE
    own = words[: words.index("--")] if "--" in words else words  # the others are a program's
    output, debug = Output(json="--json" in own), "--debug" in own
    try:
        return _flushed(_status(words))
    except BrokenPipeError as error:  # the reader of the output has ended
        _drop_output()
        return status_of(error)
    except UsageError as error:
        output.error(error)
        return USAGE
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        if not isinstance(error, KeyboardInterrupt):
            output.error(error)
        _drop_output()
        return status_of(error)


def _status(words: list[str]) -> int:
    try:
        return _run(words)
    except SystemExit as end:  # argparse has shown a help, or the version
        return end.code if isinstance(end.code, int) else DONE


def _run(arguments: list[str]) -> int:
    options = argparse.Namespace(**defaults(), words=arguments)
    if arguments[0].startswith("-"):
        from zkwire.cli.help import parser_of_all

        parser_of_all().parse_args(arguments, options)
    name, *rest = options.words
    command = find(name)
    if command.runs_program:
        at = rest.index("--") if "--" in rest else len(rest)
        rest, options.program = rest[:at], rest[at + 1 :]
    parser = parser_of(name, command)
    parser.add_again((*CONNECTION, *OUTPUT) if command.connects else OUTPUT)
    parser.parse_args(rest, options)
    context = Context(options)
    try:
        return command.run(context, options) or DONE
    finally:
        context.close()


def _flushed(status: int) -> int:
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def _drop_output() -> None:
    """Write what is buffered, or drop it if that is impossible: Python would exit with 120."""
    try:
        _flushed(DONE)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

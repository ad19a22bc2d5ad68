"""``zkwire shell``: commands on nodes, one after another, in one session.

From a file, a pipe or ``-c`` it stops at the first command that fails, with its exit status.  At a
terminal it goes on, and Ctrl-C ends a command and not the shell.
"""

from __future__ import annotations

import sys

from zkwire.cli.command import Command
from zkwire.cli.exits import DONE
from zkwire.cli.shell.words import whole_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from zkwire.cli.context import Context
    from zkwire.cli.shell.interpreter import Interpreter


def _arguments(parser: ArgumentParser) -> None:
    does = "run these commands instead of those of standard input"
    parser.add_argument("-c", dest="script", metavar="COMMANDS", help=does)
    does = "go on behind a command that fails; exit with the status of the first"
    parser.add_argument("-k", "--keep-going", action="store_true", help=does)


def _shell(context: Context, asked: Namespace) -> int:
    """
    zkwire shell -s zk1:2181            # at a terminal: help shows what there is
    zkwire shell -c 'cd /app; ls; get config'
    zkwire shell < commands.txt         # stops at the first that fails

    The commands are those of zkwire itself, and the names that zkCli has for
    them (delete, deleteall, getAcl, addWatch, ...) mean the same. In a script
    the exit status is that of the first command that has failed.
    """
    from zkwire.cli.shell.interpreter import Interpreter

    interpreter = Interpreter(context)
    try:
        if asked.script is None and _at_terminal():
            from zkwire.cli.shell.terminal import Terminal

            return Terminal(interpreter).run()
        if asked.script is not None and "\n" not in asked.script:  # an error in it needs no number
            return interpreter.run_line(asked.script, keep_going=asked.keep_going)
        lines = _typed() if asked.script is None else asked.script.split("\n")
        return _script(interpreter, lines, keep_going=asked.keep_going)
    finally:
        interpreter.close()


def _at_terminal() -> bool:
    """Whether lines are typed, which takes the other two streams as well."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return None not in streams and sys.stdin.isatty()


def _typed() -> Iterator[str]:
    """The lines of standard input, one by one: a command may read some of them."""
    while sys.stdin is not None and (line := sys.stdin.readline()):
        yield line.removesuffix("\n")


def _script(interpreter: Interpreter, lines: Iterable[str], *, keep_going: bool) -> int:
    first = DONE
    for interpreter.line, line in whole_lines(lines):
        status = interpreter.run_line(line, keep_going=keep_going)
        first = first or status
        if interpreter.ended or (status and not keep_going):
            break
    return first


COMMANDS = {
    "shell": Command(_shell, _arguments, in_shell=False),
}

"""What the word that is being typed may become: a command, a flag, or a path.

Children are asked for with a time limit, and only so many are shown.  It never raises.
"""

from __future__ import annotations

from zkwire.cli.command import TABLE
from zkwire.cli.shell.words import NAMES, quoted, translate, unfinished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser

    from zkwire import Client
    from zkwire.cli.shell.interpreter import Interpreter

SECONDS = 1.0
MOST = 200


def completions(shell: Interpreter, line: str) -> list[str]:
    """What the last word of the line may become, as it is typed."""
    try:
        words, last = unfinished(line)
        if not words or words == ["help"]:
            return [f"{name} " for name in _names(shell) if name.startswith(last)]
        if last.startswith("-"):
            name = translate(words)[0]
            return [f"{flag} " for flag in flags(shell.parser(name)) if flag.startswith(last)]
        client = shell.connected
        if client is None or not client.state.usable:
            return []
        above, slash, start = last.rpartition("/")
        names = children(client, shell.context.path(above + slash or "."), start)
        return [quoted(above + slash + name) for name in names]
    except Exception:  # the line stays as it is
        return []


def children(client: Client, path: str, start: str) -> list[str]:
    """The names of the node's children that begin so."""
    names: list[str] = client.pipeline.get_children(path).result(SECONDS)
    return sorted(name for name in names if name.startswith(start))[:MOST]


def flags(parser: ArgumentParser) -> list[str]:
    """The flags that a help shows: the long form where there is one."""
    from argparse import SUPPRESS

    return [
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings and action.help is not SUPPRESS
    ]


def _names(shell: Interpreter) -> list[str]:
    own = shell.own.table
    return sorted({*TABLE, *own, *NAMES})

"""What a command of ``zkwire`` is, and the table of all of them.

The table says which module has a command, so the help of all commands loads none of them, and a
command loads no other.  The module has it in its own ``COMMANDS``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable

    from zkwire.cli.context import Context

    Run = Callable[[Context, Namespace], int | None]


class UsageError(ValueError):
    """The words of a command cannot be understood; the message says where the right ones are."""


class Command:
    """One command.

    ``arguments`` adds its arguments to a parser.  ``run`` does it: it gets the context and the
    parsed arguments, and returns the exit status (None: 0); errors it leaves to the caller.
    ``examples`` are whole lines, shown first in the help.  ``details`` are paragraphs for the help,
    of at most 80 columns.  ``in_shell``: whether the shell has it as well.  ``connects``: whether
    it takes the options of a client.  ``runs_program``: the words behind ``--`` are a program
    and no arguments; the parsed arguments have them as ``program``, empty if there is none.
    """

    def __init__(
        self,
        run: Run,
        arguments: Callable[[ArgumentParser], None],
        *,
        examples: tuple[str, ...],
        details: str = "",
        in_shell: bool = True,
        connects: bool = True,
        runs_program: bool = False,
    ) -> None:
        self.run = run
        self.arguments = arguments
        self.examples = examples
        self.details = details
        self.in_shell = in_shell
        self.connects = connects
        self.runs_program = runs_program


# The name of each command, the module below zkwire.cli that has it, and what it does.
TABLE: dict[str, tuple[str, str]] = {
    "ls": ("nodes.listing", "list the children of a node"),
    "tree": ("nodes.listing", "draw the nodes below a node"),
    "get": ("nodes.reading", "print the data of a node"),
    "exists": ("nodes.reading", "say by the exit status whether a node exists"),
    "stat": ("nodes.reading", "print the stat of a node"),
    "create": ("nodes.writing", "create a node"),
    "set": ("nodes.writing", "replace the data of a node"),
    "rm": ("nodes.writing", "delete nodes"),
    "txn": ("nodes.txn", "execute operations, all of them or none"),
    "acl": ("nodes.acl", "read or replace the access list of a node"),
    "quota": ("nodes.quota", "read, set or delete the limits of a node"),
    "count": ("nodes.listing", "print how many nodes are below a node"),
    "sync": ("nodes.reading", "let the server catch up with the ensemble"),
    "ephemerals": ("nodes.ensemble", "list the ephemeral nodes of this session"),
    "whoami": ("nodes.ensemble", "print the identities that the server sees"),
    "config": ("nodes.ensemble", "print the configuration of the ensemble"),
    "reconfig": ("nodes.ensemble", "add servers to the ensemble, or remove them"),
    "watch": ("nodes.watch", "show each change of a node, as it comes"),
    "wait": ("nodes.wait", "wait until a node exists, is gone, or has certain data"),
    "lock": ("lock.command", "run a command while a lock is held"),
    "spy": ("spy.spy", "show what a client and a server say to each other, and break it"),
    "decode": ("spy.decode", "explain bytes of the protocol, field by field"),
    "lesson": ("lessons.command", "learn sessions, watches and locks by running them"),
    "demo": ("demo", "show what the locks do when things go wrong"),
    "copy": ("transfer.load", "copy a tree to another path or ensemble"),
    "dump": ("transfer.dump", "write a tree as JSON Lines"),
    "load": ("transfer.load", "read a tree that dump has written"),
    "doctor": ("servers.doctor", "see whether each server can be used, and why not"),
    "who": ("servers.owning", "show which session owns an ephemeral node, and what else"),
    "server": ("server", "run an in-memory ZooKeeper server, for tests and demos"),
    "shell": ("shell.shell", "look at nodes and change them, one command on each line"),
    "completion": ("completion", "write a completion file for bash, zsh or fish"),
    "help": ("help", "show all commands, or the examples and flags of one"),
}
# What completion files run; no help shows it.
HIDDEN = {"complete": "completion"}


def no_command(name: str, names: Iterable[str], lists: str) -> UsageError:
    """The error for a name that is none of ``names``; ``lists`` is the command that lists them."""
    from zkwire.cli.shell.aliases import NAMES

    meant = " ".join(NAMES.get(name, ())) or nearest(name, names)
    advice = f"; did you mean `{meant}`?" if meant else f"; `{lists}` lists them"
    return UsageError(f"there is no command {name!r}{advice}")


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of these words that is perhaps meant; "" if none is like it."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), 1)), "")


def find(name: str) -> Command:
    """The command of this name; UsageError if there is none."""
    module = HIDDEN.get(name) or TABLE.get(name, ("", ""))[0]
    if not module:
        raise no_command(name, TABLE, "zkwire help")
    command: Command = __import__(f"zkwire.cli.{module}", fromlist=["_"]).COMMANDS[name]
    return command

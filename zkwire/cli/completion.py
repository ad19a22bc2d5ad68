"""``zkwire completion``: files for bash, zsh and fish, which all ask ``zkwire complete``.

Behind ``--`` they give it the words of the line, the last of which is being typed.  It prints what
that may become, one candidate on each line, perhaps with a tab and what it does, and exits with 1
where a file is to be named.  For paths of nodes it asks the server that the line names, and ends
within a few seconds, whatever the server does.
"""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pkgutil import get_data

from zkwire.cli import command as commands
from zkwire.cli.context import Context
from zkwire.cli.lessons.lesson import TABLE as LESSONS
from zkwire.cli.output import DONE, REFUSED
from zkwire.cli.shell.terminal import SECONDS, children
from zkwire.errors import ZooKeeperError

SHELLS = ("bash", "zsh", "fish")  # each has its script beside this module


def _completion(context: Context, asked: Namespace) -> None:
    """
    source <(zkwire completion bash)    # in ~/.bashrc
    zkwire completion zsh > ~/.zfunc/_zkwire
    zkwire completion fish > ~/.config/fish/completions/zkwire.fish

    It completes commands, flags, and paths of nodes, of the server that the
    line or ZKWIRE_SERVER names.
    """
    script = get_data("zkwire.cli", f"completion.{asked.shell}") or b""
    context.output.text(script.decode().rstrip())


def _complete(context: Context, asked: Namespace) -> int:
    *typed, word = asked.program or [""]
    try:
        found = candidates(typed, word)
        if found is None:
            return REFUSED
        lines = [
            f"{candidate}\t{does}" if does else candidate
            for candidate, does in found
            if candidate.startswith(word) and candidate.isprintable()
        ]
    except (ZooKeeperError, ValueError, OSError):  # the line stays as it is
        return DONE
    if lines:
        context.output.text("\n".join(lines))
    return DONE


def candidates(typed: list[str], word: str) -> Iterable[tuple[str, str]] | None:
    """What the word behind those typed may become, and what that does; None: a file."""
    common = commands.Parser(*commands.CONNECTION, *commands.OUTPUT, add_help=False)
    at = next((n for n, each in enumerate(typed) if each in commands.TABLE), None)
    if at is None:
        if _wants_value(common, typed):
            return None
        names = [(name, does) for name, (_, does) in commands.TABLE.items()]
        return _flags(common) if word.startswith("-") else names
    name, rest = typed[at], typed[at + 1 :]
    parser = commands.parser_of(name, commands.find(name))
    waiting = _wants_value(parser, rest)
    if waiting is not None:
        return [(str(choice), "") for choice in waiting.choices] if waiting.choices else None
    if word.startswith("-"):
        return _flags(parser)
    others = [action for action in parser._actions if not action.option_strings]
    named: dict[str, Iterable[str]] = {"help": commands.TABLE, "lesson": LESSONS}
    first = named.get(name) or (others[0].choices if others else None)
    plain = [
        each
        for number, each in enumerate(rest)
        if not each.startswith("-") and not _wants_value(parser, rest[:number])
    ]
    if first and not plain:
        return [(str(choice), "") for choice in first]
    if not any("PATH" in str(action.metavar) for action in others):
        return None
    behind = commands.Parser(add_help=False)
    behind.add_again((*commands.CONNECTION, *commands.OUTPUT))
    options = Namespace(**commands.defaults())
    for each, words in ((common, typed[:at]), (behind, rest)):
        each.parse_known_args(words, options)
    options.connect_timeout = min(options.connect_timeout, SECONDS)
    return _paths(Context(options), word)


def _paths(context: Context, word: str) -> Iterator[tuple[str, str]]:
    above, slash, start = word.rpartition("/")
    try:
        for name in children(context.client, context.path(above + slash or "/"), start):
            yield f"{above}{slash}{name}", ""
    finally:
        context.close()


def _flags(parser: ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help is not SUPPRESS:
            for name in action.option_strings:
                yield name, (action.help or "") % vars(action)


def _wants_value(parser: ArgumentParser, words: list[str]) -> Action | None:
    """The option at the end of the words, if a value follows it."""
    action = parser._option_string_actions.get(words[-1]) if words else None
    return None if action is None or action.nargs == 0 else action


SHELL = commands.arg("shell", choices=SHELLS, help="whose completion to write")
COMMANDS = {
    "completion": commands.Command(_completion, SHELL, in_shell=False, connects=False),
    "complete": commands.Command(_complete, in_shell=False, connects=False, runs_program=True),
}

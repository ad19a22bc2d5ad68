"""The parser of a command's words, by argparse: help, mistakes, and each line that is not plain.

A plain line is read by :mod:`zkwire.cli.plain`, which takes the same arguments.
"""

from __future__ import annotations

import argparse

from zkwire.cli.command import TABLE, Command, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

TAKES_THE_REST = (argparse.REMAINDER, argparse.PARSER)
MAY_BE_NONE = (argparse.ZERO_OR_MORE, argparse.REMAINDER)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Lines for 80 columns; argparse makes one for each argument, and would load shutil for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=78)


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError where argparse ends the process, and shows examples first.

    Options may stand between the other words, too: ``create /a -s data``.
    """

    def __init__(self, *, examples: tuple[str, ...] = (), **options: object) -> None:
        options.setdefault("formatter_class", _Formatter)
        super().__init__(**options)  # type: ignore[arg-type]
        self.examples = examples

    def add_argument(self, *names: str, hidden: bool = False, **kind: Any) -> argparse.Action:
        """Add an argument; no help shows one that is ``hidden``."""
        if hidden:
            kind["help"] = argparse.SUPPRESS
        action = super().add_argument(*names, **kind)
        if action.nargs in MAY_BE_NONE:  # argparse would say that they are required
            action.required = False
        return action

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse these words; what takes all the rest of them ends the options."""
        space = namespace or argparse.Namespace()
        parsed, rest = self.parse_known_args(args, argparse.Namespace(**vars(space)))
        ends = any(action.nargs in TAKES_THE_REST for action in self._get_positional_actions())
        if rest and not ends:  # slower, so only where an option stands between other words
            parsed, rest = self.parse_known_intermixed_args(args, space)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        vars(space).update(vars(parsed))
        return space

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has found."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        """The examples, and behind them what argparse knows."""
        if not self.examples:
            return super().format_help()
        return "\n  ".join(["examples:", *self.examples]) + "\n\n" + super().format_help()


def parser_of(
    name: str, command: Command, *, prog: str = "zkwire ", does: str | None = None
) -> Parser:
    """The parser for the words behind the name of a command.

    ``does`` is for one that is not in the table.
    """
    does = does or TABLE.get(name, ("", ""))[1]
    parser = Parser(
        prog=f"{prog}{name}",
        description="\n\n".join(filter(None, [does[:1].upper() + does[1:] + ".", command.details])),
        epilog='"zkwire --help" shows the options of all commands: --server, --auth, --json, ...',
        examples=command.examples,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return parser

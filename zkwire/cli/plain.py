"""Reads the lines that most commands are: argparse takes longer to be loaded than such a command.

A plain line has whole options, each with its value, and other words.  What is read here is what
argparse reads (tests/unit/test_command_plain.py compares the two, for all commands).  Everything
else is left to it: a help, joined letters, a word that may be an option or not, and each mistake,
which it explains.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

PARSER = "A..."  # as in argparse


class _Argument:
    """What ``add_argument`` was given."""

    def __init__(self, names: tuple[str, ...], group: object, kind: dict[str, Any]) -> None:
        long = next((name for name in names if name.startswith("--")), names[0])
        action = kind.get("action", "store")
        self.dest: str = kind.get("dest") or long.lstrip("-").replace("-", "_")
        self.group = group
        self.is_flag = action in ("store_true", "store_const")
        self.is_plain = self.is_flag or action == "store"
        self.const: object = kind.get("const", True)
        self.nargs: Any = kind.get("nargs")
        self.convert: Callable[[str], Any] = kind.get("type", str)
        self.choices: Any = kind.get("choices")
        self.default: Any = kind.get("default", False if action == "store_true" else None)

    def value(self, text: str) -> Any:
        """The value that the word stands for."""
        value = self.convert(text)
        if self.choices is not None and value not in self.choices:
            _not_plain()
        return value

    def value_without(self) -> Any:
        """The value where no word stands for it."""
        return self.value(self.default) if isinstance(self.default, str) else self.default


def _not_plain() -> NoReturn:
    raise ValueError("this is for argparse")


class PlainLine:
    """Is given the arguments of a command as an ``ArgumentParser`` is, and reads a line."""

    def __init__(self) -> None:
        self._options: dict[str, _Argument] = {}
        self._words: list[_Argument] = []
        self._all: list[_Argument] = []

    def add_argument(self, *names: str, group: object = None, **kind: Any) -> None:
        """Add an argument; an option that is not plain is not known here."""
        argument = _Argument(names, group, kind)
        self._all.append(argument)
        if not names[0].startswith("-"):
            self._words.append(argument)
        elif argument.is_plain and argument.nargs is None:
            self._options.update(dict.fromkeys(names, argument))

    def add_argument_group(self, _: str) -> PlainLine:
        """A part of the help."""
        return self

    def add_mutually_exclusive_group(self) -> SimpleNamespace:
        """Options of which a line has one at most."""
        return SimpleNamespace(add_argument=partial(self.add_argument, group=object()))

    def read(self, line: list[str], space: SimpleNamespace) -> bool:
        """Read the line into ``space``; False, and nothing is done, if it is not plain.

        What the space has already is no argument's default.
        """
        try:
            values, words = self._read_options(line)
            values |= self._read_words(words)
            for each in self._all:
                has_value = each.dest in values or hasattr(space, each.dest)
                if not has_value:
                    values[each.dest] = each.value_without()
        except Exception:  # of a conversion, too: argparse says what is wrong
            return False
        space.__dict__.update(values)
        return True

    def _read_options(self, line: list[str]) -> tuple[dict[str, Any], list[str]]:
        """The values of the options, and the other words."""
        values: dict[str, Any] = {}
        others: list[str] = []
        given: dict[object, _Argument] = {}
        ends = bool(self._words) and self._words[0].nargs == PARSER
        rest = iter(line)
        for word in rest:
            if not word.startswith("-") or word == "-":
                others.append(word)
                if ends:
                    others += rest
                continue
            name, equals, text = word.partition("=")
            option = self._options.get(name) or _not_plain()
            if option.group is not None and given.setdefault(option.group, option) is not option:
                _not_plain()
            if option.is_flag:
                values[option.dest] = option.const if not equals else _not_plain()
                continue
            if not equals:
                text = next(rest, "")
            elif not name.startswith("--"):
                _not_plain()
            if not text or (text.startswith("-") and text != "-"):
                _not_plain()
            values[option.dest] = option.value(text)
        return values, others

    def _read_words(self, words: list[str]) -> dict[str, Any]:
        """The values of the other arguments; only the last may have none, or several."""
        values: dict[str, Any] = {}
        for argument in self._words:
            if argument.nargs is not None and argument is not self._words[-1]:
                _not_plain()
            elif argument.nargs is None and words:
                values[argument.dest] = argument.value(words.pop(0))
            elif argument.nargs == "*" or (argument.nargs in ("+", PARSER) and words):
                values[argument.dest] = [argument.value(word) for word in words]
                words = []
            elif argument.nargs == "?":
                values[argument.dest] = (
                    argument.value(words.pop(0)) if words else argument.value_without()
                )
            else:
                _not_plain()
        if words:
            _not_plain()
        return values

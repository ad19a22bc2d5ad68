"""The output of the commands: plain text of at most 80 columns, in colour only on a terminal."""

from __future__ import annotations

import os
import sys
import textwrap

WIDTH = 80
_COLOURS = {"green": "32", "red": "31", "bold": "1", "dim": "2"}


class Screen:
    """Prints headings, text and checks; counts the checks, and keeps those that have failed."""

    def __init__(self) -> None:
        self.checks: int = 0
        self.failures: list[str] = []
        terminal = sys.stdout is not None and sys.stdout.isatty()
        self._colour = terminal and "NO_COLOR" not in os.environ

    def paint(self, text: str, colour: str) -> str:
        """``text`` in a colour, if this is a terminal."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colour else text

    def heading(self, text: str) -> None:
        """Begin a scene."""
        print(f"\n{self.paint(text, 'bold')}", flush=True)

    def say(self, text: str) -> None:
        """A paragraph."""
        print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "), flush=True)

    def show(self, text: str) -> None:
        """One line unchanged, cut to the width."""
        line = "".join(c if c.isprintable() else "?" for c in text).rstrip()[: WIDTH - 4]
        print(f"    {self.paint(line, 'dim')}", flush=True)

    def check(self, text: str, passed: bool) -> None:
        """Print the result of a check; a failed one makes the command fail."""
        self.checks += 1
        mark = self.paint("yes", "green") if passed else self.paint("NO!", "red")
        lines = textwrap.wrap(text, WIDTH - 8)
        print("\n      ".join([f"  {mark} {lines[0]}", *lines[1:]]), flush=True)
        if not passed:
            self.failures.append(text)

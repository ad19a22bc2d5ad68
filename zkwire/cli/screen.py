"""What the commands write: plain text of at most 80 columns, in colour only on a terminal."""

from __future__ import annotations

import os
import sys
import textwrap

WIDTH = 80
_COLOURS = {"green": "32", "red": "31", "bold": "1", "dim": "2"}


class Screen:
    """Prints headings, text and claims; remembers whether every claim was true."""

    def __init__(self) -> None:
        self.claims: int = 0
        self.failures: list[str] = []
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

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
        """One line as it is, cut to the width."""
        line = "".join(c if c.isprintable() else "?" for c in text)[: WIDTH - 4]
        print(f"    {self.paint(line, 'dim')}", flush=True)

    def claim(self, text: str, true: bool) -> None:
        """State something that has been checked; a false one makes the command fail."""
        self.claims += 1
        mark = self.paint("yes", "green") if true else self.paint("NO!", "red")
        lines = textwrap.wrap(text, WIDTH - 8)
        print(f"  {mark} {lines[0]}")
        for line in lines[1:]:
            print(f"      {line}")
        sys.stdout.flush()
        if not true:
            self.failures.append(text)

"""A command of zkwire in this process, whose lines a test reads while it runs."""

from __future__ import annotations

import argparse
import io
import sys
from queue import Empty, SimpleQueue
from typing import Self

from tests.support.command import ROOT
from tests.support.lock_helpers import PATIENCE, Running
from zkwire.cli.command import CONNECTION, Parser, defaults
from zkwire.cli.context import Context
from zkwire.cli.main import main
from zkwire.cli.shell.interpreter import Interpreter
from zkwire.testing import Server

TEXT = "\n".join(page.read_text() for page in sorted(ROOT.glob("docs/command*.md")))
"""All pages about the command."""


def recording(name: str) -> list[str]:
    """What a terminal shows, from the pages about the command."""
    shown = TEXT.split(f"<!-- recording: {name} -->\n```\n")[1]
    return shown.split("\n```")[0].splitlines()


def interpreter_of(server: Server | None = None, *words: str) -> Interpreter:
    """What runs the commands of a shell, in this process."""
    parser = Parser(*CONNECTION)
    options = argparse.Namespace(**defaults())
    hosts = ["-s", server.hosts] if server is not None else []
    return Interpreter(Context(parser.parse_args([*hosts, *words], options)))


class _Lines(io.TextIOBase):
    """A standard output; each line goes into a queue when it has been flushed."""

    def __init__(self) -> None:
        self.flushed = SimpleQueue[str]()
        self._text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text += text
        return len(text)

    def flush(self) -> None:
        *whole, self._text = self._text.split("\n")
        for line in whole:
            self.flushed.put(line)


class RunningCommand:
    """``zkwire -s HOSTS WORDS``, to be used by one test at a time; see the module's docstring."""

    def __init__(self, server: Server, *words: str) -> None:
        self._words = ["-s", server.hosts, *words]
        self._output = _Lines()

    def __enter__(self) -> Self:
        self._former, sys.stdout = sys.stdout, self._output
        self._running = Running(lambda: main(self._words))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._running.result()  # a command that a test lets run forever is an error
        finally:
            sys.stdout = self._former

    def line(self) -> str:
        """The next line."""
        try:
            return self._output.flushed.get(timeout=PATIENCE)
        except Empty:
            raise TimeoutError(f"{self._words} has written no more") from None

    def rest(self) -> list[str]:
        """The lines that have not been read, at the end of the command."""
        self.status()
        return [self._output.flushed.get() for _ in range(self._output.flushed.qsize())]

    def status(self) -> int:
        """The exit status, when the command has ended."""
        return self._running.result()

"""Runs a command of zkwire: in this process with streams of its own, or as a process."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest.mock import patch

from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from zkwire.cli.command import CONNECTION, Parser, defaults
from zkwire.cli.context import Context
from zkwire.cli.main import main
from zkwire.cli.shell.interpreter import Interpreter
from zkwire.testing import Ensemble, Server

ROOT = Path(__file__).resolve().parents[2]
ZKWIRE = [sys.executable, "-m", "zkwire"]
SECONDS = 60.0
"""The limit of each wait; all of them end at once."""

TEXT = "\n".join(page.read_text() for page in sorted(ROOT.glob("docs/command*.md")))
"""All pages about the command."""


def recording(name: str) -> list[str]:
    """What a terminal shows, from the pages about the command."""
    shown = TEXT.split(f"<!-- recording: {name} -->\n```\n")[1]
    return shown.split("\n```")[0].splitlines()


class Ran(NamedTuple):
    """The exit status of a command, and what it has written."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output."""
        return self.text.splitlines()

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode()

    @property
    def record(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)


def run(server: str, *words: str, stdin: bytes = b"") -> Ran:
    """Run ``zkwire WORDS`` with this server; its output goes into a pipe, as far as it knows."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    with redirect_stdout(out), redirect_stderr(err), patch("sys.stdin", given):
        status = main(["--server", server, *words])
    out.flush()
    return Ran(status, out.buffer.getvalue(), err.getvalue())


def prints(server: Server | Ensemble, line: str, *more: str, stdin: bytes = b"") -> list[str]:
    """What a command prints that succeeds without a note."""
    ran = run(server.hosts, *shlex.split(line), *more, stdin=stdin)
    assert (ran.status, ran.err) == (0, ""), line
    return ran.lines


def refuses(server: Server | Ensemble, line: str, status: int = 1) -> str:
    """The line of a command that fails with this exit status."""
    ran = run(server.hosts, *shlex.split(line))
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, b"", 1), (line, ran)
    assert ran.err.startswith("zkwire: ")
    return ran.err.removeprefix("zkwire: ").rstrip()


def plays(server: Server | Ensemble, text: str, **places: object) -> None:
    """Run each line of a text: a command, and what it shows.

    ``COMMAND -> LINE | LINE``: it succeeds, and these are all lines that it writes, those of
    standard error last.  ``COMMAND => STATUS WORDS``: it fails, and these are in its one line.
    """
    for name, value in places.items():
        text = text.replace(name, str(value))
    for row in text.strip().splitlines():
        line, arrow, shown = re.split(r" +([-=]>) ?", row.strip(), maxsplit=1)
        if arrow == "=>":
            status, _, words = shown.partition(" ")
            assert words in refuses(server, line, int(status)), row
        else:
            ran = run(server.hosts, *shlex.split(line))
            wanted = shown.split(" | ") if shown else []
            assert (ran.status, [*ran.lines, *ran.err.splitlines()]) == (0, wanted), row


def process(*words: str, **options: Any) -> subprocess.Popen[str]:
    """``zkwire WORDS`` as a process; its output goes into pipes where nothing else is said.

    ``env`` is added to the environment.
    """
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    given["env"] = {**os.environ, "PYTHONPATH": str(ROOT), **options.get("env", {})}
    return subprocess.Popen([*ZKWIRE, *words], cwd=ROOT, text=True, **given)


def ended(*words: str, typed: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """A process as :func:`process`, from a pipe and at its end."""
    with process(*words, stdin=subprocess.PIPE, **options) as running:
        out, err = running.communicate(typed, timeout=100)
        return subprocess.CompletedProcess(words, running.returncode, out, err)


# --- while it runs --------------------------------------------------------------------------------


def interpreter_of(server: Server | None = None, *words: str) -> Interpreter:
    """What runs the commands of a shell, in this process."""
    parser = Parser(*CONNECTION)
    options = argparse.Namespace(**defaults())
    hosts = ["-s", server.hosts] if server is not None else []
    return Interpreter(Context(parser.parse_args([*hosts, *words], options)))


class RunningCommand:
    """``zkwire -s HOSTS WORDS`` in a thread of this process, to be used by one test at a time."""

    def __init__(self, server: Server, *words: str) -> None:
        self._words = ["-s", server.hosts, *words]

    def __enter__(self) -> Self:
        reader, writer = os.pipe()
        self._lines = open(reader)

        def run() -> int:
            with open(writer, "w") as output, redirect_stdout(output):
                return main(self._words)

        self._running = Running(run)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lines:
            self.status()  # a command that a test lets run forever is an error

    def line(self) -> str:
        """The next line."""
        return self._lines.readline().rstrip("\n")

    def rest(self) -> list[str]:
        """The lines that have not been read, at the end of the command."""
        return self._lines.read().splitlines()

    def status(self) -> int:
        """The exit status, when the command has ended."""
        return self._running.result()


def processes_marked(mark: str) -> list[str]:
    """The living processes with this word in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes().decode("utf-8", "replace"))
    return found


class Teller:
    """A named pipe of which each line is an event; its end is the end of all that write to it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.mark = f"marked-{secrets.token_hex(8)}"
        self.environment = {"TELL": str(path), "ZKWIRE_TEST_MARK": self.mark}

    @contextmanager
    def run(self, hosts: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`zkwire lock`, of which no process is left at the end."""
        with process("-s", hosts, *words, stdin=subprocess.PIPE, env=self.environment) as running:
            try:
                yield running
                running.communicate(timeout=SECONDS)
            finally:
                running.kill()
        poll("no process", lambda: not processes_marked(self.mark) or None, SECONDS)

    def events(self) -> Iterator[str]:
        """The lines as they come."""
        with self.path.open() as pipe:
            yield from map(str.strip, pipe)

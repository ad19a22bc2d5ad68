"""Runs a command of zkwire: in this process with streams of its own, or as a process."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from zkwire.cli.main import main
from zkwire.testing import Ensemble, Server

ROOT = Path(__file__).resolve().parents[2]
ZKWIRE = [sys.executable, "-m", "zkwire"]
Served: TypeAlias = Server | Ensemble


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


def prints(server: Served, line: str, *more: str, stdin: bytes = b"") -> list[str]:
    """What a command prints that succeeds without a note."""
    ran = run(server.hosts, *shlex.split(line), *more, stdin=stdin)
    assert (ran.status, ran.err) == (0, ""), line
    return ran.lines


def refuses(server: Served, line: str, status: int = 1) -> str:
    """The line of a command that fails with this exit status."""
    ran = run(server.hosts, *shlex.split(line))
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, b"", 1), (line, ran)
    assert ran.err.startswith("zkwire: ")
    return ran.err.removeprefix("zkwire: ").rstrip()


def plays(server: Served, text: str, **places: object) -> None:
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

"""`zkwire lock` as a process, and a command below it that tells a test what happens to it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.command import ROOT, ZKWIRE
from tests.support.server_control import poll

__all__ = ["ROOT", "SECONDS", "Teller", "command", "processes_marked"]

SECONDS = 60.0
"""The limit of each wait; all of them end at once."""


def command(hosts: str, *words: str) -> list[str]:
    """The words that run it."""
    return [*ZKWIRE, "--server", hosts, *words]


def processes_marked(mark: str) -> list[str]:
    """The living processes with this word in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode("utf-8", "replace"))
    return found


class Teller:
    """A named pipe of which each line is an event; its end is the end of all that write to it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.program = ["-m", "zkwire"]
        self.mark = f"marked-{secrets.token_hex(8)}"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "TELL": str(path)}
        self.environment["ZKWIRE_TEST_MARK"] = self.mark

    @contextmanager
    def run(self, hosts: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`zkwire lock`, of which no process is left at the end."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(
            [sys.executable, *self.program, "--server", hosts, *words],
            cwd=ROOT, env=self.environment, text=True, **pipes,
        ) as process:  # fmt: skip
            try:
                yield process
                process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        poll("no process", lambda: not processes_marked(self.mark) or None, SECONDS)

    def events(self) -> Iterator[str]:
        """The lines as they come."""
        with self.path.open() as pipe:
            yield from map(str.strip, pipe)

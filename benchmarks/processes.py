"""Processes that the benchmark starts, talks to, and ends in any case."""

from __future__ import annotations

import selectors
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from benchmarks.asking import Answers, question
from benchmarks.jobs import Job, Outcome
from benchmarks.wire import Address

ROOT = Path(__file__).resolve().parent.parent
ANSWER_SECONDS = 120.0
END_SECONDS = 5.0


class ProcessError(Exception):
    """A process did not start or did not answer; the message ends with what it said."""


class LineProcess:
    """A process that answers each line with a line.  It ends when its input does."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the process
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,  # Ctrl-C is for the benchmark, which ends its processes itself
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def read(self, seconds: float = ANSWER_SECONDS) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline() if self._selector.select(seconds) else b""
        if not line:
            said = self._said()
            self.end()
            raise ProcessError(f"{self._process.args!r} did not answer: {said}")
        return line.decode()

    def write(self, line: str) -> None:
        """One line of input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ProcessError(f"{self._process.args!r} has ended: {self._said()}") from error

    def _said(self) -> str:
        if self._log.closed:
            return "it has been ended"
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace").strip()

    def let_go(self) -> None:
        """Tell it to end, and do not wait for it.  Idempotent."""
        if self._process.stdin is not None:
            with suppress(OSError):  # it is dead already
                self._process.stdin.close()

    def end(self) -> None:
        """Let it end by itself, or kill it, if need be because of an interrupt.  Idempotent."""
        process = self._process
        try:
            self.let_go()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        finally:
            process.kill()
            process.wait()
        self._selector.close()
        self._log.close()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class WorkerProcess(LineProcess):
    """A process with one client that does one job at a time."""

    def __init__(self, command: Sequence[str], real: Address) -> None:
        super().__init__(command)
        self._real = real
        self.read()  # it is there

    def run(self, job: Job) -> Outcome:
        """Do a job, and answer what it asks meanwhile."""
        self.write(job.line())
        try:
            with Answers(self.pid, self._real) as answers:
                while asked := question(line := self.read()):
                    self.write(answers.answer(asked))
        except (OSError, ValueError) as error:
            self.end()  # it waits for an answer that does not come
            raise ProcessError(f"{self._process.args!r} cannot be answered: {error}") from error
        return Outcome.parse(line)

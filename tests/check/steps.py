"""One step of a check: its command, how it runs, how it has ended, and how it is repeated.

And what it has left behind: the processes that outlive it are found and ended.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.check.environment import ROOT

LOGS = ROOT / ".check"
END_SECONDS = 15
"""How long a process may take to end, by itself or when asked to."""

SHOWN_LINES = 120
"""How much of the report of a failed step is repeated at the end."""

REPEATED_TESTS = 10
"""So many failed tests are named in the command that repeats them."""

CLOSING_LINE = re.compile(r"=* ?\d+ (passed|failed|skipped|deselected|errors?)\b.* in [\d.]+s")
FAILED_TEST = re.compile(r"(?:FAILED|ERROR) (\S+?::[^\s\[]+(?:\[.*?\])?)(?: - |$)")


@dataclass
class Step:
    """What to run; ``limit`` is the time, in seconds, after which it counts as hanging."""

    name: str
    command: list[str]
    limit: float = 900
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    computes: bool = False  # leaves the processors to what keeps time

    def typed(self, command: list[str] | None = None) -> str:
        """The command as it would be typed."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*words, shlex.join(command or self.command)])


class Running:
    """A step that runs; what it prints goes into a file, ``log``."""

    def __init__(self, step: Step) -> None:
        LOGS.mkdir(exist_ok=True)
        self.step = step
        self.log = LOGS / f"{step.name}.log"
        self.started = time.monotonic()
        self.seconds = self.cpu_seconds = 0.0
        self.code: int | None = None
        self.why = ""
        self._limit = step.limit
        self._asked = False
        command = ["nice", *step.command] if step.computes else step.command
        # Tests start hundreds of processes: each would compile the package if none kept bytecode.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **step.variables}
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                command, cwd=ROOT, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def ended(self) -> bool:
        """Whether it has ended; one that takes too long is ended."""
        if self.code is None and not self._reap():
            if time.monotonic() - self.started > self._limit:
                self._push()
            return False
        return True

    def interrupt(self) -> None:
        """End it, as Ctrl-C does."""
        self.why = "interrupted"
        self._limit = 0.0
        while not self.ended():
            time.sleep(0.05)

    def _reap(self) -> bool:
        pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
        if not pid:
            return False
        self.code = self._child.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.started
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        if not self.why and self.code:
            self.why = f"exit code {self.code}"
        return True

    def _push(self) -> None:
        """Ask it to end: pytest then says where it was, and stops its servers."""
        if self._asked:
            self._child.kill()
            return
        self.why = self.why or f"not done within {self.step.limit:g} s"
        self._asked = True
        self._limit = time.monotonic() - self.started + END_SECONDS
        with suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGINT)

    @property
    def passed(self) -> bool:
        return self.code == 0 and not self.why

    def output(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def progress(self) -> str:
        """How far pytest is, if it is pytest."""
        size = self.log.stat().st_size
        with self.log.open("rb") as output:
            output.seek(max(0, size - 4000))
            shown = re.findall(rb"\[ *(\d+)%\]", output.read())
        return f"{self.step.name} {shown[-1].decode()} %" if shown else self.step.name

    def closing_line(self) -> str:
        """Where pytest says what it has counted, or else the last line."""
        lines = [line for line in self.output() if line.strip()]
        counting = [line for line in lines if CLOSING_LINE.match(line)]
        return [*lines[-1:], *counting][-1].strip("= ") if lines else ""

    def failed_tests(self) -> list[str]:
        """The tests that pytest names at its end as failed."""
        found = (FAILED_TEST.match(line) for line in self.output())
        return list(dict.fromkeys(match[1] for match in found if match))

    def report(self) -> list[str]:
        """Of a failed step: what it has said of its failure, and how to repeat it."""
        lines = self.output()
        heads = [n for n, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS) =+", line)]
        slow = [n for n, line in enumerate(lines) if re.match(r"=+ slowest", line)]
        ends = [n for n, line in enumerate(lines) if re.match(r"=+ short test summary", line)]
        if slow and ends:
            del lines[slow[-1] : ends[-1]]
        shown = lines[heads[0] :] if heads else lines
        if len(shown) > SHOWN_LINES:
            first = shown[: SHOWN_LINES // 2] if heads else []
            where = f"[... all of it: {self.log}]"
            shown = [*first, where, *shown[len(first) - SHOWN_LINES :]]
        return [*shown, "", f"{self.step.name} FAILED: {self.why}; to repeat it:", *self.repeat()]

    def repeat(self) -> list[str]:
        """The commands that do it again: what failed alone, if that is little, and the step."""
        failed = self.failed_tests()
        commands = [self.step.command]
        if "pytest" in self.step.command and 0 < len(failed) <= REPEATED_TESTS:
            upto = self.step.command.index("pytest") + 1
            commands.insert(0, [*self.step.command[:upto], *failed])
        return [f"  {self.step.typed(command)}" for command in commands]


# --- what is left behind --------------------------------------------------------------------------

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of whatever outlives its own parent, so that nothing gets out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes_left() -> dict[int, str]:
    """The processes below this one that do not end by themselves: id and command."""
    deadline = time.monotonic() + END_SECONDS
    while (left := dict(descendants())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def descendants() -> Iterator[tuple[int, str]]:
    """The living processes below this one; the dead are reaped on the way."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            process, _, rest = status.read_text().rpartition(")")
            number, _, name = process.partition(" (")
            names[int(number)] = name
            parents[int(number)] = int(rest.split()[1])
    for pid, parent in parents.items():
        ancestor = parent
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            yield pid, names[pid]


def end_all(pids: list[int]) -> None:
    """End the processes with these ids: politely first, then for certain."""
    for order in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, order)
        deadline = time.monotonic() + END_SECONDS
        while any(pid in pids for pid, _ in descendants()) and time.monotonic() < deadline:
            time.sleep(0.05)

"""`zkwire lock`, a thousand times in a row, while some of its processes are killed and stopped.

    python3 -m tests.interop.lock_command             1,000 runs, eight at a time
    python3 -m tests.interop.lock_command --runs 100

Each run's command takes an advisory lock of the kernel on one file: if that is taken, two commands
have overlapped. It writes the fencing token into that file. At the end the tokens must ascend, and
no process and no node may be left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.installed_servers import find_installed
from tests.support.lock_command import ROOT, command, processes_marked
from tests.support.server_control import poll
from zkwire import Client

SESSION_SECONDS = "4"
LIMIT = 300.0  # seconds for one run, in a queue of eight of which some wait for dead sessions
OVERLAP = 99
SCRIPT = f"exec 9>>$FILE; flock -n 9 || exit {OVERLAP}; echo $ZKWIRE_LOCK_TOKEN >&9; echo in; "
SHORT, ENDLESS = "sleep 0.01", "sleep 600"

Process = subprocess.Popen[str]


def runs_to_its_end(process: Process, _: random.Random) -> None:
    """Nothing happens to it."""


def is_killed(process: Process, _: random.Random) -> None:
    """It is killed while its command runs: the watchdog ends that."""
    if process.stdout is not None and process.stdout.readline():
        process.kill()


def is_stopped(process: Process, _: random.Random) -> None:
    """It is stopped while its command runs, until the watchdog has ended that."""
    if process.stdout is not None and process.stdout.readline():
        process.send_signal(signal.SIGSTOP)
        time.sleep(float(SESSION_SECONDS))
        process.send_signal(signal.SIGCONT)


def is_ended(process: Process, rng: random.Random) -> None:
    """It is asked to end at some moment, mostly while it waits."""
    time.sleep(rng.uniform(0.2, 4.0))
    process.terminate()


# What happens to a run, its command, how many of a hundred, and the exit statuses that it may have.
Fate = tuple[Callable[[Process, random.Random], None], str, int, set[int]]
FATES: dict[str, Fate] = {
    "left alone": (runs_to_its_end, SHORT, 90, {0}),
    "killed": (is_killed, ENDLESS, 3, {-signal.SIGKILL}),
    "stopped": (is_stopped, ENDLESS, 2, {122}),
    "ended": (is_ended, SHORT, 5, {0, 128 + signal.SIGTERM, -signal.SIGTERM}),
}


class Trial:
    """All runs on one server."""

    def __init__(self, hosts: str, file: Path, seed: int) -> None:
        self._hosts = hosts
        self._seed = seed
        self._mark = f"marked-{secrets.token_hex(8)}"
        self.tokens = file
        self._environment = {**os.environ, "FILE": str(file), "ZKWIRE_TEST_MARK": self._mark}
        self.statuses: collections.Counter[tuple[str, int]] = collections.Counter()
        self.wrong: list[str] = []

    def run(self, number: int) -> None:
        """One run, and what happens to it."""
        rng = random.Random(f"{self._seed}-{number}")
        (name,) = rng.choices(list(FATES), [share for _, _, share, _ in FATES.values()])
        happens, body, _, expected = FATES[name]
        options = ["--session-timeout", SESSION_SECONDS]
        words = [*options, "lock", "--id", name, "/lock", "--", "sh", "-c", SCRIPT + body]
        with subprocess.Popen(
            command(self._hosts, *words),
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            happens(process, rng)
            try:
                _, errors = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                errors = "it did not end"
        self.statuses[name, process.returncode] += 1
        if process.returncode not in expected:
            self.wrong.append(f"run {number}, {name}: {process.returncode} {errors.strip()}")

    def left(self) -> list[str]:
        """What is left behind: processes, and nodes of contenders."""
        with contextlib.suppress(TimeoutError):
            poll("processes", lambda: not processes_marked(self._mark) or None, 30.0)
        left = processes_marked(self._mark)
        with Client(self._hosts) as client:
            with contextlib.suppress(TimeoutError):
                poll("nodes", lambda: not client.get_children("/lock") or None, 30.0)
            return left + client.get_children("/lock")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--at-a-time", type=int, default=8)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with find_installed().standalone() as server, tempfile.TemporaryDirectory() as folder:
        trial = Trial(server.hosts, Path(folder, "tokens"), options.seed)
        begun = time.monotonic()
        with ThreadPoolExecutor(options.at_a_time) as pool:
            for _ in pool.map(trial.run, range(options.runs)):
                pass
        seconds = time.monotonic() - begun
        left = trial.left()
        tokens = [int(line) for line in trial.tokens.read_text().splitlines()]
    ascending = all(a < b for a, b in itertools.pairwise(tokens))
    overlaps = sum(n for (_, status), n in trial.statuses.items() if status == OVERLAP)
    for (name, status), number in sorted(trial.statuses.items()):
        print(f"{name:10} exit status {status:4}: {number:5}")
    print(*trial.wrong, *(f"left: {what}" for what in left), sep="\n")
    print(
        f"{options.runs} runs, {len(tokens)} commands, {overlaps} overlaps, tokens "
        f"{'ascend' if ascending else 'DO NOT ASCEND'}, {len(left)} left, {seconds:.0f} s"
    )
    return 0 if ascending and not (overlaps or left or trial.wrong) else 1


if __name__ == "__main__":
    sys.exit(main())

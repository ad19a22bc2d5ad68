"""`zkwire lock`, a thousand times in a row, while some of its processes are killed and stopped.

    python3 -m tests.interop.lock_command             1,000 runs, eight at a time
    python3 -m tests.interop.lock_command --runs 100

Each run's command takes an advisory lock of the kernel on one file: if that is taken, two commands
have overlapped. It writes the fencing token into that file. At the end the tokens must ascend, and
no process and no node may be left.
"""

from __future__ import annotations

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
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop import trial
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


def suffer(hosts: str, environment: dict[str, str], seed: str) -> tuple[str, int, str]:
    """One run, and what happens to it: that, its exit status, what was wrong."""
    rng = random.Random(seed)
    (name,) = rng.choices(list(FATES), [share for _, _, share, _ in FATES.values()])
    happens, body, _, expected = FATES[name]
    options = ["--session-timeout", SESSION_SECONDS]
    words = [*options, "lock", "--id", name, "/lock", "--", "sh", "-c", SCRIPT + body]
    with subprocess.Popen(
        command(hosts, *words), cwd=ROOT, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        happens(process, rng)
        try:
            _, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            errors = "it did not end"
    status = process.returncode
    why = "overlap" if status == OVERLAP else errors.strip()
    return name, status, "" if status in expected else f"run {seed}, {name}: {status} {why}"


def left(hosts: str, mark: str) -> list[str]:
    """What is left: processes, and nodes of contenders."""
    with Client(hosts) as client, contextlib.suppress(TimeoutError):
        for what, find in (
            ("processes", lambda: processes_marked(mark)),
            ("nodes", lambda: client.get_children("/lock")),
        ):
            poll(what, lambda find=find: not find() or None, 30.0)  # type: ignore[misc]
        return []
    with Client(hosts) as client:
        return [f"left: {one}" for one in processes_marked(mark) + client.get_children("/lock")]


def run(options: Namespace, _: random.Random) -> list[str]:
    """All runs on one server."""
    mark, begun = f"marked-{secrets.token_hex(8)}", time.monotonic()
    with (
        find_installed().standalone() as server,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.at_a_time) as pool,
    ):
        file = Path(folder, "tokens")
        environment = {**os.environ, "FILE": str(file), "ZKWIRE_TEST_MARK": mark}
        seeds = (f"{options.seed}-{number}" for number in range(options.runs))
        ended = list(pool.map(lambda seed: suffer(server.hosts, environment, seed), seeds))
        seconds = time.monotonic() - begun
        wrong = [why for *_, why in ended if why] + left(server.hosts, mark)
        tokens = [int(line) for line in file.read_text().splitlines()]
    for (name, status), number in sorted(Counter(one[:2] for one in ended).items()):
        print(f"{name:10} exit status {status:4}: {number:5}")
    if not all(a < b for a, b in itertools.pairwise(tokens)):
        wrong.append("the tokens do not ascend")
    print(f"{options.runs} runs, {len(tokens)} commands, {seconds:.0f} s")
    return wrong


def main() -> int:
    return trial.main(run, runs=1000, at_a_time=8)


if __name__ == "__main__":
    sys.exit(main())

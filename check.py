#!/usr/bin/env python3
"""Say whether this tree is good.

    python3 check.py fast     format, lint, types, and the tests that need no server: 90 s
    python3 check.py          all tests on the embedded and on a real server: 10 minutes
    python3 check.py long     what takes hours: explorations to their end, chaos, fuzzing

or any steps by name: format lint mypy pyright unit testbed simulation site shell embedded real
docker coverage curator browser pairs simulation-whole explore chaos fuzz following partitioner;
what follows `--` goes to pytest.

Needs Python alone. The tools go into `.venv-check/`, in the versions of `tests/requirements.txt`;
Debian's `python3-venv`, `zookeeper`, `default-jdk-headless` and `openssl` are installed where they
are missing and this is root. Under `CI=true` `docker` and `curator` are steps of the default check,
and a test that misses its ZooKeeper fails where it is else skipped. What each step prints is in
`.check/`.

`fast` has a tenth of the examples of the slowest tests. `unit`, `testbed`, `simulation` run the
tests of these folders, `simulation-whole` those of the last with every place of their sweeps, of
which one run of `simulation` has a sixth; `site` builds the documentation in `build/site/`, with
Pyodide from npm; `shell` and `embedded` run those of `shell` and `real` on zkwire's own server,
`real` those that can have a real one; `docker` the smoke tests on ZooKeeper in containers, see
`tests/make_image.sh`; `coverage` says which lines and branches of session, watches and recipes
their quick tests miss.
`ZKWIRE_TEST_RELEASE` names the release for `real`, such as 3.9.5, and `ZOOKEEPER_HOME` a folder of
releases beside Debian's 3.8.0; each one in it is a step of `long`, such as `release-3.9.5`.
`curator` runs Apache Curator beside zkwire: that of `CURATOR_HOME`, or Debian's
`libcurator-recipes-java`; `pairs` cuts the connection of counters, barriers, queues, claims and
partitioners at every pair of requests, of which one run of `real` has a third; `neighbours` has
Curator, kazoo and zkwire contend for one lock for ten minutes; `kazoo_suite` runs kazoo's own tests
on the embedded server and on a real one, and compares how they end, and `other_clients` does so
with tasks of other clients; `wheel` builds wheel and sdist and compares two builds, `pythons` runs
the fast tests on the installed wheel on each Python. `browser` tries the documentation in Chromium,
with Debian's `chromium` and `chromium-driver` and with Selenium, which are installed where they are
missing.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Sequence

from tests.check.axe import provide_axe
from tests.check.environment import (
    PYTHON,
    ROOT,
    provide_browser,
    provide_environment,
    provide_zookeeper,
)
from tests.check.left_over import adopt_orphans, end_all, processes_left
from tests.check.pyodide import provide_pyodide
from tests.check.steps import Running, Step

TOOLS = ("format", "lint", "mypy", "pyright")
FAST = (*TOOLS, "unit", "testbed")
REST = ("simulation", "shell", "embedded", "real", "site")
TRIALS = (
    "following", "cache", "supervisor", "partitioner", "counter", "barriers", "queue",
    "lock_command", "side_by_side_zkcli", "neighbours", "kazoo_suite",
    "other_clients",
)  # fmt: skip
"""Commands of tests/long for recipes and for the command, each with its figures."""
NEIGHBOURS = ("docker", "curator")
"""What takes packages of Debian that not every contributor wants."""
WITH_CURATOR = ("curator", "neighbours", "other_clients")

LONG = (
    "browser", "pairs", "simulation-whole", "wheel", "pythons", "refusals", "explore", "chaos",
    "fuzz", *TRIALS,
)  # fmt: skip
NAMES = (*FAST, *REST, *NEIGHBOURS, "coverage", *LONG)

LANES = (
    ("format", "lint", "mypy", "pyright", "embedded", "shell", "site"),
    (
        *("unit", "testbed", "simulation", "coverage"),
        *("wheel", "pythons", "simulation-whole", "explore"),
    ),
    ("real", "docker", "curator", "browser", "pairs", "chaos", *TRIALS),
    ("fuzz",),
)
"""What computes and what waits go on side by side; the steps of one lane follow each other."""

HOURS = 3600
IMAGE = "zkwire-test-zookeeper"
POLL_SECONDS = 0.05
TELL_SECONDS = 30.0
"""How often a line says what is still going on."""

# The tests of the files that pyproject.toml measures; what is slow in them covers nothing more.
COVERING = (
    "session*", "plain_answers", "states", "trace", "read_only", "opening", "sasl", "watches",
    "watching*", "recipe_*", "locks", "lock_losses", "lock_paths", "lock_recovery", "lock_refusals",
    *("hazards_client", "hazards_family", "hazards_holders", "hazards_queue"),
    "family", "cache", "membership*", "supervisor", "simulation_family", "simulation_services_*",
    "read_write", "semaphore", "multi_lock", "election", "async_family", "aio_locks",
    "convenience", "following", "guard", "partitioner", "time_limits", "unknown_operations",
    "counter", "barriers", "once_per", "simulation_counter", "simulation_barrier",
    "queue", "simulation_queue", "simulation_once_per", "handover", "owner_ends", "giving_up",
    "lock_wakeups", "nested",
)  # fmt: skip
SLOW = (
    "machine or no_bytes_make or how_bytes_are or every_fault or every_request or thousand"
    " or hundred or many_make"
)
COVERED_PERCENT = 100

SWEEPS = "every_cut or every_request_cut_off"
OWN = ["-m", "not apache", "-k", f"not ({SWEEPS})"]
"""Sweeps that a real server runs need no second one here: simulations make them, too."""


def steps(pytest_arguments: Sequence[str] = (), *, fast: bool = False) -> dict[str, Step]:
    """Every step by name."""
    typed = ("zkwire", "tests", "benchmarks", "check.py")
    tools = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "mypy": ["mypy", *typed],
        # By itself pyright takes the modules of the first Python on the path.
        "pyright": ["pyright", "--pythonpath", PYTHON, "zkwire", "tests/typing_examples.py"],
    }
    made = [Step(name, [PYTHON, "-m", *command]) for name, command in tools.items()]
    fewer = {"ZKWIRE_EXAMPLES": "tenth"}
    made += [
        *tests(pytest_arguments, fewer if fast else {}),
        Step("wheel", [PYTHON, "-m", "tests.check.wheel"]),
        Step("pythons", [PYTHON, "-m", "tests.check.pythons"], 2 * HOURS, fewer, computes=True),
        Step("refusals", [PYTHON, "-m", "tests.refusals"]),
        Step("explore", [PYTHON, "-m", "tests.long.explore"], 48 * HOURS, computes=True),
        Step("chaos", [PYTHON, "-m", "tests.long.chaos", "--seconds", "3600"], 2 * HOURS),
        Step("fuzz", [PYTHON, "-m", "tests.long.fuzz", "--seconds", "3600"], 2 * HOURS),
        *(Step(name, [PYTHON, "-m", f"tests.long.{name}"], HOURS) for name in TRIALS),
    ]
    return {step.name: step for step in made}


def tests(arguments: Sequence[str], examples: dict[str, str]) -> list[Step]:
    """The steps that are tests; where the arguments name files, these stand for the folders."""
    seed = {"ZKWIRE_SEED": os.environ.get("ZKWIRE_SEED") or str(secrets.randbelow(2**32))}
    own_server = {**seed, "ZKWIRE_TEST_BACKEND": "embedded"}
    chosen = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)

    def pytest(*folders: str, options: Sequence[str] = ()) -> list[str]:
        where = [] if chosen else [f"tests/{folder}" for folder in folders]
        return [PYTHON, "-m", "pytest", "-q", "--durations=20", *options, *where, *arguments]

    image = ["tests/make_image.sh", IMAGE]
    several = ["-n", "2", "--dist", "worksteal"]
    in_docker = {
        **seed, "ZKWIRE_TEST_BACKEND": "docker", "ZKWIRE_TEST_IMAGE": IMAGE,
        "TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
    }  # fmt: skip
    return [
        Step("unit", pytest("unit", options=several), variables=seed | examples, computes=True),
        Step(
            "testbed", pytest("testbed", options=several), variables=seed | examples, computes=True
        ),
        Step("simulation", [*pytest("simulation"), *several], 2700, seed, computes=True),
        Step("shell", [*pytest("shell"), "-m", "not apache", *several], 2700, own_server),
        Step("embedded", [*pytest("real"), *OWN, *several], 2700, own_server),
        Step(
            "real",
            [*pytest("shell", "real"), "-m", "real and not own_server", *several],
            2700,
            seed,
        ),
        # A link without a target, or a docstring that cannot be read, is an error.
        Step(
            "site", [PYTHON, "-m", "sphinx", "-WEqb", "html", "--keep-going", "docs", "build/site"]
        ),
        Step("docker", [*image, *pytest("shell", "real"), "-m", "smoke"], 900, in_docker),
        coverage(own_server),
        *releases(seed, [*pytest("shell", "real"), "-m", "real"]),
        # Under CI=true a test that misses its Curator fails.
        Step("curator", pytest("curator"), variables={**seed, "CI": "true"}),
        # So does one that misses its browser.
        Step("browser", pytest("browser"), variables={**seed, "CI": "true"}),
        Step("pairs", [*pytest("real"), "-k", SWEEPS], HOURS, {**seed, "ZKWIRE_PAIRS": "all"}),
        Step(
            "simulation-whole",
            # Its longest test takes more than the five minutes after which one counts as hanging.
            [*pytest("simulation", options=["-o", f"faulthandler_timeout={HOURS}"]), *several],
            8 * HOURS,
            {**seed, "ZKWIRE_SIMULATION": "2"},
            computes=True,
        ),
    ]


def releases(variables: dict[str, str], command: list[str]) -> list[Step]:
    """For each release in `ZOOKEEPER_HOME`: everything, on that one."""
    from tests.support.installed_servers import found_releases  # it needs a Python of today

    return [
        Step(
            f"release-{release}",
            command,
            2 * HOURS,
            {**variables, "ZKWIRE_TEST_BACKEND": "installed", "ZKWIRE_TEST_RELEASE": release},
        )
        for release in found_releases()
    ]


def coverage(variables: dict[str, str]) -> Step:
    """Which lines and branches the quick tests of the core miss."""
    files = sorted(
        str(path.relative_to(ROOT))
        for name in COVERING
        for path in ROOT.glob(f"tests/**/test_{name}.py")
    )
    run = shlex.join(
        [PYTHON, "-m", "coverage", "run", "-m", "pytest", "-q", "-k", f"not ({SLOW})", *files]
    )
    report = shlex.join([PYTHON, "-m", "coverage", "report", f"--fail-under={COVERED_PERCENT}"])
    return Step(
        "coverage", ["sh", "-c", f"{run}; tests=$?; {report} && exit $tests"], 2700, variables
    )


class Check:
    """Runs steps, says how it goes on, and remembers how they ended."""

    def __init__(self) -> None:
        self.ended: list[Running] = []
        self.left_out: list[str] = []
        self._running: dict[int, Running] = {}
        self._started = time.monotonic()

    def run(self, lanes: Sequence[Sequence[Step]]) -> None:
        """Run the lanes side by side; not at all if anything has failed before."""
        if not self.passed:
            self.left_out += [step.name for lane in lanes for step in lane]
            return
        to_come = [list(lane) for lane in lanes]
        told = time.monotonic()
        while self._running or any(to_come):
            for number, lane in enumerate(to_come):
                if lane and number not in self._running:
                    self._running[number] = Running(lane.pop(0))
            for number, running in list(self._running.items()):
                if running.ended():
                    self._end(number)
                    told = time.monotonic()
            if time.monotonic() - told > TELL_SECONDS:
                self.say("... " + ", ".join(one.progress() for one in self._running.values()))
                told = time.monotonic()
            time.sleep(POLL_SECONDS)

    def interrupt(self) -> None:
        """End what runs."""
        for number in list(self._running):
            self._running[number].interrupt()
            self._end(number)

    def _end(self, number: int) -> None:
        running = self._running.pop(number)
        self.ended.append(running)
        self.say(f"{verdict(running)}  {running.closing_line()}")

    def say(self, what: str) -> None:
        """One line, with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        print(f"{minutes:3}:{seconds:02}  {what}", flush=True)

    @property
    def passed(self) -> bool:
        return all(running.passed for running in self.ended)

    def summary(self) -> None:
        """Where the time has gone, what was counted, and at the very end what has failed."""
        print(f"\n{'seconds':>17} {'of a processor':>14}")
        for running in self.ended:
            print(f"{verdict(running)} {running.cpu_seconds:14.1f}")
        for name in self.left_out:
            print(f"not run           {name}")
        counted = [counts(running.closing_line()) for running in self.ended]
        passed, failed, skipped = map(sum, zip(*counted, strict=True)) if counted else (0, 0, 0)
        self.say("all passed" if self.passed else "NOT all passed")
        print(f"tests: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
        for running in self.ended:
            if not running.passed:
                print("", *running.report(), sep="\n", flush=True)


def verdict(running: Running) -> str:
    outcome = "passed" if running.passed else "FAILED"
    return f"{outcome} {running.seconds:8.1f} s  {running.step.name:11}"


def counts(line: str) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped, by pytest's closing line."""
    found = {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", line)}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return found.get("passed", 0), failed, found.get("skipped", 0)


def in_lanes(chosen: Sequence[Step]) -> list[list[Step]]:
    """These steps by their lanes; releases, which stand in none, follow each other in a last."""
    lanes = [[step for step in chosen if step.name in lane] for lane in LANES]
    others = [step for step in chosen if step.name not in NAMES]
    return [lane for lane in (*lanes, others) if lane]


def choose(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names of the steps that are asked for, in their order."""
    groups = {
        "fast": FAST,
        "all": (*FAST, *REST, *(NEIGHBOURS if os.environ.get("CI") == "true" else [])),
        "long": (*LONG, *(name for name in known if name not in NAMES)),
    }
    wanted = {name for word in words or ["all"] for name in groups.get(word, (word,))}
    if unknown := wanted.difference(known):
        raise ValueError(f"no such step: {', '.join(sorted(unknown))}")
    return [name for name in known if name in wanted]


def parse(arguments: Sequence[str]) -> list[Step]:
    """The steps to run, in their order."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="fast, all, long or any steps")
    words = parser.parse_args(arguments[:split]).steps
    known = steps(arguments[split + 1 :], fast="fast" in words)
    try:
        return [known[name] for name in choose(words, list(known))]
    except ValueError as error:
        parser.error(str(error))


def run_all(check: Check, chosen: Sequence[Step]) -> None:
    """First what answers soon; the rest only if that has passed."""
    if any(step.name not in (*FAST, "explore") for step in chosen):
        provide_zookeeper(curator=any(step.name in WITH_CURATOR for step in chosen))
    if any(step.name == "browser" for step in chosen):
        provide_browser()
        provide_axe()
    if any(step.name in ("site", "browser") for step in chosen):
        provide_pyodide()
    check.say(f"run: {' '.join(step.name for step in chosen)}")
    check.run(in_lanes([step for step in chosen if step.name in FAST]))
    check.run(in_lanes([step for step in chosen if step.name not in FAST]))


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - no tool has looked at this Python yet
        print("check.py needs Python 3.11 or newer, this is", sys.version)
        return 1
    chosen = parse(sys.argv[1:])
    # Asked to end, this does as after Ctrl-C: it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    adopt_orphans()
    check = Check()
    if not provide_environment():
        print("FAILED: the tools could not be installed in .venv-check/", flush=True)
        return 1
    try:
        run_all(check, chosen)
        interrupted = False
    except KeyboardInterrupt:
        check.interrupt()
        interrupted = True
    left = processes_left()
    end_all(list(left))
    check.summary()
    for pid, name in left.items():
        print(f"left behind: process {pid}, {name}", flush=True)
    if interrupted:
        print("interrupted", flush=True)
    return 0 if check.passed and not left and not interrupted else 1


if __name__ == "__main__":
    sys.exit(main())

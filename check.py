#!/usr/bin/env python3
"""Say whether this tree is good.

    python3 check.py fast     lint, types, and the tests that need no server: 90 s
    python3 check.py          all tests on the embedded and on a real server: 10 minutes
    python3 check.py long     what takes hours: explorations to their end, chaos, fuzzing

or any steps by name: lint types unit simulation shell embedded real site docker curator;
what follows `--` goes to pytest.

Needs Python alone. The tools go into `.venv-check/`, in the versions of `tests/requirements.txt`;
Debian's `python3-venv`, `zookeeper`, `default-jdk-headless` and `openssl` are installed where they
are missing and this is root. Under `CI=true` `docker` and `curator` are steps of the default check,
and a test that misses its ZooKeeper fails where it is else skipped. What each step prints is in
`.check/`.

`lint` is ruff, `types` is mypy and pyright. `unit` runs the tests of `unit` and `testbed`; under
`fast` with a tenth of the examples of the slowest. `simulation` runs those of its folder, `shell`
and `embedded` those of `shell` and `real` on zkwire's own server, and `real` those that can have a
real one. `site` builds the documentation in `build/site/`, with Pyodide from npm. `docker` runs the
smoke tests on ZooKeeper in containers, see `tests/make_image.sh`, and `curator` runs Apache Curator
beside zkwire: that of `CURATOR_HOME`, or Debian's `libcurator-recipes-java`.
`ZKWIRE_TEST_RELEASE` names the release for `real`, such as 3.9.5, and `ZOOKEEPER_HOME` a folder of
releases beside Debian's 3.8.0.

Each part of `long` is a step, too: `tests/check/long_steps.py` lists them, each with its reason.
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

from tests.check.environment import (
    PYTHON,
    ROOT,
    provide_browser,
    provide_environment,
    provide_zookeeper,
)
from tests.check.long_steps import WITH_CURATOR, long_steps
from tests.check.npm import AXE, PYODIDE
from tests.check.steps import Running, Step, adopt_orphans, end_all, processes_left

FAST = ("lint", "types", "unit")
REST = ("simulation", "shell", "embedded", "real", "site")
NEIGHBOURS = ("docker", "curator")
"""What takes packages of Debian that not every contributor wants."""
SHORT = (*FAST, *REST, *NEIGHBOURS)

LANES = (
    ("lint", "types", "embedded", "shell", "site"),
    ("unit", "simulation"),
    ("real", "docker", "curator"),
)
"""What computes and what waits go on side by side; the steps of one lane follow each other."""

IMAGE = "zkwire-test-zookeeper"
RUFF = [PYTHON, "-m", "ruff"]
SPHINX = ("-WEqb", "html", "--keep-going")
TYPED_EXAMPLES = "tests/typing_examples.py"
POLL_SECONDS = 0.05
TELL_SECONDS = 30.0
"""How often a line says what is still going on."""


def steps(pytest_arguments: Sequence[str] = (), *, fast: bool = False) -> dict[str, Step]:
    """Every step by name; where the arguments name files, these stand for the folders."""
    seed = {"ZKWIRE_SEED": os.environ.get("ZKWIRE_SEED") or str(secrets.randbelow(2**32))}
    own_server = {**seed, "ZKWIRE_TEST_BACKEND": "embedded"}
    examples = {"ZKWIRE_EXAMPLES": "tenth"} if fast else {}
    chosen = any((ROOT / argument.partition("::")[0]).exists() for argument in pytest_arguments)

    def pytest(*folders: str, options: Sequence[str] = ()) -> list[str]:
        where = [] if chosen else [f"tests/{folder}" for folder in folders]
        return [PYTHON, "-m", "pytest", "-q", "--durations=20", *options, *where, *pytest_arguments]

    typed = ("zkwire", "tests", "benchmarks", "check.py")
    image = ["tests/make_image.sh", IMAGE]
    several = ["-n", "2", "--dist", "worksteal"]
    unfit = ["-m", "real and not own_server"]
    in_docker = {
        **seed, "ZKWIRE_TEST_BACKEND": "docker", "ZKWIRE_TEST_IMAGE": IMAGE,
        "TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
    }  # fmt: skip
    made = [
        Step("lint", both([*RUFF, "format", "--check", "."], [*RUFF, "check", "."])),
        # By itself pyright takes the modules of the first Python on the path.
        Step(
            "types",
            both(
                [PYTHON, "-m", "mypy", *typed],
                [PYTHON, "-m", "pyright", "--pythonpath", PYTHON, "zkwire", TYPED_EXAMPLES],
            ),
        ),
        Step("unit", pytest("unit", "testbed", options=several), 900, seed | examples, True),
        Step("simulation", [*pytest("simulation"), *several], 2700, seed, computes=True),
        Step("shell", [*pytest("shell"), "-m", "not apache", *several], 2700, own_server),
        Step("embedded", [*pytest("real"), "-m", "not apache", *several], 2700, own_server),
        Step("real", [*pytest("shell", "real"), *unfit, *several], 2700, seed),
        # A link without a target, or a docstring that cannot be read, is an error.
        Step("site", [PYTHON, "-m", "sphinx", *SPHINX, "docs", "build/site"]),
        Step("docker", [*image, *pytest("shell", "real"), "-m", "smoke"], 900, in_docker),
        # Under CI=true a test that misses its Curator fails.
        Step("curator", pytest("interop/curator"), variables={**seed, "CI": "true"}),
        *long_steps(pytest, seed),
    ]
    return {step.name: step for step in made}


def both(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """A command that runs both, and fails if one of them does."""
    return ["sh", "-c", f"{shlex.join(first)}; code=$?; {shlex.join(second)} && exit $code"]


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
    """These steps by their lanes; the long ones in two, of which one computes."""
    lanes = [[step for step in chosen if step.name in lane] for lane in LANES]
    long = [step for step in chosen if step.name not in SHORT]
    lanes += [[step for step in long if step.computes is computes] for computes in (True, False)]
    return [lane for lane in lanes if lane]


def choose(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names of the steps that are asked for, in their order."""
    groups = {
        "fast": FAST,
        "all": (*FAST, *REST, *(NEIGHBOURS if os.environ.get("CI") == "true" else [])),
        "long": tuple(name for name in known if name not in SHORT),
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
    if any(step.name not in FAST for step in chosen):
        provide_zookeeper(curator=any(step.name in WITH_CURATOR for step in chosen))
    if any(step.name == "browser" for step in chosen):
        provide_browser()
        AXE.provide()
    if any(step.name in ("site", "browser") for step in chosen):
        PYODIDE.provide()
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

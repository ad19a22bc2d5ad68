#!/usr/bin/env python3
"""Say whether this tree is good: format, lint, types, tests, and no process left behind.

    python3 check.py [format|lint|types|embedded|test|docker|coverage|all ...] [-- PYTEST ARGUMENTS]

Needs Python alone. The tools go into `.venv-check/`, in the versions of `tests/requirements.txt`;
Debian's `python3-venv`, `zookeeper`, `default-jdk-headless` and `openssl` are installed where they
are missing and this is root.
`format`, `lint` and `types` come first, and no test is run if one of them fails; the summary at the
end repeats what a failed step has said.
`embedded` runs the tests of real servers again, on zkwire's own server; `docker` runs the smoke
tests on ZooKeeper in containers, see `tests/make_image.sh`; `coverage` tells which lines and
branches of the session, the watches and the recipes their quick tests miss. `all`, which is the
default, means every part but `coverage`, and `docker` only under `CI=true`; there, too, a test
that misses its ZooKeeper fails where it would else be skipped.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv-check"
PYTHON = str(ENVIRONMENT / "bin" / "python")
REQUIREMENTS = ROOT / "tests" / "requirements.txt"
QUICK = ("format", "lint", "types")
PARTS = (*QUICK, "embedded", "test", "docker", "coverage")
TYPED = ("zkwire", "tests", "benchmarks", "check.py")
TYPED_FOR_USERS = ("zkwire", "tests/typing_examples.py")
IMAGE = "zkwire-test-zookeeper"

# The tests of the files that pyproject.toml measures; what is slow in them covers nothing more.
COVERING = (
    "session*", "plain_answers", "states", "trace", "read_only", "opening", "sasl", "watches",
    "watching", "recipe_steps", "locks", "lock_recovery", "lock_refusals", "family",
    "read_write", "semaphore", "multi_lock", "election", "async_family", "aio_locks",
    "convenience", "guard", "time_limits",
)  # fmt: skip
SLOW = (
    "machine or no_bytes_make or how_bytes_are or every_fault or every_request or thousand"
    " or hundred or many_make"
)
COVERED_PERCENT = 100

# How long a step may take, in seconds, before it counts as hanging.
TOOL_LIMIT = 180
INSTALL_LIMIT = 900
TEST_LIMIT = 3200
DOCKER_LIMIT = 900

END_SECONDS = 15
"""How long a process may take to end, by itself or when asked to."""

SHOWN_SECONDS = 0.1
"""How often what a step prints is shown."""

# What the summary repeats of a failed step: so many lines, of so many characters.
TOLD_TESTS = 20
TOLD_LINES = 10
TOLD_WIDTH = 160

PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Step:
    """One finished step, for the summary."""

    name: str
    passed: bool
    seconds: float
    told: list[str] = field(default_factory=list[str])


class Checks:
    """Runs the steps and remembers how they ended."""

    def __init__(self, parts: list[str], pytest_arguments: list[str]) -> None:
        self.steps: list[Step] = []
        self._parts = parts
        self._left_out: list[str] = []
        self.meanwhile = ExitStack()  # steps that go on beside the next parts
        self._chosen = bool(pytest_arguments)
        self._pytest = [PYTHON, "-m", "pytest", "--durations=15", *pytest_arguments]

    def environment(self) -> bool:
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            passed = provide_environment(output)
            self._ended("environment", passed, started, output)
        return passed

    def all_parts(self) -> None:
        """The quick parts, and the others unless one of those has failed."""
        for part in self._parts:
            if part in QUICK:
                getattr(self, part)()
        others = [part for part in self._parts if part not in QUICK]
        if not self.passed:
            self._left_out = others
            return
        with self.meanwhile:
            for part in others:
                getattr(self, part)()

    def format(self) -> None:
        self.step("format", [PYTHON, "-m", "ruff", "format", "--check", "."])

    def lint(self) -> None:
        self.step("lint", [PYTHON, "-m", "ruff", "check", "."])

    def types(self) -> None:
        self.step("types (mypy)", [PYTHON, "-m", "mypy", *TYPED])
        self.pyright()

    def pyright(self) -> None:
        """With the tools' own modules: by itself it takes those of the first Python on the path."""
        pyright = [PYTHON, "-m", "pyright", "--pythonpath", PYTHON, *TYPED_FOR_USERS]
        self.step("types (pyright)", pyright)

    def embedded(self) -> None:
        command = [*self._pytest, "-m", "real and not apache"]
        variables = {"ZKWIRE_TEST_BACKEND": "embedded"}
        provide_zookeeper()  # what makes certificates, too
        if "test" in self._parts:
            beside = self.beside("embedded", command, TEST_LIMIT, variables)
            self.meanwhile.enter_context(beside)
        else:
            self.step("embedded", command, limit=TEST_LIMIT, variables=variables)

    def test(self) -> None:
        """Most tests with a server wait, and the others compute: so all of them run at once."""
        provide_zookeeper()
        if self._chosen:
            self.step("test", self._pytest, limit=TEST_LIMIT)
            return
        others = ["nice", *self._pytest, "-m", "not real"]
        self.meanwhile.enter_context(self.beside("tests without a server", others, TEST_LIMIT))
        self.step("tests with servers", [*self._pytest, "-m", "real"], limit=TEST_LIMIT)

    def docker(self) -> None:
        make_image = str(ROOT / "tests" / "make_image.sh")
        variables = {
            "ZKWIRE_TEST_BACKEND": "docker",
            "ZKWIRE_TEST_IMAGE": IMAGE,
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
        }
        command = [make_image, IMAGE, *self._pytest, "-m", "real and smoke"]
        self.step("docker", command, limit=DOCKER_LIMIT, variables=variables)

    def coverage(self) -> None:
        """Both steps, also after a failure: the report says the most then."""
        tests = sorted(
            str(path) for name in COVERING for path in ROOT.glob(f"tests/*/test_{name}.py")
        )
        coverage = [PYTHON, "-m", "coverage"]
        command = [*coverage, "run", *self._pytest[1:], "-k", f"not ({SLOW})", *tests]
        variables = {"ZKWIRE_TEST_BACKEND": "embedded"}
        self.step("covering tests", command, limit=TEST_LIMIT, variables=variables)
        self.step("coverage", [*coverage, "report", f"--fail-under={COVERED_PERCENT}"])

    def no_process_left(self) -> None:
        started = time.monotonic()
        left = processes_left()
        for pid, name in left.items():
            print(f"left behind: process {pid}, {name}", flush=True)
        end_all(list(left))
        self.steps.append(Step("no process left", not left, time.monotonic() - started))

    def step(
        self,
        name: str,
        command: list[str],
        limit: float = TOOL_LIMIT,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            passed = run(command, limit, variables, output)
            self._ended(name, passed, started, output)

    def _ended(self, name: str, passed: bool, started: float, output: IO[bytes]) -> None:
        told = [] if passed else essence(printed(output))
        self.steps.append(Step(name, passed, time.monotonic() - started, told))

    @contextmanager
    def beside(
        self,
        name: str,
        command: list[str],
        limit: float,
        variables: Mapping[str, str] | None = None,
    ) -> Generator[None]:
        """A step that runs meanwhile; what it prints is shown at its end."""
        print("\n$", told(command, variables), "&", flush=True)
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            child = begun(command, variables, output)
            try:
                yield
            except BaseException:
                limit = 0  # this was interrupted
                raise
            finally:
                passed = succeeds(child, limit - (time.monotonic() - started))
                self._ended(name, passed, started, output)
                print(f"\n# {name}:", flush=True)
                show(output, 0)

    @property
    def passed(self) -> bool:
        """Whether all steps have passed."""
        return all(step.passed for step in self.steps)

    def summary(self) -> bool:
        """Print how each step ended; whether all of them passed."""
        print("\nsummary")
        for step in self.steps:
            verdict = "passed" if step.passed else "FAILED"
            print(f"  {verdict} {step.seconds:7.1f} s  {step.name}")
            for line in step.told:
                print(f"                      {line[:TOLD_WIDTH]}")
        for part in self._left_out:
            print(f"  not run            {part}")
        print("all passed" if self.passed else "NOT all passed", flush=True)
        return self.passed


def essence(output: bytes) -> list[str]:
    """What the summary repeats: the tests that failed, or else the last lines."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return [*failed[:TOLD_TESTS], *lines[-1:]] if failed else lines[-TOLD_LINES:]


def run(
    command: list[str],
    limit: float,
    variables: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> bool:
    """Run a command, shown with its time; whether it succeeded within its limit.

    What it prints is shown in any case, and kept in ``output``.
    """
    print("\n$", told(command, variables), flush=True)
    started = time.monotonic()
    child = begun(command, variables, output)
    passed = succeeds(child, limit, output)
    print(f"# {time.monotonic() - started:.1f} s", flush=True)
    return passed


def told(command: list[str], variables: Mapping[str, str] | None) -> str:
    """The command as it would be typed."""
    words = [f"{name}={shlex.quote(value)}" for name, value in (variables or {}).items()]
    return " ".join([*words, shlex.join(command)])


def begun(
    command: list[str], variables: Mapping[str, str] | None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command; what it prints goes to the terminal, or all of it to ``output``."""
    error = None if output is None else subprocess.STDOUT
    env = {**os.environ, **(variables or {})}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=error)


def succeeds(child: subprocess.Popen[bytes], limit: float, output: IO[bytes] | None = None) -> bool:
    """Whether a process ends well within its limit, in seconds; ``output`` is shown meanwhile."""
    deadline = time.monotonic() + limit
    shown = 0
    try:
        while (code := ended(child, deadline)) is None and time.monotonic() < deadline:
            shown = show(output, shown)
        outcome = f"exit code {code}"
        if code is None:
            outcome = f"not done within {limit:g} s"
            # pytest then says where it was, and stops its servers.
            child.send_signal(signal.SIGINT)
    finally:
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_SECONDS)
        show(output, shown)
    print(f"# {outcome}", flush=True)
    return code == 0


def ended(child: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit code of a process, if it ends before there may be something to show."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(min(max(0.0, deadline - time.monotonic()), SHOWN_SECONDS))
    return None


def show(output: IO[bytes] | None, since: int) -> int:
    """Show what is in ``output`` behind these bytes; how many there are now."""
    new = b"" if output is None else printed(output, since)
    sys.stdout.buffer.write(new)
    sys.stdout.flush()
    return since + len(new)


def printed(output: IO[bytes], since: int = 0) -> bytes:
    """What a process has printed; it may be writing there still, at a place that it shares."""
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size - since, since)


def provide_environment(output: IO[bytes]) -> bool:
    """Have the tools in `.venv-check/`; made anew when the wanted versions have changed."""
    wanted = "\n".join((sys.version, str(ENVIRONMENT), REQUIREMENTS.read_text()))
    stamp = ENVIRONMENT / "made-for"
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return True
    make = [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)]
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--requirement", str(REQUIREMENTS)]
    if importlib.util.find_spec("ensurepip") is None:  # Debian has it in a package of its own
        print("\n# this Python cannot make environments")
        install_packages(["python3-venv"])
    if not all(run(command, INSTALL_LIMIT, output=output) for command in (make, install)):
        return False
    stamp.write_text(digest)
    return True


def provide_zookeeper() -> None:
    """Install Debian's ZooKeeper and what goes with it, if missing and this may.

    The JDK compiles for the test of bytes (the package of ZooKeeper brings only what runs Java),
    `openssl` makes certificates.  Without them the tests say what that means.
    """
    from tests.support.installed_servers import find_installed
    from tests.support.server_control import NoBackendError

    missing = []
    try:
        find_installed()
    except NoBackendError as error:
        print(f"\n# no installed ZooKeeper: {error}")
        missing.append("zookeeper")
    for command, package in (("javac", "default-jdk-headless"), ("openssl", "openssl")):
        if shutil.which(command) is None:
            print(f"\n# no `{command}` on the path")
            missing.append(package)
    if missing:
        install_packages(missing)


def install_packages(names: list[str]) -> None:
    """Install packages of Debian, if this may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("# not installing any package: that takes root and apt-get", flush=True)
        return
    print("# installing Debian's", " and ".join(names), flush=True)
    install = ["apt-get", "-qq", "--yes", "install", "--no-install-recommends", *names]
    if run(["apt-get", "-qq", "update"], INSTALL_LIMIT):
        run(install, INSTALL_LIMIT, {"DEBIAN_FRONTEND": "noninteractive"})


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


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
    """The living processes below this one; the dead are buried on the way."""
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


def parse(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The parts to run, in their order, and what is for pytest."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join((*PARTS, "all")))
    chosen = set(parser.parse_args(arguments[:split]).parts or ["all"])
    if unknown := chosen - {*PARTS, "all"}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if "all" in chosen:
        chosen |= {part for part in PARTS if part not in {"docker", "coverage"}}
        chosen |= {"docker"} if in_ci() else set()
    return [part for part in PARTS if part in chosen], arguments[split + 1 :]


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this has not installed anything
        print("check.py needs Python 3.11 or newer, this is", sys.version)
        return 1
    parts, pytest_arguments = parse(sys.argv[1:])
    # Asked to end, this does as after Ctrl-C: it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    adopt_orphans()
    checks = Checks(parts, pytest_arguments)
    try:
        if checks.environment():
            checks.all_parts()
    except KeyboardInterrupt:
        checks.steps.append(Step("interrupted", passed=False, seconds=0.0))
    finally:
        checks.no_process_left()
    return 0 if checks.summary() else 1


if __name__ == "__main__":
    sys.exit(main())

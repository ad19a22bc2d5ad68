"""A process that runs tests on the package with a bug in it, each time in a fork of its own.

    with Laboratory() as laboratory:
        result = laboratory.run(bug, ["tests/unit/test_paths.py"])

The process has imported pytest and hypothesis, which take most of the time, and nothing of the
package.  A fork imports the one module from the changed source, all others from their files.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.simulation.planted.bugs import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import pytest

    from tests.simulation.planted.bugs import Bug

SECONDS = 120
"""How long the tests on one bug may take."""

GRACE_SECONDS = 0.5


OPTIONS = (
    "-q",
    "--tb=short",
    "-p", "no:cacheprovider",
    "-p", "no:xdist",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # hypothesis is there before pytest begins
    "--hypothesis-profile=planted",
    "-m", "not real",
)  # fmt: skip


class Result(NamedTuple):
    """Which tests failed, which could not be run at all, and what was printed."""

    failed: dict[str, float]
    errors: list[str]
    passed: int
    output: str


class Laboratory:
    """See the module's docstring."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.simulation.planted.laboratory"]
        environment = {k: v for k, v in os.environ.items() if k != "ZKWIRE_TEST_BACKEND"}
        environment["ZKWIRE_SEED"] = "0"  # what is found is found each time
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, bug: Bug, tests: Sequence[str], seconds: int = SECONDS) -> Result:
        """Run the tests on the package with this bug in it."""
        module, source = bug.planted()
        order = {"module": module, "source": source, "tests": list(tests), "seconds": seconds}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Result(**json.loads(self._process.stdout.readline()))


# --- in the process -------------------------------------------------------------------------------


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads one module, from another source than that of its file."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        exec(compile(self._source, module.__file__, "exec", dont_inherit=True), module.__dict__)


class _Recorder:
    """A pytest plugin that remembers how the tests end."""

    def __init__(self) -> None:
        self.failed: dict[str, float] = {}
        self.errors: list[str] = []
        self.passed = 0

    def pytest_collection_finish(self) -> None:
        """What a failed test leaves is not waited for as long as else."""
        sys.modules["tests.conftest"].GRACE_SECONDS = GRACE_SECONDS  # type: ignore[attr-defined]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {str(report.longrepr)[-2000:]}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup" and report.failed:
            self.errors.append(f"{report.nodeid}: {str(report.longrepr)[-2000:]}")
        elif report.failed:  # at its end, too: it has left something
            self.failed[report.nodeid] = round(report.duration, 3)
        elif report.when == "call":
            self.passed += 1


def _experiment(order: dict[str, Any]) -> dict[str, Any]:
    """In the fork: run the tests."""
    import hypothesis
    import pytest

    sys.meta_path.insert(0, _Planted(order["module"], order["source"]))
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "planted",
        database=None,
        derandomize=True,
        deadline=None,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    recorder = _Recorder()
    code = pytest.main([*OPTIONS, *order["tests"]], plugins=[recorder])
    if code not in (0, 1):
        recorder.errors.append(f"pytest has ended with {code!r}")
    return vars(recorder)


def _await(child: int, seconds: float) -> None:
    """Wait until the child has ended, and end it if that takes too long."""
    deadline = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)


def _in_a_fork(order: dict[str, Any]) -> str:
    """The result of an experiment, as JSON."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as answer:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                json.dump(_experiment(order), answer)
                answer.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        _await(child, order["seconds"])
        output.seek(0)
        answer.seek(0)
        printed = output.read()[-10_000:]
        try:
            result = json.load(answer)
        except ValueError:
            error = f"no end within {order['seconds']} s, or none at all:\n{printed}"
            result = {"failed": {}, "errors": [error], "passed": 0}
    return json.dumps(result | {"output": printed})


def main() -> None:
    # The forks have them then.
    import asyncio  # noqa: F401
    import hmac  # noqa: F401
    import ssl  # noqa: F401

    import hypothesis  # noqa: F401
    import pytest

    with redirect_stdout(StringIO()):
        pytest.main(["--version"])  # loads pytest's plugins
    gc.freeze()  # no fork looks through all this again

    for line in sys.stdin:
        print(_in_a_fork(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()

"""Runs tests on the package with a bug in it, each time in a process of its own.

    with Laboratory() as laboratory:
        result = laboratory.run(bug, ["tests/unit/test_model.py"])

The processes are forks of a server that has imported pytest and hypothesis, which take most of the
time, and nothing of the package.  Each imports the one module from the changed source, all others
from their files.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.simulation.planted.bugs import ROOT, Bug

if TYPE_CHECKING:
    import pytest

SECONDS = 120
"""How long the tests on one bug may take."""
GRACE_SECONDS = 0.5
LOADED = ["pytest", "hypothesis", "_hypothesis_pytestplugin", "asyncio", "hmac", "ssl"]
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
    output: str = ""


class Laboratory:
    """See the module's docstring."""

    def __enter__(self) -> Self:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(LOADED)
        forkserver.ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]

    def run(self, bug: Bug, tests: Sequence[str], seconds: int = SECONDS) -> Result:
        """Run the tests on the package with this bug in it."""
        with tempfile.NamedTemporaryFile("r", errors="replace") as output:
            pool = ProcessPoolExecutor(1, self._context, max_tasks_per_child=1)
            with pool:
                done = pool.submit(_experiment, *bug.planted(), list(tests), output.name)
                try:
                    result = done.result(seconds)
                except Exception as error:
                    for process in pool._processes.values():
                        process.kill()
                    why = f"no end within {seconds} s, or none at all: {error!r}"
                    result = Result({}, [why], 0)
            return result._replace(output=output.read()[-10_000:])


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


def _experiment(module: str, source: str, tests: list[str], output: str) -> Result:
    """Run the tests."""
    import hypothesis
    import pytest

    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(ROOT)
    os.environ.pop("ZKWIRE_TEST_BACKEND", None)
    os.environ["ZKWIRE_SEED"] = "0"  # what is found is found each time
    sys.meta_path.insert(0, _Planted(module, source))
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
    code = pytest.main([*OPTIONS, *tests], plugins=[recorder])
    if code not in (0, 1):
        recorder.errors.append(f"pytest has ended with {code!r}")
    sys.stdout.flush()
    return Result(recorder.failed, recorder.errors, recorder.passed)

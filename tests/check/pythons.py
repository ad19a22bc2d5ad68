"""``python3 -m tests.check.pythons``: the fast tests, on each Python of this machine.

They run on the installed wheel, beside a copy of the project that has no package ``zkwire``.  Left
out is what looks at the sources or at the tools' own environment, which the step `unit` does.  A
Python without a lock of its own (3.13t) runs the tests of threads, too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.check.environment import REQUIREMENTS, ROOT
from tests.check.wheel import FOLDER, built_wheel, found_pythons, make_environment

PACKAGES = ("coverage", "hypothesis", "kazoo", "pytest", "pytest-xdist")
LIMIT = 3600
"""Seconds for the tests on one Python."""

OF_THREADS = ("calls", "client", "client_*", "lock_kinds", "supervisor")

ABOUT_SOURCES = ("check", "documents", "import", "java_bytes", "layers", "type_completeness")


def copy_project() -> Path:
    """All of the project but the package."""
    tree = FOLDER / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    hidden = shutil.ignore_patterns("zkwire", "build", "dist", ".*", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=lambda at, names: _left_out(at, names) & hidden(at, names))
    return tree


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Only at the top is a folder named `zkwire` the package."""
    return set(names) if Path(folder) == ROOT else set(names) - {"zkwire", "build", "dist"}


def main() -> int:
    wheel, tree, failed = built_wheel(), copy_project(), list[str]()
    ignored = [f"--ignore=tests/unit/test_{name}.py" for name in ABOUT_SOURCES]
    for version, python in found_pythons().items():
        print(f"Python {version}", flush=True)
        free = version.endswith("t")
        # Not every release of a package has a wheel for a free-threaded Python.
        which = ("--only-binary", ":all:") if free else ("--constraint", str(REQUIREMENTS))
        made = make_environment(f"tests-{version}", python, *which, str(wheel), *PACKAGES)
        command = [str(made), *shlex.split("-m pytest -q -n 2 --dist worksteal -m 'not types'")]
        command += [*ignored, *sys.argv[1:], "tests/unit", "tests/testbed"]
        for name in OF_THREADS if free else ():
            command += map(str, tree.glob(f"tests/shell/test_{name}.py"))
        variables = {**os.environ, "ZKWIRE_TEST_BACKEND": "embedded"}
        done = subprocess.run(command, cwd=tree, env=variables, check=False, timeout=LIMIT)
        failed += [version] * (done.returncode != 0)
    if failed:
        print("failed on Python", *failed, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

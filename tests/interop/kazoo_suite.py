"""kazoo's own tests on zkwire's embedded ensemble and on ZooKeeper's: every test ends alike.

    python3 -m tests.interop.kazoo_suite                   the whole suite, on both
    python3 -m tests.interop.kazoo_suite test_lock         one of its modules

The suite comes from kazoo's sdist of the version in `tests/requirements.txt`, into an environment
of its own in `.check/kazoo`.  ZooKeeper is the installed one (see `tests/support/real_servers.py`),
started by kazoo's harness; `tests/support/kazoo_cluster.py` has it start the embedded ensemble.  A
test that ends differently runs once more on both, since many of kazoo's tests wait for fixed times.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.check.environment import REQUIREMENTS, ROOT
from tests.support.installed_servers import find_installed
from tests.support.secure_servers import MORE_JARS
from tests.support.server_control import JAVA_FLAGS, free_port

FOLDER = ROOT / ".check" / "kazoo"
PYTHON = FOLDER / "environment" / "bin" / "python"
LEGACY_OPENSSL = "pyopenssl<25"
"""Later ones lack the extensions of certificates that kazoo's harness makes."""
SECONDS = 3000
ENDINGS = ("failure", "error", "skipped")
DIFFERENT: dict[str, str] = {}
"""The tests that cannot end alike, each with the reason."""


def wanted_kazoo() -> str:
    """The requirement, such as `kazoo==2.11.0`."""
    found = re.search(r"^kazoo==\S+$", REQUIREMENTS.read_text(), re.MULTILINE)
    assert found is not None, f"no kazoo in {REQUIREMENTS}"
    return found[0]


def provide(kazoo: str) -> None:
    """Have kazoo with its tests in `FOLDER`, from its sdist, with all that they import."""
    stamp = FOLDER / "made-for"
    if stamp.exists() and stamp.read_text() == kazoo:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "pytest.ini").write_text("[pytest]\n")  # or else pytest takes this project's
    environment = str(FOLDER / "environment")
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    for old in FOLDER.glob("kazoo-*.tar.gz"):
        old.unlink()
    pip = [str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = ["download", "--no-deps", "--no-binary", "kazoo", "--dest", str(FOLDER), kazoo]
    subprocess.run([*pip, *source], check=True, timeout=SECONDS)
    (sdist,) = FOLDER.glob("kazoo-*.tar.gz")
    install = ["install", f"{sdist}[test,sasl]", LEGACY_OPENSSL]
    subprocess.run([*pip, *install], check=True, timeout=SECONDS)
    stamp.write_text(kazoo)


def on_real() -> dict[str, str]:
    """What has kazoo's harness start three servers of the installed ZooKeeper."""
    flags = (*JAVA_FLAGS, "-Dzookeeper.admin.enableServer=false")
    return {
        "ZOOKEEPER_CLASSPATH": ":".join((find_installed().classpath, *MORE_JARS)),
        "ZOOKEEPER_PORT_OFFSET": str(free_port()),
        "JAVA_TOOL_OPTIONS": " ".join(flags),
    }


def on_embedded() -> dict[str, str]:
    """What has it start the embedded ensemble instead."""
    return {
        "PYTHONPATH": str(ROOT),
        "PYTEST_PLUGINS": "tests.support.kazoo_cluster",
        "ZOOKEEPER_CLASSPATH": "none",
    }


def run(side: str, tests: Sequence[str]) -> dict[str, str]:
    """How each of these tests or modules ends: `passed`, `failure`, `error` or `skipped`."""
    variables = on_real() if side == "real" else on_embedded()
    report = FOLDER / f"{side}.xml"
    report.unlink(missing_ok=True)
    command = [str(PYTHON), "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider"]
    command += ["--timeout", "180", "--junitxml", str(report), "--pyargs", *tests]
    with (FOLDER / f"{side}.log").open("wb") as log:
        subprocess.run(
            command,
            cwd=FOLDER,
            env={**os.environ, "ZOOKEEPER_VERSION": "3.8.0", **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    outcomes = outcomes_in(report)
    counted = ", ".join(f"{number} {how}" for how, number in Counter(outcomes.values()).items())
    print(f"{side:8} {counted}", flush=True)
    return outcomes


def outcomes_in(report: Path) -> dict[str, str]:
    """Each test of a report, by its node id for `--pyargs`, and how it ended."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place, name = case.get("classname", ""), case.get("name", "")
        module, _, inner = place.rpartition("kazoo.tests.")[2].partition(".")
        test = "::".join(filter(None, (f"kazoo.tests.{module}", inner, name)))
        found[test] = next((how for how in ENDINGS if case.find(how) is not None), "passed")
    return found


def differences(real: dict[str, str], embedded: dict[str, str]) -> dict[str, str]:
    """The tests that end differently, or run on one of the two alone, and how."""
    return {
        test: f"real: {real.get(test)}, embedded: {embedded.get(test)}"
        for test in sorted({*real, *embedded})
        if real.get(test) != embedded.get(test)
    }


def judge(found: dict[str, str], known: dict[str, str]) -> bool:
    """Say what differs; whether it is what the list says, and all of it."""
    for test, how in found.items():
        print(f"{'listed' if test in known else 'DIFFERS'}: {test}: {how} {known.get(test, '')}")
    return not found.keys() - known.keys()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.kazoo_suite")
    parser.add_argument("modules", nargs="*", help="such as test_lock; without any, all")
    chosen = [f"kazoo.tests.{name}" for name in parser.parse_args().modules] or ["kazoo.tests"]
    kazoo = wanted_kazoo()
    provide(kazoo)
    print(f"{kazoo}, {find_installed()}", flush=True)
    real, embedded = run("real", chosen), run("embedded", chosen)
    if again := sorted(differences(real, embedded).keys() - DIFFERENT.keys()):
        print("once more:", *again, sep="\n  ", flush=True)
        real |= run("real", again)
        embedded |= run("embedded", again)
    same = judge(differences(real, embedded), DIFFERENT)
    failing = sorted(test for test, how in embedded.items() if how in ENDINGS[:2])
    print("fail on both:", *(failing or ["none"]))
    if not any(how == "passed" for how in real.values()):
        print("no test has passed on ZooKeeper: this run proves nothing")
        return 1
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

"""Tests of other projects, in an environment of their own in `.check/kazoo-programs`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.check.environment import ROOT
from tests.interop.kazoo_programs.programs import GREEN, REQUIREMENTS
from tests.support.installed_servers import find_installed
from tests.support.secure_servers import MORE_JARS
from tests.support.server_control import JAVA_FLAGS, free_port

FOLDER = ROOT / ".check" / "kazoo-programs"
PYTHON = FOLDER / "environment" / "bin" / "python"
SECONDS = 3000
TEST_SECONDS = 180
ENDINGS = ("failure", "error", "skipped")


def provide() -> None:
    """Have the programs, unless they are there."""
    wanted, stamp = "\n".join((sys.version, *REQUIREMENTS, *GREEN)), FOLDER / "made-for"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "pytest.ini").write_text("[pytest]\n")  # or else pytest takes this project's
    environment = str(FOLDER / "environment")
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    install = [str(PYTHON), "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    subprocess.run([*install, *REQUIREMENTS], check=True, timeout=SECONDS)
    beside = ["--upgrade", "--target", str(FOLDER / "green")]
    subprocess.run([*install, *beside, *GREEN], check=True, timeout=SECONDS)
    stamp.write_text(wanted)


def run(
    name: str, tests: Sequence[str], variables: Mapping[str, str], *, through: Sequence[str] = ()
) -> dict[str, str]:
    """How each of these tests has ended: `passed`, `failure`, `error` or `skipped`.

    ``through``: what Python runs pytest by.  What was printed is in `NAME.log`.
    """
    report = FOLDER / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [str(PYTHON), *through, "-m", "pytest", "-q", "-c", "pytest.ini"]
    command += ["-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS)]
    with report.with_suffix(".log").open("wb") as log:
        subprocess.run(
            [*command, "--junitxml", str(report), *tests],
            cwd=FOLDER, stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ZOOKEEPER_VERSION": "3.8.0", **variables},
        )  # fmt: skip
    return outcomes_in(report)


def outcomes_in(report: Path) -> dict[str, str]:
    """Each test of a report, without what stands before the folder of tests, and how it ended."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place, name = case.get("classname", ""), case.get("name", "")
        test = f"{re.sub(r'^.*[.]tests[.]', '', place)}.{name}"
        ended = {child.tag for child in case}
        found[test] = next((how for how in ENDINGS if how in ended), found.get(test, "passed"))
    return found


def on_real() -> dict[str, str]:
    """What has kazoo's harness start three servers of the installed ZooKeeper."""
    flags = (*JAVA_FLAGS, "-Dzookeeper.admin.enableServer=false")
    return {
        "ZOOKEEPER_CLASSPATH": ":".join((find_installed().classpath, *MORE_JARS)),
        "ZOOKEEPER_PORT_OFFSET": str(free_port()),
        "JAVA_TOOL_OPTIONS": " ".join(flags),
    }

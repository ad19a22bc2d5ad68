"""Programs that use kazoo, on a real server: with kazoo's own connection, then with zkwire's.

    python3 -m tests.interop.kazoo_programs                 all, and the table of the page compared
    python3 -m tests.interop.kazoo_programs --write         all, and the table written
    python3 -m tests.interop.kazoo_programs tooz speed      some

They are in an environment of their own, in `.check/kazoo-programs`.  With zkwire's connection each
is run by ``python -m zkwire.kazoo``, so nothing in it is changed.  A test that passes with kazoo
and not with zkwire runs once more; then it must be in the list of `programs.py`.  After the
programs come two trials: `speed` and `green`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.check.environment import ROOT
from tests.interop import pages
from tests.interop.kazoo_programs.programs import (
    GREEN,
    PAGE,
    PROGRAMS,
    REQUIREMENTS,
    Program,
    differences,
)
from tests.support.installed_servers import find_installed
from tests.support.secure_servers import MORE_JARS
from tests.support.server_control import JAVA_FLAGS, free_port

CHECKS = Path(__file__).parent
FOLDER = ROOT / ".check" / "kazoo-programs"
PYTHON = FOLDER / "environment" / "bin" / "python"
SECONDS = 3000
TEST_SECONDS = 180
ENDINGS = ("failure", "error", "skipped")
PYTEST = ("-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider")
HEAD = "| program | with kazoo's connection | with zkwire's |\n| --- | ---: | ---: |\n"
SIDES = {"kazoo": (), "zkwire": ("-m", "zkwire.kazoo")}
SPEED = [sys.executable, "-m", "tests.interop.kazoo_programs.speed"]
GREENS = [str(PYTHON), *PYTEST, "--noconftest", str(ROOT / "tests/shell/test_kazoo_green.py")]
TRIALS = ("speed", "green")


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


def run(program: Program, side: str, only: Sequence[str] = ()) -> dict[str, str]:
    """How its tests, or those whose names are given, end with the connection of this side."""
    own = [str(CHECKS / word) for word in program.tests if (CHECKS / word).exists()]
    tests = ["--noconftest", *own] if own else [*program.tests]
    if only:
        tests += ["-k", " or ".join(sorted({name.rpartition(".")[2] for name in only}))]
    words = [str(PYTHON), *SIDES[side], *PYTEST, "--timeout", str(TEST_SECONDS), *tests]
    report = FOLDER / f"{program.name}-{side}.xml"
    if program.own_servers:
        return ended(words, report, on_real())
    with find_installed().standalone() as server:
        theirs = {
            "ZOOKEEPER_HOSTS": server.hosts,
            "TOOZ_TEST_URL": f"zookeeper://{server.hosts}",
            "TASKFLOW_TEST_ZOOKEEPER_PORT": server.hosts.rpartition(":")[2],
        }
        return ended(words, report, theirs)


def on_real() -> dict[str, str]:
    """What has kazoo's harness start three servers of the installed ZooKeeper."""
    flags = (*JAVA_FLAGS, "-Dzookeeper.admin.enableServer=false")
    return {
        "ZOOKEEPER_CLASSPATH": ":".join((find_installed().classpath, *MORE_JARS)),
        "ZOOKEEPER_PORT_OFFSET": str(free_port()),
        "JAVA_TOOL_OPTIONS": " ".join(flags),
    }


def ended(words: Sequence[str], report: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """How each test has ended: `passed`, `failure`, `error` or `skipped`.

    Its name is without what stands before the folder of tests; what was printed is in a log.
    """
    report.unlink(missing_ok=True)
    with report.with_suffix(".log").open("wb") as log:
        subprocess.run(
            [*words, "--junitxml", str(report)],
            cwd=FOLDER, stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ZOOKEEPER_VERSION": "3.8.0", **variables},
        )  # fmt: skip
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place, name = case.get("classname", ""), case.get("name", "")
        test, told = f"{re.sub(r'^.*[.]tests[.]', '', place)}.{name}", {each.tag for each in case}
        found[test] = next((how for how in ENDINGS if how in told), found.get(test, "passed"))
    return found


class Judged(NamedTuple):
    """A program on both sides: its row, and whether all is as the list says."""

    row: str
    good: bool


def judge(program: Program) -> Judged:
    """Run it on both, and say what differs."""
    sides = {side: run(program, side) for side in SIDES}

    def differing() -> set[str]:
        return {
            test
            for test, how in sides["zkwire"].items()
            if how in ("failure", "error") and sides["kazoo"].get(test) == "passed"
        }

    if new := differing() - program.known.keys():
        sides["zkwire"] |= run(program, "zkwire", sorted(new))
    for test in sorted(differing()):
        reason = program.known.get(test)
        print(f"  {'DIFFERS' if reason is None else 'listed'}: {test}: {reason or '?'}", flush=True)
    passed = [list(found.values()).count("passed") for found in sides.values()]
    good = differing() <= program.known.keys() and min(passed) >= program.least
    row = pages.row([program.what, *passed])
    print(f"{'' if good else 'NOT GOOD: '}{row.rstrip()}", flush=True)
    return Judged(row, good)


def try_out(trial: str, *, write: bool) -> bool:
    """Run one of the trials."""
    print(f"{trial}:", flush=True)
    if trial == "speed":
        command, path, folder = SPEED + ["--write"] * write, str(ROOT), ROOT
    else:
        command, path, folder = GREENS, f"{ROOT}:{FOLDER / 'green'}", FOLDER
    variables = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=variables, check=False, timeout=SECONDS)
    return done.returncode == 0


def main() -> int:
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser(prog="tests.interop.kazoo_programs")
    parser.add_argument("chosen", nargs="*", help=", ".join((*names, *TRIALS)))
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    if unknown := set(options.chosen) - {*names, *TRIALS}:
        parser.error(f"no such program or trial: {', '.join(sorted(unknown))}")
    chosen = options.chosen or [*names, *TRIALS]
    provide()
    print(find_installed(), flush=True)
    judged = [judge(program) for program in PROGRAMS if program.name in chosen]
    good = all(one.good for one in judged)
    rows, page = "".join(one.row for one in judged), PAGE.read_text()
    if options.write and good and len(judged) == len(PROGRAMS):
        page = pages.with_parts(page, {"programs": HEAD + rows, "differences": differences()})
        PAGE.write_text(page)
    missing = [line for line in (rows + differences()).splitlines() if line not in page]
    print("\n".join(f"not in {PAGE.name}: {line}" for line in missing) or "as the page says")
    tried = [try_out(trial, write=options.write) for trial in TRIALS if trial in chosen]
    return 0 if good and not missing and all(tried) else 1


if __name__ == "__main__":
    sys.exit(main())

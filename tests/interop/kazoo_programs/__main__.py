"""Programs that use kazoo, on a real server: with kazoo's own connection, then with zkwire's.

    python3 -m tests.interop.kazoo_programs                 all, and the table of the page compared
    python3 -m tests.interop.kazoo_programs --write         all, and the table written
    python3 -m tests.interop.kazoo_programs tooz in_flight  some

They are installed from PyPI, in an environment of their own in `.check/kazoo-programs`.  With
zkwire's connection each is run by ``python -m zkwire.kazoo``, so nothing in it is changed.  A test
that passes with kazoo and not with zkwire runs once more; then it must be in the list of
`programs.py`.  After the programs come four trials, each a module here that can be run alone:
`in_flight`, `locks`, `speed` and `green`.  What each run has printed is in that folder.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.check.environment import ROOT
from tests.interop.kazoo_programs.page import PAGE, page_with
from tests.interop.kazoo_programs.programs import (
    GREEN,
    PROGRAMS,
    REQUIREMENTS,
    Program,
    differences,
)
from tests.interop.kazoo_suite import on_real
from tests.support.installed_servers import find_installed

FOLDER = ROOT / ".check" / "kazoo-programs"
PYTHON = FOLDER / "environment" / "bin" / "python"
CHECKS = Path(__file__).parent
HEAD = "| program | with kazoo's connection | with zkwire's |\n| --- | ---: | ---: |\n"
SIDES = {"kazoo": (), "zkwire": ("-m", "zkwire.kazoo")}
TRIALS = ("in_flight", "locks", "speed", "green")
SECONDS = 3000
TEST_SECONDS = 120


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


class Counted(NamedTuple):
    """How a program's tests have ended, by their names."""

    passed: frozenset[str]
    failed: frozenset[str]


def counted(report: Path) -> Counted:
    """What a report of pytest's says; what was skipped is in neither."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for case in ElementTree.parse(report).iter("testcase"):
        place, name = case.get("classname", ""), case.get("name", "")
        test = f"{re.sub(r'^.*[.]tests[.]', '', place)}.{name}"
        ended = {child.tag for child in case}
        if "skipped" not in ended:
            found[not ended & {"failure", "error"}].add(test)
    return Counted(frozenset(found[True] - found[False]), frozenset(found[False]))


def run(program: Program, side: str, only: Sequence[str] = ()) -> Counted:
    """Run its tests, or those whose names are given, with the connection of this side."""
    report = FOLDER / f"{program.name}-{side}.xml"
    report.unlink(missing_ok=True)
    command = [str(PYTHON), *SIDES[side], "-m", "pytest", "-q", "-c", "pytest.ini"]
    command += ["-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS)]
    command += ["--junitxml", str(report), *arguments(program)]
    if only:
        command += ["-k", " or ".join(sorted({name.rpartition(".")[2] for name in only}))]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "ZOOKEEPER_VERSION": "3.8.0"}
    if program.own_servers:
        execute(command, {**variables, **on_real()}, report)
    else:
        with find_installed().standalone() as server:
            address = server.hosts
            theirs = {
                "ZOOKEEPER_HOSTS": address,
                "TOOZ_TEST_URL": f"zookeeper://{address}",
                "TASKFLOW_TEST_ZOOKEEPER_PORT": address.rpartition(":")[2],
            }
            execute(command, {**variables, **theirs}, report)
    return counted(report)


def arguments(program: Program) -> list[str]:
    """Its arguments for pytest, with the places of files of this folder."""
    own = [word for word in program.tests if (CHECKS / word).exists()]
    others = [word for word in program.tests if word not in own]
    return [*others, *(["--noconftest"] if own else []), *(str(CHECKS / word) for word in own)]


def execute(command: Sequence[str], variables: dict[str, str], report: Path) -> None:
    with report.with_suffix(".log").open("wb") as log:
        subprocess.run(
            command, cwd=FOLDER, env=variables, stdout=log, stderr=subprocess.STDOUT,
            timeout=SECONDS, check=False,
        )  # fmt: skip


class Judged(NamedTuple):
    """A program on both sides: its row, and whether all is as the list says."""

    row: str
    good: bool


def judge(program: Program) -> Judged:
    """Run it on both, and say what differs."""
    sides = {side: run(program, side) for side in SIDES}
    differing = sides["zkwire"].failed & sides["kazoo"].passed
    if new := differing - program.known.keys():
        again = run(program, "zkwire", sorted(new))
        differing -= again.passed
        sides["zkwire"] = Counted(sides["zkwire"].passed | again.passed, again.failed)
    for test in sorted(differing):
        reason = program.known.get(test)
        print(f"  {'DIFFERS' if reason is None else 'listed'}: {test}: {reason or '?'}", flush=True)
    passed = {side: len(found.passed) for side, found in sides.items()}
    known = differing <= program.known.keys()
    good = known and passed["zkwire"] >= program.least and passed["kazoo"] >= program.least
    row = f"| {program.what} | {passed['kazoo']} | {passed['zkwire']} |\n"
    print(f"{'' if good else 'NOT GOOD: '}{row.rstrip()}", flush=True)
    return Judged(row, good)


def try_out(trial: str, *, write: bool) -> bool:
    """Run one of the other modules here."""
    command = [sys.executable, "-m", f"tests.interop.kazoo_programs.{trial}"]
    if write and trial == "speed":
        command.append("--write")
    print(f"{trial}:", flush=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    if trial == "green":
        variables["PYTHONPATH"] += f"{os.pathsep}{FOLDER / 'green'}"
        command = [str(PYTHON), "-m", "pytest", "-q", "-c", "pytest.ini", "--noconftest"]
        command += ["-p", "no:cacheprovider", str(ROOT / "tests/shell/test_kazoo_green.py")]
    folder = FOLDER if trial == "green" else ROOT
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
    rows = "".join(one.row for one in judged)
    if options.write and good and len(judged) == len(PROGRAMS):
        PAGE.write_text(page_with("programs", HEAD + rows))
        PAGE.write_text(page_with("differences", differences()))
    page = PAGE.read_text()
    missing = [line for line in (rows + differences()).splitlines() if line not in page]
    print("\n".join(f"not in {PAGE.name}: {line}" for line in missing) or "as the page says")
    tried = [try_out(trial, write=options.write) for trial in TRIALS if trial in chosen]
    return 0 if good and not missing and all(tried) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Programs that use kazoo, on a real server: with kazoo's own connection, then with zkwire's.

    python3 -m tests.interop.kazoo_programs                 all, and the table of the page compared
    python3 -m tests.interop.kazoo_programs --write         all, and the table written
    python3 -m tests.interop.kazoo_programs tooz locks      some

With zkwire's connection each is run by ``python -m zkwire.kazoo``, so nothing in it is changed.  A
test that passes with kazoo and not with zkwire runs once more; then it must be in the list of
`programs.py`.  After the programs come three trials: `locks` (kazoo's own Lock on zkwire, and
zkwire's with kazoo's names, on one path), `speed` and `green`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.interop import pages
from tests.interop.kazoo_programs import suites
from tests.interop.kazoo_programs.programs import PAGE, PROGRAMS, Program, differences
from tests.interop.kazoo_programs.suites import FOLDER, PYTHON, SECONDS
from tests.support.installed_servers import find_installed

CHECKS = Path(__file__).parent
HEAD = "| program | with kazoo's connection | with zkwire's |\n| --- | ---: | ---: |\n"
SIDES = {"kazoo": (), "zkwire": ("-m", "zkwire.kazoo")}
BOTH = ",".join(["zkwire.kazoo-plain", "zkwire-kazoo"] * 2)
TRIALS = {
    "locks": ["tests.interop.neighbours.contend", "--seconds", "60", "--crews", BOTH],
    "speed": ["tests.interop.kazoo_programs.speed"],
    "green": ["pytest", "-q", "-c", "pytest.ini", "--noconftest", "-p", "no:cacheprovider",
              str(ROOT / "tests/shell/test_kazoo_green.py")],
}  # fmt: skip


def run(program: Program, side: str, only: Sequence[str] = ()) -> dict[str, str]:
    """Run its tests, or those whose names are given, with the connection of this side."""
    own = [str(CHECKS / word) for word in program.tests if (CHECKS / word).exists()]
    tests = [word for word in program.tests if not (CHECKS / word).exists()]
    tests += ["--noconftest", *own] if own else []
    if only:
        tests += ["-k", " or ".join(sorted({name.rpartition(".")[2] for name in only}))]
    name = f"{program.name}-{side}"
    if program.own_servers:
        return suites.run(name, tests, suites.on_real(), through=SIDES[side])
    with find_installed().standalone() as server:
        theirs = {
            "ZOOKEEPER_HOSTS": server.hosts,
            "TOOZ_TEST_URL": f"zookeeper://{server.hosts}",
            "TASKFLOW_TEST_ZOOKEEPER_PORT": server.hosts.rpartition(":")[2],
        }
        return suites.run(name, tests, theirs, through=SIDES[side])


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
    green = trial == "green"
    command = [str(PYTHON) if green else sys.executable, "-m", *TRIALS[trial]]
    command += ["--write"] * (write and trial == "speed")
    print(f"{trial}:", flush=True)
    path = os.pathsep.join([str(ROOT), *([str(FOLDER / "green")] if green else [])])
    variables, folder = {**os.environ, "PYTHONPATH": path}, FOLDER if green else ROOT
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
    suites.provide()
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

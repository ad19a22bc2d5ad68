"""Says what each test file is good for: which planted bugs it finds, and which no other file does.

    python3 -m tests.simulation.planted.judge [--tests] [--layers jute session ...] [-- FILE ...]

Runs all tests of the files (without those marked `real`) on each bug of the layers, which takes as
long as it sounds: name the files that belong to the layers.  Without files: all of `tests/`.  With
``--tests`` it names the tests that alone find a bug, too.  It ends with the rules that no
docstring or comment of the package states any more.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from tests.simulation.planted.bugs import ROOT, Bug, load
from tests.simulation.planted.laboratory import Laboratory

SECONDS = 900  # for one bug

Finders = dict[str, set[str]]
"""The tests that find a bug, by its name."""


def find(bugs: list[Bug], files: list[str]) -> Finders:
    """Run the files on each of the bugs."""
    finders: Finders = {}
    with Laboratory() as laboratory:
        for bug in bugs:
            result = laboratory.run(bug, files, SECONDS)
            finders[bug.name] = set(result.failed)
            found = f"{len(result.failed)} of {len(result.failed) + result.passed} tests"
            print(f"{found} find {bug.name}", flush=True)
            for error in result.errors:
                print(f"  could not be run: {error.splitlines()[0]}", flush=True)
    return finders


def report(finders: Finders, files: list[str], *, tests: bool) -> list[str]:
    """What the finders say of each file."""
    found: dict[str, set[str]] = {file: set() for file in files}
    alone: dict[str, set[str]] = defaultdict(set)
    single: dict[str, set[str]] = defaultdict(set)
    for bug, names in finders.items():
        of_files = {name.partition("::")[0] for name in names}
        for file in of_files:
            found[file].add(bug)
        if len(of_files) == 1:
            alone[min(of_files)].add(bug)
        if len(names) == 1:
            single[min(names)].add(bug)
    lines = ["", "found  alone  file"]
    for file in sorted(files, key=lambda file: (len(alone[file]), len(found[file]))):
        lines.append(f"{len(found[file]):5}  {len(alone[file]):5}  {file}")
        lines += [f"                {bug}" for bug in sorted(alone[file])]
    if tests:
        lines += ["", "tests that alone find a bug"]
        lines += [f"{test}: {'; '.join(sorted(bugs))}" for test, bugs in sorted(single.items())]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", nargs="*", default=())
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    bugs = [bug for bug in load() if bug.layer in (given.layers or {bug.layer})]
    everything = sorted((ROOT / "tests").rglob("test_*.py"))
    all_files = [str(path.relative_to(ROOT)) for path in everything]
    files = [file for file in all_files if not given.files or Path(file).name in given.files]
    for line in report(find(bugs, files), files, tests=given.tests):
        print(line)
    for bug in bugs:
        if not bug.is_documented():
            print(f"no docstring or comment states this rule: {bug.name}")


if __name__ == "__main__":
    main()

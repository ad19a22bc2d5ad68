"""kazoo's own tests on zkwire's embedded ensemble and on ZooKeeper's: every test ends alike.

    python3 -m tests.interop.kazoo_suite                   the whole suite, on both
    python3 -m tests.interop.kazoo_suite test_lock         one of its modules

The suite is that of `tests.interop.kazoo_programs`.  ZooKeeper is the installed one (see
`tests/support/real_servers.py`), started by kazoo's harness; `tests/support/kazoo_cluster.py` has
it start the embedded ensemble.  A test that ends differently runs once more on both, since many of
kazoo's tests wait for fixed times.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tests.interop.kazoo_programs import suites
from tests.support.installed_servers import find_installed

GREEN = ("test_gevent_handler", "test_eventlet_handler")
"""Without gevent and eventlet they are not there."""


def run(side: str, tests: Sequence[str]) -> dict[str, str]:
    """How each of these tests or modules ends on this side."""
    embedded = {"PYTEST_PLUGINS": "tests.support.kazoo_cluster", "ZOOKEEPER_CLASSPATH": "none"}
    variables = suites.on_real() if side == "real" else embedded
    without = [f"--ignore-glob=*/{name}.py" for name in GREEN]
    outcomes = suites.run(f"suite-{side}", [*without, *tests], variables)
    counted = ", ".join(f"{number} {how}" for how, number in Counter(outcomes.values()).items())
    print(f"{side:8} {counted}", flush=True)
    return outcomes


def differences(real: dict[str, str], embedded: dict[str, str]) -> dict[str, str]:
    """The tests that end differently, or run on one of the two alone, and how."""
    return {
        test: f"real: {real.get(test)}, embedded: {embedded.get(test)}"
        for test in sorted({*real, *embedded})
        if real.get(test) != embedded.get(test)
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.kazoo_suite")
    parser.add_argument("modules", nargs="*", help="such as test_lock; without any, all")
    modules = [f"kazoo.tests.{name}" for name in parser.parse_args().modules] or ["kazoo.tests"]
    suites.provide()
    print(find_installed(), flush=True)
    chosen = ["--pyargs", *modules]
    real, embedded = run("real", chosen), run("embedded", chosen)
    if again := sorted(differences(real, embedded)):
        print("once more:", *again, sep="\n  ", flush=True)
        words = sorted({test.rpartition(".")[2] for test in again})
        chosen += ["-k", " or ".join(words)]
        real |= run("real", chosen)
        embedded |= run("embedded", chosen)
    found = differences(real, embedded)
    for test, how in found.items():
        print(f"DIFFERS: {test}: {how}")
    failing = sorted(test for test, how in embedded.items() if how in ("failure", "error"))
    print("fail on both:", *(failing or ["none"]))
    if "passed" not in real.values():
        print("no test has passed on ZooKeeper: this run proves nothing")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""The steps that take long, or that need what few have: the parts of `check.py long`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from tests.check.environment import PYTHON, ROOT
from tests.check.steps import Step

HOURS = 3600
COVERED_PERCENT = 99
"""Of lines and branches; 99.20 was seen.  Other tests show most of the rest: those at the recursion
limit (a clean-up by the client), a command in a process of its own (a refused ``delete_tree``),
cuts at each request, the long simulation, and servers before 3.5 and from 3.8.4 on.
"""

PROGRAMS = {
    "refusals": "tests.refusals",  # each request of each recipe refused, with each code
    "chaos": "tests.interop.chaos --seconds 3600",  # locks and all other recipes
    **{
        name: f"tests.interop.{name}"
        for name in (
            "side_by_side_zkcli",
            "neighbours",  # Curator, kazoo and zkwire on the same paths
            "kazoo_programs",  # programs that use kazoo, with its connection and with zkwire's
            "atlas",  # what other clients tell when the connection breaks: docs/atlas.md
        )
    },
    # The same tasks by other clients on the embedded server and on a real one.
    "other_clients": "tests.interop.other_clients.compare",
    "wheel": "tests.check.wheel",  # two builds of wheel and sdist are equal
}
"""Modules with a command line of their own."""

WITH_CURATOR = ("curator", "neighbours", "other_clients", "atlas")

# The tests of the files that pyproject.toml measures; what is slow in them covers nothing more.
COVERING = (
    "session*", "client*", "aio_client", "calls", "roles", "ensembles", "sasl", "watches",
    "recipe_*", "locks", "lock_kinds", "family", "cache", "membership*", "services", "supervisor",
    "simulation", "operations", "partitioner", "server_settings", "queue", "handover", "classic",
    "giving_up", "refusals_by_acl", "from_kazoo", "kazoo_neighbours", "observer",
    "exports", "liveness", "multi", "security",
)  # fmt: skip
SLOW = "every_fault or every_request or twenty_thousand or at_any_depth"
SLOW += " or never_hold_at_once"


def long_steps(pytest: Callable[..., list[str]], seed: Mapping[str, str]) -> list[Step]:
    """All of them; ``pytest`` makes the command that runs the tests of a folder."""
    fewer = {"ZKWIRE_EXAMPLES": "tenth"}
    # A test takes more than the five minutes after which one counts as hanging.
    patient = ["-n", "2", "-o", f"faulthandler_timeout={HOURS}"]
    programs = [
        Step(name, [PYTHON, "-m", *shlex.split(command)], 2 * HOURS)
        for name, command in PROGRAMS.items()
    ]
    return [
        coverage({**seed, "ZKWIRE_TEST_BACKEND": "embedded"}),
        # Under CI=true a test that misses its browser fails.
        Step("browser", pytest("browser"), variables={**seed, "CI": "true"}),
        Step("pythons", [PYTHON, "-m", "tests.check.pythons"], 2 * HOURS, fewer, computes=True),
        # Cuts at every pair of requests, of which one run of `embedded` has a sixteenth.
        Step("pairs", [*pytest("real"), "-k", "every_cut"], HOURS, {**seed, "ZKWIRE_PAIRS": "all"}),
        # Every place of the sweeps, of which one run of `simulation` has a sixth.
        Step(
            "simulation-whole",
            pytest("simulation", options=patient),
            8 * HOURS,
            {**seed, "ZKWIRE_SIMULATION": "2"},
            computes=True,
        ),
        Step(
            "fuzz",
            pytest("testbed/test_fuzz.py", options=patient),
            4 * HOURS,
            {"ZKWIRE_EXAMPLES": "many"},
            computes=True,
        ),
        *releases(seed, [*pytest("shell", "real"), "-m", "real"]),
        *programs,
        # 45,000 states of each small world, and 50,000 random histories.
        *(
            Step(
                name,
                [*pytest("simulation", options=patient), "-k", name],
                24 * HOURS,
                {**seed, "ZKWIRE_SIMULATION": factor},
                computes=True,
            )
            for name, factor in (("small_world", "300"), ("random_runs", "4"))
        ),
    ]


def releases(variables: Mapping[str, str], command: list[str]) -> list[Step]:
    """For each release in `ZOOKEEPER_HOME`: everything, on that one."""
    from tests.support.installed_servers import found_releases  # it needs a Python of today

    return [
        Step(
            f"release-{release}",
            command,
            2 * HOURS,
            {**variables, "ZKWIRE_TEST_BACKEND": "installed", "ZKWIRE_TEST_RELEASE": release},
        )
        for release in found_releases()
    ]


def coverage(variables: Mapping[str, str]) -> Step:
    """Which lines and branches of session, watches and recipes their quick tests miss."""
    files = sorted(
        str(path.relative_to(ROOT))
        for name in COVERING
        for path in ROOT.glob(f"tests/**/test_{name}.py")
    )
    measure = shlex.join([PYTHON, "-m", "coverage"])
    tests = shlex.join(["-m", "pytest", "-q", "-k", f"not ({SLOW})", *files])
    report = f"{measure} combine -q; {measure} report --precision=2 --fail-under={COVERED_PERCENT}"
    command = f"{measure} erase; {measure} run {tests}; tests=$?; {report} && exit $tests"
    return Step("coverage", ["sh", "-c", command], 2700, variables)

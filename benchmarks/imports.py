"""What an import costs: new interpreters that import one thing, in turn.

Bytecode is compiled before and kept apart from the tree, so that neither a missing nor a forbidden
`__pycache__` counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.jobs import Outcome
from benchmarks.processes import ROOT
from benchmarks.rounds import Figures, summary

TITLE = "import, with compiled bytecode"
IMPORTS = {
    "floor": "pass",
    "socket": "import socket",
    "asyncio": "import asyncio",
    "zkwire": "import zkwire; zkwire.Client",
    "zkwire asyncio": "import zkwire; zkwire.AsyncClient",
    "kazoo": "import kazoo.client",
    "aiozk": "import aiozk",
}
TRIES = 15


def import_times(directory: Path, quick: bool) -> dict[str, Figures]:
    """The interpreter alone counts as the floor; the wall time is from fork to exit."""
    codes = {
        name: code
        for name, code in IMPORTS.items()
        if name not in ("kazoo", "aiozk") or find_spec(name) is not None
    }
    outcomes: dict[str, list[Outcome]] = {name: [] for name in codes}
    for number in range(1 + (TRIES // 3 if quick else TRIES)):
        for name, code in codes.items():
            outcome = import_time(directory, code)
            if number:  # the first compiles
                outcomes[name].append(outcome)
    return {name: summary(each) for name, each in outcomes.items()}


def import_time(directory: Path, code: str) -> Outcome:
    """One interpreter from its start to its end."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    error = f"exit code {process.returncode}" if process.returncode else ""
    used = usage.ru_utime + usage.ru_stime
    return Outcome(1, seconds, used, rss=usage.ru_maxrss * 1024, error=error)

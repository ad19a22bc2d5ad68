"""A type checker knows each type of zkwire: `pyright --verifytypes` says so.

It counts each name without an underscore, in each module: a type that is not written down, and that
another checker may infer differently, makes all that it is part of incomplete.  The command is left
out: no program imports it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "zkwire"
LEAST = 0.998
NOT_PUBLIC = ("__pycache__", "__main__.py", "cli")

pytestmark = [
    pytest.mark.types,
    pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is missing"),
]


def completeness(folder: Path) -> dict[str, Any]:
    """Pyright's report on the package, installed in an environment of its own."""
    venv.create(folder)
    (python,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(PACKAGE, python / "zkwire", ignore=shutil.ignore_patterns(*NOT_PUBLIC))
    # With --pythonpath it would look for py.typed in the wrong place: it takes the first Python.
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    command = [sys.executable, "-m", "pyright", "--verifytypes", "zkwire", "--ignoreexternal"]
    done = subprocess.run(
        [*command, "--outputjson"],
        cwd=folder,  # without this project's settings
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return report


def culprits(report: dict[str, Any]) -> list[str]:
    """The names whose own types are missing, with the reason; those that contain them follow."""
    return sorted(
        {
            f"{symbol['name']}: {diagnostic['message'].splitlines()[0]}"
            for symbol in report["symbols"]
            for diagnostic in symbol["diagnostics"]
            if not re.search("partially unknown|docstring", diagnostic["message"])
        }
    )


def test_the_types_of_public_names_are_written_down(tmp_path: Path) -> None:
    report = completeness(tmp_path)
    assert report["pyTypedPath"] is not None
    assert report["exportedSymbolCounts"]["withKnownType"] > 2000, "it has seen the package"
    assert report["completenessScore"] >= LEAST, "\n".join(culprits(report))

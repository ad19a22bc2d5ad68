"""The Pythons of this machine that zkwire supports, and environments of theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.check.environment import ROOT

FOLDER = ROOT / "build" / "wheel"
OLDEST = 11
_TELL = (
    "import sys; free = not getattr(sys, '_is_gil_enabled', lambda: True)();"
    "print(*sys.version_info[:2], 't' if free else '')"
)


def found_pythons() -> dict[str, Path]:
    """One of each version from 3.11 on, ``3.14t`` for a free-threaded one: of the path, of pyenv.

    What does not start is none.  With ``ZKWIRE_PYTHONS`` it is those programs, separated by colons,
    and no others.
    """
    if named := os.environ.get("ZKWIRE_PYTHONS"):
        return {
            _version(program) or str(program): program for program in map(Path, named.split(":"))
        }
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("3.*/bin"))]
    found: dict[str, Path] = {}
    for folder in folders:
        for program in sorted(folder.glob("python3.*")):
            if re.fullmatch(r"python3\.\d+t?", program.name) and (name := _version(program)):
                found.setdefault(name, program)
    return dict(sorted(found.items()))


def _version(program: Path) -> str:
    """Its version; empty if it is too old or does not start."""
    told = subprocess.run([program, "-c", _TELL], capture_output=True, text=True, check=False)
    words = told.stdout.split()
    if told.returncode or int(words[1]) < OLDEST:
        return ""
    return f"3.{words[1]}{''.join(words[2:])}"


def make_environment(name: str, python: Path | str, *packages: str) -> Path:
    """A new environment ``name`` with these arguments of pip installed; returns its Python."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    if packages:
        run(made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return made


def run(*command: Path | str, cwd: Path = ROOT, **variables: str) -> str:
    """Its output; raises CalledProcessError, behind the output, if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, flush=True)
        done.check_returncode()
    return done.stdout

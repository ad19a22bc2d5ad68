"""Other clients made ready to run: in `.check/clients`, as long as their version is wanted.

What a client needs and this machine lacks ends in a `NoClientError` that names it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.check.environment import ROOT

FOLDER = ROOT / ".check" / "clients"
SECONDS = 300


class NoClientError(Exception):
    """A client cannot be run here; the message says why."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Only one thread of one process makes something ready."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(wanted: str, *commands: list[str]) -> Path:
    """The folder that these commands make, run in it where it is not that of this version."""
    folder = FOLDER / wanted.replace("@", "-")  # make cannot have "=" in a path
    stamp = folder / "complete"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in commands:
            execute(command, folder)
        stamp.touch()
    return folder


def execute(command: list[str], folder: Path) -> None:
    """Run what makes a client ready; NoClientError if it fails or takes too long."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NoClientError(f"{command}: {error}") from error
    if done.returncode:
        raise NoClientError(f"{command} has ended with {done.returncode}:\n{done.stdout[-2000:]}")

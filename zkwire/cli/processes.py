"""Processes of a command's own: started as ``python -m zkwire``, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 30.0
_ROOT = Path(__file__).parent.parent.parent


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start ``python -m zkwire`` with these arguments, from this very checkout."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "zkwire", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_all(processes: list[subprocess.Popen[str]]) -> None:
    """Wait for all of them; RuntimeError if one fails, and none is left in any case."""
    try:
        for process in processes:
            process.communicate(timeout=SECONDS)
        codes = [process.returncode for process in processes]
        if any(codes):
            raise RuntimeError(f"processes of the demo ended with {codes}")
    finally:
        for process in processes:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Make sure that a process is gone."""
    if process.poll() is None:
        process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()

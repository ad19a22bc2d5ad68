"""The processes that a command starts as ``python -m zkwire``; none outlives the command.

Ctrl-C reaches only the command, which then ends its processes, so that they create no more nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from zkwire.cli.interrupts import delayed

SECONDS = 30.0
_ROOT = Path(__file__).parent.parent.parent.parent


class Processes:
    """The processes that a command has started; for its main thread."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``python -m zkwire`` with these arguments, with the same copy of zkwire."""
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        with delayed():
            process = subprocess.Popen(
                [sys.executable, "-m", "zkwire", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                process_group=0,
            )
            self._started.append(process)
        return process

    def wait(self) -> None:
        """Wait for all processes; RuntimeError if one has failed.  None is left in any case."""
        try:
            for process in self._started:
                process.communicate(timeout=SECONDS)
            codes = [process.returncode for process in self._started]
            if any(codes):
                raise RuntimeError(f"the demo's processes ended with the exit statuses {codes}")
        finally:
            self.end()

    def end(self) -> None:
        """Kill all processes that still run, and wait for them; a second call does nothing."""
        with delayed():
            for process in self._started:
                if process.poll() is None:
                    process.kill()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()
                process.wait()
            self._started.clear()

"""Processes of a command's own: started as ``python -m zkwire``, and never left behind.

Ctrl-C reaches the command alone, which ends them: what has ended makes nothing more on a server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30.0
_ROOT = Path(__file__).parent.parent.parent


class Processes:
    """The processes that a command has started; for its main thread."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``python -m zkwire`` with these arguments, from this very checkout."""
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        with _without_interrupts():
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
        """Wait for all of them; RuntimeError if one fails, and none is left in any case."""
        try:
            for process in self._started:
                process.communicate(timeout=SECONDS)
            codes = [process.returncode for process in self._started]
            if any(codes):
                raise RuntimeError(f"processes of the demo ended with {codes}")
        finally:
            self.end()

    def end(self) -> None:
        """Make sure that all of them are gone; may be called again."""
        with _without_interrupts():
            for process in self._started:
                if process.poll() is None:
                    process.kill()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()
                process.wait()
            self._started.clear()


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Ctrl-C takes effect behind it."""
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt

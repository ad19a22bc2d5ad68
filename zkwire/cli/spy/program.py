"""The program that the spy runs as its client; ``{}`` in its words becomes the address."""

from __future__ import annotations

import subprocess
import threading

from zkwire.cli.exits import BY_SIGNAL, NOT_EXECUTABLE, NOT_FOUND, with_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL


class Program:
    """The running program; ``ended`` is called in a thread when it has ended.

    OSError, with the exit status 126 or 127, if it cannot be started.
    """

    def __init__(self, words: list[str], address: str, ended: Callable[[], object]) -> None:
        words = [word.replace("{}", address) for word in words]
        try:
            self._process = subprocess.Popen(words)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            problem = OSError(f"cannot run {words[0]}: {error.strerror or error}")
            raise with_status(problem, NOT_FOUND if missing else NOT_EXECUTABLE) from None
        self._ended = ended
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def finish(self) -> int:
        """End it if it still runs; its exit status, or 128 and the number of its signal."""
        self._process.terminate()
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._thread.join()
        return status if status >= 0 else BY_SIGNAL - status

    def _wait(self) -> None:
        self._process.wait()
        self._ended()

"""Standard error: what is written there keeps nothing else from happening.

A message may meet a reader that has ended, a full disk, or a full pipe that nobody reads.  None of
them is an error of the command, whose exit status says how it ended.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

PATIENCE = 1.0  # seconds that messages wait for a reader, all together


class _Messages:
    """Writes each message in a thread of its own: nothing else can leave a write to a full pipe.

    A pipe that does not block would not do, since it would not block for other processes either,
    such as the command that ``zkwire lock`` runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._until = 0.0

    def write(self, stream: TextIO, number: int, text: str, patience: float) -> None:
        """Write to the file of this number, or give the message up."""
        if not self._lock.acquire(timeout=patience):
            return
        try:
            if self._wait(patience):
                self._writer = threading.Thread(
                    target=_write, args=(number, _encoded(stream, text)), daemon=True
                )
                self._until = monotonic() + PATIENCE
                self._writer.start()
                self._wait(patience)
        finally:
            self._lock.release()

    def _wait(self, patience: float) -> bool:
        """Whether the last message is written, waiting for that as long as there is time."""
        if self._writer is None:
            return True
        self._writer.join(max(0.0, min(patience, self._until - monotonic())))
        return not self._writer.is_alive()


def _encoded(stream: TextIO, text: str) -> bytes:
    return text.encode(stream.encoding, "backslashreplace")


def _write(number: int, data: bytes) -> None:
    """Past the stream's buffer: to write what is left there, Python waits at its end."""
    with suppress(OSError):
        while data:
            data = data[os.write(number, data) :]


_MESSAGES = _Messages()


def tell(text: str, patience: float = PATIENCE) -> None:
    """Write to standard error, from any thread.

    ``patience``: seconds that the caller is delayed at most.  While a message is not read, those
    that follow are given up.
    """
    stream = sys.stderr
    if stream is None:  # the process was started without it
        return
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it is no file
        stream.write(text)
        return
    _MESSAGES.write(stream, number, text, patience)

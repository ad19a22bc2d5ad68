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

PATIENCE = 1.0  # seconds that messages wait for a reader, all together


_LOCK = threading.Lock()
_LAST: list[tuple[threading.Thread, float]] = []  # the last writer, and until when it is awaited


def tell(text: str, patience: float = PATIENCE) -> None:
    """Write to standard error, from any thread.

    ``patience``: seconds that the caller is delayed at most.  While a message is not read, those
    that follow are given up.  Each is written in a thread of its own: nothing else can leave a
    write to a full pipe.  A pipe that does not block would not do, since it would not block for
    other processes either, such as the command that ``zkwire lock`` runs.
    """
    stream = sys.stderr
    if stream is None:  # the process was started without it
        return
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it is no file
        stream.write(text)
        return
    data = text.encode(stream.encoding, "backslashreplace")
    if not _LOCK.acquire(timeout=patience):
        return
    try:
        if _written(patience):
            writer = threading.Thread(target=_write, args=(number, data), daemon=True)
            _LAST[:] = [(writer, monotonic() + PATIENCE)]
            writer.start()
            _written(patience)
    finally:
        _LOCK.release()


def _written(patience: float) -> bool:
    """Whether the last message is written, waiting for that as long as there is time."""
    for writer, until in _LAST:
        writer.join(max(0.0, min(patience, until - monotonic())))
    return not any(writer.is_alive() for writer, _ in _LAST)


def _write(number: int, data: bytes) -> None:
    """Past the stream's buffer: to write what is left there, Python waits at its end."""
    with suppress(OSError):
        while data:
            data = data[os.write(number, data) :]

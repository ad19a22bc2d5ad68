"""How the command writes files; the policy is in docs/command.md, under "Files that are written".

A symbolic link as the name of a file leads to the file that is written, and stays a link.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NoReturn, TextIO

from zkwire.cli.output import BY_SIGNAL, with_status

PRIVATE, PUBLIC = 0o600, 0o666
_OWN: int = getattr(os, "O_CLOEXEC", getattr(os, "O_NOINHERIT", 0)) | getattr(os, "O_BINARY", 0)


@contextmanager
def whole(path: str, *, private: bool = True) -> Generator[BinaryIO]:
    """What to write to: a new file, which has its name once the block has ended well.

    Two writers at once both write a whole file, and the last one has the name.  An existing file
    keeps its mode; a new one is for its owner alone if it is ``private``.  A pipe or a device is
    written to as it is.  Raises OSError if the file cannot be written, before the block begins.
    """
    former = _former(path)
    if not os.path.basename(path) or (former and not stat.S_ISREG(former.st_mode)):
        with open(path, "wb") as stream:
            yield stream
        return
    target = os.path.realpath(path)
    part = os.path.join(os.path.dirname(target), f".zkwire-{os.urandom(8).hex()}.part")
    with ending():
        mode = PRIVATE if private or former else PUBLIC
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OWN, mode)
        except OSError as error:
            error.filename = path
            raise
        try:
            with open(number, "wb") as file:
                if former is not None:
                    _keep_access(number, former)
                yield file
                file.flush()
                os.fsync(number)
            os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise


def recording(path: str) -> TextIO:
    """A file that grows as something happens, from its beginning; OSError if it cannot be written.

    A new one is for its owner alone.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _OWN, PRIVATE)
    file = open(number, "a", encoding="utf-8")  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate(0)
    return file


def _former(path: str) -> os.stat_result | None:
    """The file that is there, which this process may write; None if there is none."""
    try:
        former = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise OSError(f"{path} is a symbolic link to a file that is missing") from None
        return None
    if stat.S_ISREG(former.st_mode):
        # The kernel may refuse another user's link in /tmp, and what is read-only is not replaced.
        os.close(os.open(path, os.O_WRONLY))
    return former


def _keep_access(number: int, former: os.stat_result) -> None:
    if not hasattr(os, "fchown"):
        return  # rights are inherited from the folder
    mode = stat.S_IMODE(former.st_mode) & 0o777
    with suppress(OSError):
        os.fchown(number, former.st_uid, former.st_gid)
    if os.fstat(number).st_gid != former.st_gid:
        mode &= ~0o070  # these were the rights of another group
    os.fchmod(number, mode)


# --- interrupts -----------------------------------------------------------------------------------
# What asks a command to end that has something to put away first: Ctrl-C, SIGTERM and SIGHUP.
#
# All three end as KeyboardInterrupt; the exit status of the command says which it was.  A signal
# that was ignored when the process was started stays so (``nohup``).

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def interrupt(number: int) -> NoReturn:
    """End the command as this signal does."""
    raise with_status(KeyboardInterrupt(), BY_SIGNAL + number)


@contextmanager
def ending() -> Generator[None]:
    """Within it SIGTERM and SIGHUP are as Ctrl-C."""
    with handled(lambda number, _: interrupt(number)):
        yield


@contextmanager
def handled(handler: Callable[[int, object], object]) -> Generator[None]:
    """Within it the three are for this handler; in another thread than the main one for none."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in map(int, SIGNALS):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)

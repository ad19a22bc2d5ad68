"""A program in a terminal of its own, as seen from the outside."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from typing import Self

from tests.support.command import ROOT
from tests.support.lock_helpers import PATIENCE

SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[78DM])")
_PARTIAL = re.compile(r"(\x1bD((?!\x1b8\x1b\[B).)*|\x1b(\[[0-9;?]*)?)?$", re.DOTALL)
_INSERTED = re.compile(r"\x1bD\x1bM\x1b7\r\x1b\[L(.*?)\x1b8\x1b\[B")  # above the line that is typed
_IN_CONTROL = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so its Ctrl-C is a signal
os.execvp(sys.argv[1], sys.argv[1:])"""


class Terminal:
    """A program; ``seen`` is all that it has shown, ``until`` leaves out what moves the cursor."""

    def __init__(self, *words: str, columns: int = 80, **environment: str) -> None:
        self._above, below = pty.openpty()
        ioctl(below, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        own = {"PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
        given = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_CONTROL, *words], cwd=ROOT, env=given | own,
            stdin=below, stdout=below, stderr=below, start_new_session=True,
        )  # fmt: skip
        self._name = os.ttyname(below)
        os.close(below)
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self.seen, self._new, self._part = "", "", ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._above)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._above, text.encode())

    def until(self, text: str, again: Callable[[], object] | None = None) -> str:
        """What is shown up to this text; while nothing comes ``again`` is called each second."""
        while text not in self._new:
            self._read(text, again)
        before, _, self._new = self._new.partition(text)
        return before

    def sees(self, text: str) -> None:
        """It is shown, anywhere."""
        while text not in self.seen:
            self._read(text)

    def status(self) -> int:
        """The exit status, at the end of the program."""
        with suppress(OSError):  # Linux: no process has the other end any more
            while True:
                self._read("the end")
        return self.process.wait(PATIENCE)

    @property
    def lines(self) -> list[str]:
        """All lines, without what moves the cursor; a line that was written over counts too."""
        return re.split("[\r\n]+", SEQUENCE.sub("", self.seen))

    def interrupt(self) -> None:
        """A Ctrl-C; CPython can miss one that comes between two keys."""
        self.process.send_signal(signal.SIGINT)

    def _read(self, text: str, again: Callable[[], object] | None = None) -> None:
        if not select.select([self._above], [], [], 1.0 if again else PATIENCE)[0]:
            assert again is not None, (text, self.seen)
            again()
            return
        came = self._decoder.decode(os.read(self._above, 65536))
        self.seen += came
        came = self._part + came
        found = _PARTIAL.search(came)
        self._part = found[0] if found else ""
        self._new += SEQUENCE.sub("", _INSERTED.sub("", came[: len(came) - len(self._part)]))

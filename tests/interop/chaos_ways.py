"""What contenders of a chaos run stand on: a clock, a log, threads or asyncio, a register."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

LINE_BYTES = 100


def clock() -> float:
    """Seconds of a clock that all processes of the machine share, and that goes on in its sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Log:
    """Lines of JSON in a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"what": what, **fields}) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


class Way:
    """How a contender calls and waits: for threads."""

    prefix = ""

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class TaskWay(Way):
    """The same for asyncio."""

    prefix = "Async"

    async def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return await function(*arguments)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def fenced_write(register: Path, fence: int) -> int | None:
    """Append to a register that refuses old fences; the number of the line.

    It only grows, line by line, so that a kill at any moment leaves it whole.
    """
    with register.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_BYTES))
        lines = file.read().split(b"\n")[:-1]
        number, highest = map(int, lines[-1].split()) if lines else (0, 0)
        if fence < highest:
            return None
        file.write(b"%d %d\n" % (number + 1, fence))
    return number + 1

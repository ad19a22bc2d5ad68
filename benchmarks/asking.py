"""What a worker may ask of the benchmark while it does a job: programs that are not Python do.

A question is a line of JSON, `{"ask": "cpu"}`, its answer a line of plain text:

* `cpu`: the nanoseconds of CPU time the worker has used, -1 where the kernel does not say.  A Java
  virtual machine by itself only knows it in steps of 10 ms.
* `nodes N TOGETHER`: create so many nodes to be watched, `t000000` and so on, of which so many are
  to be deleted by one request; the answer is their parent.
* `delete`: delete them all; the answer comes when the requests are sent.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Self

from benchmarks.firing import Targets, targets
from benchmarks.measure import cpu_of
from benchmarks.wire import Address


def question(line: str) -> str:
    """What a line of a worker asks; empty if it is the outcome of a job."""
    asked: str = json.loads(line).get("ask", "")
    return asked


class Answers:
    """The answers during one job; whatever a question has made goes with it."""

    def __init__(self, pid: int, real: Address) -> None:
        self._pid = pid
        self._real = real
        self._targets: Targets | None = None
        self._stack = ExitStack()

    def answer(self, asked: str) -> str:
        """One line."""
        word, _, rest = asked.partition(" ")
        if word == "cpu":
            return str(cpu_of(self._pid))
        if word == "nodes":
            count, together = map(int, rest.split())
            self._targets = self._stack.enter_context(targets(self._real, count, together))
            return self._targets.parent
        if word == "delete" and self._targets is not None:
            self._targets.delete_all()
            return "deleted"
        raise ValueError(f"a worker asks {asked!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

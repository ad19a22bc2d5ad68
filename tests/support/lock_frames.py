"""What the requests of a lock of one node are for: multis that create and delete its node.

Tests call them what the fair lock's are called, `create2` and `delete`.
"""

from __future__ import annotations

from zkwire.testing.proxy import Action, FaultProxy, Frame
from zkwire.testing.proxy.frames import request_description
from zkwire.testing.proxy.proxy import _Once
from zkwire.wire import ops

_FIRST = slice(8, 12)  # of a request: behind xid and type
_PARTS = 16  # of a reply: behind its header
_PART = 13  # bytes of a refused operation
_MEANING = {ops.CREATE.opcode: "create2", ops.DELETE.opcode: "delete"}


def meaning(frame: Frame) -> str:
    """What a request, or the request of a reply, is for."""
    asked = frame if frame.request is None else frame.request
    if asked.op != "multi":
        return asked.op
    return _MEANING.get(int.from_bytes(asked.body[_FIRST]), "multi")


def refusal(answer: Frame) -> int | None:
    """The code with which a request was refused; 0 if it was not."""
    if answer.op != "multi" or answer.error:
        return answer.error
    parts = answer.body[_PARTS:]
    while int.from_bytes(parts[:4], signed=True) == -1 and not parts[4]:
        code = int.from_bytes(parts[5:9], signed=True)
        if code:
            return code
        parts = parts[_PART:]
    return 0


class LockProxy(FaultProxy):
    """A proxy whose rules for `create2` and `delete` are for locks of one node, too."""

    def on(self, op: str, *, action: Action, nth: int = 1, reply: bool = False) -> None:
        if op not in _MEANING.values():
            super().on(op, action=action, nth=nth, reply=reply)
            return

        def chosen(frame: Frame) -> bool:
            return frame.direction == "c2s" and meaning(frame) == op

        self.rule(_Once(chosen, request_description(op, nth, reply), nth, action, reply))

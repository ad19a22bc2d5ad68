"""The fault proxy's faults inside the embedded server, exact to the step.

The actions are those of `zkwire.testing.proxy.faults`, and a rule counts as `FaultProxy.on` does.
The difference: without a network in between, "after the request" means that the operation is
carried out and no byte of its reply is sent.  Actions about segments and times (delay, drip, split,
half_close), and to hold a reply, need the proxy.

Decides what happens to a frame that a rule names; must not know sockets, nor how long a gate stays
closed.  All of it runs in the thread that drives the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zkwire.testing.proxy import frames
from zkwire.testing.proxy.faults import Action, BlackHole, Cut, Hold, Send, Step, forward
from zkwire.testing.proxy.frames import Frame
from zkwire.testing.proxy.proxy import _Once
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.sessions import Connection

_NOTIFICATION = b"\xff\xff\xff\xff"  # the xid of an event


class Refuse(NamedTuple):
    """Answer the request with this code, without carrying it out; ``close`` the connection then."""

    code: int
    close: bool


class FaultPoints:
    """Between the frames and the processor; the first of the ``rules`` with an action decides."""

    def __init__(self, processor: Processor) -> None:
        self.rules: list[_Once] = []
        self._processor = processor

    def process(self, connection: Connection, body: bytes, now: float) -> Iterator[Hold]:
        """Carry out one frame, or the action of a rule in its place.

        Yields each gate that the frame comes to, to be continued when that is open.
        """
        if not self.rules:
            self._processor.process(connection, body, now)
            return
        raw = len(body).to_bytes(4, "big") + body
        frame = (
            frames.request_frame(connection.number, raw, now)
            if connection.greeted
            else Frame("c2s", connection.number, "connect", "connect", raw, now)
        )
        actions = [rule(frame) for rule in self.rules]  # each of them counts the frame
        self.rules = [rule for rule in self.rules if rule.waits]
        action = next(filter(None, actions), forward)
        steps: tuple[Any, ...] = tuple(action(frame))
        for step in steps:
            match step:
                case Hold():
                    yield step
                case Refuse(code, close):
                    self._processor.refuse(connection, body, code, now, close=close)
                case Send(data, 0, _, reply):
                    if data[:4] != (len(data) - 4).to_bytes(4, "big", signed=True):
                        continue  # a truncated frame: the rest does not come
                    self._processor.process(connection, data[4:], now)
                    if reply is not None:
                        self._answer(connection, frame, reply, now)
                case _:
                    self._perform_on_connection(connection, step)

    def _answer(self, connection: Connection, request: Frame, action: Action, now: float) -> None:
        """Do ``action`` to the reply at the end of the output, if there is one."""
        if not connection.output or connection.output[-1][4:8] == _NOTIFICATION:
            return
        # An operation that ends the connection has ended it already; its reply gets the action.
        connection.ended, ended = False, connection.ended
        frame = frames.reply_frame(connection.number, connection.undo_send(), now, request)
        for step in action(frame):
            match step:
                case Send(data, 0):
                    connection.send(data)
                case _:
                    self._perform_on_connection(connection, step)
        if ended:
            self._processor.end(connection)

    def _perform_on_connection(self, connection: Connection, step: Step) -> None:
        match step:
            case Cut(reset):
                connection.reset = reset
                self._processor.end(connection)
            case BlackHole():
                connection.mute = True
            case _:
                raise ValueError(f"{step!r} is about the network and needs the fault proxy")

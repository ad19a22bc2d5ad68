"""The fault proxy's faults inside the embedded server, exact to the step.

The actions are those of `zkwire.testing.proxy.faults`, and a rule counts as `FaultProxy.on` does.
The difference: without a network in between, "after the request" means that the operation is
carried out and no byte of its reply is sent.  Actions about segments and times (delay, drip, split,
half_close), and to hold a reply, need the proxy.

Decides what happens to a frame that a rule names; must not know sockets.  Other threads may add
rules; everything else runs in the thread that drives the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from zkwire.testing.proxy import frames
from zkwire.testing.proxy.faults import Action, BlackHole, Cut, Hold, Send, Step, on_reply
from zkwire.testing.proxy.frames import OPCODES, Frame
from zkwire.testing.proxy.proxy import _Once
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.sessions import Connection

_NOTIFICATION = b"\xff\xff\xff\xff"  # the xid of an event


class _Refuse(NamedTuple):
    """Answer the request with this code, without carrying it out; ``close`` the connection then."""

    code: int
    close: bool


class FaultPoints:
    """Between the frames and the processor.  ``wake`` has the loop ask for :meth:`released`."""

    def __init__(self, processor: Processor, wake: Callable[[], None]) -> None:
        self._processor = processor
        self._wake = wake
        self._rules: list[_Once] = []
        # The connections that wait at a gate, and what there is to do after it.
        self._stopped: dict[Connection, tuple[Hold, Iterator[Hold]]] = {}

    def on(self, op: str, *, action: Action, nth: int = 1, reply: bool = False) -> None:
        """Do ``action`` to the ``nth`` request of an operation from now on, or to its reply.

        ``op`` is a name of `OPCODES` or "connect".
        """
        frames.check_rule(op, nth, {*OPCODES, "connect"})
        description = frames.request_description(op, nth, reply)
        act = on_reply(action) if reply else action
        self._rules.append(_Once(lambda frame: frame.op == op, description, nth, act))

    def refuse(self, op: str, code: int, *, nth: int, close: bool) -> None:
        """Answer the ``nth`` request of an operation from now on with this error code.

        The request is not carried out; ``close`` ends the connection after the answer.
        """
        frames.check_rule(op, nth, OPCODES)
        refusal: Any = (_Refuse(code, close),)  # a step that the proxy does not have
        self.on(op, action=lambda _: refusal, nth=nth)

    @property
    def unfired(self) -> list[str]:
        """The descriptions of the rules whose request has not come."""
        return [rule.description for rule in self._rules]

    def clear(self) -> None:
        """Drop the rules; actions that have begun go on."""
        self._rules.clear()

    def process(self, connection: Connection, body: bytes, now: float) -> None:
        """Carry out one frame, or the action of a rule in its place."""
        if not self._rules:
            self._processor.process(connection, body, now)
            return
        raw = len(body).to_bytes(4, "big") + body
        frame = (
            frames.request_frame(connection.number, raw, now)
            if connection.greeted
            else Frame("c2s", connection.number, "connect", "connect", raw, now)
        )
        actions = [rule(frame) for rule in self._rules]  # each of them counts the frame
        self._rules = [rule for rule in self._rules if rule.waits]
        action = next(filter(None, actions), None)
        if action is None:
            self._processor.process(connection, body, now)
            return
        self._go_on(connection, self._perform(connection, frame, tuple(action(frame)), now))

    def holds(self, connection: Connection) -> bool:
        """Whether no request of a connection may be processed now."""
        return connection in self._stopped or connection.mute

    def queued(self, connection: Connection) -> Iterator[bytes]:
        """The request that waits at a gate, which is forgotten."""
        stopped = self._stopped.get(connection)
        if stopped is not None:
            self.forget(connection)
            hold, _ = stopped
            yield hold.frame.raw[4:]

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._stopped.pop(connection, None)

    def released(self) -> list[Connection]:
        """The connections whose gate is open; the caller calls :meth:`resume` for each."""
        return [c for c, (hold, _) in self._stopped.items() if hold.gate.is_open]

    def resume(self, connection: Connection) -> None:
        """Perform the steps after the gate."""
        stopped = self._stopped.pop(connection, None)
        if stopped is not None:
            self._go_on(connection, stopped[1])

    def _go_on(self, connection: Connection, work: Iterator[Hold]) -> None:
        hold = next(work, None)
        if hold is not None:
            self._stopped[connection] = hold, work
            hold.gate.arrive(hold.frame, self._wake)

    def _perform(
        self, connection: Connection, frame: Frame, steps: Iterable[Any], now: float
    ) -> Iterator[Hold]:
        """Do to a request what the steps say; yields each gate, to be continued after it."""
        for step in steps:
            match step:
                case Hold():
                    yield step
                case _Refuse(code, close):
                    self._processor.refuse(connection, frame.raw[4:], code, now, close=close)
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

"""A TCP proxy between clients and a ZooKeeper server that does what networks do to a frame.

::

    with FaultProxy(upstream="127.0.0.1:2181") as proxy:
        proxy.on("create", nth=1, action=cut_after)
        ...  # a client of proxy.hosts loses its first create: executed, but never answered
        proxy.wait_for(lambda frames: any(frame.op == "set_watches" for frame in frames))

Decides which action a frame gets, and keeps the log; must not know sockets, how bytes are split
into frames (both `relay`), nor what an action does (`faults`).

Invariants: the action of a frame is chosen and the frame is logged in one step under one lock, so a
rule counts exactly the frames that are logged after its creation.  A logged frame was received, and
not yet forwarded.  Every rule sees every frame, and the first rule with an action decides.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeAlias

from zkwire.testing.proxy.faults import Action, Cut, Step, forward
from zkwire.testing.proxy.frames import OPCODES, Frame, describe_rule
from zkwire.testing.proxy.relay import Address, Relay

Rule: TypeAlias = Callable[[Frame], Action | None]


class FaultProxy:
    """A proxy on a free port of 127.0.0.1, running from its creation until `close`.

    If a rule or an action raises, its connection ends, and the next `wait_for` or `close` raises a
    RuntimeError from that error, so that a mistake in a test does not look like a fault.
    """

    def __init__(self, upstream: str) -> None:
        self.log: list[Frame] = []
        self._upstream = upstream
        self._changed = threading.Condition()
        self._rules: list[Rule] = []
        self._requests = 0
        self._failure: Exception | None = None
        self._relay = Relay(resolve(upstream), self._choose_steps, self._notify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and the thread; a second call does nothing."""
        self._relay.close()
        self._raise_failure()

    # --- addresses ---

    @property
    def hosts(self) -> str:
        """The connect string for a client; the same for the life of the proxy."""
        return f"127.0.0.1:{self._relay.port}"

    @property
    def upstream(self) -> str:
        """The server as "host:port"; a new value applies to connections accepted from then on."""
        return self._upstream

    @upstream.setter
    def upstream(self, upstream: str) -> None:
        self._relay.upstream = resolve(upstream)
        self._upstream = upstream

    @property
    def connections(self) -> int:
        """The number of clients' connections; a black hole hides the end of one."""
        return len(self._relay.connections)

    # --- the log ---

    def frames(self) -> list[Frame]:
        """A copy of ``log``: every frame of both directions, in the order of their arrival."""
        with self._changed:
            return self.log.copy()

    def wait_for(
        self, predicate: Callable[[list[Frame]], object], timeout: float = 15.0
    ) -> list[Frame]:
        """Wait until ``predicate`` of the log is true, and return the log, or raise TimeoutError.

        The predicate is called after new frames and when a connection begins or ends, with the log
        locked: it must not wait or call the proxy's methods.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._failure is not None or predicate(self.log), timeout
            )
            self._raise_failure()
            if not done:
                raise TimeoutError(
                    f"not within {timeout} s; the last of {len(self.log)} frames: {self.log[-8:]}"
                )
            return self.log.copy()

    # --- rules ---

    def on(self, op: str, *, action: Action, nth: int = 1, reply: bool = False) -> None:
        """Do ``action`` to the ``nth`` request of an operation, over all connections, from now on.

        ``op`` is a name of `OPCODES`, "connect", or "notification" for the server's watch events.
        With ``reply``, do it to the reply to that request instead.
        """
        description = describe_rule(op, nth, {*OPCODES, "connect", "notification"}, reply=reply)
        if op == "notification" and reply:
            raise ValueError("a notification has no reply")
        direction = "s2c" if op == "notification" else "c2s"

        def chosen(frame: Frame) -> bool:
            return frame.op == op and frame.direction == direction

        self.rule(_Once(chosen, description, nth, action, reply))

    def on_frame(self, k: int, action: Action, *, reply: bool = False) -> None:
        """Do ``action`` to request ``k`` (its ``number``), or with ``reply`` to its reply.

        The number counts from 0 since the last `reset`, over all connections and operations,
        without handshakes and pings.  Raises ValueError if that request has come already.
        """
        with self._changed:
            if k < self._requests:
                raise ValueError(f"request {k!r} is past; the next one is {self._requests}")
            description = f"the reply to request {k}" if reply else f"request {k}"
            self.rule(_Once(lambda frame: frame.number == k, description, 1, action, reply))

    def rule(self, fn: Rule) -> None:
        """Call ``fn`` for the action of every frame; after None the other rules decide.

        ``fn`` runs in the proxy's thread, with the log locked, and must not wait.
        """
        with self._changed:
            self._rules.append(fn)

    @property
    def unfired(self) -> list[str]:
        """Descriptions of the rules of :meth:`on` and :meth:`on_frame` that still wait.

        A test that checks it at its end finds the rules whose frame has never come.
        """
        with self._changed:
            return [
                rule.description for rule in self._rules if isinstance(rule, _Once) and rule.waits
            ]

    def clear(self) -> None:
        """Drop the rules; actions that have begun go on."""
        with self._changed:
            self._rules.clear()

    def reset(self) -> None:
        """Drop the rules and the log, and count requests from 0 again; connections stay."""
        with self._changed:
            self._rules.clear()
            self.log.clear()
            self._requests = 0

    # --- all connections at once; done when the call returns ---

    def cut_all(self) -> None:
        """Close every connection with FIN, on both sides."""
        self._relay.call(partial(self._relay.cut_all, reset=False))

    def reset_all(self) -> None:
        """Close every connection with RST, on both sides."""
        self._relay.call(partial(self._relay.cut_all, reset=True))

    def black_hole(self, on: bool = True) -> None:
        """Stop forwarding in both directions, or start again, without loss of what was sent.

        Meanwhile connections stay open and new ones are accepted; the end of a connection is not
        forwarded either.
        """
        self._relay.call(partial(setattr, self._relay, "frozen", on))

    def refuse(self, on: bool = True) -> None:
        """Close new connections at once, or accept them again."""
        self._relay.call(partial(setattr, self._relay, "refusing", on))

    # --- for the relay ---

    def _choose_steps(
        self, arrivals: Iterable[tuple[Frame, Action | None]]
    ) -> list[tuple[Frame, tuple[Step, ...]]]:
        chosen: list[tuple[Frame, tuple[Step, ...]]] = []
        with self._changed:
            for arrival, promised in arrivals:
                frame = arrival
                if frame.direction == "c2s" and frame.kind in ("request", "auth"):
                    frame = arrival._replace(number=self._requests)
                    self._requests += 1
                self.log.append(frame)
                chosen.append((frame, self._steps(frame, promised)))
            self._changed.notify_all()
        return chosen

    def _steps(self, frame: Frame, promised: Action | None) -> tuple[Step, ...]:
        try:
            # Every rule is called, also after the one that decides: it may be counting.
            answers = [rule(frame) for rule in tuple(self._rules)]
            action = promised or next(filter(None, answers), forward)
            steps = tuple(action(frame))
            if not all(isinstance(step, Step) for step in steps):
                raise TypeError(f"not all of these are steps: {steps!r}")
            return steps
        except Exception as error:
            self._failure = self._failure or error
            return (Cut(reset=True),)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise RuntimeError("a rule or an action of the proxy failed") from failure


@dataclass(slots=True)
class _Once:
    """The rule that has ``action`` for the ``nth`` chosen frame, or for the reply to it.

    ``waits`` is True until that frame has come.
    """

    chosen: Callable[[Frame], bool]
    description: str
    nth: int
    action: Action
    reply: bool = False
    waits: bool = True
    request: Frame | None = None

    def __call__(self, frame: Frame) -> Action | None:
        if not self._is_it(frame):
            return None
        self.waits = False
        return self.action

    def _is_it(self, frame: Frame) -> bool:
        if self.request is not None:
            return frame.request is self.request
        if not self.chosen(frame):
            return False
        self.nth -= 1
        if self.nth == 0 and self.reply:
            self.request = frame
        return self.nth == 0 and not self.reply


def resolve(upstream: str) -> Address:
    """The address of "host:port", for a relay; ValueError or, if there is none, OSError."""
    host, colon, port = upstream.rpartition(":")
    if not (host and colon and port.isdecimal()) or "," in host:
        raise ValueError(f"upstream must be one host:port: {upstream!r}")
    family, _, _, _, address = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM
    )[0]
    return family, address

"""The way of one client to a server somewhere else: a proxy that tells what passes, and breaks it.

Its thread tells each frame before it lets it go on, so what a client does about a frame is told
behind it.  This module must not know what a lesson is.
"""

from __future__ import annotations

import time

from zkwire.cli.lessons.event import CUT, END, FRAME, SERVER
from zkwire.testing.proxy.faults import Cut, Send
from zkwire.testing.proxy.proxy import resolve
from zkwire.testing.proxy.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zkwire.testing.proxy.faults import Action, Step
    from zkwire.testing.proxy.frames import Frame

    # A kind of event, words, a detail, a frame.
    Tell = Callable[[str, str, str, Frame | None], object]

_NO_SESSION = bytes(12)  # timeout and id in the answer to a greeting


class Lane:
    """See the module's docstring.  OSError if the server's name has no address.

    ``busy``: something is on its way, or the connection is lost and the client will come again;
    ``moved`` is the monotonic time of the last event.
    """

    def __init__(self, name: str, server: str, tell: Tell) -> None:
        self.name = name
        self.moved: float = time.monotonic()
        self._tell_stage = tell
        self._cuts: list[tuple[str, str]] = []
        self._marked: Frame | None = None  # the request whose answer will be lost
        self._waiting: list[Frame] = []
        self._away = False
        self._opened: set[int] = set()
        self._over: set[int] = set()  # connections whose end has been told
        self._bye: set[int] = set()  # connections whose session has ended
        self._relay = Relay(resolve(server), self._choose, lambda: None, observe=self._observe)
        self.hosts: str = f"127.0.0.1:{self._relay.port}"

    @property
    def busy(self) -> bool:
        """See the class's docstring."""
        return self._away or bool(self._waiting)

    @property
    def connected(self) -> bool:
        """Whether a connection is there whose end has not been told."""
        return bool(self._opened - self._over)

    def cut(self, when: str, op: str) -> None:
        """Cut at the next request of this kind: ``lost`` on its way, or ``after`` its execution."""
        self._relay.call(lambda: self._cuts.append((when, op)))

    def cut_now(self) -> None:
        """Cut the connection."""
        self._relay.call(self._cut_now)

    def freeze(self, on: bool) -> None:
        """Let nothing pass, or go on; what has been sent meanwhile arrives then."""
        self._relay.call(lambda: setattr(self._relay, "frozen", on))

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._relay.close()

    # --- in the thread of the proxy ---------------------------------------------------------------

    def _tell(self, kind: str, text: str, detail: str = "", frame: Frame | None = None) -> None:
        self.moved = time.monotonic()
        self._tell_stage(kind, text, detail, frame)

    def _cut_now(self) -> None:
        for connection in self._relay.connections:
            self._end(connection.number, CUT, "connection cut")
        self._relay.cut_all(reset=False)

    def _end(self, number: int, kind: str, text: str, *, away: bool = True) -> None:
        self._over.add(number)
        self._waiting.clear()
        self._away = away
        self._tell(kind, text)

    def _choose(
        self, arrivals: Iterable[tuple[Frame, Action | None]]
    ) -> list[tuple[Frame, tuple[Step, ...]]]:
        return [(frame, self._steps(frame)) for frame, _ in arrivals]

    def _steps(self, frame: Frame) -> tuple[Step, ...]:
        number = frame.connection
        if number in self._over:
            return ()
        passed = self._request(frame) if frame.direction == "c2s" else self._answer(frame)
        return (Send(frame.raw),) if passed else (Cut(),)

    def _request(self, frame: Frame) -> bool:
        due = [cut for cut in self._cuts if cut[1] == frame.op][:1]
        for cut in due:
            self._cuts.remove(cut)
            if cut[0] == "lost":
                self._end(frame.connection, CUT, "connection cut")
                return False
            self._marked = frame
        self._waiting.append(frame)
        self._tell(FRAME, "", "", frame)
        return True

    def _answer(self, frame: Frame) -> bool:
        if self._marked is not None and frame.request is self._marked:
            self._marked = None
            if not frame.error:
                words = "executed, and the answer will be lost"
                self._tell(SERVER, words, f"zxid {frame.zxid:#x}")
            self._end(frame.connection, CUT, "connection cut before the answer arrives")
            return False
        self._waiting = [request for request in self._waiting if request is not frame.request]
        if frame.op == "connect":
            self._away = False
        if frame.op == "close_session" or (
            frame.op == "connect" and frame.raw[8:20] == _NO_SESSION
        ):
            self._bye.add(frame.connection)
        self._tell(FRAME, "", "", frame)
        return True

    def _observe(self, number: int, what: str, detail: str) -> None:
        if what == "open":
            self._opened.add(number)
            self._away = True
        elif what == "unreachable":
            self._end(number, END, f"the server cannot be reached: {detail}")
        elif what == "ended" and number not in self._over:
            # Behind the last answer of a session both sides close, in either order.
            if number in self._bye or detail == "c2s":
                self._end(number, CUT, f"{self.name} ends the connection", away=False)
            else:
                self._end(number, END, f"{self.name} sees the connection end, no word why")


class ServerWire:
    """A bare connection, as :class:`zkwire.cli.lessons.play.Wire`; ``address`` is a HOST:PORT."""

    def __init__(self, address: str) -> None:
        import socket

        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), _ANSWER)

    def send(self, data: bytes) -> list[bytes]:
        """Send bytes; returns the frame that the server answers, if it does within a time."""
        self._socket.settimeout(_ANSWER if _whole(data) else _NO_ANSWER)
        self._socket.sendall(data)
        try:
            head = self._exactly(4)
            return [head + self._exactly(int.from_bytes(head, "big"))]
        except (TimeoutError, EOFError):
            return []

    def close(self) -> None:
        """End the session, as well as that can be done here, and the connection."""
        try:
            self._socket.settimeout(_NO_ANSWER)
            self._socket.sendall(b"\0\0\0\x08\0\0\0\1\xff\xff\xff\xf5")
            while self._socket.recv(65536):
                pass
        except OSError:  # a server that waits for the rest of a frame, or is gone
            pass
        finally:
            self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data


_ANSWER, _NO_ANSWER = 10.0, 1.0  # seconds


def _whole(data: bytes) -> bool:
    return len(data) == 4 + int.from_bytes(data[:4], "big")

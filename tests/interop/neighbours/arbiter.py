"""Counts the holders of one lock, whatever clients believe, and asks the server what is true.

A contender tells of each grant in lines, over a socket of 127.0.0.1, and waits for the answers:

    enter LIBRARY MODE SESSION PASSWORD    hold SECONDS, or end: there are no more turns
    leave                                  left; only then it releases
    trouble LIBRARY ERROR                  again, or end

A grant is judged by the nodes that the server has at that moment, and by the sessions that own
them. It is *stale* if no node of its session is there: the session has ended, and the contender has
not heard of it. It is *wrong* if the node is there, and with it that of another holder who excludes
it (an overlap), or, for who must be alone, a node with a lower number. Between the two answers a
holder keeps its node, so a wrong grant is never a matter of time.
"""

from __future__ import annotations

import re
import socketserver
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from zkwire import Client, NoNodeError, ZooKeeperError

ALONE, SHARED, LEASE = "alone", "shared", "lease"
"""The modes: a mutex or a writer; a reader; one of so many leases."""
HOLD_SECONDS = 0.0005


@dataclass(eq=False)
class Holder:
    """A grant that its contender has told of, until it says that it leaves."""

    library: str
    mode: str
    session_id: int
    password: bytes
    dead: bool = False
    """Whether its process has ended; it holds as long as its node is there."""


@dataclass
class Judgement:
    """What the arbiter has seen, by the library."""

    grants: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    """Holders whose node was gone when the next one came: they had not heard of it yet."""
    wrong: list[str] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)


class Arbiter:
    """Listens from its creation until `close`; ``folder`` is where contenders' nodes stand.

    Without ``numbered`` each child is one, in no order.
    """

    def __init__(
        self, observer: Client, folder: str, leases: int = 1, *, numbered: bool = True
    ) -> None:
        self.seen = Judgement()
        self.over = False
        """True: the next grant of each contender is its last."""
        self.on_grant: Callable[[Holder], float] = lambda _: HOLD_SECONDS
        """Called with each holder, under the mutex; how many seconds it is to hold."""
        self.changed = threading.Condition()
        self._observer, self._folder, self._leases = observer, folder, leases
        self._pattern = r"\d{10}$" if numbered else ""
        self._holders: set[Holder] = set()
        self._owners: dict[str, int] = {}
        self._server = _Server(("127.0.0.1", 0), _Contender)
        self._server.arbiter = self
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="arbiter")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def enter(self, holder: Holder) -> float | None:
        """Judge a grant; for how long to hold, or None to end."""
        with self.changed:
            if self.over:
                return None
            self.seen.grants[holder.library] += 1
            try:
                self._judge(holder)
            except ZooKeeperError as error:
                self.seen.wrong.append(f"{holder.library} not judged: {error!r}")
            self._holders.add(holder)
            self.changed.notify_all()
            return self.on_grant(holder)

    def leave(self, holder: Holder) -> None:
        """The holder no longer does what the lock protects."""
        with self.changed:
            self._holders.discard(holder)

    def trouble(self, library: str, error: str) -> bool:
        """A contender has met an error; whether it is to go on."""
        with self.changed:
            self.seen.troubles[f"{library} {error}"] += 1
            return not self.over

    def _judge(self, holder: Holder) -> None:
        order = self._sessions()
        for other in [other for other in self._holders if other.session_id not in order]:
            self.seen.late[other.library] += not other.dead
            self._holders.discard(other)
        if holder.session_id not in order:
            self.seen.stale[holder.library] += 1
            return
        rivals = [other for other in self._holders if {other.mode, holder.mode} != {SHARED}]
        if holder.mode == LEASE:
            rivals = rivals[self._leases - 1 :]
        if rivals:
            libraries = ", ".join(sorted(other.library for other in rivals))
            self.seen.wrong.append(f"{holder.library} {holder.mode} beside {libraries}")
        elif holder.mode == ALONE and order[0] != holder.session_id:
            self.seen.wrong.append(f"{holder.library} before {order.index(holder.session_id)}")

    def _sessions(self) -> list[int]:
        """The sessions that own the contenders' nodes, by the numbers of these."""
        try:
            names = self._observer.get_children(self._folder)
        except NoNodeError:
            return []
        numbered = [name for name in names if re.search(self._pattern, name)]
        numbered.sort(key=lambda name: name[-10:])
        self._owners = {name: self._owners.get(name) or self._owner(name) for name in numbered}
        return [owner for owner in self._owners.values() if owner]

    def _owner(self, name: str) -> int:
        """0 for a node that has just gone."""
        stat = self._observer.exists(f"{self._folder}/{name}")
        return 0 if stat is None else stat.ephemeral_owner


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    arbiter: Arbiter

    def handle_error(self, *_: object) -> None:
        """A grant that could not be judged is no good one."""
        self.arbiter.seen.wrong.append(repr(sys.exception()))


class _Contender(socketserver.StreamRequestHandler):
    """One contender's lines; a holder that is cut off stays one until its node has gone."""

    server: _Server

    def handle(self) -> None:
        self.holder: Holder | None = None
        with suppress(OSError):  # of a process that is killed
            for line in self.rfile:
                if line.endswith(b"\n"):
                    self.wfile.write(f"{self._answer(line.decode())}\n".encode())
        if self.holder is not None:
            self.holder.dead = True

    def _answer(self, line: str) -> str:
        arbiter = self.server.arbiter
        match line.split():
            case ["enter", library, mode, session, password]:
                self.holder = Holder(library, mode, int(session), bytes.fromhex(password))
                seconds = arbiter.enter(self.holder)
                return "end" if seconds is None else f"hold {seconds}"
            case ["leave"] if self.holder is not None:
                arbiter.leave(self.holder)
                return "left"
            case ["trouble", library, error]:
                return "again" if arbiter.trouble(library, error) else "end"
            case _:
                raise ValueError(f"no line of a contender: {line!r}")

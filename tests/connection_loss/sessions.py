"""What each side of a session knows at which moment, while a lock is held through it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.connection_loss.case import Case, Row, Rows, Setting, repeat, told
from tests.connection_loss.lagging import Lag
from tests.support.lock_helpers import GRACE, LONG, PATIENCE, SHORT, Running
from tests.support.server_control import poll
from zkwire import SequentialLock, State

HEADS = ("moment", "the client's state", "a call gets", "the holder", "on the server",
         "the next one")  # fmt: skip


class Tale(Case):
    """A holder behind the proxy, and another client that waits for the lock."""

    def __init__(self, setting: Setting, timeout: float = LONG) -> None:
        super().__init__(setting, timeout)
        self.hold_lock()
        self.next = SequentialLock(self.observer, self.path)

    def row(self, moment: str, call: str | Callable[[], object]) -> Row:
        """What each side knows now, and what such a call gets."""
        gets = call if isinstance(call, str) else told(self.ending(call))
        state = self.subject.state
        # Whether it is dialling at this very moment is of no interest.
        known = state.value if state.terminal or state.usable else "disconnected"
        lost = ", `lost` is set" * self.holder.lost.is_set()
        there = self.own_of(self.nodes(self.path))
        return (
            moment, known, gets, f"`held` is {self.holder.held}{lost}",
            "session and node" if there else "neither session nor node",
            "holds" if self.next.held else "waits",
        )  # fmt: skip

    def close(self) -> None:
        """Close the client; `close` waits for a second only, and a busy machine may take longer."""
        self.subject.close()
        poll("it is closed", lambda: self.subject.state.terminal or None, PATIENCE)


def cut_and_back(setting: Setting) -> list[Row]:
    """The connection breaks visibly, and there is another one in time."""
    with Tale(setting) as tale:
        rows = [tale.row("connected", tale.subject.sync)]
        tale.keep_away()
        rows.append(tale.row("the connection has broken", "waits for the next one"))
        queued = Running(tale.subject.sync)
        tale.proxy.refuse(False)
        rows.append(tale.row("connected again within the session timeout", queued.result))
        assert tale.subject.session_id == tale.session_id
    return rows


def silence(setting: Setting) -> list[Row]:
    """The network discards all bytes; at first neither side can know."""
    with Tale(setting) as tale:
        tale.proxy.black_hole()
        return [tale.row("the network has been silent for a short time", "waits for its answer")]


def outlived(setting: Setting) -> list[Row]:
    """Silence for longer than a session timeout, and then the network is back."""
    with Tale(setting, SHORT) as tale:
        tale.proxy.black_hole()
        # While the lease ends the server may keep the session, or not: it counts from later on.
        granted = Running(lambda: (tale.next.acquire(PATIENCE), tale.holder.held))
        assert tale.holder.lost.wait(PATIENCE)
        assert not tale.holder.held
        acquired, still_held = granted.result()
        assert acquired
        assert not still_held, "two hold"
        assert tale.next.fence > tale.holder.fence
        tale.wait_noticed()
        moment = "the server has ended the session; the network is still silent"
        rows = [tale.row(moment, tale.subject.sync)]
        tale.proxy.black_hole(False)
        assert tale.subject.wait_for_state(State.EXPIRED, timeout=PATIENCE) is State.EXPIRED
        rows.append(tale.row("the network is back", tale.subject.sync))
        tale.next.release()
    return rows


def closed_unreachable(setting: Setting) -> list[Row]:
    """`close` when no server can be told."""
    with Tale(setting, LONG) as tale:
        tale.keep_away()
        tale.close()
        moment = "closed without a server; until the session timeout"
        return [tale.row(moment, tale.subject.sync)]


def closed(setting: Setting) -> list[Row]:
    """`close` with a connection."""
    with Tale(setting) as tale:
        tale.close()
        assert tale.next.acquire(GRACE)
        row = tale.row("closed", tale.subject.sync)
        tale.next.release()
        return [row]


TALES = (cut_and_back, silence, outlived, closed, closed_unreachable)


def run_all(setting: Setting) -> Rows:
    """All tales, side by side."""
    with ThreadPoolExecutor(len(TALES), thread_name_prefix="experiment") as pool:
        told_all = list(pool.map(lambda tale: tale(setting), TALES))
    return {"": [row for rows in told_all for row in rows]}


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """A server that is behind what the client has seen refuses it."""
    with Tale(setting) as tale:
        row = lag.around(refused)(tale, lag)
        repeat(tale.subject.sync)
        assert tale.holder.held
        return {"": [row, tale.row("that server has caught up", tale.subject.sync)]}


def refused(tale: Tale, lag: Lag) -> Row:
    lag.catch_up()
    lag.begin()
    tale.subject.create(f"{tale.base}/seen")
    tale.proxy.reset()
    tale.proxy.upstream = lag.hosts
    tale.proxy.cut_all()
    # The second greeting shows that the first one was refused.
    tale.proxy.wait_for(
        lambda frames: sum(frame.op == "connect" for frame in frames) >= 2, PATIENCE
    )
    answered = [frame for frame in tale.proxy.frames() if frame.direction == "s2c"]
    assert not answered, "the server takes a client that has seen more"
    tale.wait_noticed()
    return tale.row(
        "the only server that can be reached is behind what the client has seen",
        "waits: that server refuses the client",
    )

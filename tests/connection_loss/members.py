"""What becomes of a `reconfig` where servers differ: one that is behind, or that it removes.

The removed one is the server that the client is connected to.  It is a member again afterwards, so
the experiments can share an ensemble; but the removal of a leader has another one elected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.connection_loss.case import Case, Row, Rows, Setting, repeat, result_of, told
from tests.connection_loss.changes import (
    another_joined,
    join_another,
    joined,
    note_version,
    on_same_version,
    read_config,
    reconfig,
    reconfig_again,
    without_both,
)
from tests.connection_loss.clients import ClientKind
from tests.connection_loss.lagging import Lag
from tests.connection_loss.points import carried_out
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import Ensemble, ZooKeeperServer, poll
from zkwire import BadVersionError, Client, NewConfigNoQuorumError, ReconfigInProgressError
from zkwire.testing.proxy import Frame, cut_after

HEADS = ("asked of", "on the ensemble", "the caller gets", "the session", "what is safe to do next",
         "then")  # fmt: skip
RECOVER = "as in the table of `reconfig`"
UNKNOWN = "`OutcomeUnknownError`, `maybe_applied`"
OUTLIVES_ELECTIONS = 50.0
DONE = {False: "not done", True: "done"}


# --- a server that is behind ----------------------------------------------------------------------


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Both ways of asking a server that is behind."""
    there = setting._replace(server=lag.ensemble.servers[2])
    rows = []
    for experiment in (asked_behind, read_behind):
        with Case(there) as case:
            without_both(case)
            rows.append(lag.around(experiment)(case, lag))
    return {"": rows}


def asked_behind(case: Case, lag: Lag) -> Row:
    """It passes the request on, and hears of the answer late; until then it answers others only."""
    case.subject.sync()
    note_version(case)
    lag.begin()
    reply = reconfig(case.subject.pipeline, case)
    case.subject.pipeline.exists(case.base)
    poll("the ensemble has done it", lambda: joined(case, case.observer) or None, PATIENCE)
    assert not joined(case, lag.view), "the server is not behind"
    gets = caught_up(case, lag, reply)
    assert joined(case, case.subject), "an answer before the change"
    return "a server that is behind", "done", gets, session(case), "nothing: wait for it", "done"


def read_behind(case: Case, lag: Lag) -> Row:
    """Another client has changed it, and this server does not know."""
    case.subject.sync()
    lag.begin()
    join_another(case)
    note_version(case)
    reply = reconfig(case.subject.pipeline, case)
    assert not another_joined(case, lag.view), "the server is not behind"
    gets = caught_up(case, lag, reply)
    there = DONE[bool(joined(case, case.subject))]
    note_version(case)
    assert reconfig_again(case, case.subject) == "done"
    then = DONE[bool(joined(case, case.subject))]
    return ("a server that is behind, with the version that it shows", there, gets, session(case),
            "read `get_config` and decide again", then)  # fmt: skip


def caught_up(case: Case, lag: Lag, reply: Any) -> str:
    """There is no answer to the change, nor to what was asked behind it, before it knows."""
    frames = case.proxy.frames()
    assert not any(carried_out(frames, wire) for wire in ("reconfig", "exists")), "not behind"
    lag.end()
    error = case.ending(lambda: result_of(reply))
    return f"waits; {told(error)} when that server has caught up"


def session(case: Case) -> str:
    """How it has gone on: nothing has happened to the connection."""
    assert connections(case.proxy.frames()) == 1
    return "goes on, on the same connection"


def connections(frames: list[Frame]) -> int:
    return len({frame.connection for frame in frames if frame.op == "connect"})


# --- a change that removes the server one is connected to -----------------------------------------


class Removal(Case):
    """A lock's holder that is connected to a member, and takes this one out of the ensemble."""

    def __init__(self, setting: Setting, ensemble: Ensemble, staying: Ensemble) -> None:
        super().__init__(setting, OUTLIVES_ELECTIONS)
        self.staying = staying
        self.number = ensemble.servers.index(setting.server) + 1
        self.hold_lock()
        note_version(self)

    def ask(self, operations: Any) -> Any:
        """The change, if no other client has made one."""
        return operations.reconfig(leaving=[str(self.number)], version=self.notes["version"])

    def removed(self, client: Client | None = None) -> bool:
        """Whether the ensemble knows it no more; the observer's server may not know that yet."""
        client = client or self.observer
        repeat(client.sync)
        return not lines_of(self.number, read_config(self, client))

    def recover(self) -> None:
        """Repeat it with the same version; if that is gone, see whether it is done."""
        again = on_same_version(
            lambda operations, _: self.ask(operations), lambda _, client: self.removed(client)
        )
        assert again(self, self.subject) == "done"

    def where(self) -> str:
        """How the session goes on; the lock is still held by it, and it can still write."""
        repeat(self.subject.sync)
        assert self.subject.session_id == self.session_id
        repeat(self.subject.set_data, self.base, b"written")
        repeat(self.observer.sync)
        assert self.holder.held
        (node,) = repeat(self.nodes, self.path)
        repeat(self.owned, node)
        # The server that it has left may not have noticed yet; so it is not asked.
        moved = self.staying.server_for_session(self.session_id)
        place = "that server" if moved is None else "a member"
        if connections(self.proxy.frames()) == 1:
            return f"goes on, on the same connection to {place}"
        return f"goes on, on a new connection to {place}"


def lines_of(number: int, config: str) -> list[str]:
    return [line for line in config.splitlines() if line.startswith(f"server.{number}=")]


def follower(case: Removal) -> Row:
    """Nothing is in the way."""
    error = case.ending(lambda: case.ask(case.subject))
    return row(case, "a follower, which it removes", told(error), "nothing")


def follower_reply_lost(case: Removal, next_is: str = "") -> Row:
    """The connection breaks, and the next one is to the same server."""
    case.proxy.on("reconfig", action=cut_after)
    error = case.ending(lambda: case.ask(case.subject))
    title = f"a follower, which it removes; the reply is lost{next_is}"
    return row(case, title, told(error), RECOVER, case.recover)


def follower_left(case: Removal) -> Row:
    """The connection breaks, and the next one is to a member."""
    case.proxy.upstream = case.staying.servers[0].hosts
    return follower_reply_lost(case, ", and a member is next")


def follower_again(case: Removal) -> Row:
    """A member that has left may leave again; it makes a new version, on which others fail."""
    case.ask(case.subject)
    repeat(case.subject.sync)
    note_version(case)
    error = case.ending(lambda: case.subject.reconfig(leaving=[str(case.number)]))
    assert isinstance(case.ending(lambda: case.ask(case.subject)), BadVersionError)
    title = "a follower, which it has removed already; without a `version`"
    return row(case, title, told(error), "nothing")


def leader(case: Removal) -> Row:
    """It hands its office over, closes all its connections and comes back as a follower.

    Whether the answer comes before that is left to chance, and the advice is to act as if not.
    """
    error = case.ending(lambda: case.ask(case.subject))
    if error is not None:
        assert told(error) == UNKNOWN
    poll("another one leads", lambda: other_leader(case), OUTLIVES_ELECTIONS)
    title, there, caller, where, *rest = row(
        case, "the leader, which it removes", f"a result, or {UNKNOWN}", RECOVER, case.recover
    )
    assert "new connection" in where, "a leader that has been removed keeps its connections"
    return title, f"{there}; another one leads", caller, where, *rest


def row(
    case: Removal, title: str, caller: str, advice: str,
    follow: Callable[[], object] = lambda: None,
) -> Row:  # fmt: skip
    """See what has become of it, and follow the advice."""
    there = "removed" if repeat(case.removed) else "still a member"
    where = case.where()
    follow()
    then = DONE[repeat(case.removed)]
    assert then == DONE[True], f"{title}: the advice leads to {then!r}"
    return title, there, caller, where, advice, then


def other_leader(case: Removal) -> ZooKeeperServer | None:
    """The leader, if it is not the server that was removed."""
    return next((server for server in case.staying.servers if server.mode() == "leader"), None)


REMOVALS = (follower, follower_reply_lost, follower_left, follower_again, leader)


def run_removals(client_kind: ClientKind, ensemble: Ensemble, root: str) -> list[Row]:
    """All of them, one after the other."""
    rows = []
    for experiment in REMOVALS:
        leading = ensemble.leader()
        others = [server for server in ensemble.servers if server is not leading]
        server = leading if experiment is leader else others[0]
        staying = Ensemble([s for s in ensemble.servers if s is not server])
        with (
            Client(staying.hosts, session_timeout=OUTLIVES_ELECTIONS) as observer,
            member_again(observer, ensemble, server),
            Removal(Setting(server, observer, root, client_kind), ensemble, staying) as case,
        ):
            rows.append(experiment(case))
    return rows


@contextmanager
def member_again(observer: Client, ensemble: Ensemble, server: ZooKeeperServer) -> Iterator[None]:
    """In the end that server is a member, as it was; it joins with its address for clients."""
    number = ensemble.servers.index(server) + 1
    observer.sync()
    (line,) = lines_of(number, observer.get_config().data.decode())
    line = f"{line.partition(';')[0]};{server.hosts}"
    try:
        yield
    finally:
        poll("it is a member again", lambda: joins(observer, line), PATIENCE)
    ensemble.wait_serving()


def joins(observer: Client, line: str) -> bool | None:
    """None if it has not caught up with the others yet: before that it cannot be counted on."""
    try:
        repeat(observer.reconfig, joining=[line])
    except (NewConfigNoQuorumError, ReconfigInProgressError):
        return None
    return True

"""The server that holds the connection dies: what lives on, and what callers are told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Running, make_path
from tests.support.server_control import Ensemble, ZooKeeperServer, poll
from zkwire import (
    BlockingLock,
    Client,
    ConnectionLossError,
    EventType,
    NotSentError,
    OutcomeUnknownError,
    SequentialLock,
    Watch,
)

if TYPE_CHECKING:
    from zkwire.operations import Reply

pytestmark = [pytest.mark.real, pytest.mark.apache]

# Above the time in which three servers find a new leader, if they have seen the same transactions.
SESSION_TIMEOUT = 24.0
# A call may wait for a connection for a session timeout, and then on a silent one for two thirds.
LONGEST_CALL = SESSION_TIMEOUT * 5 / 3 + GRACE
# What a new leader may take in the worst case, see where it is waited for.
ELECTION = 180.0
REQUESTS, ENOUGH = 20_000, 200

each_role = pytest.mark.parametrize("role", ["leader", "follower"])


class Victim:
    """A client, and the server that it is connected to."""

    def __init__(self, ensemble: Ensemble, role: str, exit_stack: ExitStack) -> None:
        leader = ensemble.leader()
        while True:  # the client chooses at random
            self.client = Client(ensemble.hosts, session_timeout=SESSION_TIMEOUT)
            exit_stack.callback(self.client.close)
            self.client.connect()
            self.server = server_of(ensemble, self.client)
            if (self.server is leader) == (role == "leader"):
                break
            self.client.close()
        others = [each.hosts for each in ensemble.servers if each is not self.server]
        self.observer = Client(",".join(others), session_timeout=SESSION_TIMEOUT)
        exit_stack.callback(self.observer.close)
        self.observer.connect()
        self.session_id = self.client.session_id

    def assert_moved(self, ensemble: Ensemble) -> None:
        """The session lives, on another server."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.client.sync()
                break
            except ConnectionLossError:  # each try waits for a connection
                assert time.monotonic() < deadline
        assert self.client.session_id == self.session_id
        assert server_of(ensemble, self.client) is not self.server


def server_of(ensemble: Ensemble, client: Client) -> ZooKeeperServer:
    """The server that a client is connected to."""
    server = ensemble.server_for_session(client.session_id)
    assert server is not None
    return server


@pytest.fixture
def victim(ensemble: Ensemble, role: str) -> Iterator[Victim]:
    with ExitStack() as stack:
        yield Victim(ensemble, role, stack)


@each_role
def test_session_locks_and_watches_live_on(
    ensemble: Ensemble, victim: Victim, fresh_path: str
) -> None:
    client, observer = victim.client, victim.observer
    make_path(observer, fresh_path)
    mine = client.create(f"{fresh_path}/mine", ephemeral=True)
    changed, created, children = Watch(), Watch(), Watch()
    client.get_data(fresh_path, watch=changed)
    client.exists(f"{fresh_path}/new", watch=created)
    client.get_children(fresh_path, watch=children)
    held, waiting = SequentialLock(client, "/held"), SequentialLock(client, "/waiting")
    herd = BlockingLock(client, "/herd")
    rivals = SequentialLock(observer, "/waiting"), BlockingLock(observer, "/herd")
    assert held.acquire(GRACE)
    assert all(rival.acquire(GRACE) for rival in rivals)
    waiters = [Running(waiting.acquire), Running(herd.acquire)]
    poll("it queues", lambda: len(observer.get_children("/waiting")) == 2 or None, PATIENCE)

    victim.server.kill()

    victim.assert_moved(ensemble)
    stat = observer.exists(mine)
    assert stat is not None
    assert stat.ephemeral_owner == victim.session_id
    assert held.held
    assert not SequentialLock(observer, held.path).try_acquire()
    observer.set_data(fresh_path, b"new")
    observer.create(f"{fresh_path}/new")
    seen = [watch.wait(PATIENCE) for watch in (changed, created, children)]
    assert [event.type if event else None for event in seen] == [
        EventType.NODE_DATA_CHANGED,
        EventType.NODE_CREATED,
        EventType.NODE_CHILDREN_CHANGED,
    ]
    assert not any(waiter.ended for waiter in waiters)
    for rival in rivals:
        rival.release()
    assert all(waiter.result(PATIENCE) for waiter in waiters)
    assert [waiting.fence > rivals[0].fence, herd.fence > rivals[1].fence] == [True, True]
    waiting.release()
    herd.release()
    held.release()


def outcome_of(reply: Reply[str]) -> str:
    """How a create has ended: "success", "not sent", "unknown"; any other end is wrong."""
    try:
        reply.result(LONGEST_CALL)
    except (NotSentError, OutcomeUnknownError) as error:
        kinds = {False: NotSentError, True: OutcomeUnknownError}
        if type(error) is not kinds[error.maybe_applied]:
            raise
        return "unknown" if error.maybe_applied else "not sent"
    return "success"


def assert_true(outcomes: dict[str, str], observer: Client, path: str) -> Counter[str]:
    """What was said to be done is done, what was said not to have been sent is not; the counts."""
    observer.sync(path)
    there = {f"{path}/{name}" for name in observer.get_children(path)}
    counts: Counter[str] = Counter()
    for node, outcome in outcomes.items():
        assert outcome != "success" or node in there, f"{node} was created, and is not there"
        assert outcome != "not sent" or node not in there, f"{node} was not sent, and is there"
        counts[f"{outcome}, and {'' if node in there else 'not '}there"] += 1
    assert there <= outcomes.keys()
    return counts


@each_role
@pytest.mark.parametrize("frozen", [False, True])
def test_no_answer_is_wrong_in_the_midst_of_requests(
    ensemble: Ensemble, victim: Victim, fresh_path: str, frozen: bool
) -> None:
    """Nobody can know what a server was sent that is frozen and then dies, so nobody says."""
    make_path(victim.observer, fresh_path)
    victim.client.sync()
    create = victim.client.pipeline.create
    if frozen:
        victim.server.pause()
    replies = {path: create(path) for path in (f"{fresh_path}/{n:06}" for n in range(REQUESTS))}
    if not frozen:
        replies[f"{fresh_path}/{ENOUGH:06}"].result(LONGEST_CALL)
    victim.server.kill()
    # Where one of the two others has a transaction that the other one lacks, a ZooKeeper without
    # ZOOKEEPER-4685 may throw the new leader out after initLimit, 10 s, again and again.
    ensemble.wait_serving(ELECTION)
    outcomes = {path: outcome_of(reply) for path, reply in replies.items()}
    victim.assert_moved(ensemble)
    counts = assert_true(outcomes, victim.observer, fresh_path)
    print(f"killed in the midst of {len(outcomes)} creates: {dict(counts)}")
    assert "unknown" in outcomes.values(), "nothing was under way"
    assert ("success" in outcomes.values()) is not frozen
    assert victim.client.create(f"{fresh_path}/later")

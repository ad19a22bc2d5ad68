"""The election on a real server: one leader, known to all, replaced when it goes."""

from __future__ import annotations

import os
import signal

from tests.support.family_helpers import Queue, soon
from tests.support.lock_helpers import (
    PATIENCE,
    SHORT,
    START,
    Running,
    Stage,
    Worker,
    Workers,
    assert_strictly_rising,
)
from zkwire import Election


def test_leader_and_candidates(stage: Stage, fresh_path: str) -> None:
    names = ["first", "second", "third \u20ac"]
    clients = [stage.client(direct=True) for _ in names]
    elections = [
        Election(client, fresh_path, name) for client, name in zip(clients, names, strict=True)
    ]
    queue = Queue(stage, fresh_path)
    for name, election in zip(names, elections, strict=True):
        queue.join(name, election.lead())
    for place, name in enumerate(names):
        queue.expect(name)
        for election in elections:
            candidates = election.candidates()
            assert [c.text for c in candidates] == names[place:]
            assert [c.session_id for c in candidates] == [c.session_id for c in clients[place:]]
            assert [c.path for c in candidates] == stage.nodes(fresh_path)
            assert_strictly_rising(c.sequence for c in candidates)
            leader = election.leader()
            assert leader == candidates[0]
            assert leader.text == name
        queue.expect_nobody()
        queue.leave(name)
    assert elections[0].leader() is None


def test_next_one_leads_when_the_leader_is_killed(stage: Stage, fresh_path: str) -> None:
    """Three processes: each that leads is killed; then one leads twice in a row."""
    election = Election(stage.observer, fresh_path)
    with Workers() as workers:
        crew: list[Worker] = []
        for number in range(3):
            crew.append(workers.start("leading", stage.hosts, fresh_path, number, SHORT))
            soon("it stands", lambda: len(election.candidates()) == len(crew), START)
        fences = []
        for number, worker in enumerate(crew):
            said, fence = (worker.hear() or "").split()
            assert said == "leads"
            fences.append(int(fence))
            leader = election.leader()
            assert leader is not None
            assert leader.text == str(number)
            if number < len(crew) - 1:
                os.kill(worker.pid, signal.SIGKILL)
        crew[-1].say("the term is over")
        said, fence = (crew[-1].hear() or "").split()
        fences.append(int(fence))
        assert_strictly_rising(fences)
        waiting = Running(lambda: election.lead().acquire(PATIENCE))
        os.kill(crew[-1].pid, signal.SIGKILL)
        assert waiting.result()

"""An operation, and the points at which a connection can be lost, as an experiment on any of them.

An operation brings how it is asked for, how one sees whether the server has done it, what makes a
server refuse it, and the recovery: its text stands in the table, its function is run there.

`experiment(operation, case)` brings the connection to an end, writes down what is true on the
server and what the caller is told, follows the advice, and writes down where that ends. What
differs from what was intended is an error here, not a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from tests.connection_loss.case import Case, Row, Rows, Setting, repeat, result_of, run_each, told
from tests.connection_loss.lagging import Lag
from tests.support.lock_helpers import PATIENCE, Running
from zkwire import Client
from zkwire.testing.proxy import Action, Frame, cut_after, cut_before

HEADS = ("point of failure", "on the server", "the caller gets", "what is safe to do next", "then")
BEHIND = "applied, then moved to a server that is behind"
RECOVER = "recover"

Ask: TypeAlias = Callable[[Any, Case], Any]
Act: TypeAlias = Callable[[Case], object]
Recover: TypeAlias = Callable[[Case, Client], object]
Count: TypeAlias = Callable[[Case, Client], int]
Experiment: TypeAlias = Callable[["Operation", Case], Row]

NOTHING_TO_DO = {0: "nothing to change"}


def never(_: Case, __: Client) -> int:
    """How often a read has been done, as far as the server remembers it."""
    return 0


@dataclass(frozen=True)
class Operation:
    """One operation, in one way of using it."""

    title: str
    """How the document calls it."""
    ask: Ask
    """Ask for it, given the client's pipeline or the client: the reply, or the result."""
    wire: str
    """Its name in the proxy."""
    again: str
    """What is safe after OutcomeUnknownError; one sentence."""
    recover: Recover
    """Do that."""
    prepare: Act = lambda _: None
    since: tuple[int, int] = (3, 6)
    """The line of releases from which on servers know it."""
    count: Count = never
    """How often it has been done, as this client sees it."""
    words: Mapping[int, str] = field(default_factory=lambda: NOTHING_TO_DO)
    goals: frozenset[int] = frozenset({0})
    """The counts that are intended."""
    refuse: Act | None = None
    """Make the server refuse it."""
    mend: Act = lambda _: None
    """Take that away again."""
    refused: str = ""
    """What is safe after the refusal."""
    new_client: str = "make a new `Client`, and recover"
    """What is safe in a new session."""
    by_ensemble: bool = False
    """A server alone refuses it, and an ensemble does one at a time."""
    by_client: bool = False
    """Only the client itself can tell whether it is done, when it is connected."""
    unsent: str = "repeat it"
    """What is safe after NotSentError."""
    resend: Recover | None = None
    """Do that; None for the same request again."""
    renew: Recover | None = None
    """Recover in a new session, where that is not the same."""
    settle: Recover | None = None
    """Do what is safe after the refusal; None for the same request again."""
    rival: Act | None = None
    """Have another client do the same thing, or undo it, before the recovery."""
    spared: Count = never
    """Whether what he did is still there."""

    def repeat(self, case: Case, client: Client) -> object:
        """The same request again, to the end."""
        return self.ask(client, case)


# --- the points -----------------------------------------------------------------------------------


def never_sent(op: Operation, case: Case) -> Row:
    """The connection breaks while the request is still in this process."""
    case.fill()
    reply = op.ask(case.subject.pipeline, case)
    case.empty()
    error = case.ending(lambda: result_of(reply))
    server = seen(op, case)
    do = op.resend or op.repeat
    end = followed(op, case, lambda: do(case, case.subject))
    return "never sent", server, told(error), op.unsent, end


def not_received(op: Operation, case: Case) -> Row:
    """The kernel has taken the request, and the server never gets it."""
    return lost("sent, not received", cut_before, op, case)


def reply_lost(op: Operation, case: Case) -> Row:
    """The server has carried the request out, and its answer never arrives."""
    return lost("applied, reply lost", cut_after, op, case)


def lost(point: str, cut: Action, op: Operation, case: Case) -> Row:
    """The caller cannot tell these two apart, so the advice is one."""
    case.proxy.on(op.wire, action=cut)
    error = case.ending(lambda: result_of(op.ask(case.subject.pipeline, case)))
    server = seen(op, case)
    end = followed(op, case, lambda: op.recover(case, case.subject))
    return point, server, told(error), RECOVER if error else op.again, end


def refused(op: Operation, case: Case) -> Row:
    """The server answers with an error."""
    point = "received and refused"
    if op.refuse is None:
        return point, "", "not tried: [its errors](operations.md)", "", ""
    op.refuse(case)
    before = op.count(case, case.observer)
    error = case.ending(lambda: op.ask(case.subject, case))
    assert error is not None, f"{op.title} was not refused"
    assert op.count(case, case.observer) == before, f"{op.title} was refused and did something"
    op.mend(case)
    do = op.settle or op.repeat
    end = followed(op, case, lambda: do(case, case.subject))
    return point, op.words[before], told(error), op.refused, end


def expired(op: Operation, case: Case) -> Row:
    """The server has carried it out and then ended the session; the client hears of neither."""
    case.proxy.refuse()
    case.proxy.on(op.wire, action=cut_after)
    reply = op.ask(case.subject.pipeline, case)
    case.proxy.wait_for(lambda frames: carried_out(frames, op.wire), PATIENCE)
    before = None if op.by_client else op.count(case, case.observer)
    case.expire(case.subject)
    error = case.ending(lambda: result_of(reply))
    then = case.ending(lambda: case.subject.exists("/"))
    assert then is not None, "the session lives"
    server = ended(op, case, before)
    renew = op.renew or op.recover
    end = followed(op, case, lambda: renew(case, case.fresh_client()))
    caller = told(error) if type(error) is type(then) else f"{told(error)}; then {told(then)}"
    return "applied, then the session expired", server, caller, op.new_client, end


def ended(op: Operation, case: Case, before: int | None) -> str:
    """What the server has of it, now that the session is over."""
    after = op.count(case, case.observer)
    if before in {None, after}:
        return op.words[after]
    assert (before, after) == (1, 0), f"{op.title}: {before} before the end, {after} after it"
    return f"{op.words[1]}, and gone with the session"


def overtaken(op: Operation, case: Case) -> Row:
    """Another client comes between the loss and the recovery, which must not harm it.

    It makes the node that the subject wanted to make and has not made; or it makes the node again
    that the subject wanted to delete and has deleted.
    """
    point = "lost, and another client comes in between"
    if op.rival is None:
        return point, "", "", "", ""
    undoing = op.wire == "delete"
    case.proxy.on(op.wire, action=cut_after if undoing else cut_before)
    error = case.ending(lambda: result_of(op.ask(case.subject.pipeline, case)))
    server = seen(op, case)
    op.rival(case)
    verdict = op.recover(case, case.subject)
    assert op.spared(case, case.observer), f"{op.title}: the recovery harms another client"
    return point, f"{server}; then another client's", told(error), RECOVER, str(verdict)


def carried_out(frames: Iterable[Frame], wire: str) -> bool:
    """Whether the server has answered such a request."""
    return any(frame.direction == "s2c" and frame.op == wire for frame in frames)


def behind(op: Operation, case: Case, lag: Lag) -> Row:
    """The reply is lost, and the next server has not heard of the change yet."""
    lag.catch_up()
    lag.begin()
    case.proxy.upstream = lag.hosts
    case.proxy.on(op.wire, action=cut_after)
    error = case.ending(lambda: result_of(op.ask(case.subject.pipeline, case)))
    if op.by_client:
        lag.end()
        server = seen(op, case)
    else:
        server = f"{seen(op, case)}; {stale_view(op, case)}"
    recovery = Running(
        lambda: (case.subject.sync(), op.recover(case, case.subject))  # type: ignore[func-returns-value]
    )
    case.proxy.wait_for(lambda frames: any(frame.op == "sync" for frame in frames), PATIENCE)
    lag.end()
    end = followed(op, case, recovery.result)
    if op.count is never:
        assert case.subject.get_data(case.path).data == b"new", "sync has not helped"
    return BEHIND, server, told(error), "`sync`, and recover" if error else op.again, end


def stale_view(op: Operation, case: Case) -> str:
    """What the server that the client has come to makes of it."""
    if op.count is not never:
        assert op.count(case, case.subject) == 0, "the server is not behind"
        return "the next server does not show it yet"
    case.observer.set_data(case.path, b"new")
    assert repeat(case.subject.get_data, case.path).data == b"old", "the server is not behind"
    return "the next server does not show what other clients have finished"


# --- words ----------------------------------------------------------------------------------------


def seen(op: Operation, case: Case) -> str:
    """What is true on the server."""
    return op.words[op.count(case, case.observer)]


def followed(op: Operation, case: Case, advice: Callable[[], Any]) -> str:
    """Do as advised; where that has led to, which must be what was intended."""
    advice()
    case.observer.sync()  # it may have been followed on another server
    count = op.count(case, case.observer)
    assert count in op.goals, f"{op.title}: the advice leads to {op.words.get(count, count)!r}"
    return op.words[count] if op.count is not never else "answered"


ON_ONE_SERVER: tuple[Experiment, ...] = (
    never_sent,
    not_received,
    refused,
    reply_lost,
    overtaken,
    expired,
)


def run_points(setting: Setting, cells: list[tuple[Operation, Experiment]], at_once: int) -> Rows:
    """These operations at these points, each from the beginning."""

    def run(op: Operation, point: Experiment) -> Row:
        with Case(setting) as case:
            op.prepare(case)
            return point(op, case)

    return run_each(setting, [(op.title, partial(run, op, point)) for op, point in cells], at_once)

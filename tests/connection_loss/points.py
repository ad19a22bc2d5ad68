"""The points at which a connection can be lost, each as an experiment on any operation.

`experiment(operation, case)` brings the connection to an end there, writes down what is true on
the server and what the caller is told, follows the advice, and writes down where that ends. What
differs from what was intended is an error here, not a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import Case, repeat, result_of
from tests.connection_loss.lagging import Lag
from tests.connection_loss.operation import Operation, never
from tests.support.lock_helpers import PATIENCE, Running
from zkwire import ZooKeeperError
from zkwire.testing.proxy import Frame, cut_after, cut_before

NEVER_SENT = "never sent"
NOT_RECEIVED = "sent, not received"
REFUSED = "received and refused"
REPLY_LOST = "applied, reply lost"
EXPIRED = "applied, then the session expired"
BEHIND = "applied, then moved to a server that is behind"

OVERTAKEN = "lost, and another client comes in between"
RECOVER = "recover"


class Row(NamedTuple):
    """One line of an operation's table, in the document's words."""

    point: str
    server: str
    caller: str
    next: str
    end: str


Experiment: TypeAlias = Callable[[Operation, Case], Row]


def never_sent(op: Operation, case: Case) -> Row:
    """The connection breaks while the request is still in this process."""
    case.fill()
    reply = op.ask(case.subject.pipeline, case)
    case.empty()
    error = case.ending(lambda: result_of(reply))
    server = seen(op, case)
    do = op.resend or op.repeat
    end = followed(op, case, lambda: do(case, case.subject))
    return Row(NEVER_SENT, server, told(error), op.unsent, end)


def not_received(op: Operation, case: Case) -> Row:
    """The kernel has taken the request, and the server never gets it."""
    case.proxy.on(op.wire, action=cut_before)
    return lost(NOT_RECEIVED, op, case)


def reply_lost(op: Operation, case: Case) -> Row:
    """The server has carried the request out, and its answer never arrives."""
    case.proxy.on(op.wire, action=cut_after)
    return lost(REPLY_LOST, op, case)


def lost(point: str, op: Operation, case: Case) -> Row:
    """The caller cannot tell the two above apart, so the advice is one."""
    error = case.ending(lambda: result_of(op.ask(case.subject.pipeline, case)))
    server = seen(op, case)
    end = followed(op, case, lambda: op.recover(case, case.subject))
    return Row(point, server, told(error), RECOVER if error else op.again, end)


def refused(op: Operation, case: Case) -> Row:
    """The server answers with an error."""
    if op.refuse is None:
        return Row(REFUSED, "", "not tried: [its errors](operations.md)", "", "")
    op.refuse(case)
    before = op.count(case, case.observer)
    error = case.ending(lambda: op.ask(case.subject, case))
    assert error is not None, f"{op.title} was not refused"
    assert op.count(case, case.observer) == before, f"{op.title} was refused and did something"
    op.mend(case)
    do = op.settle or op.repeat
    end = followed(op, case, lambda: do(case, case.subject))
    return Row(REFUSED, op.words[before], told(error), op.refused, end)


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
    return Row(EXPIRED, server, caller, op.new_client, end)


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
    if op.rival is None:
        return Row(OVERTAKEN, "", "", "", "")
    undoing = op.wire == "delete"
    case.proxy.on(op.wire, action=cut_after if undoing else cut_before)
    error = case.ending(lambda: result_of(op.ask(case.subject.pipeline, case)))
    server = seen(op, case)
    op.rival(case)
    verdict = op.recover(case, case.subject)
    assert op.spared(case, case.observer), f"{op.title}: the recovery harms another client"
    return Row(OVERTAKEN, f"{server}; then another client's", told(error), RECOVER, str(verdict))


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
    return Row(BEHIND, server, told(error), "`sync`, and recover" if error else op.again, end)


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


def told(error: ZooKeeperError | None) -> str:
    """What the caller gets."""
    if error is None:
        return "a result"
    return f"`{type(error).__name__}`" + ", `maybe_applied`" * error.maybe_applied


ON_ONE_SERVER: tuple[Experiment, ...] = (
    never_sent,
    not_received,
    refused,
    reply_lost,
    overtaken,
    expired,
)

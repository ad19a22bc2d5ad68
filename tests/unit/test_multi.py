"""Several operations in one request: bytes, results, and who is to blame."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from tests.support.scripted import STAT, Script, reply_frame, script_in
from zkwire.errors import (
    BadVersionError,
    EphemeralOnLocalSessionError,
    MarshallingError,
    MultiError,
    NoNodeError,
    ProtocolError,
    RuntimeInconsistencyError,
    ServerError,
    SessionExpiredError,
    SessionMovedError,
)
from zkwire.jute import records as r
from zkwire.jute.frames import SEND_LIMIT, frame
from zkwire.jute.multi import MultiResponse, pack_multi
from zkwire.net.transaction import TransactionBase
from zkwire.operations.multi import (
    Appended,
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    Operation,
    Recorder,
    SetData,
)
from zkwire.session.request import Request
from zkwire.session.watch import Watch
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, DataAndStat, State

END = r.MultiHeader.pack(-1, True, -1)


def slot(kind: int, body: bytes = b"") -> bytes:
    """One result of a multi that succeeded."""
    return r.MultiHeader.pack(kind, False, 0) + body


def error_slot(code: int) -> bytes:
    """One result of a multi that failed; a server says the code twice."""
    return r.MultiHeader.pack(-1, False, code) + r.ErrorResponse.pack(code)


def decoded(data: bytes) -> MultiResponse:
    return MultiResponse.decode(data, 0, len(data))


class Bench:
    """A usable session whose multis are answered by hand."""

    def __init__(self, chroot: str = "") -> None:
        self.script = Script(chroot=chroot) if chroot else script_in(State.CONNECTED)
        if chroot:
            self.script.connect()

    def ask(self, verb: str, *operations: Any) -> Request:
        return self.script.call(verb, list(operations))

    def answer(self, call: Request, *slots: bytes) -> Any:
        """The call's value after these results."""
        if not call.sent:
            self.script.flush()
        self.script.feed(reply_frame(call.xid, 0x777, 0, b"".join(slots) + END))
        assert self.script.session.broken is None
        return call.value()

    def refused_as_if_expired(self, *operations: Any, first: int = -112) -> Request:
        """A multi of two that was answered so; ``first`` is what is said of the first."""
        call = self.ask("multi", *operations)
        self.script.flush()
        second = -2 if first else -112
        slots = error_slot(first) + error_slot(second)
        self.script.feed(reply_frame(call.xid, 0x777, 0, slots + END))
        return call


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- bytes ----------------------------------------------------------------------------------------


def test_a_multi_byte_by_byte(bench: Bench) -> None:
    """The golden frame that servers accepted."""
    call = bench.ask("multi", Check("/a", 0))
    header = bytes.fromhex("000000030000000e")
    assert frame(header + call.body).hex() == (
        "00000024000000030000000e0000000d00ffffffff000000022f6100000000ffffffff01ffffffff"
    )


def test_the_requests_are_those_of_the_operations_alone(bench: Bench) -> None:
    operations = [
        Create("/a", b"x", ephemeral=True),
        Create("/c", container=True),
        Create("/t-", ttl=1.5, sequential=True),
        Delete("/b", 3),
        SetData("/c", b"y", 4),
        Check("/d", 5),
    ]
    single = [
        bench.script.call("create", "/a", b"x", ephemeral=True),
        bench.script.call("create", "/c", container=True),
        bench.script.call("create", "/t-", ttl=1.5, sequential=True),
        bench.script.call("delete", "/b", 3),
        bench.script.call("set_data", "/c", b"y", 4),
    ]
    pairs = [(call.op.opcode, call.body) for call in single]
    pairs.append((ops.CHECK.opcode, r.CheckVersionRequest.pack("/d", 5)))
    assert bench.ask("multi", *operations).body == pack_multi(pairs)


@pytest.mark.parametrize("verb", ["multi", "multi_read"])
def test_an_empty_one_is_allowed(bench: Bench, verb: str) -> None:
    call = bench.ask(verb)
    assert call.body == END
    assert bench.answer(call) == []


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (1, r.CreateResponse("/a")),
        (4, r.GetDataResponse(None, STAT)),
        (5, STAT),
        (8, r.GetChildrenResponse(("a", "b"))),
        (15, r.Create2Response("/a", STAT)),
        (19, r.Create2Response("/a", STAT)),
        (21, r.Create2Response("/a", STAT)),
    ],
)
def test_results_are_told_apart_by_what_the_reply_says(kind: int, record: Any) -> None:
    assert decoded(slot(kind, record.encode()) + slot(2) + slot(13) + END) == (record, None, None)


def test_errors_do_not_end_a_reply() -> None:
    """The end has the type of an error, too; only its flag tells."""
    data = error_slot(0) + error_slot(-101) + error_slot(-2) + END
    assert decoded(data) == tuple(r.ErrorResponse(code) for code in (0, -101, -2))


@pytest.mark.parametrize("kind", [0, 3, 6, 14, 22, 99, -2, -(2**31)])
def test_unknown_results_are_garbage(kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"type {kind}"):
        decoded(slot(kind) + END)


@pytest.mark.parametrize(
    "data",
    [
        slot(1, r.CreateResponse("/a").encode()) + slot(5, r.SetDataResponse(STAT).encode()) + END,
        error_slot(0) + error_slot(-101) + END,
        END,
    ],
)
def test_a_truncated_reply_is_garbage(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            decoded(data[:length])
    with pytest.raises(ProtocolError, match="trailing"):
        decoded(data + b"\0")


def test_nothing_behind_the_frame_is_read() -> None:
    data = slot(2) + END
    with pytest.raises(ProtocolError):
        MultiResponse.decode(data, 0, len(data) - 1)
    assert MultiResponse.decode(b"junk" + data + b"junk", 4, 4 + len(data)) == (None,)


def test_an_unreadable_reply_ends_its_call_and_the_connection(bench: Bench) -> None:
    call = bench.ask("multi", Delete("/a"))
    with pytest.raises(AssertionError):
        bench.answer(call, slot(99))
    error = call.error()
    assert isinstance(error, ProtocolError)
    assert error.maybe_applied


# --- multi ----------------------------------------------------------------------------------------


def test_results_in_the_order_of_the_operations(bench: Bench) -> None:
    call = bench.ask("multi", Create("/a"), Delete("/b"), SetData("/c", b""), Check("/d"))
    slots = [
        slot(1, r.CreateResponse("/a").encode()),
        slot(2),
        slot(5, r.SetDataResponse(STAT).encode()),
        slot(13),
    ]
    assert bench.answer(call, *slots) == ["/a", None, STAT, None]
    assert call.value() == ["/a", None, STAT, None], "it can be asked for again"


@pytest.mark.parametrize("kind", [1, 15, 19, 21])
def test_a_create_may_be_answered_in_either_way(bench: Bench, kind: int) -> None:
    """3.8.0 answers each kind of create without a stat (ZOOKEEPER-4695)."""
    record: Any = r.CreateResponse("/a") if kind == 1 else r.Create2Response("/a", STAT)
    operations = [Create("/a"), Create("/a", container=True), Create("/a", ttl=1)]
    call = bench.ask("multi", *operations)
    assert bench.answer(call, *[slot(kind, record.encode())] * 3) == ["/a"] * 3


def test_a_refused_multi_says_what_was_wrong(bench: Bench) -> None:
    call = bench.ask("multi", Create("/a"), Check("/b", 7), Delete("/c"))
    with pytest.raises(MultiError) as caught:
        bench.answer(call, error_slot(0), error_slot(-103), error_slot(-2))
    error = caught.value
    assert (error.index, error.code, error.maybe_applied) == (1, -103, False)
    assert error.results[0] is None
    assert isinstance(error.results[1], BadVersionError)
    assert isinstance(error.results[2], RuntimeInconsistencyError)
    assert (error.results[1].op, error.results[1].path) == ("check", "/b")
    assert "check /b" in str(error)
    assert "operation 1" in str(error)
    assert error.__cause__ is error.results[1]
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.index, str(copy), str(copy.results[2])) == (1, str(error), str(error.results[2]))


def test_a_multi_of_which_nothing_was_tried_is_refused_too(bench: Bench) -> None:
    call = bench.ask("multi", Delete("/a"), Delete("/b"))
    with pytest.raises(MultiError) as caught:
        bench.answer(call, error_slot(0), error_slot(-2))
    assert caught.value.index == 1


def test_the_culprit_is_the_one_that_was_attempted(bench: Bench) -> None:
    call = bench.ask("multi", Delete("/a"), Delete("/b"))
    with pytest.raises(MultiError) as caught:
        bench.answer(call, error_slot(-2), error_slot(-101))
    assert (caught.value.index, caught.value.code) == (1, -101)


def test_an_unknown_code_keeps_its_number(bench: Bench) -> None:
    with pytest.raises(MultiError) as caught:
        bench.answer(bench.ask("multi", Delete("/a")), error_slot(-999))
    assert caught.value.code == -999


# How a server that says so of the session's multi answers the question that follows.
VERDICTS: dict[str, Callable[[Script], None]] = {
    "says it again": lambda script: script.feed(reply_frame(2, 0x777, -112)),
    "closes": lambda script: script.greet_again(session_id=0),
}


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("traced", [False, True])  # the loop for plain answers, and the general way
def test_an_expired_session_refuses_the_whole(bench: Bench, traced: bool, verdict: str) -> None:
    if traced:
        bench.script.traced()
    call = bench.refused_as_if_expired(Check("/a"), Delete("/b"))
    assert not call.ready
    assert [sent.name for sent in bench.script.flush()] == ["sync"]
    VERDICTS[verdict](bench.script)
    with pytest.raises(SessionExpiredError) as caught:
        call.value()
    assert (caught.value.op, caught.value.maybe_applied) == ("multi", False)
    assert bench.script.state is State.EXPIRED


def test_known_A34_a_multi_of_a_session_that_has_moved_costs_the_connection(bench: Bench) -> None:
    call = bench.ask("multi", Check("/a"), Delete("/b"))
    bench.script.flush()
    refused = error_slot(-118) + error_slot(-2)
    bench.script.feed(reply_frame(call.xid, 0x777, 0, refused + END))
    with pytest.raises(SessionMovedError):
        call.value()
    assert "moved" in (bench.script.session.broken or bench.script.session.last_failure)


@pytest.mark.parametrize("lost", [False, True])
def test_a_session_that_is_served_after_all_is_perhaps_a_local_one(
    bench: Bench, lost: bool
) -> None:
    call = bench.refused_as_if_expired(Delete("/b"), Create("/a", ephemeral=True), first=0)
    if lost:
        bench.script.flush()
        bench.script.reconnect()
    bench.script.flush()
    bench.script.answer(call, r.SyncResponse("/"))
    with pytest.raises(MultiError, match="as if the session had expired") as caught:
        call.value()
    error = caught.value.__cause__
    assert isinstance(error, EphemeralOnLocalSessionError)
    assert (caught.value.index, error.op, error.path) == (1, "create", "/a")
    assert "localSessionsUpgradingEnabled=true" in str(error)
    assert not caught.value.maybe_applied
    assert bench.script.state is State.CONNECTED


def test_what_no_local_session_is_refused_for_is_told_as_it_was_said(bench: Bench) -> None:
    call = bench.refused_as_if_expired(Create("/a"), Delete("/b"))
    bench.script.flush()
    bench.script.answer(call, r.SyncResponse("/"))
    with pytest.raises(SessionExpiredError):
        call.value()


def test_a_client_that_is_being_closed_asks_no_more(bench: Bench) -> None:
    call = bench.ask("multi", Create("/a", ephemeral=True))
    bench.script.flush()
    bench.script.session.close(bench.script.now)
    bench.script.feed(reply_frame(call.xid, 0x777, 0, error_slot(-112) + END))
    assert isinstance(call.error(), SessionExpiredError)


@pytest.mark.parametrize("code", [-115, -124])
def test_a_part_refused_as_if_it_were_the_session_is_no_result(bench: Bench, code: int) -> None:
    call = bench.ask("multi", Delete("/a"), Delete("/b"))
    with pytest.raises(ProtocolError, match=f"delete was refused with {code}") as caught:
        bench.answer(call, error_slot(code), error_slot(-2))
    assert caught.value.maybe_applied


def test_a_refusal_of_the_whole_has_no_results(bench: Bench) -> None:
    call = bench.ask("multi", Delete("/a"))
    bench.script.flush()
    bench.script.answer(call, error=-5)
    error = call.error()
    assert type(error) is MarshallingError
    assert error.op == "multi"


@pytest.mark.parametrize("verb", ["multi", "multi_read"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_results_is_garbage(bench: Bench, verb: str, count: int) -> None:
    made = Delete if verb == "multi" else GetData
    call = bench.ask(verb, made("/a"), made("/b"))
    with pytest.raises(ProtocolError, match=f"{count} results for 2") as caught:
        bench.answer(call, *[error_slot(0)] * count)
    assert (caught.value.op, caught.value.maybe_applied) == (verb, verb == "multi")


# --- multi_read -----------------------------------------------------------------------------------


def test_errors_stand_in_their_places(bench: Bench) -> None:
    call = bench.ask("multi_read", GetData("/a"), GetData("/none"), GetChildren("/c"))
    data = slot(4, r.GetDataResponse(None, STAT).encode())
    children = slot(8, r.GetChildrenResponse(("x",)).encode())
    first, second, third = bench.answer(call, data, error_slot(-101), children)
    assert first == DataAndStat(b"", STAT)
    assert type(second) is NoNodeError
    assert (second.op, second.path) == ("get_data", "/none")
    assert third == ["x"]


def test_a_read_changes_nothing(bench: Bench) -> None:
    call = bench.ask("multi_read", GetData("/a"))
    bench.script.flush()
    bench.script.lose()
    error = call.error()
    assert error is not None
    assert not error.maybe_applied


# --- chroot ---------------------------------------------------------------------------------------


def test_a_multi_below_a_chroot() -> None:
    bench = Bench("/app")
    call = bench.ask("multi", Create("/a"), Check("/"), Create("/s-", sequential=True))
    requests = [
        (1, r.CreateRequest.decode(bench.script.call("create", "/a").body).encode()),
        (13, r.CheckVersionRequest.pack("/app", -1)),
        (1, bench.script.call("create", "/s-", sequential=True).body),
    ]
    assert call.body == pack_multi(requests)
    assert b"/app/a" in call.body
    paths = ["/app/a", "/app/s-0000000001"]
    first, second = (slot(1, r.CreateResponse(path).encode()) for path in paths)
    assert bench.answer(call, first, slot(13), second) == ["/a", None, "/s-0000000001"]


def test_an_error_below_a_chroot_names_the_callers_path() -> None:
    bench = Bench("/app")
    with pytest.raises(MultiError) as caught:
        bench.answer(bench.ask("multi", Delete("/a")), error_slot(-101))
    assert caught.value.results[0] is not None
    assert caught.value.results[0].path == "/a"


# --- what belongs into one ------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [GetData("/a"), GetChildren("/a")])
def test_a_multi_does_not_read(bench: Bench, operation: Any) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        bench.ask("multi", Delete("/b"), operation)
    assert bench.script.names() == []


@pytest.mark.parametrize("operation", [Create("/a"), Delete("/a"), SetData("/a", b""), Check("/a")])
def test_a_multi_read_does_not_write(bench: Bench, operation: Any) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        bench.ask("multi_read", GetData("/b"), operation)
    assert bench.script.names() == []


def test_a_read_of_several_sets_no_watch(bench: Bench, watch: Watch) -> None:
    with pytest.raises(ValueError, match="cannot set a watch"):
        bench.ask("multi_read", GetData("/a", watch=watch))
    assert watch._owner is None
    assert bench.script.session.watch_count == 0


@pytest.mark.parametrize("thing", ["/a", b"", None, ("/a",), Create])
def test_only_operations_are_operations(bench: Bench, thing: Any) -> None:
    with pytest.raises(TypeError, match="not an operation"):
        bench.ask("multi", thing)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("a"), ValueError),
        (Create("/a", "text"), TypeError),  # type: ignore[arg-type]
        (Create("/a", ttl=0), ValueError),
        (Create("/a", acl=[]), ValueError),
        (Delete("/a", -2), ValueError),
        (Delete("/"), ValueError),
        (SetData("/a", 7), TypeError),  # type: ignore[arg-type]
        (Check("/a", True), TypeError),
        (Check("/a/"), ValueError),
        (Create("/a", b"x" * SEND_LIMIT), ValueError),
    ],
)
def test_one_wrong_argument_and_nothing_is_sent(
    bench: Bench, operation: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        bench.ask("multi", Delete("/fine"), operation)
    assert bench.script.names() == []
    assert bench.script.session.queued == 0


@pytest.mark.parametrize("chroot", ["", "/root"])
def test_creates_that_are_encoded_together_are_those_of_each_alone(chroot: str) -> None:
    items = [b"first", b"", b"x" * 300]
    together, alone = (Recorder(chroot, {ops.CREATE}) for _ in range(2))
    Appended("/q/é-", items, None).record(together)
    for data in items:
        Create("/q/é-", data, None, sequential=True).record(alone)
    assert [request.body for request in together.requests] == [r.body for r in alone.requests]
    assert {request.op for request in together.requests} == {ops.CREATE}


def test_an_operation_shows_its_path_and_not_its_data() -> None:
    assert repr(Create("/a", b"hunter2")) == "<create /a>"
    assert repr(SetData("/a", b"hunter2")) == "<set_data /a>"
    assert "hunter2" not in repr(Create(path="/a", data=b"hunter2"))


def test_an_operation_can_be_used_again(bench: Bench) -> None:
    operation = Delete("/a")
    first, second = bench.ask("multi", operation), bench.ask("multi", operation, operation)
    bench.script.flush()
    assert bench.answer(first, slot(2)) == [None]
    assert bench.answer(second, slot(2), slot(2)) == [None, None]


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (Create, ["path", "data", "acl", "ephemeral", "sequential", "container", "ttl"]),
        (Delete, ["path", "version"]),
        (SetData, ["path", "data", "version"]),
        (Check, ["path", "version"]),
    ],
)
def test_an_operation_has_the_arguments_of_its_verb(made: Any, names: list[str]) -> None:
    assert list(signature(made).parameters) == names


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_collects() -> None:
    transaction = TransactionBase("/app")
    created, gone = transaction.create("/a"), transaction.delete("/b")
    assert [call.op.name for call in transaction.requests] == ["create", "delete"]
    assert transaction.results == []
    for reply in (created, gone):
        with pytest.raises(RuntimeError, match="not ended"):
            reply.result()


@pytest.mark.parametrize(
    "verb", ["get_data", "get_children", "exists", "sync", "get_acl", "create_with_stat"]
)
def test_a_transaction_refuses_what_does_not_belong(verb: str) -> None:
    transaction = TransactionBase("")
    with pytest.raises(ValueError, match="cannot be part"):
        getattr(transaction, verb)("/a")
    assert transaction.requests == []


def test_a_recorder_refuses_watches() -> None:
    recorder = Recorder("", {ops.GET_DATA})
    with pytest.raises(ValueError, match="watch"):
        recorder.get_data("/a", watch=Watch())
    assert recorder.requests == []


def test_the_operations_of_a_transaction_have_their_own_results(bench: Bench) -> None:
    transaction = TransactionBase("")
    created, checked = transaction.create("/a"), transaction.check("/b", 2)
    call: Any = transaction._sent_by(bench.script._ask)
    bench.answer(call, slot(1, r.CreateResponse("/a").encode()), slot(13))
    assert created.result() == "/a"
    assert checked.result() is None


def test_the_operations_of_a_refused_transaction_have_their_own_errors(bench: Bench) -> None:
    transaction = TransactionBase("")
    created, checked = transaction.create("/a"), transaction.check("/b", 2)
    call: Any = transaction._sent_by(bench.script._ask)
    with pytest.raises(MultiError):
        bench.answer(call, error_slot(0), error_slot(-103))
    with pytest.raises(BadVersionError):
        checked.result()
    with pytest.raises(ServerError):
        created.result()


def test_a_transaction_is_sent_once(bench: Bench) -> None:
    """Whoever has committed inside the block, or could not hear the answer, repeats nothing."""
    transaction = TransactionBase("")
    transaction.delete("/a")
    transaction._sent_by(bench.script._ask)
    with pytest.raises(RuntimeError, match="committed"):
        transaction._sent_by(bench.script._ask)
    with pytest.raises(RuntimeError, match="committed"):
        transaction.delete("/b")


# --- equality -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Create("/a", b"x"), Create(path="/a", data=b"x", ephemeral=False)),
        (Create("/a", acl=[*OPEN_ACL_UNSAFE]), Create("/a", b"", OPEN_ACL_UNSAFE)),
        (Delete("/a"), Delete("/a", -1)),
        (SetData("/a", b"x", 3), SetData("/a", version=3, data=b"x")),
        (Check("/a", 3), Check("/a", version=3)),
        (GetData("/a"), GetData("/a")),
        (GetChildren("/a"), GetChildren(path="/a")),
    ],
    ids=repr,
)
def test_equal_operations_are_equal(one: Operation, other: Operation) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert {one} == {other}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Create("/a"), Create("/b")),
        (Create("/a"), Create("/a", None)),
        (Create("/a"), Create("/a", sequential=True)),
        (Create("/a"), Create("/a", acl=OPEN_ACL_UNSAFE)),
        (Check("/a", 3), Delete("/a", 3)),
        (GetData("/a"), GetChildren("/a")),
        (Create("/a", b"x"), Appended("/a", [b"x"], None)),
        (Check("/a", 3), "<check /a>"),
    ],
    ids=repr,
)
def test_other_operations_are_not_equal(one: Operation, other: object) -> None:
    assert one != other


def test_operations_with_bad_arguments_can_be_compared() -> None:
    bad: Any = Create
    assert bad() != bad("/a", colour="red")
    assert hash(bad("/a", colour="red")) == hash(bad("/a", colour="blue"))

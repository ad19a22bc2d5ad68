"""Several operations in one request: bytes, results, and who is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scripted import STAT, Script, reply_frame
from zkwire import errors
from zkwire.jute import records as r
from zkwire.jute.frames import SEND_LIMIT
from zkwire.jute.multi import MultiResponse, pack_multi
from zkwire.net.pipeline import TransactionBase
from zkwire.operations.multi import Appended, Check, Create, Delete, GetChildren, GetData, SetData
from zkwire.session.request import Request
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, State

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
        self.script = Script(chroot=chroot)
        self.script.connect()

    def ask(self, verb: str, *operations: Any) -> Request:
        return self.script.call(verb, list(operations))

    def feed(self, call: Request, *slots: bytes) -> None:
        """These results."""
        self.script.flush()
        self.script.feed(reply_frame(call.xid, 0x777, 0, b"".join(slots) + END))

    def answer(self, call: Request, *slots: bytes) -> Any:
        """The call's value after these results."""
        self.feed(call, *slots)
        assert self.script.session.broken is None
        return call.value()

    def multi_error(self, call: Request, *codes: int) -> errors.MultiError:
        """The call's error after refusals with these codes."""
        with pytest.raises(errors.MultiError) as caught:
            self.answer(call, *map(error_slot, codes))
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("chroot", ["", "/app"])
def test_a_multi_below_a_chroot(chroot: str) -> None:
    """Its requests are those of the operations alone."""
    bench = Bench(chroot)
    verbs: list[tuple[Any, str, dict[str, Any]]] = [
        (Create, "create", {"path": "/a", "data": b"x", "ephemeral": True}),
        (Create, "create", {"path": "/c", "container": True}),
        (Create, "create", {"path": "/t-", "ttl": 1.5, "sequential": True}),
        (Delete, "delete", {"path": "/b", "version": 3}),
        (SetData, "set_data", {"path": "/c", "data": b"y", "version": 4}),
    ]
    singles = [bench.script.call(verb, **named) for _, verb, named in verbs]
    pairs = [(call.op.opcode, call.body) for call in singles]
    pairs.append((ops.CHECK.opcode, r.CheckVersionRequest.pack(chroot or "/", 5)))
    operations = [kind(**named) for kind, _, named in verbs]
    body = bench.ask("multi", *operations, Check("/", 5)).body
    assert body == pack_multi(pairs)
    assert body.endswith(END)
    bench = Bench(chroot)
    call = bench.ask("multi", Create("/s-", sequential=True), Delete("/a"))
    created = slot(1, r.CreateResponse(f"{chroot}/s-0000000001").encode())
    assert bench.answer(call, created, slot(2)) == ["/s-0000000001", None]
    (refused,) = bench.multi_error(bench.ask("multi", Delete("/a")), -101).results
    assert refused is not None
    assert refused.path == "/a"


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
        with pytest.raises(errors.ProtocolError):
            decoded(data[:length])
        with pytest.raises(errors.ProtocolError):
            MultiResponse.decode(data, 0, length)
    assert MultiResponse.decode(b"junk" + data + b"junk", 4, 4 + len(data)) == decoded(data)
    with pytest.raises(errors.ProtocolError, match="trailing"):
        decoded(data + b"\0")


@pytest.mark.parametrize("codes", [(0, -2), (-2, -101), (-2, -999)])
def test_the_culprit_is_the_one_that_was_attempted(bench: Bench, codes: tuple[int, int]) -> None:
    """An unknown code keeps its number."""
    call = bench.ask("multi", Delete("/a"), Delete("/b"))
    error = bench.multi_error(call, *codes)
    assert (error.index, error.code) == (1, codes[1])


@pytest.mark.parametrize("lost", [False, True])
def test_a_session_that_is_served_after_all_is_perhaps_a_local_one(
    bench: Bench, lost: bool
) -> None:
    call = bench.ask("multi", Delete("/b"), Create("/a", ephemeral=True))
    bench.feed(call, error_slot(0), error_slot(-112))
    if lost:
        bench.script.flush()
        bench.script.reconnect()
    bench.script.flush()
    bench.script.answer(call, r.SyncResponse("/"))
    with pytest.raises(errors.MultiError, match="as if the session had expired") as caught:
        call.value()
    error = caught.value.__cause__
    assert isinstance(error, errors.EphemeralOnLocalSessionError)
    assert (caught.value.index, error.op, error.path) == (1, "create", "/a")
    assert "localSessionsUpgradingEnabled=true" in str(error)
    assert not caught.value.maybe_applied
    assert bench.script.state is State.CONNECTED


@pytest.mark.parametrize("code", [-115, -124])
def test_a_part_refused_as_if_it_were_the_session_is_no_result(bench: Bench, code: int) -> None:
    call = bench.ask("multi", Delete("/a"), Delete("/b"))
    with pytest.raises(errors.ProtocolError, match=f"delete was refused with {code}") as caught:
        bench.answer(call, error_slot(code), error_slot(-2))
    assert caught.value.maybe_applied


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
        *((thing, TypeError) for thing in ("/a", b"", None, ("/a",), Create)),
    ],
)
def test_one_wrong_argument_and_nothing_is_sent(
    bench: Bench, operation: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        bench.ask("multi", Delete("/fine"), operation)
    assert bench.script.names() == []
    assert bench.script.session.queued == 0


def test_an_operation_shows_its_path_and_not_its_data() -> None:
    assert repr(Create("/a", b"hunter2")) == "<create /a>"
    assert repr(SetData("/a", b"hunter2")) == "<set_data /a>"
    assert "hunter2" not in repr(Create(path="/a", data=b"hunter2"))


def test_a_transaction_is_sent_once(bench: Bench) -> None:
    """Whoever has committed inside the block, or could not hear the answer, repeats nothing."""
    transaction = TransactionBase(bench.script._ask)
    transaction.delete("/a")
    transaction._sent_by(bench.script._ask)
    with pytest.raises(RuntimeError, match="committed"):
        transaction._sent_by(bench.script._ask)
    with pytest.raises(RuntimeError, match="committed"):
        transaction.delete("/b")


EQUAL: list[list[object]] = [
    [Create("/a", b"x"), Create(path="/a", data=b"x", ephemeral=False)],
    [Create("/a", acl=[*OPEN_ACL_UNSAFE]), Create("/a", b"", OPEN_ACL_UNSAFE)],
    [Create("/a", None)],
    [Create("/a", sequential=True)],
    [Create("/a")],
    [Create("/b")],
    [Delete("/a"), Delete("/a", -1)],
    [Delete("/a", 3)],
    [SetData("/a", b"x", 3), SetData("/a", version=3, data=b"x")],
    [Check("/a", 3), Check("/a", version=3)],
    [GetData("/a"), GetData("/a")],
    [GetChildren("/a"), GetChildren(path="/a")],
    [Appended("/a", [b"x"], None)],
    ["<check /a>"],
]


def test_operations_are_equal_that_do_the_same() -> None:
    for number, same in enumerate(EQUAL):
        for one in same:
            like_it = [n for n, others in enumerate(EQUAL) for other in others if one == other]
            assert like_it == [number] * len(same)
        assert len(set(map(hash, same))) == 1
    bad: Any = Create
    assert bad() != bad("/a", colour="red")
    assert hash(bad("/a", colour="red")) == hash(bad("/a", colour="blue"))

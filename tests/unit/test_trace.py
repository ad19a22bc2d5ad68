"""What went over the wire, as data: every frame once, and nothing secret."""

from __future__ import annotations

from tests.support.operation_samples import SAMPLES
from tests.support.scripted import ANSWERS, START, Script, reply_frame
from zkwire.jute.records import ACL, SetSASLResponse
from zkwire.operations.multi import Create
from zkwire.session.trace import TraceFrame
from zkwire.wire import ops
from zkwire.wire.model import Credentials, Perms, digest_id

SECRET = b"hunter2"


def test_a_request_and_its_reply(script: Script) -> None:
    frames = script.traced()
    call = script.call("get_data", "/some/path")
    script.jump(0.5)
    (sent,) = script.flush()
    script.jump(0.25)
    reply = script.reply_to(call, zxid=0x777)
    script.feed(reply)
    first, second = frames
    assert first == TraceFrame(START + 0.5, True, 1, "get_data", "/some/path", len(sent.body) + 8)
    assert second == TraceFrame(
        START + 0.75, False, 1, "get_data", "/some/path", len(reply) - 4, 0x777, 0, START + 0.5
    )


def test_a_path_is_the_callers() -> None:
    script = Script(chroot="/app")
    script.connect()
    frames = script.traced()
    script.answer(script.call("exists", "/a"))
    assert {frame.path for frame in frames} == {"/a"}


def test_a_sasl_exchange_is_shown_without_its_tokens() -> None:
    script = Script(sasl=True)
    frames = script.traced()
    script.greet()
    script.session.sasl_token(SECRET)
    (sent,) = script.flush()
    script.feed(reply_frame(sent.xid, 0, 0, SetSASLResponse(SECRET).encode()))
    told = [(frame.sent, frame.op, frame.xid) for frame in frames[2:]]
    assert told == [(True, "sasl", 1), (False, "sasl", 1)]
    assert "hunter2" not in repr(frames)


def _do_everything(script: Script) -> None:
    """Every operation, with the secret wherever data or credentials may be."""
    acl = [ACL(Perms.ALL, digest_id("user", SECRET.decode()))]
    script.call("create", "/a", SECRET, acl)
    script.call("create_with_stat", "/a", SECRET)
    script.call("set_data", "/a", SECRET)
    script.call("set_acl", "/a", acl)
    script.call("multi", [Create("/a", SECRET)])
    script.call("add_auth", "digest", b"user:" + SECRET)
    for sample in SAMPLES:
        if sample.op is not ops.REMOVE_WATCHES:
            sample.call(script._ask, "/a")


def test_nothing_secret_is_in_any_frame() -> None:
    script = Script(resume=Credentials(7, SECRET + bytes(9)))
    frames = script.traced()
    _do_everything(script)
    script.greet(session_id=7, passwd=SECRET + bytes(9))
    script.restore()
    script.flush()
    for call in script.calls:
        if call.sent and call.op in ANSWERS:
            script.answer(call)
        elif call.sent:
            script.answer(call, error=-102)
    assert len({frame.op for frame in frames}) > 15
    assert "hunter2" not in repr(frames)
    assert SECRET.hex() not in repr(frames)
    assert ops.AUTH.name in {frame.op for frame in frames}

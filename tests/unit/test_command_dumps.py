"""The format of a dump, what is refused in one, and the window in which requests are sent."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire import ACL, Id
from zkwire.cli.output import Output, entry_of, entry_text
from zkwire.cli.transfer import commands as dumps
from zkwire.cli.transfer import tree
from zkwire.cli.transfer.tree import Node, progress
from zkwire.errors import NotSentError, ThrottledOpError

OPEN = "world:anyone:cdrwa"


def dumped(*lines: str) -> dumps.DumpFile:
    text = "\n".join([dumps.head("/a"), *lines, ""])
    return dumps.DumpFile(io.BytesIO(text.encode()), "some.jsonl")


@given(st.binary() | st.text().map(lambda t: t.encode("utf-8", "ignore")), st.integers(0, 31))
def test_what_is_written_is_read(data: bytes, perms: int) -> None:
    acl = [ACL(perms, Id("digest", "bob:a=:b")), ACL(31, Id("ip", "::1/64"))]
    line = dumps.line(Node("/", data, acl))
    assert line.isascii()
    assert line.isprintable()
    (node,) = dumped(line, dumps.end())
    assert (node.path, node.data, node.acl) == ("/", data, acl)


def test_an_access_list_is_written_as_zkcli_does() -> None:
    assert entry_text(ACL(31, Id("world", "anyone"))) == OPEN
    assert entry_of("ip:fe80::1:r") == ACL(1, Id("ip", "fe80::1"))
    for wrong in ("", "world", "world:anyone", ":anyone:r", "world:anyone:x"):
        with pytest.raises(ValueError, match="no entry"):
            entry_of(wrong)


def node_line(path: str = "/", data: str = "null", acl: str = f'["{OPEN}"]') -> str:
    return f'{{"path": "{path}", "data": {data}, "acl": {acl}}}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([node_line()], "ends too early"),
        ([node_line(), "{"], "line 3: no JSON object"),
        ([node_line(), "[]"], "line 3: no JSON object"),
        (['{"path": "/"}'], "line 2: no 'acl'"),
        ([node_line("/b")], "line 2: /b before its parent"),
        ([node_line(), node_line()], "line 3: / a second time"),
        ([node_line("b")], "line 2: path must start"),
        ([node_line(data='"text"')], "line 2: data is null, or has text or base64"),
        ([node_line(data='{"base64": "a"}')], "line 2: Invalid base64"),
        ([node_line(data='{"text": 1}')], "line 2: "),
        ([node_line(acl='["world"]')], "line 2: 'world' is no entry"),
        ([node_line(acl="7")], "line 2: "),
    ],
)
def test_a_wrong_dump_is_refused_with_the_line(lines: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=rf"^some\.jsonl.*{says}"):
        list(dumped(*lines))


@pytest.mark.parametrize("first", ["", "{}", '{"v": 2, "kind": "zkwire dump", "root": "/"}'])
def test_another_file_is_no_dump(first: str) -> None:
    with pytest.raises(ValueError, match=r"some\.jsonl"):
        dumps.DumpFile(io.BytesIO(first.encode()), "some.jsonl")


class FakeReply:
    """The answer to a request: the next of ``outcomes``, which are values and errors."""

    def __init__(self, client: FakeClient, item: Any) -> None:
        self.client = client
        outcomes = client.outcomes.get(item, [item])
        self.outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        client.waiting += 1
        client.most = max(client.most, client.waiting)
        self.ready = False

    def result(self, _: float) -> Any:
        if not self.ready:
            self.ready = True
            self.client.waiting -= 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeClient:
    """A client whose pipeline answers each item with itself, or with what ``outcomes`` says."""

    session_timeout = 10.0

    def __init__(self, outcomes: dict[Any, list[Any]] | None = None) -> None:
        self.outcomes = outcomes or {}
        self.pipeline = self
        self.waiting = self.most = 0

    def window(self) -> tree.Window:
        return tree.Window(self, lambda _, item: [FakeReply(self, item)])  # type: ignore[arg-type]


def test_a_window_is_bounded_in_number_and_in_bytes() -> None:
    client = FakeClient()
    assert [item for item, _ in client.window().each(range(1000))] == list(range(1000))
    assert client.most == tree.MOST_ITEMS

    sized = client.window()
    while not sized.full:
        sized.add(0, 1 << 20)
    assert len(sized) == 4
    sized.pop()
    assert not sized.full


def test_a_window_asks_again_for_what_a_break_or_an_overload_has_cost() -> None:
    lost, busy = NotSentError("lost"), ThrottledOpError()
    client = FakeClient({2: [lost, 2], 3: [lost, lost, busy, 3]})
    answers = [answer for _, (answer,) in client.window().each(range(5))]
    assert answers == [0, 1, 2, 3, 4]


def test_a_window_gives_up_after_two_session_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr("zkwire.cli.transfer.tree.time.monotonic", lambda: next(clock))
    waits = FakeClient({0: [NotSentError("lost")]}).window()
    waits.add(0)
    with pytest.raises(NotSentError, match="lost"):
        waits.pop()
    assert next(clock) == 4 * 7, "begins at 0, and looks at the clock at 7, 14 and 21"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    clock = iter(range(100))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("zkwire.cli.transfer.tree.time.monotonic", lambda: next(clock))
    assert list(progress(Output(quiet=quiet), "abc", "reading", 3)) == [*"abc"]
    text = terminal.getvalue()
    assert ("reading 2 of 3 nodes" in text) is not quiet
    assert text.strip() == "" or text.endswith("\r" + " " * 79 + "\r")

"""The files of the command: what a dump has in it, how files are written, and the window."""

import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire import ACL, Id
from zkwire.cli.files import whole
from zkwire.cli.output import Output
from zkwire.cli.transfer import commands as dumps
from zkwire.cli.transfer import tree
from zkwire.cli.transfer.tree import Node, progress
from zkwire.errors import NotSentError, ThrottledOpError


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


DEEP = "[" * 100_000


def node_line(
    path: object = "/",
    data: str = "null",
    acl: str = '["world:anyone:cdrwa"]',
    stat: str = '{"cversion": 1, "num_children": 1}',
) -> str:
    return f'{{"path": {json.dumps(path)}, "data": {data}, "acl": {acl}, "stat": {stat}}}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([node_line()], "ends too early"),
        ([node_line(), "{"], "line 3: not a JSON object"),
        ([node_line(), "[]"], "line 3: not a JSON object"),
        (['{"path": "/"}'], "line 2: no 'acl'"),
        ([node_line("/b")], "line 2: /b before its parent"),
        ([node_line(), node_line()], "line 3: / a second time"),
        ([node_line("b")], "line 2: path must start"),
        ([node_line(data='"text"')], "line 2: data must be null, or have text or base64"),
        ([node_line(data='{"base64": "a"}')], "line 2: Invalid base64"),
        ([node_line(data='{"text": 1}')], "line 2: "),
        ([node_line(acl='["world"]')], "line 2: 'world' is not an entry"),
        ([node_line(acl="7")], "line 2: "),
        ([node_line(acl="[5]")], "line 2: "),
        ([node_line(data="[[]]")], "line 2: "),
        ([node_line(stat='{"cversion": null}')], "line 2: "),
        ([node_line(stat="[1]")], "line 2: "),
        ([node_line(None)], "line 2: "),
        ([DEEP], "line 2: not a JSON object"),
    ],
    ids=range(18),
)
def test_a_wrong_dump_is_refused_with_the_line(lines: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=rf"^some\.jsonl.*{says}"):
        list(dumped(*lines))


HEAD = '{"v": 1, "kind": "zkwire dump", "root": %s}'
HEADS = ["", "{}", "null", "[1]", DEEP, HEAD.replace(": 1", ": 2") % '"/"']
HEADS += [HEAD.replace(', "root": %s', ""), *(HEAD % root for root in ("null", "[]", DEEP))]


@pytest.mark.parametrize("first", HEADS, ids=range(len(HEADS)))
def test_another_file_is_no_dump(first: str) -> None:
    with pytest.raises(ValueError, match=r"some\.jsonl"):
        dumps.DumpFile(io.BytesIO(first.encode()), "some.jsonl")


# --- the window in which requests are sent --------------------------------------------------------


class FakeReply:
    """A value or an error, which is ready once it has been waited for."""

    def __init__(self, client: "FakeClient", outcome: Any) -> None:
        self.client, self.outcome, self.ready = client, outcome, False

    def result(self, _: float) -> Any:
        self.client.waiting -= not self.ready
        self.ready = True
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

    def ask(self, item: Any) -> Any:
        """The reply to a request."""
        outcomes = self.outcomes.get(item, [item])
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        return FakeReply(self, outcomes.pop(0) if len(outcomes) > 1 else outcomes[0])

    def window(self) -> tree.Window:
        return tree.Window(self, lambda _, item: [self.ask(item)])  # type: ignore[arg-type]


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


def test_a_window_asks_again_after_a_break_or_an_overload() -> None:
    lost, busy = NotSentError("lost"), ThrottledOpError()
    client = FakeClient({2: [lost, 2], 3: [lost, lost, busy, 3]})
    assert [answer for _, (answer,) in client.window().each(range(5))] == [0, 1, 2, 3, 4]


def test_a_window_gives_up_after_two_session_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr("zkwire.cli.transfer.tree.time.monotonic", lambda: next(clock))
    waits = FakeClient({0: [NotSentError("lost")]}).window()
    waits.add(0)
    with pytest.raises(NotSentError, match="lost"):
        waits.pop()
    assert next(clock) == 4 * 7, "begins at 0, and looks at the clock at 7, 14 and 21"


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    clock, terminal = iter(range(100)), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("zkwire.cli.transfer.tree.time.monotonic", lambda: next(clock))
    assert list(progress(Output(quiet=quiet), "abc", "reading", 3)) == [*"abc"]
    text = terminal.getvalue()
    assert ("reading 2 of 3 nodes" in text) is not quiet
    assert text.strip() == "" or text.endswith("\r" + " " * 79 + "\r")


# --- how files are written; of modes and links: tests/shell/test_command_failures.py --------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def write(file: Path, data: bytes = b"new") -> None:
    with whole(str(file)) as stream:
        stream.write(data)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whole_that_fails_leaves_the_former(error: type[BaseException], file: Path) -> None:
    file.write_bytes(b"former")
    with suppress(error), whole(str(file)) as stream:
        stream.write(b"half")
        raise error
    assert (file.read_bytes(), os.listdir(file.parent)) == (b"former", ["file"])


def test_whole_is_on_the_disk_before_it_has_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda *_: done.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda *_: done.append("replace"))
    write(file)
    assert done == ["fsync", "replace"]


def test_whole_refuses_what_it_must_not_replace(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to nothing, a stale link with the name of the next part, a file that is read-only."""
    file.symlink_to("missing")
    with pytest.raises(OSError, match="is a symbolic link to a file that is missing"):
        write(file)
    assert os.listdir(file.parent) == ["file"]
    file.unlink()
    victim = file.parent / "victim"
    victim.write_bytes(b"mine")
    monkeypatch.setattr("os.urandom", bytes)
    for name in ("file.part", f".zkwire-{bytes(8).hex()}.part"):
        (file.parent / name).symlink_to("victim")
    with pytest.raises(FileExistsError, match=r"/file'$"):
        write(file)
    assert victim.read_bytes() == b"mine"
    victim.chmod(0o444)
    if os.geteuid() != 0:  # root may write all files
        with pytest.raises(PermissionError):
            write(victim)


def test_whole_device_is_written_to_as_it_is(file: Path) -> None:
    """A pipe stands for it: a defect would replace a device of the machine."""
    os.mkfifo(file)
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write(file, b"data")
        assert reader.read() == b"data"
    assert (file.is_fifo(), os.listdir(file.parent)) == (True, ["file"])

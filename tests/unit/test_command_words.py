"""Small parts of the command: durations, access lists, when a lock must end, lines of a watch."""

from argparse import ArgumentTypeError
from signal import SIGKILL, SIGTERM

import pytest

from zkwire import SeenChildren, SeenData, Stat
from zkwire.cli.lock.holding import Deadline
from zkwire.cli.nodes.watching import MISSED, EnoughError, States, Stream
from zkwire.cli.nodes.writing import access_list
from zkwire.cli.output import DONE, TIMED_OUT, Output, entry_of


@pytest.mark.parametrize("text", ["", "world", "world:anyone", "world:anyone:", ":x:r", "a:b:cdx"])
def test_what_is_no_access_list_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="no entry of an access list"):
        access_list(text)
    if text != "world:anyone:":  # a server can have such an entry
        with pytest.raises(ValueError, match="no entry"):
            entry_of(text)


SENT = {"-": None, "TERM": SIGTERM, "KILL": SIGKILL}
DEADLINES = {
    "both are due before the lease ends": "lease 10; 5.9 -; 6 TERM; 8.9 -; 9 KILL; 99 -",
    "an answer prolongs, a shorter lease changes nothing": "lease 10; lease 14; lease 6; 9.9 -; "
    "10 TERM",
    "after TERM no answer saves the command": "lease 10; 6 TERM; lease 99; 9 KILL",
    "a loss is no reason to wait, and leaves time": "lease 10; lost; 1 TERM; 3.9 -; 4 KILL",
    "it wakes when only KILL is left": "lease 10; 9.5 KILL",
    "it wakes late": "lease 10; 8 TERM; 9 KILL",
    "there is no time for TERM": "after 0; lease 10; 8.9 -; 9 KILL",
}


@pytest.mark.parametrize("steps", DEADLINES.values(), ids=DEADLINES)
def test_a_signal_is_due_by_the_lease_or_by_the_loss(steps: str) -> None:
    deadline = Deadline(1.0, 3.0)
    for step in steps.split("; "):
        first, *rest = step.split()
        if first == "after":
            deadline = Deadline(1.0, float(rest[0]))
        elif first == "lease":
            deadline.prolong(float(rest[0]))
        elif first == "lost":
            deadline.lose()
        else:
            due = deadline.next <= float(first)
            assert deadline.due(float(first)) is SENT[rest[0]], step
            assert due is (rest[0] != "-"), step


def stat(czxid: int, version: int = 0) -> Stat:
    return Stat(**dict.fromkeys(Stat.__fields__, 0) | {"czxid": czxid, "version": version})


FIRST, SECOND = SeenData(b"", stat(1), False), SeenData(b"b", stat(1, 1), False)
LISTED = SeenChildren(["x", "y"], stat(1), False)
GAP = f"gap /a: {MISSED}"


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (FIRST, SECOND, ["changed /a: version 1, b"]),
        (SECOND, SeenData(b"c", stat(1, 3), True), [GAP, "changed /a: version 3, c"]),
        (
            LISTED,
            SeenChildren(["y"], stat(2), True),  # another node
            [GAP, "deleted /a", "created /a", "added /a/y"],
        ),
        (LISTED, SeenChildren(None, None, True), ["removed /a/x", "removed /a/y", "deleted /a"]),
        (SeenData(None, None, False), SeenData(b"\x1b[2J\n\xff" * 30, stat(1), True), None),
    ],
    ids=["the next version", "a version was skipped", "another node", "deleted", "much data"],
)
def test_a_watch_tells_what_has_changed_between_two_states(
    capsys: pytest.CaptureFixture[str],
    before: SeenData | SeenChildren,
    after: SeenData | SeenChildren,
    lines: list[str] | None,
) -> None:
    for path in ("/a",) if lines else ("/a", "/" + 90 * "p"):
        show = States(Stream(Output(), None, None, DONE), path, iter(()), initial=False)
        for state in (before, after):
            show.show(state)
        shown = capsys.readouterr().out.splitlines()
        if lines is None:  # the data are cut to what a line has room for
            assert [len(line) for line in shown] == [max(80, len(f"created {path}"))]
            assert "\x1b" not in shown[0]
        else:
            assert shown == lines


def test_the_last_change_that_is_wanted_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(Output(), 2, None, TIMED_OUT)
    for kind in ("exists", "created", "gap", "reconnected"):
        stream.change(kind, "/a")
    with pytest.raises(EnoughError) as caught:
        stream.change("deleted", "/a")
    assert caught.value.args == (DONE,)
    monkeypatch.setattr("sys.stdout", None)
    Output.check_reader()  # without an output no reader has ended

"""`zkwire watch`: which lines tell of which states, and how long they are."""

from __future__ import annotations

import pytest

from zkwire import SeenChildren, SeenData, Stat
from zkwire.cli.nodes.watching import MISSED, EnoughError, States, Stream
from zkwire.cli.output import DONE, TIMED_OUT, Output


def stat(czxid: int, version: int = 0) -> Stat:
    fields = dict.fromkeys(Stat.__fields__, 0) | {"czxid": czxid, "version": version}
    return Stat(**fields)


def shown(
    capsys: pytest.CaptureFixture[str], *states: SeenData | SeenChildren, path: str = "/a"
) -> list[str]:
    show = States(Stream(Output(), None, None, DONE), path, iter(()), initial=False)
    for state in states:
        show.show(state)
    return capsys.readouterr().out.splitlines()


def test_without_an_output_no_reader_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    Output.check_reader()


def test_a_version_that_was_skipped_is_a_gap_and_the_next_one_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, next_one = SeenData(b"", stat(1), False), SeenData(b"b", stat(1, 1), False)
    assert shown(capsys, first, next_one) == ["changed /a: version 1, b"]
    later = SeenData(b"c", stat(1, 3), True)
    assert shown(capsys, next_one, later) == [f"gap /a: {MISSED}", "changed /a: version 3, c"]


def test_another_node_at_the_same_path_is_deleted_and_created(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = SeenChildren(["x", "y"], stat(1), False), SeenChildren(["y"], stat(2), True)
    lines = [f"gap /a: {MISSED}", "deleted /a", "created /a", "added /a/y"]
    assert shown(capsys, old, new) == lines
    gone = SeenChildren(None, None, True)
    assert shown(capsys, old, gone) == ["removed /a/x", "removed /a/y", "deleted /a"]


@pytest.mark.parametrize("path", ["/a", "/" + 90 * "p"])
def test_data_are_cut_to_what_a_line_has_room_for(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    absent, long = SeenData(None, None, False), SeenData(b"\x1b[2J\n\xff" * 30, stat(1), True)
    (line,) = shown(capsys, absent, long, path=path)
    assert len(line) == max(80, len(f"created {path}"))
    assert "\x1b" not in line


def test_the_last_change_that_is_wanted_is_the_end() -> None:
    stream = Stream(Output(), 2, None, TIMED_OUT)
    for kind in ("exists", "created", "gap", "reconnected"):
        stream.change(kind, "/a")
    with pytest.raises(EnoughError) as caught:
        stream.change("deleted", "/a")
    assert caught.value.args == (DONE,)

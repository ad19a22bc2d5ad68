"""The playground without a browser: a request gives frames, always the same."""

import json
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from docs.playground import playground
from docs.playground.bug import NAMES
from zkwire.cli.lessons.lesson import TABLE, find


def run(lesson: str, *actions: list[Any], **fields: str) -> dict[str, Any]:
    asked = {"ask": "run", "lesson": lesson, "actions": actions, **fields}
    result: dict[str, Any] = json.loads(playground.answer(json.dumps(asked)))
    return result


def texts(result: dict[str, Any]) -> list[str]:
    return [frame["text"] for frame in result["frames"]]


@pytest.mark.parametrize("name", TABLE)
def test_a_lesson_gives_the_same_frames_again_also_from_its_code(name: str) -> None:
    result = run(name)
    assert (result["error"], result["printed"]) == ("", "")
    assert [frame for frame in result["frames"] if not frame["passed"]] == []
    assert result == run(name, code=playground.source(find(name)))
    for frame in result["frames"]:
        ElementTree.fromstring(frame["svg"])


def test_a_frame_shows_what_has_happened_so_far_at_its_place() -> None:
    frames = run("lost-reply")["frames"]
    rows = [re.findall("<g>.*?</g>", frame["svg"], re.DOTALL) for frame in frames]
    assert [] != rows[0] != rows[-1]
    for before, after in pairwise(rows):
        assert after[: len(before)] == before


@pytest.mark.parametrize("kind", ["cut", "pause", "expire"])
def test_an_action_changes_what_comes_behind_it_and_nothing_before(kind: str) -> None:
    plain = run("lost-reply")
    at = plain["frames"][11]["at"]
    result = run("lost-reply", [at, kind, "A", 20.0])
    (mark,) = result["marks"]
    before = [f["text"] for f in plain["frames"] if f["at"] <= mark]
    assert mark >= at
    assert texts(result)[: len(before)] == before
    assert texts(result) != texts(plain)
    assert result == run("lost-reply", [at, kind, "A", 20.0])


def test_a_cut_behind_a_request_loses_its_answer() -> None:
    frames = run("watch-gap")["frames"]
    request = next(f for f in frames if f["text"].startswith("get_data") and f["client"] == "W")
    found = run("watch-gap", [request["at"], "cut", "W", 0.0])["frames"]
    assert found[frames.index(request) + 1]["kind"] == "cut"


def test_the_three_holders_of_a_lock_differ_while_its_holder_stands_still() -> None:
    frames = run("paused-holder")["frames"]
    expired = next(f for f in frames if f["text"].startswith("A's session expires"))
    (lock,) = expired["locks"]
    assert (lock["server"], lock["lease"], lock["fence"]) == ("B", "", "A, 0x5")
    assert {c["name"]: c["state"] for c in expired["clients"]}["A"] == "stands still"
    both = next(frame for frame in frames if frame["text"] == "get_children: 2 children")
    assert both["locks"][0]["server"] == "A"
    (last,) = frames[-1]["locks"]
    assert (last["server"], last["lease"][0], last["fence"]) == ("B", "B", "B, 0x6")


def test_an_action_without_its_client_is_told() -> None:
    assert "Z is not here: no cut." in texts(run("handshake", [2, "cut", "Z", 0.0]))


def test_a_paused_client_hears_of_a_cut_when_it_goes_on() -> None:
    found = texts(run("watch-gap", [6, "pause", "W", 1.0], [6, "cut", "W", 0.0]))
    assert found.index("connection cut, and its process stands still") < found.index(
        "W sees the connection end, no word why"
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"flags": "--waiter 3"}, "UsageError: unrecognized arguments: --waiter 3"),
        ({"flags": "--waiters x"}, "UsageError: argument --waiters: invalid int value: 'x'"),
        ({"code": "x = 1\ny =\n"}, "SyntaxError: invalid syntax (line 2 of the code)"),
        ({"code": "import nothing_here\n"}, "(line 1 of the code)"),
        ({"code": "x = 1\n"}, "LESSON = Lesson(...) is missing"),
    ],
)
def test_what_cannot_run_says_why(fields: dict[str, str], error: str) -> None:
    result = run("herd", **fields)
    assert error in result["error"]
    assert result["frames"] == []


def test_the_readers_code_is_run_and_its_mistakes_have_their_line() -> None:
    code = playground.source(find("handshake"))
    broken = code.replace("    await a.connect()\n", '    print("here")\n    1 / 0\n', 1)
    result = run("handshake", code=broken)
    line = broken.splitlines().index("    1 / 0") + 1
    assert result["printed"] == "here\n"
    last = result["frames"][-1]
    assert not last["passed"]
    assert last["text"].endswith(f"ZeroDivisionError: division by zero (line {line} of the code)")


def test_the_list_has_each_lesson_with_its_code_and_flags() -> None:
    listed = json.loads(playground.answer('{"ask": "lessons"}'))
    assert [one["name"] for one in listed] == [*TABLE, *NAMES]
    for one in listed:
        assert ("LESSON = Bug(" if one["bug"] else "LESSON = Lesson(") in one["code"]
        assert len(one["flags"]) == (0 if one["bug"] else len(find(one["name"]).flags))


LOOK = """            for name in await client.get_children("/lock"):
                stat = await client.exists(f"/lock/{name}")
                if stat is not None and stat.ephemeral_owner == client.session_id:
                    node = f"/lock/{name}"
"""
BUGS = {
    "bug-retry": (
        "nothing goes on any more: the clients would wait forever",
        ("            continue  # no answer, so once more\n", LOOK),
    ),
    "bug-herd": (
        "C and A hold the lock at the same time",
        ("            break  # the one in front has gone, so it is this one's turn\n", ""),
    ),
    "bug-fence": (
        "A has written over what a later holder wrote",
        ("checked=False", "checked=True"),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_explorer_finds_a_planted_bug_and_nothing_behind_its_repair(name: str) -> None:
    wrong, (before, after) = BUGS[name]
    assert run(name)["frames"][-1]["text"] == "nothing has gone wrong in this run"
    result = run(name, search="yes")
    assert result["frames"][0]["text"].startswith("The explorer has found this in run ")
    assert (result["frames"][-1]["text"], result["frames"][-1]["passed"]) == (wrong, False)
    assert result == run(name, search="yes")
    code = next(one["code"] for one in playground.lessons() if one["name"] == name)
    assert before in code
    mended = run(name, search="yes", code=code.replace(before, after))
    assert mended["frames"][0]["text"].endswith(" runs, and found nothing wrong.")
    assert mended["frames"][-1]["passed"]

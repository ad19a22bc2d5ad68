"""The playground without a browser: a request gives frames, always the same."""

import json
from typing import Any

import pytest

from docs.playground import playground
from zkwire.cli.lessons.lesson import find


def run(lesson: str, *actions: list[Any], **fields: str) -> dict[str, Any]:
    asked = {"ask": "run", "lesson": lesson, "actions": actions, **fields}
    result: dict[str, Any] = json.loads(playground.answer(json.dumps(asked)))
    return result


def texts(result: dict[str, Any]) -> list[str]:
    return [frame["text"] for frame in result["frames"]]


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


def test_an_action_without_its_client_is_told() -> None:
    assert "Z is not here: no cut." in texts(run("handshake", [2, "cut", "Z", 0.0]))


def test_the_readers_code_is_run_and_its_mistakes_have_their_line() -> None:
    code = playground.source(find("handshake"))
    broken = code.replace("    await a.connect()\n", '    print("here")\n    1 / 0\n', 1)
    result = run("handshake", code=broken)
    line = broken.splitlines().index("    1 / 0") + 1
    assert result["printed"] == "here\n"
    last = result["frames"][-1]
    assert not last["passed"]
    assert last["text"].endswith(f"ZeroDivisionError: division by zero (line {line} of the code)")


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

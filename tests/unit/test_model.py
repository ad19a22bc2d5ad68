"""The values callers see: the protocol's numbers under the protocol's names, and plain tuples."""

from __future__ import annotations

import copy
import json
import pickle
import re
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.jute.records import Stat
from zkwire.wire import model, paths
from zkwire.wire.paths import (
    CONFIG_NODE,
    check_chroot,
    check_path,
    join,
    parent,
    sequence_number,
    strip,
)

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (
            model.EventType,
            "REREAD=-2 NONE=-1 NODE_CREATED=1 NODE_DELETED=2 NODE_DATA_CHANGED=3 "
            "NODE_CHILDREN_CHANGED=4 DATA_WATCH_REMOVED=5 CHILD_WATCH_REMOVED=6 "
            "PERSISTENT_WATCH_REMOVED=7",
        ),
        (model.WatchType, "CHILDREN=1 DATA=2 ANY=3 PERSISTENT=4 PERSISTENT_RECURSIVE=5"),
        (model.Perms, "READ=1 WRITE=2 CREATE=4 DELETE=8 ADMIN=16"),
    ],
)
def test_numbers_are_the_protocols(kind: type[IntEnum], numbers: str) -> None:
    """But for REREAD, which no server sends."""
    assert " ".join(f"{one.name}={one.value}" for one in kind) == numbers


def test_enums_of_numbers_show_their_names_and_stay_numbers() -> None:
    """The same on every Python: those of 3.11 and later would show the number."""
    changed = model.EventType.NODE_DATA_CHANGED
    logged = "%s %d"
    assert str(changed) == f"{changed}" == "EventType.NODE_DATA_CHANGED"
    assert logged % (changed, changed) == "EventType.NODE_DATA_CHANGED 3"
    assert f"{changed:>28}|" == " EventType.NODE_DATA_CHANGED|"
    assert (f"{changed:02d}", json.dumps(changed), changed) == ("03", "3", 3)
    assert f"{model.WatchType.ANY} {model.Perms.READ | model.Perms.WRITE} {model.Perms(0)}" == (
        "WatchType.ANY Perms.READ|WRITE Perms(0)"
    )


RESULTS = [
    (model.DataAndStat(b"x", STAT), "data", b"x"),
    (model.PathAndStat("/a", STAT), "path", "/a"),
    (model.ChildrenAndStat(["a", "b"], STAT), "children", ["a", "b"]),
    (model.AclAndStat(list(model.OPEN_ACL_UNSAFE), STAT), "acl", list(model.OPEN_ACL_UNSAFE)),
]


@pytest.mark.parametrize(("result", "name", "value"), RESULTS)
def test_results_are_pairs_with_names(result: Any, name: str, value: object) -> None:
    first, second = result
    assert first == result[0] == getattr(result, name) == value
    assert second == result[1] == result.stat == STAT
    assert len(result) == 2
    with pytest.raises(AttributeError):
        result.stat = None
    with pytest.raises(AttributeError):
        result.other = None


@pytest.mark.parametrize(
    "value",
    [
        *(result for result, _, _ in RESULTS),
        model.Event(model.EventType.NONE, "", model.State.CLOSED),
        model.Event(model.EventType.NODE_CREATED, "/a", model.State.CONNECTED, 7),
        model.Credentials(7, b"password"),
        STAT,
    ],
)
def test_results_can_be_copied_and_pickled(value: Any) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other == value
        assert type(other) is type(value)
        assert type(other[-1]) is type(value[-1])


def test_the_password_of_a_session_is_not_shown() -> None:
    """Whoever has it can end the session, and credentials get into logs."""
    shown = repr(model.Credentials(0x1234, b"hunter2"))
    assert "hunter2" not in shown
    assert "<hidden>" in shown
    assert str(0x1234) in shown


def test_a_stat_has_the_habits_of_a_named_tuple() -> None:
    assert list(STAT._asdict()) == list(Stat.__fields__)
    assert STAT._asdict()["num_children"] == 10
    assert STAT._replace(version=7) == Stat(1, 2, 3, 4, 7, 6, 7, 8, 9, 10, 11)
    assert type(STAT._replace(version=7)) is Stat
    with pytest.raises(TypeError, match="Stat takes czxid"):
        STAT._replace(verson=7)
    # What `copy.replace` of Python 3.13 calls.
    assert STAT.__replace__(pzxid=1).pzxid == 1


@pytest.mark.parametrize("function", [model.digest_auth, model.digest_id])
def test_a_user_that_would_be_another_or_is_no_text_is_refused(function: Any) -> None:
    """The first colon ends the user's name."""
    for user in ("", "a:b", ":"):
        with pytest.raises(ValueError, match="user"):
            function(user, "password")
    for wrong in ((b"u", "p"), ("u", b"p"), (None, "p"), ("u", 1)):
        with pytest.raises(TypeError, match="must be a str"):
            function(*wrong)


# --- paths: what servers accept (all were tried on real ones), chroots, sequence numbers ----------

PROPERTY = settings(derandomize=True, deadline=None, max_examples=examples(300))


FORBIDDEN_ONES = "\0\x01\x1f\n\x7f\x80\x9f\ud800\udfff\ue000\uf8ff\ufff0\uffff\U0001f600"
BAD = {
    **dict.fromkeys(("", "a", "a/b", "./a"), "start with '/'"),
    **dict.fromkeys(("/a/", "//"), "end with '/'"),
    **dict.fromkeys(("//a", "/a//b"), "empty name"),
    **dict.fromkeys(("/.", "/..", "/./a", "/a/.", "/a/./b", "/a/../b", "/a/.."), "'.' or '..'"),
    **{f"/abc/{c}d": rf"U\+{ord(c):04X} at 5" for c in FORBIDDEN_ONES},
}


@pytest.mark.parametrize("path", BAD, ids=ascii)
def test_bad_paths(path: str) -> None:
    with pytest.raises(ValueError, match=f"^path .*{BAD[path]}") as caught:
        check_path(path)
    assert repr(path) in str(caught.value)


# Said in another way than `check_path` says it.
FORBIDDEN = r"\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
PATH = re.compile(rf"/|(/(?!\.{{1,2}}(/|\Z))[^/{FORBIDDEN}]+)+")

# Around every edge of the rules.
characters = st.sampled_from(
    "///...ab1 \x00\x1f\x7e\x7f\x9f\xa0\ud7ff\ud800\udfff\uf8ff\uf900\uffef\ufff0\uffff\U0001f600"
)
texts = st.text(characters, max_size=8) | st.text(characters, max_size=8).map("/".__add__)
good_names = st.text(st.sampled_from(".ab1-\xa0\uf900"), min_size=1, max_size=4).filter(
    lambda name: name not in {".", ".."}
)
good_paths = st.lists(good_names, max_size=4).map(lambda names: "/" + "/".join(names))


def accepted(path: str, *, sequential: bool = False) -> bool:
    try:
        return check_path(path, sequential=sequential) is path
    except ValueError:
        return False


@PROPERTY
@given(texts)
@example("/a/")
@example("/")
@example("//")
def test_the_rules(path: str) -> None:
    """For sequential creates the server checks the path with a number behind it."""
    assert accepted(path) == bool(PATH.fullmatch(path))
    assert accepted(path, sequential=True) == bool(PATH.fullmatch(path + "1"))


@PROPERTY
@given(good_paths, good_paths, st.booleans())
@example("", "/", False)
@example("/app/sub", "/a/b", False)
@example("/app", "/", True)
def test_a_chroot_comes_off_as_it_went_on(chroot: str, path: str, slash: bool) -> None:
    """And the number of a sequential create stands inside the chroot."""
    chroot = check_chroot(chroot)
    full = join(chroot, path)
    assert full == (chroot + path if path != "/" else chroot or "/")
    assert check_path(full) == full
    assert strip(chroot, full) == path
    prefix = path + "/" * (slash and path != "/")
    created = join(chroot, check_path(prefix, sequential=True), sequential=True) + "0000000007"
    assert check_path(created) == created
    assert strip(chroot, created) == prefix + "0000000007"


def test_parent() -> None:
    pairs = [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")]
    assert [parent(path) for path, _ in pairs] == [above for _, above in pairs]


def test_what_is_remembered_is_bounded_and_does_not_keep_others_out() -> None:
    for number in range(3 * paths.REMEMBERED):
        check_path(f"/once/{number}")
    check_path("/again-and-again")
    assert "/again-and-again" in paths._accepted
    check_path("/long/" + "x" * 1000)
    assert len(paths._accepted) <= paths.REMEMBERED
    assert all(len(path) < 1000 for path in paths._accepted)


@pytest.mark.parametrize("path", ["/apple", "/ap", "/", "/b/app", "/apple/app/a", CONFIG_NODE])
def test_what_is_outside_a_chroot_stays_as_it_is(path: str) -> None:
    assert strip("/app", path) == path


@pytest.mark.parametrize(
    "name",
    [
        *("", "hello", "x-12", "__lock__", "lock-", "123456789", "lock-123456789", "0000000001x"),
        *("lock-0000000001-", "lock-00000 0001", "lock-+000000001", "lock--000000001"),
        *("lock-0_0_0_0_01", "lock-0x00000001", "lock-00000001.0"),
        "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669",  # Arabic digits
        "lock-" + "\uff11" * 10,  # full width
        "lock-000000000\u0661",
        "lock-000000000\u00b2",  # superscript two: a digit, but no number
        "lock-0000000001\n",
    ],
)
def test_names_without_a_number(name: str) -> None:
    assert sequence_number(name) is None

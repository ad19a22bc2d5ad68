"""The values callers see: the protocol's numbers under the protocol's names, and plain tuples."""

from __future__ import annotations

import copy
import json
import pickle
from enum import IntEnum
from typing import Any

import pytest

from zkwire.jute.records import ACL, Id, SetACLRequest, Stat
from zkwire.wire import model

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
TERMINAL = {model.State.EXPIRED, model.State.AUTH_FAILED, model.State.CLOSED}
USABLE = {model.State.CONNECTED, model.State.CONNECTED_READ_ONLY}


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


@pytest.mark.parametrize("state", model.State)
def test_states(state: model.State) -> None:
    assert state.terminal == (state in TERMINAL)
    assert state.usable == (state in USABLE)
    assert state.value == state.value.lower()


def test_ready_made_acls() -> None:
    assert model.Perms(31) is model.Perms.ALL
    made = [
        (model.OPEN_ACL_UNSAFE, ACL(31, Id("world", "anyone"))),
        (model.READ_ACL_UNSAFE, ACL(1, Id("world", "anyone"))),
        (model.CREATOR_ALL_ACL, ACL(31, Id("auth", ""))),
    ]
    for acl, one in made:
        assert acl == (one,)
        assert SetACLRequest.decode(SetACLRequest("/a", acl, -1).encode()).acl == acl


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


def test_what_the_digest_scheme_shows_and_names() -> None:
    """The vector is the one of ZooKeeper's own documentation and tests."""
    assert model.digest_auth("user", "pass:word") == ("digest", b"user:pass:word")
    assert model.digest_auth("\u00fc", "\u20ac") == ("digest", "\u00fc:\u20ac".encode())
    assert model.digest_id("super", "admin") == Id("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")
    assert len({model.digest_id("super", password) for password in ("admin", "other", "")}) == 3


@pytest.mark.parametrize("function", [model.digest_auth, model.digest_id])
def test_a_user_that_would_be_another_or_is_no_text_is_refused(function: Any) -> None:
    """The first colon ends the user's name."""
    for user in ("", "a:b", ":"):
        with pytest.raises(ValueError, match="user"):
            function(user, "password")
    for wrong in ((b"u", "p"), ("u", b"p"), (None, "p"), ("u", 1)):
        with pytest.raises(TypeError, match="must be a str"):
            function(*wrong)

"""Paths: what servers accept (all examples were tried on real ones), chroots, sequence numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.wire import paths
from zkwire.wire.paths import (
    CONFIG_NODE,
    check_chroot,
    check_path,
    join,
    parent,
    sequence_number,
    strip,
)

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


@pytest.mark.parametrize("path", ["/", "/a/", "/a", "/a/b-", "/a/.", "/a/..", "/.", "/.."])
def test_a_sequential_create_may_end_as_no_name_may(path: str) -> None:
    assert check_path(path, sequential=True) is path


def test_what_is_remembered_is_bounded_and_does_not_keep_others_out() -> None:
    for number in range(3 * paths.REMEMBERED):
        check_path(f"/once/{number}")
    check_path("/again-and-again")
    assert "/again-and-again" in paths._accepted
    check_path("/long/" + "x" * 1000)
    assert len(paths._accepted) <= paths.REMEMBERED
    assert all(len(path) < 1000 for path in paths._accepted)


def test_chroots() -> None:
    assert check_chroot("") == check_chroot("/") == ""
    assert check_chroot("/app") == "/app"
    assert check_chroot("/app/sub") == "/app/sub"
    for bad in ("app", "/app/", "//", "/a/../b"):
        with pytest.raises(ValueError, match="path"):
            check_chroot(bad)


@pytest.mark.parametrize("path", ["/apple", "/ap", "/", "/b/app", "/apple/app/a", CONFIG_NODE])
def test_what_is_outside_a_chroot_stays_as_it_is(path: str) -> None:
    assert strip("/app", path) == path


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


@pytest.mark.parametrize("number", [-(2**31), -(2**31) + 1, -1_000_000_000])
def test_a_counter_that_ran_over_is_never_taken_for_a_low_number(number: int) -> None:
    """Behind 2**31-1 a server writes a minus sign, which may as well be the prefix's last dash."""
    found = sequence_number(f"lock-{number:010d}")
    assert found == -number
    assert found >= 1_000_000_000

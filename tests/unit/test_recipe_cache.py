"""The parts of a cache, each alone: what a change is, what belongs to it, what it keeps."""

from __future__ import annotations

import pytest

from zkwire.jute.records import Stat
from zkwire.recipes.services.cache_event import between
from zkwire.recipes.services.cache_scope import Scope
from zkwire.recipes.services.cache_tree import CachedNode, CacheFullError, Tree


def stat(mzxid: int, children: int = 0) -> Stat:
    return Stat(1, mzxid, 0, 0, 0, 0, 0, 0, 0, children, 0)


def node(mzxid: int | None) -> CachedNode | None:
    return None if mzxid is None else CachedNode("/a", b"", stat(mzxid), None)


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [(None, 1, "added"), (1, 2, "changed"), (1, None, "removed"), (1, 1, None), (None, None, None)],
)
def test_what_a_change_is(before: int | None, now: int | None, kind: str | None) -> None:
    """A node that could not be read for a while has not changed."""
    event = between("/a", node(before), node(now))
    assert (event and event.kind) == kind


@pytest.mark.parametrize(
    ("depth", "path", "has", "lists"),
    [
        (None, "/a/b/c", True, True),
        (0, "/a", True, False),
        (1, "/a", True, True),
        (1, "/a/b", True, False),
        (1, "/a/b/c", False, False),
        (None, "/ab", False, True),
        (None, "/a/no", False, True),
        (None, "/a/no/c", False, True),
    ],
)
def test_what_belongs_to_a_cache(depth: int | None, path: str, has: bool, lists: bool) -> None:
    scope = Scope("/a", depth, lambda path: path.endswith("/no"))
    assert scope.has(path) is has
    assert scope.lists(path) is lists


def test_children_go_before_their_parent_and_leave_nothing() -> None:
    changes: list[str] = []
    tree = Tree(lambda path, _: changes.append(path), None, None)
    for path in ("/", "/a", "/a/b", "/a/c", "/d"):
        tree.put(path, b"1", stat(1))
    changes.clear()
    tree.remove("/a")
    assert changes[-1] == "/a"
    assert sorted(changes) == ["/a", "/a/b", "/a/c"]
    assert tree.below("/") == ["/d"]
    tree.remove("/")
    assert (tree.nodes, tree.size, tree._below) == ({}, 0, {})


def test_a_node_whose_parent_is_not_known_goes_with_it() -> None:
    """It was read while the parent was deleted and created again."""
    tree = Tree(lambda path, _: None, None, None)
    tree.put("/a/b", b"", stat(1))
    tree.remove("/a")
    assert (tree.nodes, tree._below) == ({}, {})


def test_the_limit_counts_paths_and_data() -> None:
    tree = Tree(lambda path, _: None, None, 10)
    tree.put("/a", b"12345678", stat(1))
    tree.put("/a", b"1234", stat(2))
    tree.put("/b", b"12", stat(2))
    with pytest.raises(CacheFullError):
        tree.put("/c", b"", stat(3))
    assert tree.size == 10

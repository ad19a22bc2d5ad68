"""ensure_path, delete_tree and walk: results, races with others, every request lost once."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.lock_helpers import ALICE, Running, Stage
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    AsyncClient,
    Client,
    ClientClosedError,
    Id,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    Perms,
    SequentialLock,
    digest_id,
)
from zkwire.testing.proxy import Action, Gate, cut_after, cut_before, hold

PATIENCE = 30.0
NO_CREATE = [ACL(Perms.READ, READ_ACL_UNSAFE[0].id), ACL(Perms.ALL, digest_id("alice", "secret"))]
NAMES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"]


@pytest.fixture
def stage(tidy: Stage) -> Stage:
    return tidy


def make_tree(client: Client, top: str) -> set[str]:
    """A small tree; the paths of all its nodes."""
    client.create(top)
    for name in NAMES:
        client.create(f"{top}/{name}", name.encode())
    return {top, *(f"{top}/{name}" for name in NAMES)}


def assert_parents_first(paths: list[str]) -> None:
    """No node comes before its parent, and none twice."""
    assert len(set(paths)) == len(paths)
    for index, path in enumerate(paths[1:], 1):
        assert path.rpartition("/")[0] in paths[:index], path


# --- what they do ---------------------------------------------------------------------------------


def test_a_tree_may_be_deeper_than_the_stack(stage: Stage, fresh_path: str) -> None:
    client = stage.observer
    deep = fresh_path + "/a" * sys.getrecursionlimit()
    client.ensure_path(deep)
    assert client.exists(deep) is not None
    client.delete_tree(fresh_path)
    assert client.exists(fresh_path) is None


@pytest.mark.parametrize("chroot", ["", "/inside"])
def test_a_tree_is_made_walked_and_deleted(stage: Stage, fresh_path: str, chroot: str) -> None:
    observer = stage.observer
    top = fresh_path + chroot if chroot else ""
    if chroot:
        observer.ensure_path(top)
    client = stage.client(chroot=top)
    base = "/tree" if chroot else fresh_path
    deep = f"{base}/a/b/c"
    client.ensure_path(deep)
    client.ensure_path(deep)
    client.ensure_path(f"{base}/a")
    client.ensure_path("/")
    assert observer.get_acl(top + deep).acl == list(OPEN_ACL_UNSAFE)
    client.create(f"{base}/d")
    walked = list(client.walk(base))
    assert walked[0] == base
    assert set(walked) == {base, f"{base}/a", f"{base}/a/b", deep, f"{base}/d"}
    assert_parents_first(walked)
    if chroot:
        assert set(client.walk()) == {"/", *walked}
    client.delete_tree(f"{base}/a")
    assert list(client.walk(base)) == [base, f"{base}/d"]
    client.delete_tree(base)
    client.delete_tree(base)  # it is gone, which is what was wanted
    assert observer.exists(top + base) is None
    if chroot:
        assert observer.exists(top) is not None  # nothing outside of the chroot was touched


def test_what_is_made_has_the_acl_and_what_was_there_keeps_its_own(
    fresh_path: str, client: Client
) -> None:
    client.create(fresh_path)
    client.add_auth(*ALICE)
    client.ensure_path(f"{fresh_path}/a/b", NO_CREATE)
    acls = [client.get_acl(fresh_path + name).acl for name in ("", "/a", "/a/b")]
    assert acls == [list(OPEN_ACL_UNSAFE), NO_CREATE, NO_CREATE]


def test_no_right_to_create_is_needed_where_nothing_is_missing(
    stage: Stage, fresh_path: str
) -> None:
    observer = stage.observer
    observer.create(fresh_path, b"", NO_CREATE)
    observer.add_auth(*ALICE)
    observer.create(f"{fresh_path}/a")
    observer.create(f"{fresh_path}/locked", b"", NO_CREATE)
    client = stage.client()
    client.ensure_path(f"{fresh_path}/a")  # its parent refuses every create
    client.ensure_path(f"{fresh_path}/a/b/c")
    assert client.exists(f"{fresh_path}/a/b/c") is not None
    for missing in ("/new", "/new/x", "/locked/x/y"):
        with pytest.raises(NoAuthError):
            client.ensure_path(fresh_path + missing)
    observer.delete_tree(f"{fresh_path}/a")


def test_delete_tree_without_the_rights(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    observer.create(fresh_path, b"", NO_CREATE)
    observer.add_auth(*ALICE)
    observer.create(f"{fresh_path}/a")
    with pytest.raises(NoAuthError):
        Running(lambda: client.delete_tree(fresh_path)).result()
    assert observer.get_children(fresh_path) == ["a"]


def test_what_ends_in_the_middle_says_that_part_may_be_done(stage: Stage, fresh_path: str) -> None:
    """Although the step that it names was refused, and has changed nothing."""
    observer, client = stage.observer, stage.client()
    observer.create(fresh_path)
    with pytest.raises(NoAuthError) as caught:
        client.ensure_path(f"{fresh_path}/a/b", READ_ACL_UNSAFE)
    assert caught.value.maybe_applied
    assert observer.get_children(fresh_path) == ["a"]
    with pytest.raises(NoAuthError) as caught:
        client.ensure_path(f"{fresh_path}/a/b")
    assert not caught.value.maybe_applied
    observer.create(f"{fresh_path}/locked", b"", NO_CREATE)
    observer.add_auth(*ALICE)
    observer.create(f"{fresh_path}/locked/c")
    with pytest.raises(NoAuthError) as caught:
        client.delete_tree(fresh_path)
    assert caught.value.maybe_applied
    client.sync(fresh_path)  # behind the other deletes, which it does not wait for
    assert observer.get_children(fresh_path) == ["locked"]


def test_a_parent_that_can_have_no_children(fresh_path: str, client: Client) -> None:
    client.create(fresh_path, ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        client.ensure_path(f"{fresh_path}/a/b")


def test_walk_needs_its_root_and_only_that(fresh_path: str, client: Client) -> None:
    with pytest.raises(NoNodeError) as caught:
        list(client.walk(fresh_path))
    assert caught.value.path == fresh_path
    client.create(fresh_path)
    assert list(client.walk(fresh_path)) == [fresh_path]


def test_walk_is_lazy_and_may_be_left(stage: Stage, fresh_path: str, client: Client) -> None:
    make_tree(client, fresh_path)
    stage.proxy.reset()
    walk = client.walk(fresh_path)
    assert [f for f in stage.proxy.frames() if f.op == "get_children"] == []
    assert next(walk) == fresh_path
    del walk
    assert client.exists(fresh_path) is not None


@pytest.mark.own_server
@pytest.mark.parametrize("wrong", ["", "a", "/a/", "/a//b", "/a/../b"])
def test_wrong_paths_are_refused_at_once(stage: Stage, wrong: str, client: Client) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.ensure_path(wrong),
        lambda: client.delete_tree(wrong),
        lambda: list(client.walk(wrong)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"path|start|end|empty|'\.\.'"):
            call()
    with pytest.raises(ValueError, match="root cannot be deleted"):
        client.delete_tree("/")
    with pytest.raises(ValueError, match="must not be empty"):
        client.ensure_path("/a", [])
    assert [f for f in stage.proxy.frames() if f.number is not None] == []


def test_a_closed_client_says_so(fresh_path: str, client: Client) -> None:
    client.close()
    calls: list[Callable[[], Any]] = [
        lambda: client.ensure_path(fresh_path),
        lambda: client.delete_tree(fresh_path),
        lambda: list(client.walk(fresh_path)),
    ]
    for call in calls:
        with pytest.raises(ClientClosedError):
            call()


def test_the_operation_timeout_is_for_all_of_it(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    with Client(stage.proxy.hosts, operation_timeout=0.3, session_timeout=15) as client:
        stage.proxy.black_hole()
        with pytest.raises(OperationTimeoutError):
            Running(lambda: client.ensure_path(f"{fresh_path}/a/b")).result()
        with pytest.raises(OperationTimeoutError):
            Running(lambda: client.delete_tree(fresh_path)).result()
        stage.proxy.black_hole(False)


def test_the_operation_timeout_is_for_each_request_of_a_walk(stage: Stage, fresh_path: str) -> None:
    stage.observer.ensure_path(f"{fresh_path}/a")
    with Client(stage.proxy.hosts, operation_timeout=0.3, session_timeout=15) as client:
        walking = client.walk(fresh_path)
        assert next(walking) == fresh_path
        stage.proxy.black_hole()
        with pytest.raises(OperationTimeoutError):
            Running(lambda: next(walking)).result()
        stage.proxy.black_hole(False)


# --- more than one window of requests -------------------------------------------------------------


def test_a_wide_tree(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    observer.create(fresh_path)
    made = [f"{fresh_path}/{n:04d}" for n in range(1201)]
    for reply in [observer.pipeline.create(path) for path in made]:
        reply.result(PATIENCE)
    walked = list(client.walk(fresh_path))
    assert walked[0] == fresh_path
    assert sorted(walked[1:]) == made
    client.delete_tree(fresh_path)
    assert observer.exists(fresh_path) is None


# --- others at the same time ----------------------------------------------------------------------


def test_nodes_that_vanish_and_appear_while_it_walks(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    tree = make_tree(observer, fresh_path)
    gate = Gate()
    stage.proxy.on("get_children", action=hold(gate), nth=2)  # the second level
    walking = Running(lambda: list(client.walk(fresh_path)))
    gate.wait_reached()
    observer.delete_tree(f"{fresh_path}/a")
    observer.create(f"{fresh_path}/e/new")
    observer.create(f"{fresh_path}/too-late")
    gate.release()
    walked = walking.result()
    assert_parents_first(walked)
    gone = {path for path in tree if path.startswith(f"{fresh_path}/a")}
    assert set(walked) == tree - gone | {f"{fresh_path}/e/new"}


def test_the_root_of_a_walk_vanishes(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    make_tree(observer, fresh_path)
    walk = client.walk(fresh_path)
    assert next(walk) == fresh_path
    observer.delete_tree(fresh_path)
    assert list(walk) == []


def test_a_node_appears_while_the_tree_is_deleted(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    make_tree(observer, fresh_path)
    gate = Gate()
    stage.proxy.on("delete", action=hold(gate))
    deleting = Running(lambda: client.delete_tree(fresh_path))
    gate.wait_reached()
    observer.create(f"{fresh_path}/a/b/new")
    observer.delete(f"{fresh_path}/g")
    gate.release()
    deleting.result()
    assert observer.exists(fresh_path) is None


def test_a_parent_vanishes_while_the_path_is_made(stage: Stage, fresh_path: str) -> None:
    observer, client = stage.observer, stage.client()
    gate = Gate()
    # Both levels are missing at first; the upper one is there when the lower one is tried again.
    stage.proxy.on("create", action=hold(gate), nth=3)
    making = Running(lambda: client.ensure_path(f"{fresh_path}/a"))
    frame = gate.wait_reached()
    assert frame.path == f"{fresh_path}/a"
    observer.delete(fresh_path)
    gate.release()
    making.result()
    assert observer.exists(f"{fresh_path}/a") is not None


def test_many_make_and_delete_the_same_tree(stage: Stage, fresh_path: str) -> None:
    clients = [stage.client() for _ in range(4)]
    barrier = threading.Barrier(len(clients))

    def work(client: Client, number: int) -> None:
        for attempt in range(10):
            barrier.wait(PATIENCE)
            if (number + attempt) % 2:
                client.ensure_path(f"{fresh_path}/a/b/c")
            else:
                client.delete_tree(fresh_path)

    running = [Running(partial(work, client, n)) for n, client in enumerate(clients)]
    for each in running:
        each.result(60.0)
    stage.observer.ensure_path(f"{fresh_path}/a/b/c")
    for client in clients:
        client.sync()
        assert client.exists(f"{fresh_path}/a/b/c") is not None


# --- every request lost once ----------------------------------------------------------------------

Work = Callable[[Client, str], None]


def ensure(client: Client, top: str) -> None:
    """Make a path of three, and look."""
    client.ensure_path(f"{top}/a/b")


def delete(client: Client, top: str) -> None:
    """Delete the tree."""
    client.delete_tree(top)


def walk(client: Client, top: str) -> None:
    """Walk over the tree, and look."""
    walked = list(client.walk(top))
    assert_parents_first(walked)
    assert set(walked) == {top, *(f"{top}/{name}" for name in NAMES)}


WORKS: dict[str, Work] = {"ensure": ensure, "delete": delete, "walk": walk}
# A look at each of eight nodes, their deletion, and a look at what is left: nothing.
REQUESTS = {"ensure": 5, "delete": 8 + 8 + 1, "walk": 8}


def requests(stage: Stage) -> int:
    return sum(frame.number is not None for frame in stage.proxy.frames())


def watched(work: Work, stage: Stage, top: str, fault: tuple[int, Action] | None) -> int:
    """Do the work on a new client, with a fault at one of its requests; how many it had."""
    observer = stage.observer
    if work is not ensure:
        make_tree(observer, top)
    client = stage.client()
    stage.proxy.reset()
    if fault is not None:
        stage.proxy.on_frame(*fault)
    work(client, top)
    sent = requests(stage)
    assert (observer.exists(top) is None) is (work is delete)
    if work is ensure:
        assert observer.get_all_children_number(top) == 2
    stage.proxy.clear()
    client.close()
    observer.delete_tree(top)
    return sent


@pytest.mark.since("3.6")
@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["before", "behind"])
@pytest.mark.parametrize("name", WORKS)
def test_a_lost_connection_at_every_request(
    stage: Stage, fresh_path: str, name: str, fault: Action
) -> None:
    stage.observer.create(fresh_path)
    count = watched(WORKS[name], stage, f"{fresh_path}/whole", None)
    assert count == REQUESTS[name]
    for number in range(count):
        watched(WORKS[name], stage, f"{fresh_path}/{number}", (number, fault))


@pytest.mark.parametrize("name", WORKS)
def test_two_lost_connections_in_a_row(stage: Stage, fresh_path: str, name: str) -> None:
    stage.observer.create(fresh_path)
    if name != "ensure":
        make_tree(stage.observer, f"{fresh_path}/n")
    client = stage.client()
    stage.proxy.reset()
    for number in range(4):
        stage.proxy.on_frame(number, cut_after if number % 2 else cut_before)
    WORKS[name](client, f"{fresh_path}/n")
    with contextlib.suppress(NoNodeError, NotEmptyError, NodeExistsError):
        client.exists(fresh_path)
    assert len([f for f in stage.proxy.frames() if f.op == "connect"]) >= 4


@pytest.mark.parametrize(
    "asked",
    [
        lambda client: client.ensure_path("/a/b"),
        lambda client: client.delete_tree("/a"),
        lambda client: list(client.walk("/a")),
        lambda client: SequentialLock(client, "/a").contenders(),
    ],
    ids=["ensure_path", "delete_tree", "walk", "contenders"],
)
def test_nobody_waits_for_a_server_for_ever(asked: Callable[[Client], object]) -> None:
    """As with any operation: two session timeouts, whatever the steps have waited before."""
    client = Client("127.0.0.1:1", session_timeout=0.2)
    try:
        with pytest.raises(OperationTimeoutError):
            Running(lambda: asked(client)).result(PATIENCE)
    finally:
        client.close()


def test_a_chroot_that_does_not_exist_is_named(stage: Stage, fresh_path: str) -> None:
    client = stage.client(chroot=f"{fresh_path}/missing")
    with pytest.raises(NoNodeError, match="walk /: the chroot does not exist"):
        list(client.walk())
    with pytest.raises(NoNodeError, match=r"the chroot does not exist; ensure_path\('/'\)"):
        client.create("/a")
    with pytest.raises(NoNodeError, match="the chroot does not exist"):
        SequentialLock(client, "/lock").acquire(PATIENCE)


@pytest.mark.parametrize("path", ["/", "/a/b"])
def test_ensure_path_creates_a_missing_chroot(stage: Stage, fresh_path: str, path: str) -> None:
    chroot, acl = f"{fresh_path}/missing/too", [ACL(Perms.ALL, Id("world", "anyone"))]
    client = stage.client(chroot=chroot)
    for _ in range(2):
        client.ensure_path(path, acl)
    assert client.get_acl("/").acl == acl
    assert client.exists(path) is not None
    assert list(stage.observer.walk(fresh_path))[:3] == [
        fresh_path,
        f"{fresh_path}/missing",
        chroot,
    ]


async def test_ensure_path_creates_a_missing_chroot_under_asyncio(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    async with AsyncClient(f"{zookeeper.hosts}{fresh_path}/missing") as client:
        await client.ensure_path("/")
        assert await client.get_children("/") == []
    async with AsyncClient(zookeeper.hosts) as client:
        await client.delete_tree(fresh_path)


def test_a_chroot_is_created_over_lost_connections(stage: Stage, fresh_path: str) -> None:
    client = stage.client(chroot=f"{fresh_path}/missing")
    client.exists("/")
    stage.proxy.reset()
    for number in range(8):
        stage.proxy.on_frame(number, cut_after if number % 2 else cut_before)
    client.ensure_path("/a")
    assert client.exists("/a") is not None

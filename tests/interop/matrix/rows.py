"""One call for each operation and recipe; each begins on an empty path of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.support.operation_samples import SAMPLES
from tests.support.recipe_samples import BEGUN_BY_A_METHOD, used
from tests.support.recipe_samples import RECIPES as SAMPLES_OF_RECIPES
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    Barrier,
    BlockingLock,
    Cache,
    Check,
    Client,
    Create,
    Election,
    Group,
    Id,
    MultiLock,
    NonBlockingLock,
    Perms,
    Queue,
    ReadWriteLock,
    ReentrantLock,
    SequentialLock,
    Watch,
    WatchType,
)

PATIENCE = 60.0
Row = Callable[[Client, str], object]
"""Called with a client and a path that exists and has no children."""


def _wait(watch: Watch) -> None:
    assert watch.wait(PATIENCE) is not None


def _watched(client: Client, path: str) -> None:
    watch = Watch()
    client.get_data(path, watch=watch)
    client.set_data(path, b"1")
    _wait(watch)


def _watched_missing(client: Client, path: str) -> None:
    watch = Watch()
    assert client.exists(f"{path}/a", watch=watch) is None
    client.create(f"{path}/a")
    _wait(watch)


def _watched_children(client: Client, path: str) -> None:
    watch = Watch()
    client.get_children(path, watch=watch)
    client.create(f"{path}/a")
    _wait(watch)


def _counted_by_quota(client: Client, path: str) -> None:
    quota = f"/zookeeper/quota{path}"
    client.ensure_path(quota)
    client.create(f"{quota}/zookeeper_limits", b"count=9,bytes=-1")
    client.create(f"{quota}/zookeeper_stats", b"count=1,bytes=0")
    try:
        client.create(f"{path}/a")
        assert client.get_data(f"{quota}/zookeeper_stats").data.startswith(b"count=2,")
    finally:
        client.delete_tree(f"/zookeeper/quota/{path.split('/')[1]}")


def _persistent(client: Client, path: str, recursive: bool) -> None:
    watch = Watch()
    client.add_watch(path, watch, recursive=recursive)
    client.set_data(path, b"1")
    _wait(watch)


def _removed(client: Client, path: str) -> None:
    client.get_data(path, watch=Watch())
    client.remove_watches(path, WatchType.DATA)


def _access_list(client: Client, path: str) -> None:
    client.set_acl(path, [*OPEN_ACL_UNSAFE, ACL(Perms.READ, Id("ip", "127.0.0.1"))])
    assert len(client.get_acl(path).acl) == 2


OPERATIONS_BY_HAND: dict[str, Row] = {
    "`create` persistent": lambda client, path: client.create(f"{path}/a"),
    "`create` ephemeral, sequential": lambda client, path: client.create(
        f"{path}/a", ephemeral=True, sequential=True
    ),
    "`create` container": lambda client, path: client.create(f"{path}/a", container=True),
    "`create` with a TTL (extended types switched on)": lambda client, path: client.create(
        f"{path}/a", ttl=60.0
    ),
    "`delete`": lambda client, path: client.delete(path),
    "`get_acl`, `set_acl`": _access_list,
    "`multi`, `transaction`": lambda client, path: client.multi([Check(path), Create(f"{path}/a")]),
    "`multi` with a container": lambda client, path: client.multi(
        [Create(f"{path}/a", container=True)]
    ),
    "a `Watch` of `get_data`": _watched,
    "a `Watch` of `exists`, no node": _watched_missing,
    "a `Watch` of `get_children`": _watched_children,
    "a quota counts": _counted_by_quota,
    "`add_watch`": lambda client, path: _persistent(client, path, recursive=False),
    "`add_watch`, recursive": lambda client, path: _persistent(client, path, recursive=True),
    "`remove_watches`": _removed,
    "`ensure_path`": lambda client, path: client.ensure_path(f"{path}/a/b"),
    "`delete_tree`": lambda client, path: client.delete_tree(path),
    "`walk`": lambda client, path: list(client.walk(path)),
}
NEEDS_A_SWITCH = {"reconfig"}
"""In `switches.py`."""


def _guarded(client: Client, path: str) -> None:
    with SequentialLock(client, f"{path}/a") as lock:
        lock.guard([Create(f"{path}/b")])


def _exchanged(client: Client, path: str) -> None:
    table = ReadWriteLock(client, path)
    with table.write, table.read:
        assert table.read.held


def _reentered(client: Client, path: str) -> None:
    with ReentrantLock(client, path) as lock, lock:
        assert lock.held


def _led(client: Client, path: str) -> None:
    election = Election(client, path, "me")
    with election.lead():
        assert election.leader() is not None


def _opened(client: Client, path: str) -> None:
    barrier = Barrier(client, f"{path}/a")
    barrier.close()
    assert not barrier.wait(0)
    barrier.open()
    assert barrier.wait(PATIENCE)


def _queued(client: Client, path: str) -> None:
    queue = Queue(client, path)
    queue.put(b"a")
    assert queue.get(PATIENCE).data == b"a"


def _joined(client: Client, path: str) -> None:
    with Group(client, path) as group:
        group.join(b"", "me")
        assert [member.name for member in group.members(PATIENCE)] == ["me"]


def _cached(client: Client, path: str) -> None:
    with Cache(client, path) as cache:
        assert cache.wait_ready(PATIENCE)
        client.create(f"{path}/a")
        for event in cache.events():
            if event.path == f"{path}/a":
                break


def _followed(client: Client, path: str) -> None:
    with client.watch_data(path) as data, client.watch_children(path) as children:
        assert data.next(PATIENCE) is not None
        assert children.next(PATIENCE) is not None
        client.set_data(path, b"1")
        client.create(f"{path}/a")
        assert data.next(PATIENCE) is not None
        assert children.next(PATIENCE) is not None


def _held(kind: Callable[[Client, str], SequentialLock | BlockingLock | NonBlockingLock]) -> Row:
    def row(client: Client, path: str) -> None:
        with kind(client, f"{path}/a") as lock:
            assert lock.held
            assert lock.fence

    return row


def _both(client: Client, path: str) -> None:
    locks = [SequentialLock(client, f"{path}/{name}") for name in "ab"]
    with MultiLock(*locks) as both:
        assert both.held


RECIPES_BY_HAND: dict[str, Row] = {
    "`Lock`, `SequentialLock`": _held(SequentialLock),
    "`BlockingLock`": _held(BlockingLock),
    "`NonBlockingLock`": _held(NonBlockingLock),
    "`ReentrantLock`": _reentered,
    "`ReadWriteLock`, with a downgrade": _exchanged,
    "`MultiLock`": _both,
    "`Election`": _led,
    "`guard` of a lock in a `multi`": _guarded,
    "`Barrier`": _opened,
    "`Queue`": _queued,
    "`Group`": _joined,
    "`Cache`": _cached,
    "`watch_data`, `watch_children`": _followed,
}


def _all(
    by_hand: dict[str, Row], names: Iterable[str], sample: Callable[[str], Row]
) -> Iterator[tuple[str, Row]]:
    """For each name its rows by hand, or its sample; then the other rows by hand."""
    for name in names:
        own = [title for title in by_hand if title[0] == "`" and f"`{name}`" in title]
        yield from ((title, by_hand[title]) for title in own)
        if not own:
            yield f"`{name}`", sample(name)
    yield from by_hand.items()


_METHODS = [name for name in dict.fromkeys(s.method for s in SAMPLES) if name not in NEEDS_A_SWITCH]
_RECIPES = [name for name in SAMPLES_OF_RECIPES if name not in BEGUN_BY_A_METHOD]


def _sample_of_recipe(name: str) -> Row:
    return lambda client, path: used(name, client, f"{path}/a")


OPERATIONS: dict[str, Row] = dict(
    _all(
        OPERATIONS_BY_HAND,
        _METHODS,
        lambda name: next(sample.call for sample in SAMPLES if sample.method == name),
    )
)
RECIPES: dict[str, Row] = dict(
    _all(
        RECIPES_BY_HAND, _RECIPES, lambda name: lambda client, path: used(name, client, f"{path}/a")
    )
)

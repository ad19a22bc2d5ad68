"""A call for each operation and recipe, on an empty path of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import zkwire
from tests.support.operation_samples import SAMPLES
from tests.support.recipe_samples import BEGUN_BY_A_METHOD, used
from tests.support.recipe_samples import RECIPES as SAMPLES_OF_RECIPES

PATIENCE = 60.0
Row = Callable[..., object]
"""Called with a client and a path that exists and has no children."""


def _watching(set: Row, change: Row) -> Row:
    """A watch is set, and told of the change."""

    def row(client: zkwire.Client, path: str) -> None:
        watch = zkwire.Watch()
        set(client, path, watch)
        change(client, path)
        assert watch.wait(PATIENCE) is not None

    return row


def _set(client: zkwire.Client, path: str) -> None:
    client.set_data(path, b"1")


def _child(client: zkwire.Client, path: str) -> None:
    client.create(f"{path}/a")


def _counted_by_quota(client: zkwire.Client, path: str) -> None:
    quota = f"/zookeeper/quota{path}"
    client.ensure_path(quota)
    client.create(f"{quota}/zookeeper_limits", b"count=9,bytes=-1")
    client.create(f"{quota}/zookeeper_stats", b"count=1,bytes=0")
    try:
        client.create(f"{path}/a")
        assert client.get_data(f"{quota}/zookeeper_stats").data.startswith(b"count=2,")
    finally:
        client.delete_tree(f"/zookeeper/quota/{path.split('/')[1]}")


def _removed(client: zkwire.Client, path: str) -> None:
    client.get_data(path, watch=zkwire.Watch())
    client.remove_watches(path, zkwire.WatchType.DATA)


def _access_list(client: zkwire.Client, path: str) -> None:
    client.set_acl(
        path, [*zkwire.OPEN_ACL_UNSAFE, zkwire.ACL(zkwire.Perms.READ, zkwire.Id("ip", "127.0.0.1"))]
    )
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
    "`multi`, `transaction`": lambda client, path: client.multi(
        [zkwire.Check(path), zkwire.Create(f"{path}/a")]
    ),
    "`multi` with a container": lambda client, path: client.multi(
        [zkwire.Create(f"{path}/a", container=True)]
    ),
    "a `Watch` of `get_data`": _watching(lambda c, path, w: c.get_data(path, watch=w), _set),
    "a `Watch` of `exists`, no node": _watching(
        lambda c, path, w: c.exists(f"{path}/a", watch=w), _child
    ),
    "a `Watch` of `get_children`": _watching(
        lambda c, path, w: c.get_children(path, watch=w), _child
    ),
    "a quota counts": _counted_by_quota,
    "`add_watch`": _watching(lambda c, path, w: c.add_watch(path, w), _set),
    "`add_watch`, recursive": _watching(
        lambda c, path, w: c.add_watch(path, w, recursive=True), _set
    ),
    "`remove_watches`": _removed,
    "`ensure_path`": lambda client, path: client.ensure_path(f"{path}/a/b"),
    "`delete_tree`": lambda client, path: client.delete_tree(path),
    "`walk`": lambda client, path: list(client.walk(path)),
}
NEEDS_A_SWITCH = {"reconfig"}


def _guarded(client: zkwire.Client, path: str) -> None:
    with zkwire.SequentialLock(client, f"{path}/a") as lock:
        lock.guard([zkwire.Create(f"{path}/b")])


def _exchanged(client: zkwire.Client, path: str) -> None:
    table = zkwire.ReadWriteLock(client, path)
    with table.write, table.read:
        assert table.read.held


def _followed(client: zkwire.Client, path: str) -> None:
    with client.watch_data(path) as data, client.watch_children(path) as children:
        assert data.next(PATIENCE) is not None
        assert children.next(PATIENCE) is not None
        client.set_data(path, b"1")
        client.create(f"{path}/a")
        assert data.next(PATIENCE) is not None
        assert children.next(PATIENCE) is not None


RECIPES_BY_HAND: dict[str, Row] = {
    "`Lock`, `SequentialLock`": lambda client, path: used("SequentialLock", client, f"{path}/a"),
    "`ReadWriteLock`, with a downgrade": _exchanged,
    "`guard` of a lock in a `multi`": _guarded,
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


def _sample_of_operation(name: str) -> Row:
    return next(sample.call for sample in SAMPLES if sample.method == name)


def _sample_of_recipe(name: str) -> Row:
    return lambda client, path: used(name, client, f"{path}/a")


OPERATIONS = dict(_all(OPERATIONS_BY_HAND, _METHODS, _sample_of_operation))
RECIPES = dict(_all(RECIPES_BY_HAND, _RECIPES, _sample_of_recipe))

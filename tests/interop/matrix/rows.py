"""A call for each operation and recipe, on an empty path of its own; what must be switched on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zkwire
from tests.support.certificates import Authority
from tests.support.operation_samples import SAMPLES
from tests.support.recipe_samples import BEGUN_BY_A_METHOD, used
from tests.support.recipe_samples import RECIPES as SAMPLES_OF_RECIPES
from tests.support.secure_servers import (
    BOTH_NAMES,
    USERS,
    installed_backend,
    sasl_settings,
    tls_server,
)
from tests.support.server_control import ServerStartError, Settings

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
"""In `SWITCHES`."""


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


# --- what an operator must switch on: each row on servers of its own ------------------------------

SUPER = zkwire.digest_auth("super", "user")

THROTTLED = Settings(
    java_flags=tuple(
        f"-Dzookeeper.{flag}"
        for flag in (
            "request_throttle_max_requests=1",
            "request_throttle_stall_time=5",
            "throttled_op_wait_time=1",
        )
    )
)
QUOTAS = Settings(java_flags=("-Dzookeeper.enforceQuota=true",))
RECONFIGURABLE = Settings(
    options={"reconfigEnabled": "true"},
    java_flags=(
        "-Dzookeeper.DigestAuthenticationProvider.superDigest="
        + zkwire.digest_id("super", "user").id,
    ),
)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for keys and users."""
    with tempfile.TemporaryDirectory(prefix="zkwire-matrix-") as name:
        yield Path(name)


def tls() -> bool:
    """A client that trusts the server's authority asks over its TLS port."""
    with folder() as made:
        authority = Authority(made)
        shown = authority.sign("server", hosts=BOTH_NAMES)
        try:
            with (
                tls_server(authority, shown, Settings()) as server,
                zkwire.Client(server.hosts, tls=server.client_context()) as client,
            ):
                return client.exists("/") is not None
        except ServerStartError:  # 3.4: the factory that these settings name has no TLS
            return False


def sasl() -> bool:
    """A node that is for one user alone is read by that user."""
    (user, password), *_ = USERS.items()
    with (
        folder() as made,
        installed_backend().standalone(sasl_settings(made)) as server,
        zkwire.Client(server.hosts, sasl=zkwire.DigestMD5(user, password)) as client,
    ):
        client.create("/n", b"data", [zkwire.ACL(zkwire.Perms.ALL, zkwire.Id("sasl", user))])
        return client.get_data("/n").data == b"data"


def throttling() -> bool:
    """Some of many requests at once wait for too long, and are refused."""
    with installed_backend().standalone(THROTTLED) as server, zkwire.Client(server.hosts) as client:
        replies = [client.pipeline.set_data("/", b"") for _ in range(1000)]
        refused = [_refused(reply, zkwire.ThrottledOpError) for reply in replies]
        return any(refused)


def _refused(reply: Any, kind: type[zkwire.ZooKeeperError]) -> bool:
    try:
        reply.result(PATIENCE)
    except kind:
        return True
    return False


def quotas() -> bool:
    """A node that would be one too many is refused."""
    limits = b"count=-1,bytes=-1;byteHardLimit=-1;countHardLimit=2"
    with installed_backend().standalone(QUOTAS) as server, zkwire.Client(server.hosts) as client:
        client.create("/n")
        client.ensure_path("/zookeeper/quota/n")
        client.create("/zookeeper/quota/n/zookeeper_stats", b"count=1,bytes=0")
        client.create("/zookeeper/quota/n/zookeeper_limits", limits)
        try:
            client.create("/n/a")
            client.create("/n/b")
        except zkwire.QuotaExceededError:
            return client.get_children("/n") == ["a"]
        except zkwire.ConnectionLossError:  # 3.4 ends the connection when it reads these limits
            pass
        return False


def reconfiguration() -> bool:
    """One of three members leaves."""
    with installed_backend().ensemble(RECONFIGURABLE) as ensemble:
        leader = ensemble.leader()
        number = next(n for n, server in enumerate(ensemble.servers, 1) if server is not leader)
        with zkwire.Client(leader.hosts, auth=[SUPER]) as client:
            try:
                data, _ = client.reconfig(leaving=[str(number)])
            except zkwire.UnimplementedError:
                return False
            return f"server.{number}=".encode() not in data


SWITCHES: dict[str, Callable[[], bool]] = {
    "TLS (`secureClientPort`, Netty)": tls,
    "SASL DIGEST-MD5 (`authProvider.sasl`)": sasl,
    "`reconfig` (`reconfigEnabled`)": reconfiguration,
    "`QuotaExceededError` (`enforceQuota`)": quotas,
    "`ThrottledOpError` (`throttled_op_wait_time`)": throttling,
}

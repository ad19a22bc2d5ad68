"""What an operator must switch on: each row on servers of its own, with these settings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.matrix.rows import PATIENCE
from tests.support.certificates import Authority
from tests.support.secure_servers import (
    BOTH_NAMES,
    USERS,
    installed_backend,
    sasl_settings,
    tls_server,
)
from tests.support.server_control import ServerStartError, Settings
from zkwire import (
    ACL,
    Client,
    ConnectionLossError,
    DigestMD5,
    Id,
    Perms,
    QuotaExceededError,
    ThrottledOpError,
    UnimplementedError,
    ZooKeeperError,
    digest_auth,
    digest_id,
)

SUPER = digest_auth("super", "user")

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
        "-Dzookeeper.DigestAuthenticationProvider.superDigest=" + digest_id("super", "user").id,
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
                Client(server.hosts, tls=server.client_context()) as client,
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
        Client(server.hosts, sasl=DigestMD5(user, password)) as client,
    ):
        client.create("/n", b"data", [ACL(Perms.ALL, Id("sasl", user))])
        return client.get_data("/n").data == b"data"


def throttling() -> bool:
    """Some of many requests at once wait for too long, and are refused."""
    with installed_backend().standalone(THROTTLED) as server, Client(server.hosts) as client:
        replies = [client.pipeline.set_data("/", b"") for _ in range(1000)]
        refused = [_refused(reply, ThrottledOpError) for reply in replies]
        return any(refused)


def _refused(reply: Any, kind: type[ZooKeeperError]) -> bool:
    try:
        reply.result(PATIENCE)
    except kind:
        return True
    return False


def quotas() -> bool:
    """A node that would be one too many is refused."""
    limits = b"count=-1,bytes=-1;byteHardLimit=-1;countHardLimit=2"
    with installed_backend().standalone(QUOTAS) as server, Client(server.hosts) as client:
        client.create("/n")
        client.ensure_path("/zookeeper/quota/n")
        client.create("/zookeeper/quota/n/zookeeper_stats", b"count=1,bytes=0")
        client.create("/zookeeper/quota/n/zookeeper_limits", limits)
        try:
            client.create("/n/a")
            client.create("/n/b")
        except QuotaExceededError:
            return client.get_children("/n") == ["a"]
        except ConnectionLossError:  # 3.4 ends the connection when it reads these limits
            pass
        return False


def reconfiguration() -> bool:
    """One of three members leaves."""
    with installed_backend().ensemble(RECONFIGURABLE) as ensemble:
        leader = ensemble.leader()
        number = next(n for n, server in enumerate(ensemble.servers, 1) if server is not leader)
        with Client(leader.hosts, auth=[SUPER]) as client:
            try:
                data, _ = client.reconfig(leaving=[str(number)])
            except UnimplementedError:
                return False
            return f"server.{number}=".encode() not in data


SWITCHES: dict[str, Callable[[], bool]] = {
    "TLS (`secureClientPort`, Netty)": tls,
    "SASL DIGEST-MD5 (`authProvider.sasl`)": sasl,
    "`reconfig` (`reconfigEnabled`)": reconfiguration,
    "`QuotaExceededError` (`enforceQuota`)": quotas,
    "`ThrottledOpError` (`throttled_op_wait_time`)": throttling,
}

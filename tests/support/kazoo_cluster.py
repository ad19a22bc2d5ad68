"""A pytest plugin: kazoo's test harness gets zkwire's own ensemble in place of a Java cluster.

It runs in the environment of kazoo's suite (`tests/interop/kazoo_suite.py` makes it), not in that
of this project's tests. The names are those that kazoo's harness and tests ask for.
"""

from __future__ import annotations

import re
import ssl
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kazoo.testing import common, harness

from zkwire.testing import Ensemble, Server

SUPER_PASSWORD = "test"
"""Of which kazoo's harness gives its servers the digest."""


class Member:
    """One server of the cluster, as `kazoo.testing.common.ManagedZooKeeper`."""

    def __init__(self, cluster: EmbeddedCluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self.running = False

    @property
    def address(self) -> str:
        return self._cluster.ensemble.servers[self._number].hosts

    @property
    def secure_address(self) -> str:
        return self._cluster.secure.hosts

    def run(self) -> None:
        self._change(True)

    def stop(self) -> None:
        self._change(False)

    def _change(self, running: bool) -> None:
        if running != self.running:
            member = self._cluster.ensemble.servers[self._number]
            (member.start if running else member.stop)()
            self.running = running
            self._cluster.count()


class EmbeddedCluster:
    """As `kazoo.testing.common.ZookeeperCluster`: same arguments, same methods.

    Data is gone after `terminate`.  TLS has a server with a tree of its own.
    """

    def __init__(
        self,
        *,
        size: int,
        configuration_entries: Sequence[str],
        jaas_config: str | None,
        **_: object,
    ) -> None:
        self._options: dict[str, Any] = {
            "super_password": SUPER_PASSWORD,
            "reconfig": "reconfigEnabled=true" in configuration_entries,
            "local_sessions": "localSessionsEnabled=true" in configuration_entries,
            "sasl_users": dict(re.findall(r'user_(\w+)="(\w+)"', jaas_config or "")) or None,
        }
        self._certificates = common.ZookeeperCluster(size=0)
        self._members = [Member(self, number) for number in range(size)]
        self._mutex = threading.Lock()
        self._read_only = False
        self.ensemble = Ensemble(size, **self._options)
        self.secure = Server(tls=self._context(), **self._options)

    def __getitem__(self, number: int) -> Member:
        return self._members[number]

    def __len__(self) -> int:
        return len(self._members)

    def start(self) -> None:
        self.secure.start()
        for member in self._members:
            member.run()

    def terminate(self) -> None:
        self.ensemble.close()
        self.secure.close()
        for member in self._members:
            member.running = False
        self._read_only = False
        self.ensemble = Ensemble(len(self), **self._options)
        self.secure = Server(tls=self._context(), **self._options)

    def get_logs(self) -> list[str]:
        return []

    def get_ssl_client_configuration(self) -> Any:
        return self._certificates.get_ssl_client_configuration()

    def count(self) -> None:
        """Without a majority the others serve reads alone, as with `readonlymode.enabled`."""
        with self._mutex:
            running = sum(member.running for member in self._members)
            read_only = running <= len(self) // 2
            if read_only != self._read_only:
                self._read_only = read_only
                self.ensemble.set_read_only(read_only)

    def _context(self) -> ssl.SSLContext:
        known = self._certificates._ssl_configuration
        crypto = common.OpenSSL.crypto
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(cadata=known["ca_cert_pem"].decode())
        context.verify_mode = ssl.CERT_REQUIRED
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.pem"
            key = crypto.dump_privatekey(crypto.FILETYPE_PEM, known["server_key"])
            file.write_bytes(
                key + crypto.dump_certificate(crypto.FILETYPE_PEM, known["server_cert"])
            )
            context.load_cert_chain(file)
        return context


harness.ZookeeperCluster = EmbeddedCluster

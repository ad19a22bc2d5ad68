"""Real ZooKeeper servers that want TLS or SASL, and the fixtures for them.

Processes of an installed ZooKeeper (`tests/support/installed_servers.py`), which alone can be
configured so here; without it, or without the `openssl` command, a test is skipped with the reason,
and fails under `CI=true`. Servers live as long as the module that uses them: some are worth a few
tests only.

Each has its plain port too, over which the tests wait until it serves. Netty, the one connection
factory that has TLS, then serves both ports; the servers for SASL alone use the ordinary factory.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Certificate, NoOpenSSLError
from tests.support.installed_servers import DEBIAN_JARS, LOOPBACK, InstalledBackend, find_installed
from tests.support.server_control import (
    PROBE_SECONDS,
    START_SECONDS,
    NoBackendError,
    Settings,
    ZooKeeperServer,
    free_port,
    poll,
    skip_older,
    started,
)

BOTH_NAMES = ("DNS:localhost", f"IP:{LOOPBACK}")
# 3.8 speaks TLS 1.2 only unless told otherwise; a client can still ask for it.
TLS_OPTIONS = {
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    "ssl.protocol": "TLSv1.3",
    "ssl.enabledProtocols": "TLSv1.3,TLSv1.2",
    "ssl.ciphersuites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
}
SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
# Debian's zookeeper.jar names only some of Netty's jars, although all are installed with it, and a
# folder of jars may lack the class that 3.6 asks whether there is epoll. What does not exist on a
# class path does not matter.
MORE_JARS = [
    str(DEBIAN_JARS / f"netty-{name}.jar")
    for name in ("codec", "resolver", "transport-native-epoll", "transport-native-unix-common")
]

# What a client without a certificate is told depends on the JDK: from 17.0.19 on what is standard.
WANTS_CERTIFICATE = "TLS: the server (wants|refused: handshake.* wants) a client certificate.*"

USERS = {"bob": "correct horse", "grün": "weiß 5 €"}
"""Who may log in by SASL, with the passwords."""


@dataclass(frozen=True)
class SecureServer:
    """A serving server; `secure_port` is None where it has no TLS."""

    server: ZooKeeperServer
    secure_port: int | None = None
    authority: Authority | None = None

    @property
    def hosts(self) -> str:
        """The connect string to use: of the TLS port, if there is one."""
        return f"{LOOPBACK}:{self.secure_port}" if self.secure_port else self.server.hosts

    def client_context(self, shown: str | None = None) -> ssl.SSLContext:
        """A context that trusts the server's authority, and shows a certificate of that name."""
        assert self.authority is not None, "this server has no TLS"
        return self.authority.client_context(self.authority.sign(shown) if shown else None)


def installed_backend() -> InstalledBackend:
    """The installed ZooKeeper; `NoBackendError` if there is none, or another way is asked for."""
    wanted = os.environ.get("ZKWIRE_TEST_BACKEND", "auto")
    if wanted not in {"auto", "installed"}:
        raise NoBackendError(f"servers with TLS or SASL must be installed ones, not {wanted}")
    found = find_installed()
    return InstalledBackend(found.java, ":".join((found.classpath, *MORE_JARS)))


@contextmanager
def tls_server(
    authority: Authority, shown: Certificate, settings: Settings, client_auth: str = "none"
) -> Iterator[SecureServer]:
    """A server that shows this certificate; `client_auth`: whether it wants one, `none`, `need`."""
    options = {
        **settings.options,
        **TLS_OPTIONS,
        "ssl.keyStore.location": str(shown.both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.file),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": client_auth,
    }
    backend, ports = installed_backend(), list[int]()

    def make() -> ZooKeeperServer:
        ports.append(free_port())  # each attempt to start it has a new one
        more = {"secureClientPort": str(ports[-1]), "secureClientPortAddress": LOOPBACK}
        return backend.make_standalone(replace(settings, options={**options, **more}))

    with started(make) as server:
        # It serves the plain port first.
        poll(f"TLS of {server}", lambda: serves_tls(ports[-1], shown), START_SECONDS)
        yield SecureServer(server, ports[-1], authority)


def serves_tls(port: int, shown: Certificate) -> bool | None:
    """Whether a four-letter word is answered there, to a client with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate may be a bad one on purpose
    context.load_cert_chain(shown.certificate, shown.key)
    try:
        with (
            # The first handshakes of a Java that has just begun take long.
            socket.create_connection((LOOPBACK, port), 6 * PROBE_SECONDS) as connection,
            context.wrap_socket(connection) as wrapped,
        ):
            wrapped.sendall(b"srvr")
            answer = b"".join(iter(lambda: wrapped.recv(65536), b""))
    except OSError:
        return None
    return b"Mode: " in answer or None


def sasl_settings(directory: Path, **options: str) -> Settings:
    """Settings for a server that lets USERS log in."""
    jaas = directory / "jaas.conf"
    users = "".join(f'    user_{user}="{password}"\n' for user, password in USERS.items())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    jaas.write_text(f"Server {{\n    {module}\n{users}    ;\n}};\n", encoding="utf-8")
    return Settings(
        options={"authProvider.sasl": SASL_PROVIDER, **options},
        java_flags=(f"-Djava.security.auth.login.config={jaas}",),
    )


@contextmanager
def available() -> Iterator[None]:
    """End the test in the tests' way when there is nothing to run such a server with."""
    from tests.conftest import unavailable  # which imports the fixtures from here

    try:
        yield
    except (NoBackendError, NoOpenSSLError) as error:
        unavailable(str(error))


# --- fixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs all certificates of this run but the ones of strangers."""
    with available():
        return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_zookeeper(
    zookeeper: ZooKeeperServer, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    """TLS for whoever comes; users may log in by SASL and need not."""
    skip_older(zookeeper, "3.5")
    settings = sasl_settings(tmp_path_factory.mktemp("jaas"))
    shown = authority.sign("server", hosts=BOTH_NAMES)
    with available(), tls_server(authority, shown, settings) as server:
        yield server


@pytest.fixture(scope="module")
def tls_zookeeper_for_certified(
    zookeeper: ZooKeeperServer, authority: Authority
) -> Iterator[SecureServer]:
    """TLS for who shows a certificate of the authority."""
    skip_older(zookeeper, "3.5")
    shown = authority.sign("server", hosts=BOTH_NAMES)
    with available(), tls_server(authority, shown, Settings(), "need") as server:
        yield server


@pytest.fixture(scope="module")
def sasl_zookeeper(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    """No TLS; serves only who has logged in by SASL."""
    skip_older(zookeeper, "3.7")  # ZOOKEEPER-3561
    must = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
    settings = sasl_settings(tmp_path_factory.mktemp("jaas"), **must)
    with available(), installed_backend().standalone(settings) as server:
        yield SecureServer(server)


@pytest.fixture(scope="module")
def sasl_zookeeper_lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    """No TLS; serves also whose SASL login failed, as nobody."""
    settings = sasl_settings(tmp_path_factory.mktemp("jaas"), allowSaslFailedClients="true")
    with available(), installed_backend().standalone(settings) as server:
        yield SecureServer(server)

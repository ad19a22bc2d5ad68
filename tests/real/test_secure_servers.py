"""Real servers with TLS or SASL: what the client makes of what they say.

Certificates are checked by the client alone, see `tests/unit/test_tls_filter.py`.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

import pytest

from tests.shell.test_client import PATIENCE
from tests.shell.test_secure_client import (
    LONG,
    NO_CHALLENGE,
    PERHAPS,
    REJECTED,
    each_version,
    failure,
    nobody_may_ask,
    only,
    refused,
)
from tests.support.certificates import Authority
from tests.support.installed_servers import LOOPBACK
from tests.support.secure_servers import USERS, WANTS_CERTIFICATE, SecureServer
from zkwire import ACL, Client, DigestMD5, EventType, Id, NoAuthError, Perms, State, Watch
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import FaultProxy

pytestmark = [pytest.mark.real, pytest.mark.apache]

MEGABYTE = 1_000_000  # the longest data that fits into a request of a server as it is delivered
ENDED = "TLS: the other side ended the connection; perhaps it does not speak TLS"
RESET = "TLS: Connection reset by peer"


def names(client: Client) -> set[tuple[str, str]]:
    return {(who.auth_scheme, who.user) for who in client.who_am_i()}


@each_version
def test_much_over_tls_outlives_a_cut(
    tls_zookeeper: SecureServer, fresh_path: str, version: ssl.TLSVersion
) -> None:
    context = only(tls_zookeeper.client_context(), version)
    with (
        FaultProxy(upstream=tls_zookeeper.hosts) as proxy,
        Client(proxy.hosts, tls=context, session_timeout=LONG) as client,
        Client(tls_zookeeper.server.hosts) as other,
    ):
        client.create(fresh_path)
        session_id, send, watch = client.session_id, client.pipeline, Watch()
        data = [os.urandom(MEGABYTE) for _ in range(6)]
        pairs = [(send.set_data(fresh_path, d), send.get_data(fresh_path)) for d in data]
        assert [(w.result().version, r.result().data) for w, r in pairs] == [
            (number, each) for number, each in enumerate(data, 1)
        ]
        paths = [f"{fresh_path}/{number}" for number in range(1000)]
        assert [each.result() for each in [send.create(path) for path in paths]] == paths
        client.get_data(fresh_path, watch=watch)
        proxy.refuse()
        proxy.cut_all()
        assert client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        other.set_data(fresh_path, b"while it is away")
        proxy.refuse(False)
        event = watch.wait(PATIENCE)
        assert event is not None
        assert event.type is EventType.NODE_DATA_CHANGED
        assert client.get_data(fresh_path).data == b"while it is away"
        assert client.session_id == session_id
        client.delete_tree(fresh_path)


@pytest.mark.since("3.7")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ["sasl_zookeeper", "sasl_zookeeper_lenient", "tls_zookeeper"])
def test_a_good_password(
    request: pytest.FixtureRequest, name: str, user: str, fresh_path: str
) -> None:
    """Where it is required, where it is offered, and inside TLS."""
    server: SecureServer = request.getfixturevalue(name)
    tls = server.client_context() if server.authority else None
    (stranger,) = set(USERS) - {user}
    mechanism, others = DigestMD5(user, USERS[user]), DigestMD5(stranger, USERS[stranger])
    with Client(server.hosts, sasl=mechanism, tls=tls) as client:
        assert names(client) == {("sasl", user), ("ip", LOOPBACK)}
        client.create(fresh_path, b"secret", acl=[ACL(Perms.ALL, Id("sasl", user))])
        with Client(server.hosts, sasl=others, tls=tls) as other, pytest.raises(NoAuthError):
            other.get_data(fresh_path)
        client.delete(fresh_path)


# 3.8 checks an unknown user against the password of who logged in before, so it is nobody's.
@pytest.mark.parametrize(
    ("user", "password"), [("bob", "wrong horse"), ("nobody", "nobody's"), ("bob", "")]
)
def test_a_wrong_password_where_it_is_required_or_offered_or_not_missed(
    sasl_zookeeper: SecureServer,
    sasl_zookeeper_lenient: SecureServer,
    tls_zookeeper: SecureServer,
    user: str,
    password: str,
) -> None:
    mechanism = DigestMD5(user, password)
    assert refused(sasl_zookeeper.hosts, mechanism) == REJECTED
    assert refused(tls_zookeeper.server.hosts, mechanism) == REJECTED
    assert refused(tls_zookeeper.hosts, mechanism, tls=tls_zookeeper.client_context()) == REJECTED
    assert refused(sasl_zookeeper_lenient.hosts, mechanism) == PERHAPS


def test_one_side_alone_knows_sasl(
    sasl_zookeeper: SecureServer, tls_zookeeper_for_certified: SecureServer
) -> None:
    server = tls_zookeeper_for_certified.server
    assert refused(server.hosts, DigestMD5("bob", USERS["bob"])) == NO_CHALLENGE
    nobody_may_ask(sasl_zookeeper.hosts)


@pytest.mark.since("3.7")
@each_version
def test_a_client_certificate_is_missing_or_unknown_or_good(
    tls_zookeeper_for_certified: SecureServer,
    authority: Authority,
    tmp_path: Path,
    version: ssl.TLSVersion,
) -> None:
    server = tls_zookeeper_for_certified
    assert re.fullmatch(
        WANTS_CERTIFICATE, failure(server.hosts, only(server.client_context(), version))
    )
    stranger = Authority(tmp_path, "stranger")
    context = only(stranger.client_context(stranger.sign("client")), version)
    context.load_verify_locations(authority.file)
    assert failure(server.hosts, context) == (
        "TLS: the server does not accept the client certificate: certificate unknown"
    )
    with Client(server.hosts, tls=only(server.client_context("client"), version)) as client:
        assert names(client) == {("x509", "CN=client"), ("ip", LOOPBACK)}


def test_the_wrong_port(tls_zookeeper: SecureServer, sasl_zookeeper: SecureServer) -> None:
    """Plain text to the port for TLS, and TLS to the plain port of Netty and to the ordinary one.

    The last takes the first four bytes for a length, and closes with the rest unread: a FIN and a
    reset are then on their way, and either may be seen.
    """
    context = tls_zookeeper.client_context()
    assert failure(tls_zookeeper.hosts, None) == "the server closed it" + UNGREETED
    assert failure(tls_zookeeper.server.hosts, context) == ENDED
    assert failure(sasl_zookeeper.server.hosts, context) in {ENDED, RESET}

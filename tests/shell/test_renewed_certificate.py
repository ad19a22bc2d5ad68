"""A client's certificate that is renewed while the client runs."""

from __future__ import annotations

import threading

from tests.support.certificates import Authority, Certificate
from zkwire import Client, State
from zkwire.testing import FaultProxy, Server
from zkwire.testing.server.tls import make_context

PATIENCE = 30.0


def identity(client: Client) -> str:
    """Whom the server takes the client for, by its certificate."""
    return next(info.user for info in client.who_am_i() if info.auth_scheme == "x509")


def reconnect(client: Client, proxy: FaultProxy) -> None:
    """Have the client make another connection."""
    lost = threading.Event()

    def listener(state: State) -> None:
        if state is State.DISCONNECTED:
            lost.set()

    client.add_state_listener(listener)
    proxy.cut_all()
    assert lost.wait(PATIENCE)
    client.remove_state_listener(listener)
    client.connect(PATIENCE)


def test_the_next_connection_shows_what_was_loaded_again(
    authority: Authority, shown: Certificate
) -> None:
    old, new = authority.sign("old-name"), authority.sign("new-name")
    file = old.both
    tls = authority.client_context()
    tls.load_cert_chain(file)
    server_side = make_context(str(shown.both), None, str(authority.file), optional=False)
    with (
        Server(tls=server_side) as server,
        FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, tls=tls) as client,
    ):
        session = client.session_id
        assert "old-name" in identity(client)
        file.write_bytes(new.both.read_bytes())
        reconnect(client, proxy)
        assert "old-name" in identity(client)
        tls.load_cert_chain(file)
        assert "old-name" in identity(client)
        reconnect(client, proxy)
        assert "new-name" in identity(client)
        assert client.session_id == session

"""A client's own connection, broken on request: no proxy stands between, and any server will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkwire.net.dial import shut_down

if TYPE_CHECKING:
    from zkwire import AsyncClient, Client


def break_connection(client: Client | AsyncClient) -> bool:
    """Break the connection of this client now; whether there was one.  From any thread.

    The client sees what it would see of a network: requests that are not answered end with
    OutcomeUnknownError (the server may still read and execute them) or NotSentError, the state
    becomes DISCONNECTED, and the client connects anew, in the same session.  This returns before
    that.  For a supervisor, give it the client of the session: ``supervisor.client()``.
    """
    connection = client._driver.current_connection
    if connection is None:
        return False
    shut_down(connection.sock)
    return True

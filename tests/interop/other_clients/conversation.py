"""What is done to a client in the middle of what it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from zkwire import Client, Watch
from zkwire.testing import FaultProxy

EXPIRY_SECONDS = 60.0


def act(action: str, paths: Sequence[str], proxy: FaultProxy, hosts: str) -> None:
    """End the connections behind this proxy, and let the client come back.

    ``cut``: meanwhile another client writes to these nodes; ``expire``: not before they are gone
    with their session.
    """
    with Client(hosts) as client:
        for path in paths:
            client.exists(path)  # it is connected, and the other is away for a moment only
        proxy.refuse(True)
        proxy.cut_all()
        for path in paths:
            watch = Watch()
            if action == "cut":
                client.set_data(path, b"from elsewhere")
            elif client.exists(path, watch=watch) is not None:
                watch.wait(EXPIRY_SECONDS)
        proxy.refuse(False)

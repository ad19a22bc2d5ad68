"""Who stands in the queues of a chaos run, as the server saw it: for the order of arrival.

The one who watches goes around all proxies, and needs no word of the contenders, who may be paused,
cut off or dead while their nodes still stand in the queue. Each look begins with a write: whatever
its session reads then is no older. A ``sync`` would not do: a leader that has stood still answers
one before it learns that there is another leader.

So a node that is in the listing was there after the look began; and as the order of arrival is that
of creation, it was there when a contender behind it said before that look that it held the lock. No
speed and no delay makes that conclusion wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.chaos_ways import clock
from tests.chaos_workers import FAIR, ROOT
from tests.history import Record
from zkwire import Client, ClientClosedError, NoNodeError, SessionExpiredError, ZooKeeperError

MARK = "/mark"
LOOK_SECONDS = 0.1


@dataclass
class Place:
    """A node in a queue: where it stands, when it was not there yet, when it still was there."""

    key: str
    fence: int
    before: float
    last: float


class QueueWatch:
    """Looks at the queues again and again, in a thread, until it is closed."""

    def __init__(self, hosts: str, session_timeout: float) -> None:
        self._hosts = hosts
        self._session_timeout = session_timeout
        self._places: dict[str, Place] = {}  # by path
        self._before = dict.fromkeys(FAIR, 0.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="queue watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def watching(self) -> bool:
        """Whether somebody still looks."""
        return self._thread.is_alive()

    def _watch(self) -> None:
        while not self._over.is_set():
            with Client(
                self._hosts, session_timeout=self._session_timeout, operation_timeout=5.0
            ) as client:
                self._watch_with(client)

    def _watch_with(self, client: Client) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look(client)
            except (SessionExpiredError, ClientClosedError):
                return
            except ZooKeeperError:
                continue  # a look that has failed shows nothing, and proves nothing

    def _look(self, client: Client) -> None:
        began = clock()
        client.set_data(MARK, b"")
        for key in FAIR:
            with suppress(NoNodeError):  # nobody has contended yet
                for name in client.get_children(f"{ROOT}/{key}"):
                    self._see(client, key, f"{ROOT}/{key}/{name}", began)
            self._before[key] = began

    def _see(self, client: Client, key: str, path: str, began: float) -> None:
        if path not in self._places:
            stat = client.exists(path)
            if stat is None:
                return
            self._places[path] = Place(key, stat.czxid, self._before[key], began)
        self._places[path].last = began

    def records(self) -> list[Record]:
        """What `tests.history` needs to know of everybody who was seen in a queue."""
        return list(records_of(list(self._places.values())))


def records_of(places: list[Place]) -> Iterator[Record]:
    """Each place waits under a name of its own, from before it was there until it was seen last."""
    for key in FAIR:
        yield Record(0.0, "", "lock", key, ordered=True)
    for place in places:
        who = f"place {place.fence:#x}"
        yield Record(place.before, who, "arrive", place.key, fence=place.fence)
        yield Record(place.last, who, "give up", place.key, note="seen for the last time")

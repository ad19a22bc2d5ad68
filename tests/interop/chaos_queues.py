"""Who stands in the queues of a chaos run, as the servers saw it: for the order of arrival.

Those who watch, one at each member, go around all proxies, and need no word of the contenders, who
may be paused, cut off or dead while their nodes still stand in the queue. Each look begins with a
write: whatever its session reads then is no older. A ``sync`` would not do: a leader that has stood
still answers one before it learns that there is another leader.

So a node that is in the listing was there after the look began; and as the order of arrival is that
of creation, it was there when a contender behind it said before that look that it held the lock. No
speed and no delay makes that conclusion wrong.

Only a server does that has lost a transaction, as followers of 3.8.0 do now and then when they fall
out and come back in the same process (ZOOKEEPER-4712): it goes on showing nodes that are deleted.
Therefore a node that is missing where the write of that look is newer than it has gone, whatever
another member says later; that one is counted as disputed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Self

from tests.interop.chaos_ways import clock
from tests.interop.chaos_workers import FAIR, ROOT
from tests.support.history import Record
from zkwire import Client, ClientClosedError, NoNodeError, SessionExpiredError, ZooKeeperError

MARK = "/mark"
LOOK_SECONDS = 0.1


@dataclass
class Place:
    """A node in a queue: where it stands, when it was not there yet, when it still was there.

    It had ``gone`` when one member did not show it any more.
    """

    key: str
    fence: int
    before: float
    last: float
    gone: float = inf


class QueueWatch:
    """Looks at the queues again and again, in a thread for each member, until it is closed."""

    def __init__(self, hosts: Sequence[str], session_timeout: float) -> None:
        self._session_timeout = session_timeout
        self._guard = threading.Lock()
        self._places: dict[str, Place] = {}  # by path
        self._standing: dict[str, dict[str, Place]] = {key: {} for key in FAIR}
        self._disputed = set[str]()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(each,), name=f"queue watch {each}")
            for each in hosts
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def watching(self) -> bool:
        """Whether all of them still look."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def disputed(self) -> int:
        """How many nodes a member has shown after another one had not any more."""
        return len(self._disputed)

    def _watch(self, hosts: str) -> None:
        while not self._over.is_set():
            client = Client(hosts, session_timeout=self._session_timeout, operation_timeout=5.0)
            try:
                self._watch_with(client)
            finally:
                client.close()

    def _watch_with(self, client: Client) -> None:
        before = dict.fromkeys(FAIR, 0.0)
        while not self._over.wait(LOOK_SECONDS):
            try:
                self.look(client, before)
            except (SessionExpiredError, ClientClosedError):
                return
            except ZooKeeperError:
                continue  # a look that has failed shows nothing, and proves nothing

    def look(self, client: Client, before: dict[str, float]) -> None:
        """One look; ``before`` is when this client has begun its last one, by queue."""
        began = clock()
        newest = client.set_data(MARK, b"").mzxid
        for key in FAIR:
            with suppress(NoNodeError):  # nobody has contended yet
                paths = {f"{ROOT}/{key}/{name}" for name in client.get_children(f"{ROOT}/{key}")}
                self._miss(key, paths, newest, clock())
                for path in paths:
                    self._see(client, key, path, before[key], began)
            before[key] = began

    def _miss(self, key: str, paths: set[str], newest: int, now: float) -> None:
        """What this member does not show has gone, if it is old enough to be known here."""
        with self._guard:
            standing = self._standing[key]
            for path in standing.keys() - paths:
                if standing[path].fence < newest:
                    standing.pop(path).gone = now

    def _see(self, client: Client, key: str, path: str, before: float, began: float) -> None:
        if path not in self._places:
            stat = client.exists(path)
            if stat is None:
                return
            with self._guard:
                if path not in self._places:
                    place = self._standing[key][path] = Place(key, stat.czxid, before, began)
                    self._places[path] = place
        with self._guard:
            place = self._places[path]
            if began > place.gone:
                self._disputed.add(path)
            else:
                place.last = max(place.last, began)

    def records(self) -> list[Record]:
        """What `tests.support.history` needs to know of everybody who was seen in a queue."""
        return list(records_of(list(self._places.values())))


def records_of(places: list[Place]) -> Iterator[Record]:
    """Each place waits under a name of its own, from before it was there until it was seen last."""
    for key in FAIR:
        yield Record(0.0, "", "lock", key, ordered=True)
    for place in places:
        who = f"place {place.fence:#x}"
        yield Record(place.before, who, "arrive", place.key, fence=place.fence)
        last = min(place.last, place.gone)
        yield Record(last, who, "give up", place.key, note="seen for the last time")

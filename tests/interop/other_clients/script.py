"""The script by the driver of a client of the atlas, on one server: what it says, line by line."""

from __future__ import annotations

import re
import time
from itertools import count
from pathlib import Path

from tests.interop.atlas.clients import Client
from tests.interop.atlas.driver import Driver
from tests.interop.other_clients.clients import act
from zkwire.testing import FaultProxy

LIMIT, SOON = 30.0, 5.0
LACKS = "none such"
SCRIPT = Path(__file__).with_suffix(".txt")
UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
SESSIONS = ("first", "other", "late", "inner")


class Talk:
    """The driver, what it has said, and the events that have not been told yet."""

    def __init__(self, client: Client, driver: Driver, proxy: FaultProxy, hosts: str) -> None:
        self.said: list[str] = []
        self._client, self._driver, self._proxy, self._hosts = client, driver, proxy, hosts
        self._seen = 0
        self._hang: set[str] = set()  # sessions that have not been connected
        self._numbers = count()

    def follow(self, task: str, line: str, *, watching: bool) -> None:
        """One line of the script, and the events after it."""
        if line.startswith("! "):
            action, *paths = line.split()[1:]
            if action != "back":
                act(action, paths, self._proxy, self._hosts)
            self._back()
            if action == "expire":
                told = self._driver.wait_told(lambda one: one.words in self._client.lost, SOON)
                self.said.append(f"{task}: told = {told and told.words}")
        elif (answer := self._ask(line)) != LACKS:
            self.said.append(f"{task}: {line} = {answer}")
        if watching and (events := self._events()):
            if self._client.language == "Go":  # each watch has a channel of its own
                events.sort()
            self.said.append(f"{task}: events = {', '.join(events)}")

    def _ask(self, line: str) -> str:
        words = line.replace("HOSTS", self._proxy.hosts).split()
        session = words.pop(0) if words[0] in SESSIONS else SESSIONS[0]
        if session in self._hang:
            return "not connected"
        answer = self._driver.ask(session, *words, limit=LIMIT)
        if words[0] == "connect" and answer.words is None:
            self._hang.add(session)
        return LACKS if answer.lacks else UUID.sub("UUID", answer.words or "no answer")

    def _back(self) -> None:
        """Until the connection, or that of another session, is there again."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until and not self._ask("other get /t").startswith("ok"):
            time.sleep(0.05)
        while time.monotonic() < until and not re.search(
            r"^ok|expired|closed|invalid|lost|closing", self._ask("get /t"), re.IGNORECASE
        ):
            time.sleep(0.05)

    def _events(self) -> list[str]:
        """All that have come or are on their way: those before that of a node for this alone."""
        last = f"/last-{next(self._numbers)}"
        for line in (f"create {last} x", f"watch data {last}", f"set {last} y -1"):
            self._ask(line)
        self._driver.wait_told(lambda one: one.words.endswith(last), LIMIT)
        told = [one.words for one in self._driver.told if one.what == "event"]
        new, self._seen = told[self._seen :], len(told)
        return [words for words in new if not words.endswith(last)]


def transcript(client: Client, hosts: str, logs: Path) -> list[str]:
    """What this client says on the server at `hosts`."""
    with FaultProxy(hosts) as proxy, client.drive(logs) as driver:
        talk, task, watching = Talk(client, driver, proxy, hosts), "", False
        for line in SCRIPT.read_text().splitlines():
            if heading := re.fullmatch(r"[\[<](\w+)[\]>]", line):
                task, watching = heading[1], line.startswith("<")
            elif line and not line.startswith("#"):
                talk.follow(task, line, watching=watching)
        return talk.said

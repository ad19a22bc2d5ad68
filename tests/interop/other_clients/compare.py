"""Other ZooKeeper clients on zkwire's embedded server and on a real one: each sees the same.

    python3 -m tests.interop.other_clients.compare          compares with the table in testing.md
    python3 -m tests.interop.other_clients.compare --write  writes it
    python3 -m tests.interop.other_clients.compare zkCli    one of them

The clients are those of the atlas, which follow `script.txt`, and ZooKeeper's own shell.  The real
server is the installed one (see `tests/support/real_servers.py`); `ZKWIRE_TEST_RELEASE`, 3.7 or
newer, is the release of both.  What each client has said is in `.check/clients`.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.interop import pages
from tests.interop.atlas.clients import CLIENTS as COLUMNS
from tests.interop.atlas.clients import Client as Column
from tests.interop.atlas.driver import Driver
from tests.interop.other_clients import zkcli
from tests.interop.other_clients.clients import FOLDER, NoClientError
from tests.support.installed_servers import find_installed
from tests.support.real_servers import EmbeddedBackend
from zkwire import Client, Watch
from zkwire.testing import FaultProxy

EXPIRY_SECONDS = 60.0
PAGE = pages.DOCUMENTS / "testing.md"
NAME = "other clients"
HEAD = ("client", "tasks", "answers")
LIMIT, SOON = 30.0, 5.0
LACKS = "none such"
SCRIPT = Path(__file__).with_name("script.txt")
UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
SESSIONS = ("first", "other", "late", "inner")


# --- the script by the driver of a client of the atlas -------------------------------------------


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


class Talk:
    """The driver, what it has said, and the events that have not been told yet."""

    def __init__(self, client: Column, driver: Driver, proxy: FaultProxy, hosts: str) -> None:
        self.said: list[str] = []
        self._client, self._driver, self._proxy, self._hosts = client, driver, proxy, hosts
        self._seen = 0
        self._hang: set[str] = set()  # sessions that have not been connected
        self._numbers = count()

    def line(self, task: str, line: str, *, watching: bool) -> None:
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


def follow(client: Column, hosts: str, logs: Path) -> list[str]:
    """What this client says on the server at `hosts`."""
    with FaultProxy(hosts) as proxy, client.drive(logs) as driver:
        talk, task, watching = Talk(client, driver, proxy, hosts), "", False
        for line in SCRIPT.read_text().splitlines():
            if heading := re.fullmatch(r"[\[<](\w+)[\]>]", line):
                task, watching = heading[1], line.startswith("<")
            elif line and not line.startswith("#"):
                talk.line(task, line, watching=watching)
        return talk.said


# --- both servers ---------------------------------------------------------------------------------


class OtherClient(NamedTuple):
    """Its name, that of the table, and what it says on a server, with logs in this folder."""

    name: str
    what: str
    says: Callable[[str, Path], list[str]]


CLIENTS = (
    OtherClient("zkCli", "ZooKeeper's own shell (Java)", lambda hosts, _: zkcli.transcript(hosts)),
    *(
        OtherClient(one.name, one.title, partial(follow, one))
        for one in COLUMNS
        if not one.name.startswith("zkwire")
    ),
)


def differences(real: Sequence[str], embedded: Sequence[str]) -> list[str]:
    """The lines that only one of the two has: with `-` those on the real one, with `+` the others.

    And a last one if the program has not said all that it has to say.
    """
    compared = difflib.unified_diff(real, embedded, n=0, lineterm="")
    found = [line for line in list(compared)[2:] if not line.startswith("@@")]
    return found if real and not real[-1].startswith("end: ") else [*found, "not done"]


def said(client: OtherClient) -> list[list[str]]:
    """What it says on both servers; they are new, and so without what others have left."""
    with find_installed().standalone() as real, EmbeddedBackend().standalone() as embedded:
        hosts = {"real": real.hosts, "embedded": embedded.hosts}
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda side: client.says(hosts[side], FOLDER / side), hosts))
    for side, lines in zip(hosts, found, strict=True):
        (FOLDER / f"{client.name}-{side}.txt").write_text("".join(f"{line}\n" for line in lines))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.other_clients.compare")
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.clients) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, good, page = [], True, PAGE.read_text()
    for client in CLIENTS:
        if options.clients and client.name not in options.clients:
            continue
        try:
            real, embedded = said(client)
        except NoClientError as error:
            print(f"{client.name}: CANNOT BE RUN: {error}", flush=True)
            good = False
            continue
        tasks = dict.fromkeys(line.partition(":")[0] for line in real)
        rows.append((client.what, ", ".join(tasks), len(real)))
        print(pages.row(rows[-1]), *differences(real, embedded), sep="\n  ", flush=True)
        good = good and not differences(real, embedded)
    if options.write and good and not options.clients:
        table = pages.table(HEAD, rows)
        return pages.settle({PAGE: pages.with_parts(page, {NAME: table})}, write=True)
    old = pages.part(page, NAME)
    missing = [f"not in {PAGE.name}: {row}" for row in map(pages.row, rows) if row not in old]
    print(*missing or ["as the page says"], sep="\n")
    return 0 if good and not missing and not options.write else 1


if __name__ == "__main__":
    sys.exit(main())

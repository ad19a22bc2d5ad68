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
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.interop import pages
from tests.interop.atlas.clients import CLIENTS as COLUMNS
from tests.interop.other_clients import zkcli
from tests.interop.other_clients.clients import FOLDER, NoClientError
from tests.interop.other_clients.differences import DIFFERENT, differences
from tests.interop.other_clients.script import transcript as follow
from tests.support.embedded_servers import EmbeddedBackend
from tests.support.installed_servers import find_installed

PAGE = pages.DOCUMENTS / "testing.md"
NAME = "other clients"
BEGIN, END = pages.marks(NAME)
HEAD = pages.table(["client", "tasks", "answers", "alike", "listed"], [])


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


class Compared(NamedTuple):
    """What one client has said on both, and how it is judged."""

    client: OtherClient
    real: list[str]
    differing: list[str]

    @property
    def new(self) -> list[str]:
        """The differences that no list has."""
        listed = DIFFERENT.get(self.client.name, {})
        return [line for line in self.differing if line not in listed]

    @property
    def complete(self) -> bool:
        """Whether the program has said all that it has to say on the real server."""
        return bool(self.real) and not self.real[-1].startswith("end: ")

    def row(self) -> str:
        """Its line of the table."""
        tasks = dict.fromkeys(line.partition(":")[0] for line in self.real)
        alike = len(self.real) - sum(line.startswith("-") for line in self.differing)
        listed = len(self.differing)
        return pages.row([self.client.what, ", ".join(tasks), len(self.real), alike, listed])


def compare(client: OtherClient) -> Compared:
    """Have it talk to both servers at once; they are new, and so without what others have left."""
    with find_installed().standalone() as real, EmbeddedBackend().standalone() as embedded:
        hosts = {"real": real.hosts, "embedded": embedded.hosts}
        with ThreadPoolExecutor(2) as pool:
            said = pool.map(lambda side: client.says(hosts[side], FOLDER / side), hosts)
            found = dict(zip(hosts, said, strict=True))
    for side, lines in found.items():
        text = "".join(f"{line}\n" for line in lines)
        (FOLDER / f"{client.name}-{side}.txt").write_text(text)
    return Compared(client, found["real"], differences(found["real"], found["embedded"]))


def judge(compared: Compared) -> bool:
    """Say what differs; whether it is what the list says, and all of it."""
    listed = DIFFERENT.get(compared.client.name, {})
    for line in compared.differing:
        print(f"  {'listed' if line in listed else 'DIFFERS'} {line}")
    gone = sorted(listed.keys() - set(compared.differing))
    for line in gone:
        print(f"  listed, and not seen: {line}")
    if not compared.complete:
        print(f"  NOT DONE: {compared.real[-1:]}")
    return compared.complete and not compared.new and not gone


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.other_clients.compare")
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.clients) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, good, page = "", True, PAGE.read_text()
    for client in CLIENTS:
        if options.clients and client.name not in options.clients:
            continue
        start = time.monotonic()
        try:
            compared = compare(client)
        except NoClientError as error:
            print(f"{client.name}: CANNOT BE RUN: {error}", flush=True)
            good = False
            continue
        print(f"{compared.row().rstrip()} {time.monotonic() - start:.0f} s", flush=True)
        good = judge(compared) and good
        rows += compared.row()
    if options.write and good and not options.clients:
        PAGE.write_text(pages.with_parts(page, {NAME: HEAD + rows}))
        return 0
    old = pages.part(page, NAME).splitlines()
    missing = [line for line in rows.splitlines() if line not in old]
    print("\n".join(f"not in {PAGE.name}: {line}" for line in missing) or "as the page says")
    return 0 if good and not missing and not options.write else 1


if __name__ == "__main__":
    sys.exit(main())

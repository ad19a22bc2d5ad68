"""Other ZooKeeper clients on zkwire's embedded server and on a real one: each sees the same.

    python3 -m tests.interop.other_clients.compare          compares with the table in testing.md
    python3 -m tests.interop.other_clients.compare --write  writes it
    python3 -m tests.interop.other_clients.compare zkCli    one of them

The programs are those of `tests/interop/other_clients/`.  The real server is the installed one (see
`tests/support/real_servers.py`); `ZKWIRE_TEST_RELEASE`, 3.7 or newer, is the release of both.
What each program has said is in `.check/clients`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.interop.other_clients.clients import CLIENTS, FOLDER, NoClientError, OtherClient
from tests.interop.other_clients.conversation import transcript
from tests.interop.other_clients.differences import DIFFERENT, differences
from tests.support.embedded_servers import EmbeddedBackend
from tests.support.installed_servers import find_installed

PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- begin: other clients -->\n", "<!-- end: other clients -->"
HEAD = "| client | tasks | answers | alike | listed |\n| --- | --- | --- | --- | --- |\n"


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
        other = sum(line.startswith("-") for line in self.differing)
        alike = len(self.real) - other
        cells = self.client.what, ", ".join(tasks), len(self.real), alike, len(self.differing)
        return f"| {' | '.join(map(str, cells))} |\n"


def compare(client: OtherClient) -> Compared:
    """Run its program on both servers at once.

    They are new: a program leaves nodes that it may not delete itself.
    """
    command = client.provide()
    with find_installed().standalone() as real, EmbeddedBackend().standalone() as embedded:
        hosts = {"real": real.hosts, "embedded": embedded.hosts}

        def said(side: str) -> list[str]:
            return transcript(command, hosts[side], FOLDER / f"{client.name}-{side}.log")

        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(hosts, pool.map(said, hosts), strict=True))
    for side, lines in found.items():
        (FOLDER / f"{client.name}-{side}.txt").write_text("".join(f"{line}\n" for line in lines))
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


def run(chosen: Sequence[OtherClient]) -> tuple[str, bool]:
    """The table's rows; whether all is well."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, good = "", True
    for client in chosen:
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
    return rows, good


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.other_clients.compare")
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.clients) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    chosen = [c for c in CLIENTS if not options.clients or c.name in options.clients]
    rows, good = run(chosen)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    if options.write and good and len(chosen) == len(CLIENTS):
        PAGE.write_text(before + BEGIN + HEAD + rows + END + after)
        return 0
    missing = sorted(set(rows.splitlines()) - set(old.splitlines()))
    print("\n".join(f"not in {PAGE.name}: {line}" for line in missing) or "as the page says")
    return 0 if good and not missing and not options.write else 1


if __name__ == "__main__":
    sys.exit(main())

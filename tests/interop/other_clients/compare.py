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
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.interop import pages
from tests.interop.atlas.clients import CLIENTS as COLUMNS
from tests.interop.other_clients import zkcli
from tests.interop.other_clients.clients import FOLDER, NoClientError
from tests.interop.other_clients.script import transcript as follow
from tests.support.embedded_servers import EmbeddedBackend
from tests.support.installed_servers import find_installed

PAGE = pages.DOCUMENTS / "testing.md"
NAME = "other clients"
HEAD = ("client", "tasks", "answers")


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

"""Run every operation and recipe on each release; compare docs/operations.md, or write it again.

The releases are Debian's and those of `ZOOKEEPER_HOME`; columns of others stay as they are.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.interop.matrix import table
from tests.support.installed_servers import every_release, find_installed


def main() -> int:
    """The exit status: 1 if the document or its data say something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.interop.matrix", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the document")
    arguments = parser.parse_args()
    found = table.stored() if table.DATA.exists() else {}
    for release in every_release():
        os.environ["ZKWIRE_TEST_RELEASE"] = release
        with find_installed().standalone() as server:
            found[release] = table.outcomes(server, "/matrix")
        found[release][table.SWITCHED] = table.switched()
        print(f"{release}: {sum(map(len, found[release].values()))} rows", flush=True)
    text = table.DOCUMENT.read_text()
    new = table.replaced(text, found)
    if arguments.write:
        table.DOCUMENT.write_text(new)
        table.DATA.write_text(table.written(found))
    elif new != text or table.DATA.read_text() != table.written(found):
        print(f"{table.DOCUMENT.name} or {table.DATA.name} says something else; --write mends it")
        return 1
    return 0


sys.exit(main())

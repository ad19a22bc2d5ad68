"""Run all experiments with both clients; compare the document and its data, or write both again."""

from __future__ import annotations

import argparse
import sys
import time
from difflib import unified_diff

from tests.connection_loss import data, document, every
from tests.support.real_servers import find_backend


def main() -> int:
    """The exit status: 1 if the document, or one of the clients, says something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.connection_loss", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the document")
    arguments = parser.parse_args()
    started = time.monotonic()
    by_client = every.tables(find_backend())
    took = time.monotonic() - started
    text = document.PATH.read_text()
    texts = {title: document.replaced(text, made) for title, made in by_client.items()}
    (title, new), (other_title, other) = texts.items()
    lines = every.cells(by_client[title])
    print(f"{lines} lines of tables, each from runs of {title} and {other_title}, in {took:.1f} s")
    if other != new:
        print("\n".join(unified_diff(new.splitlines(), other.splitlines(), title, other_title)))
        print("the clients differ")
        return 1
    if arguments.write:
        document.PATH.write_text(new)
        data.PATH.write_text(data.written(by_client[title]))
    elif new != text or data.PATH.read_text() != data.written(by_client[title]):
        print(f"{document.PATH.name} or {data.PATH.name} says something else; --write mends it")
        return 1
    return 0


sys.exit(main())

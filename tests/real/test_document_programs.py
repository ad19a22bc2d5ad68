"""The code of the pages runs as it stands on a server, and does what the pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

import zkwire
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.snippets import HOSTS, ROOT, blocks
from zkwire import Client, Partitioner

COLUMN = "\N{MULTIPLICATION SIGN} kazoo"
MARKED = re.compile(r"```python\n((?:(?!```).)*)```\n<!-- prints: (.*?) -->", re.DOTALL)
PRINTED: dict[str, tuple[str, ...]] = {
    "README.md": ("now there: b'paid'", "fencing token: ", "now done"),
    "docs/client.md": ("NODE_DATA_CHANGED", "BadVersionError", "now "),
    "docs/queue.md": ("working on b'urgent'\nremoved b'resize image 7' and 2 are left\n",),
    "docs/watching.md": (
        "no limit\nversion 0: 10\nversion 1: 20\n",
        "b'20'\nNone\n",
        "[]\n['b']\n['a', 'b']\n",
        "configured: b'on'\n",
        "the limit is 20\nthe limit is 30\n",
        "b'99' True\n",
    ),
    "docs/cache.md": (
        "added /services b''\nadded /services/mail b'host-1'\n",
        "['mail']\nb'host-1' 0\nFalse 2 True\n",
        "10\n",
        "['mail']\n",
        "added /services\n",
    ),
    "docs/atlas.md": (
        "told: another client has made /mine\n",
        "zkwire: sent, and the answer was lost: True\n",
        "the holder says: True\n",
    ),
}
"""What each block of a page prints, or a part of it."""
SAID = ("docs/watching.md", "docs/cache.md")
"""The pages that say in comments what is printed."""


def rows() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """For each page its blocks, each with what it prints."""
    for page, printed in PRINTED.items():
        yield page, list(zip(blocks(page), printed, strict=True))
    for path in sorted((ROOT / "docs").glob("*.md")):
        if marked := MARKED.findall(path.read_text()):
            yield f"docs/{path.name}", [(block, json.loads(text)) for block, text in marked]


@pytest.mark.smoke
@pytest.mark.since("3.6")
@pytest.mark.parametrize(("page", "found"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_code_runs_and_prints_what_the_page_says(
    page: str,
    found: list[tuple[str, str]],
    zookeeper: ZooKeeperServer,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Below a root of its own; one page has a proxy's address, so it has other paths instead."""
    root = "" if page == "docs/atlas.md" else fresh_path
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for block, printed in found:
            own = block if root else re.sub(r'"/(mine|by-|lock)', rf'"{fresh_path}/\1', block)
            exec(own.replace(HOSTS, zookeeper.hosts + root), {})
            shown = capsys.readouterr().out
            assert printed in shown
            assert "stop:" not in shown
        client.delete_tree(fresh_path)


@pytest.mark.parametrize("page", SAID)
def test_what_comments_say_is_printed(page: str) -> None:
    said = [
        comment for block in blocks(page) for comment in re.findall(r"print\(.*\)  # (.*)", block)
    ]
    printed = "".join(PRINTED[page]).splitlines()
    assert said
    for comment in said:
        assert any(comment.startswith(line) for line in printed), comment


def test_each_error_of_the_readme_exists() -> None:
    for name in re.findall(r"`(\w+Error)`", (ROOT / "README.md").read_text()):
        assert issubclass(getattr(zkwire, name), zkwire.ZooKeeperError)


@pytest.mark.parametrize("work", ["get, one at a time", "free lock, acquire and release"])
def test_a_get_and_a_lock_take_a_seventh_to_a_third_of_kazoos_time(work: str) -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in table]
    column = next(row.index(COLUMN) for row in cells if COLUMN in row)
    (figure,) = [row[column] for row in cells if row[1:2] == [work]]
    assert 0.14 < float(figure) < 0.35


# --- code that goes on until it is stopped --------------------------------------------------------


class EnoughError(Exception):
    """The example's endless loop has shown what it is for."""


def test_services_of_the_page_register_and_are_found(
    zookeeper: ZooKeeperServer, observer: Client
) -> None:
    register, discover, _ = blocks("docs/membership.md")
    found: list[list[str]] = []

    def discovered(_: str) -> None:
        def show(services: list[str]) -> None:
            found.append(services)
            raise EnoughError

        with suppress(EnoughError):
            exec(discover.replace(HOSTS, zookeeper.hosts), {"print": show})

    exec(register.replace(HOSTS, zookeeper.hosts), {"input": discovered})
    assert found == [["10.0.0.5:8080"]]
    assert not observer.exists("/services/web") or observer.get_children("/services/web") == []


def test_the_kept_node_of_the_page_has_another_owner(
    zookeeper: ZooKeeperServer, observer: Client
) -> None:
    shown: list[object] = []
    names: dict[str, object] = {"print": lambda *x: shown.extend(x)}
    code = blocks("docs/membership.md")[2].replace(HOSTS, zookeeper.hosts)
    exec(code, names)
    assert shown == []
    poll("gone", lambda: observer.exists("/services/db") is None or None, PATIENCE)
    observer.ensure_path("/services")
    observer.create("/services/db")
    exec(code.replace("5.0", "1.0"), names)
    observer.delete("/services/db")
    text, conflict = shown
    assert text == "another owner:"
    assert getattr(conflict, "ephemeral_owner", None) == 0


ITEMS = {"news", "blogs", "shops"}


def test_a_member_of_the_page_has_the_items_until_it_stops(
    zookeeper: ZooKeeperServer, observer: Client
) -> None:
    working, ends, code = set[str](), list[bool](), blocks("docs/partitioner.md")[0]

    def show(what: str, items: Iterable[str]) -> None:
        if what == "work on":
            working.update(items)
        else:
            working.difference_update(items)
            if ends:
                raise EnoughError

    def program() -> None:
        with suppress(EnoughError):
            exec(code.replace(HOSTS, zookeeper.hosts), {"print": show})

    running = Running(program)
    poll("it has all", lambda: working == ITEMS or None, PATIENCE)
    ends.append(True)
    with Partitioner(observer, "/crawl", ITEMS) as other:
        running.result()
        assert other.next(PATIENCE)
        assert working < ITEMS
    observer.delete_tree("/crawl")


def test_the_loop_of_the_page_works_until_the_share_changes(
    zookeeper: ZooKeeperServer, observer: Client
) -> None:
    worked: list[tuple[str, int]] = []

    def show(_: str, item: str, __: str, fence: int) -> None:
        worked.append((item, fence))
        if len(worked) == 6:
            raise EnoughError

    with suppress(EnoughError):
        exec(blocks("docs/partitioner.md")[1].replace(HOSTS, zookeeper.hosts), {"print": show})
    assert worked[:3] == worked[3:]
    assert {item for item, _ in worked} == ITEMS
    observer.delete_tree("/crawl")

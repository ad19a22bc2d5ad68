"""Issues and changes of the clients' own projects that explain a cell of the atlas."""

from __future__ import annotations

GITHUB = "https://github.com"
ISSUES = (
    ("watch-data-", "kazoo", "kazoo 151", "python-zk/kazoo/issues/151"),
    ("watch-children-", "kazoo", "kazoo 151", "python-zk/kazoo/issues/151"),
    ("lock-giveup-before", "kazoo", "kazoo 760", "python-zk/kazoo/pull/760"),
    ("retried-after", "kazoo", "ClickHouse 105707", "ClickHouse/ClickHouse/pull/105707"),
    ("end-fork", "kazoo", "kazoo 519", "python-zk/kazoo/issues/519"),
    ("create-after", "curator", "CURATOR-268", "apache/curator/issues/788"),
    ("delete-after", "curator", "CURATOR-268", "apache/curator/issues/788"),
    ("set-after", "curator", "CURATOR-584", "apache/curator/issues/1101"),
    ("multi-after", "curator", "CURATOR-584", "apache/curator/issues/1101"),
    ("lock-partition", "curator", "CURATOR-206", "apache/curator/issues/727"),
    ("lock-stopped", "curator", "CURATOR-206", "apache/curator/issues/727"),
    ("session-good", "java", "ZOOKEEPER-4508", "apache/zookeeper/pull/2058"),
    ("watch-persistent-away", "java", "ZOOKEEPER-1416", "apache/zookeeper/pull/1106"),
    ("watch-recursive-away", "java", "ZOOKEEPER-1416", "apache/zookeeper/pull/1106"),
    ("watch-persistent-lost", "java", "ZOOKEEPER-4655", "apache/zookeeper/pull/1950"),
    ("watch-recursive-lost", "java", "ZOOKEEPER-4655", "apache/zookeeper/pull/1950"),
    ("list-renamed", "java", "ZOOKEEPER-2184", "apache/zookeeper/pull/451"),
    ("list-renamed", "go", "go-zookeeper 44", "samuel/go-zookeeper/issues/44"),
    ("watch-", "go", "go-zookeeper 83", "samuel/go-zookeeper/issues/83"),
    ("lock-partition", "go", "go-zookeeper 20", "samuel/go-zookeeper/issues/20"),
    ("lock-stopped", "go", "go-zookeeper 20", "samuel/go-zookeeper/issues/20"),
    (
        "session-good",
        "node",
        "node-zookeeper-client 20",
        "alexguan/node-zookeeper-client/issues/20",
    ),
    ("lie-cut", "node", "node-zookeeper-client 39", "alexguan/node-zookeeper-client/issues/39"),
    ("lie-minus", "node", "node-zookeeper-client 39", "alexguan/node-zookeeper-client/issues/39"),
    ("lie-short", "node", "node-zookeeper-client 39", "alexguan/node-zookeeper-client/issues/39"),
    ("end-away", "node", "node-zookeeper-client 60", "alexguan/node-zookeeper-client/issues/60"),
)
"""The begin of a point's key, a client or the first word of its name, a title, a place."""


def known(key: str, name: str) -> str:
    """A link, or nothing."""
    for begin, client, title, place in ISSUES:
        if key.startswith(begin) and name in (client, f"{client}-3.8.0", f"{client}-3.9.5"):
            return f"[{title}]({GITHUB}/{place})"
    return ""

"""The programs: what is installed, which of their tests run, and which end differently, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.pages import DOCUMENTS

PAGE = DOCUMENTS / "how-to" / "kazoo-programs.md"
REQUIREMENTS = (
    "kazoo[sasl]==2.11.0",
    # What its tests import; without gevent and eventlet, whose handlers they would take for others.
    *("objgraph", "pyjks", "pytest", "pytest-timeout"),
    "pyopenssl<25",  # later ones lack the extensions of certificates that kazoo's harness makes
    "tooz[etcd3gw,ipc,memcached,mysql,postgresql,redis,zookeeper]==9.1.0",
    "taskflow==6.5.0",
    "kombu==5.7.0",
    "patroni==4.1.5",
    "zk_shell==1.3.4",
    # What the others' tests import.
    *("alembic", "ddt", "fixtures", "oslotest", "psycopg2-binary", "pymysql", "redis"),
    *("SQLAlchemy", "SQLAlchemy-Utils", "testscenarios", "testtools"),
)
GREEN = ("gevent==26.9.0", "eventlet==0.41.3")
"""For the trial of green threads alone."""

OWN_PARTS = "they change or read parts of kazoo's own connection, which is not there"
QUEUE = "they wait for a request in kazoo's own queue, which stays empty"


@dataclass(frozen=True)
class Program:
    """One program; ``tests`` are arguments for pytest.

    ``own_servers``: it starts ZooKeeper itself, with kazoo's harness.  ``known``: the tests that
    pass with kazoo and not with zkwire, each with the reason.  ``least``: how many must pass.
    """

    name: str
    what: str
    tests: tuple[str, ...]
    least: int
    own_servers: bool = False
    known: Mapping[str, str] = field(default_factory=dict[str, str])


PROGRAMS = (
    Program(
        "tooz",
        "tooz 9.1: its tests of coordination and of partitioners",
        ("--pyargs", "tooz.tests.test_coordination", "tooz.tests.test_partitioner"),
        90,
    ),
    Program(
        "taskflow",
        "taskflow 6.5: its tests of jobs and of persistence",
        (
            "--pyargs",
            "taskflow.tests.unit.jobs.test_zk_job",
            "taskflow.tests.unit.persistence.test_zk_persistence",
        ),
        40,
    ),
    Program(
        "kombu",
        "kombu 5.7: queues, priorities, purge, delete; checks of ours",
        ("check_kombu.py",),
        4,
    ),
    Program(
        "patroni",
        "patroni 4.1.5: its ZooKeeper class through the life of a leader; checks of ours",
        ("check_patroni.py",),
        9,
    ),
    Program(
        "zk_shell",
        "zk_shell 1.3.4: its tests",
        ("--pyargs", "zk_shell.tests"),
        122,
        own_servers=True,
    ),
    Program(
        "kazoo",
        "kazoo 2.11: its own tests, without those of its green handlers and of SASL",
        (
            *("--ignore-glob=*/test_gevent_handler.py", "--ignore-glob=*/test_eventlet_handler.py"),
            *("--ignore-glob=*/test_sasl.py", "--pyargs", "kazoo.tests"),
        ),
        296,
        own_servers=True,
        known={
            "test_cache.KazooTreeCacheTests.test_close": "it counts watches in kazoo's own tables",
            "test_client.TestClientTransitions.test_connection_and_disconnection": (
                "it expects no SUSPENDED before LOST, as kazoo's harness forges an expiry"
            ),
            "test_client.TestClient.test_request_queuing_session_expired": QUEUE,
            "test_client.TestClient.test_request_queuing_session_recovered": QUEUE,
            **{
                f"test_connection.{name}": OWN_PARTS
                for name in (
                    "TestConnectionHandler.test_bad_deserialization",
                    "TestConnectionHandler.test_connection_deserialize_fail",
                    "TestConnectionHandler.test_connection_read_timeout",
                    "TestConnectionHandler.test_connection_sock",
                    "TestConnectionHandler.test_connection_write_timeout",
                    "TestConnectionHandler.test_dirty_sock",
                    "TestUnorderedXids.test_xids_mismatch",
                )
            },
        },
    ),
)


def differences() -> str:
    """The tests that pass with kazoo's connection alone, by their reasons, for the page."""
    by_reason: dict[str, list[str]] = {}
    for program in PROGRAMS:
        for test, reason in program.known.items():
            by_reason.setdefault(reason, []).append(f"`{test.rpartition('.')[2]}`")
    return "".join(f"* {reason}: {', '.join(tests)}\n" for reason, tests in by_reason.items())

"""The commands about access lists, transactions, quotas, the ensemble and the session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shell.test_command_nodes import prints, refuses
from tests.support.command import run
from zkwire.testing import Ensemble, Server


def test_an_access_list(server: Server) -> None:
    prints(server, "create", "-p", "/a/b/c")
    open_to_all = "world:anyone:cdrwa"
    assert prints(server, "acl", "get", "/a") == [open_to_all]
    assert prints(server, "acl", "set", "/a", f"ip:127.0.0.1:cdrwa,{open_to_all}") == ["1"]
    assert prints(server, "acl", "set", "-v", "1", "/a", "ip:10.0.0.0/8:r", open_to_all) == ["2"]
    assert prints(server, "acl", "get", "/a") == ["ip:10.0.0.0/8:r", open_to_all]
    shown = run(server.hosts, "acl", "get", "--json", "/a").record
    assert (shown["acl"], shown["acl_version"]) == (["ip:10.0.0.0/8:r", open_to_all], 2)
    assert refuses(server, "acl", "set", "-v", "1", "/a", open_to_all)[0] == 1
    version, *stat = prints(server, "acl", "set", "-s", "/a", open_to_all)
    assert (version, stat[6]) == ("3", "aversion = 3")
    shown = run(server.hosts, "acl", "set", "-s", "--json", "/a", open_to_all).record
    assert (shown["acl_version"], shown["stat"]["aversion"]) == (4, 4)


def test_an_access_list_that_closes_a_tree_reaches_all_of_it(server: Server) -> None:
    """Each node is closed, although what is below a closed one cannot be listed."""
    prints(server, "create", "-p", "/a/b/c")
    assert prints(server, "acl", "set", "-R", "/a", "ip:10.0.0.1:cdrwa") == ["3"]
    assert refuses(server, "ls", "/a")[1].startswith("NoAuth")
    assert refuses(server, "get", "/a/b/c")[1].startswith("NoAuth")


def test_a_transaction(server: Server) -> None:
    prints(server, "create", "/config", "old")
    prints(server, "create", "/old")
    words = "check /config 0", "set /config 'new value'", "create -s /n- x", "rm -v 0 /old"
    assert prints(server, "txn", *words) == [
        "check /config",
        "set /config 1",
        "create /n-0000000002",
        "rm /old",
    ]
    assert prints(server, "get", "/config") == ["new value"]
    lines = b"# from a file\n\nset -v 1 /config x\n"
    assert run(server.hosts, "txn", "--json", stdin=lines).record["results"] == [
        {"op": "set", "path": "/config", "version": 2}
    ]
    status, line = refuses(server, "txn", "create /new", "rm /missing")
    assert (status, line.partition(" ")[0]) == (1, "Multi:")
    assert "delete /missing" in line
    assert run(server.hosts, "exists", "/new").status == 1


def test_a_quota(server: Server) -> None:
    prints(server, "create", "-p", "/q/jobs/a", "12345")
    prints(server, "quota", "set", "/q/jobs", "-n", "10", "-B", "5000")
    limits = "/zookeeper/quota/q/jobs/zookeeper_limits"
    assert prints(server, "get", limits) == [
        "count=10,bytes=-1=;byteHardLimit=5000;countHardLimit=-1"
    ]
    shown = ["nodes = 2, limit 10, hard limit none", "bytes = 5, limit none, hard limit 5000"]
    assert prints(server, "quota", "get", "/q/jobs") == shown
    prints(server, "quota", "set", "/q/jobs", "-n", "none", "-b", "7", "-B", "none")
    assert prints(server, "get", limits) == ["count=-1,bytes=7=;byteHardLimit=-1;countHardLimit=-1"]
    inside = run(f"{server.hosts}/q", "quota", "get", "--json", "/jobs").record
    assert inside["path"] == "/jobs"
    assert inside["bytes"] == {"used": 5, "limit": 7, "hard_limit": None}
    assert "/q/jobs below it has a quota" in refuses(server, "quota", "set", "/q", "-n", "1")[1]
    assert "/q/jobs above it" in refuses(server, "quota", "set", "/q/jobs/a", "-n", "1")[1]
    prints(server, "set", limits, "count=1_0")
    status, said = refuses(server, "quota", "get", "/q/jobs")
    assert (status, "no quota can be read in b'count=1_0'" in said) == (2, True)
    prints(server, "quota", "del", "/q/jobs")
    assert prints(server, "ls", "-R", "/zookeeper/quota") == []
    assert refuses(server, "quota", "del", "/q/jobs") == (1, "NoNode: /q/jobs has no quota")
    assert refuses(server, "quota", "set", "/none", "-n", "1")[0] == 1


def test_the_session_and_the_ensemble(server: Server) -> None:
    assert prints(server, "whoami") == ["ip:127.0.0.1"]
    assert prints(server, "ephemerals") == []
    assert prints(server, "config") == []
    assert run(server.hosts, "config", "--json").record["members"] == []
    assert refuses(server, "reconfig", "--remove", "3")[0] == 1


def test_the_configuration_of_an_ensemble(tmp_path: Path) -> None:
    (tmp_path / "super").write_text("super:secret\n")
    with Ensemble(3, reconfig=True, super_password="secret") as ensemble:
        auth = "--auth", f"digest:{tmp_path / 'super'}"
        who = ["digest:super", "ip:127.0.0.1", "super:"]
        assert sorted(prints(ensemble, *auth, "whoami")) == who  # of a set
        *members, version = prints(ensemble, "config")
        assert len(members) == 3
        assert prints(ensemble, "config", "-c") == [ensemble.hosts]
        assert refuses(ensemble, "reconfig", "--remove", "3")[1].startswith("NoAuth")
        old = version.removeprefix("version=")
        two = prints(ensemble, *auth, "reconfig", "--remove", "3", "-v", old)
        assert two[:-1] == members[:2]
        assert refuses(ensemble, *auth, "reconfig", "--remove", "3", "-v", old)[0] == 1
        (tmp_path / "all").write_text("\n".join(["# all", *members, version]))
        assert prints(ensemble, *auth, "reconfig", "--file", str(tmp_path / "all"))[:-1] == members
        shown = run(ensemble.hosts, "config", "--json").record
        assert (shown["members"], len(shown["clients"])) == (members, 3)
        assert int(shown["version"], 16) > int(old, 16)


@pytest.mark.parametrize("words", [
    "acl get /a world:anyone:r", "acl set /a", "acl set -R -v 1 /a world:anyone:r",
    "acl set -R -s /a world:anyone:r", "acl drop /a", "txn", "txn fly", "txn set",
    "txn create'/a", "quota set /a", "quota get /a -n 3", "quota set / -n 3",
    "quota set /zookeeper/config -n 3", "quota set /a -n -3", "quota set /a -n many", "reconfig",
    "reconfig --add a --file b", "reconfig --remove 3 -v later",
])  # fmt: skip
def test_bad_words_of_these_send_nothing_either(words: str) -> None:
    ran = run("127.0.0.1:1", "--connect-timeout", "0", *words.split(" "))
    assert (ran.status, ran.out) == (2, b"")
    assert re.fullmatch("zkwire: .+\n", ran.err)

"""dump, load and copy: what arrives is what was there, also through connections that break."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from zkwire import ACL, CREATOR_ALL_ACL, Client, Perms, digest_auth, digest_id
from zkwire.cli.main import main
from zkwire.cli.output import entry_text
from zkwire.cli.transfer.plan import Plan, Writer
from zkwire.cli.transfer.tree import Node, Place
from zkwire.jute.frames import SEND_LIMIT
from zkwire.jute.records import CreateRequest
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, cut_after, cut_before
from zkwire.wire.model import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

UNUSUAL = ("a b", "ü€", "comma,name", '"quoted"', "-n", "#", "0000000007", "x" * 200)
BOB = digest_auth("bob", "secret")


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Run:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, hosts: str, *words: str) -> Done:
        status = main(["--server", hosts, *words])
        return Done(status, *self._capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture
def tree(server: Server) -> Server:
    """A server with a tree at /a, of names and data of every kind."""
    with Client(server.hosts) as client:
        client.create("/a", b"root")
        for number, name in enumerate(UNUSUAL):
            client.create(f"/a/{name}", bytes(range(number * 20)))
        client.create("/a/ü€/deep", "ü".encode(), READ_ACL_UNSAFE)
        client.create("/a/ü€/-x", acl=[*OPEN_ACL_UNSAFE, ACL(Perms.ALL, digest_id("bob", "x"))])
    return server


def text_of(run: Run, hosts: str, path: str) -> str:
    """The dump of a tree, without the line that says where it was."""
    done = run(hosts, "dump", path)
    assert (done.status, done.err) == (0, "")
    return done.out.partition("\n")[2]


def test_dump_load_dump_is_equal_to_the_byte(tree: Server, run: Run, tmp_path: Path) -> None:
    file, again = tmp_path / "a.jsonl", tmp_path / "again.jsonl"
    assert run(tree.hosts, "dump", "/a", str(file)) == (0, "", "")
    with Server() as target:
        done = run(target.hosts, "load", str(file))
        assert done == (0, "created 11, changed 0, deleted 0, equal 0\n", "")
        assert run(target.hosts, "dump", "/a", str(again)) == (0, "", "")
        assert again.read_bytes() == file.read_bytes()
        done = run(target.hosts, "load", str(file), "--json")
        counts = {"created": 0, "changed": 0, "deleted": 0, "equal": 11}
        assert json.loads(done.out) == {"v": 1, "path": "/a", **counts}
    paths = [json.loads(line).get("path") for line in file.read_text().splitlines()]
    assert paths[1:-1] == ["/", *sorted(f"/{n}" for n in UNUSUAL), "/ü€/-x", "/ü€/deep"]
    assert sorted(tmp_path.iterdir()) == [file, again], "no file in part is left"


def test_a_file_is_replaced_by_a_whole_one_only(tree: Server, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("mine")
    assert run(tree.hosts, "dump", "/a", str(file)).status == 1
    tree.refuse_next("get_data", -102, nth=5)
    assert run(tree.hosts, "dump", "/a", str(file), "--force").status == 1
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("mine", [file])
    assert run(tree.hosts, "dump", "/a", str(file), "--force") == (0, "", "")
    assert file.read_text().endswith('{"end": true}\n')


def test_what_is_missing_or_goes_meanwhile(tree: Server, run: Run) -> None:
    done = run(tree.hosts, "dump", "/nothing")
    assert (done.status, done.out) == (1, "")
    whole = text_of(run, tree.hosts, "/a").splitlines()
    tree.refuse_next("get_acl", -101, nth=2)
    done = run(tree.hosts, "dump", "/a")
    assert (done.status, done.err) == (0, "1 node is deleted meanwhile, left out\n")
    assert done.out.splitlines()[1:] == [whole[0], *whole[2:]]
    tree.refuse_next("get_children", -101, nth=2)
    done = run(tree.hosts, "dump", "/a")
    assert done.out.splitlines()[1:] == [
        line for line in whole if "€/" not in line.replace("\\u20ac", "€")
    ]


def test_nothing_is_overwritten_without_force(tree: Server, run: Run) -> None:
    with Client(tree.hosts) as client:
        client.create("/b")
        client.create("/b/-n", b"mine")
        client.create("/b/more")
        before = text_of(run, tree.hosts, "/b")
        done = run(tree.hosts, "copy", "/a", "/b")
        assert (done.status, done.out) == (1, "")
        assert done.err == (
            "zkwire: NodeExists: load /b: 2 nodes differ, this one in its data; nothing was "
            "changed (--force overwrites, --dry-run lists)\n"
        )
        listed = run(tree.hosts, "copy", "/a", "/b", "--dry-run", "--delete")
        assert listed.status == 1
        assert listed.out.splitlines()[-3:] == [
            "change /b (data)",
            "change /b/-n (data)",
            "delete /b/more",
        ]
        assert len(listed.out.splitlines()) == 9 + 3
        assert text_of(run, tree.hosts, "/b") == before
        done = run(tree.hosts, "copy", "/a", "/b", "--force")
        assert done == (0, "created 9, changed 2, deleted 0, equal 0\n", "")
        done = run(tree.hosts, "copy", "/a", "/b", "--delete")
        assert done == (0, "created 0, changed 0, deleted 1, equal 11\n", "")
        assert text_of(run, tree.hosts, "/b") == text_of(run, tree.hosts, "/a")

        client.delete("/b/#")
        client.create("/b/#", ephemeral=True)
        done = run(tree.hosts, "copy", "/a", "/b", "--force")
        assert (done.status, "(it is ephemeral)" in done.err) == (1, True)


def test_ephemerals(server: Server, run: Run) -> None:
    with Client(server.hosts) as client:
        client.create("/a")
        client.create("/a/own", b"x", ephemeral=True)
        client.create("/b")
        client.create("/b/more")
        client.create("/b/more/own", ephemeral=True)
        client.create("/b/more/other")
        note = "1 node is ephemeral, left out (--ephemerals persistent)\n"
        done = run(server.hosts, "copy", "/a", "/b", "--delete")
        assert done == (0, "created 0, changed 0, deleted 1, equal 1\n", note)
        assert client.get_children("/b/more") == ["own"], "of others; so its parent stays as well"
        done = run(server.hosts, "copy", "--ephemerals", "persistent", "/a", "/c", "--quiet")
        assert done == (0, "created 2, changed 0, deleted 0, equal 0\n", "")
        assert client.get_data("/c/own")[1].ephemeral_owner == 0
        assert run(server.hosts, "dump", "/a/own").status == 2


def test_what_becomes_of_access_lists(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(server.hosts, auth=[BOB]) as client:
        client.create("/a", acl=[*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])
        whole = [entry_text(entry) for entry in client.get_acl("/a").acl]
        done = run(server.hosts, "copy", "/a", "/b")
        assert (done.status, done.out, client.exists("/b")) == (2, "", None)
        note, error = done.err.splitlines()
        assert note == "1 node is shown without the hash of a password in the ACL"
        assert "hidden in the ACL of /" in error
        assert run(server.hosts, "copy", "/a", "/open", "--acl", "open", "--quiet").status == 0
        assert client.get_acl("/open").acl == [*OPEN_ACL_UNSAFE]
        assert run(server.hosts, "copy", "/a", "/own", "--acl", "creator", "--quiet").status == 1

        monkeypatch.setenv("ZKWIRE_AUTH", "digest:bob:secret")
        assert run(server.hosts, "copy", "/a", "/own", "--acl", "creator").status == 0
        assert client.get_acl("/own").acl == [ACL(Perms.ALL, digest_id("bob", "secret"))]
        assert run(server.hosts, "copy", "/a", "/b").out.startswith("created 1")
        assert [entry_text(entry) for entry in client.get_acl("/b").acl] == whole
        assert run(server.hosts, "copy", "/a", "/open", "--force").out.startswith(
            "created 0, changed 1"
        )
        assert [entry_text(entry) for entry in client.get_acl("/open").acl] == whole


def test_between_ensembles_and_chroots(tree: Server, run: Run) -> None:
    with Server() as other:
        done = run(tree.hosts, "copy", "/a", f"zk://{other.hosts}/x/y/")
        assert done == (0, "created 11, changed 0, deleted 0, equal 0\n", "")
        done = run(f"{other.hosts}/x", "copy", "/y", f"zk://{tree.hosts}/a")
        assert done == (0, "created 0, changed 0, deleted 0, equal 11\n", "")
        # /zookeeper is the servers' own, but not below a chroot.
        with Client(f"{other.hosts}/x") as client:
            client.create("/zookeeper", b"mine")
        assert '"/zookeeper"' in text_of(run, f"{other.hosts}/x", "/")
        assert '"/zookeeper"' not in text_of(run, other.hosts, "/")
        done = run(other.hosts, "copy", "/x", "/")
        assert (done.status, "servers' own" in done.err) == (2, True)


@pytest.mark.parametrize(("words", "says"), [
    (["copy", "/a", "/a"], "overlap"),
    (["copy", "/a", "/a/b"], "overlap"),
    (["copy", "/", "zk://{}/b"], "overlap"),
    (["copy", "--delete", "/a/ü€", "/a"], "overlap"),
    (["copy", "/a", "http://{}/"], "neither a path nor"),
    (["copy", "/a", "zk://host:port/"], "bad port"),
    (["load", "/dev/null"], "line 1: no JSON object"),
])  # fmt: skip
def test_nonsense_is_refused_before_anything_changes(
    tree: Server, run: Run, words: list[str], says: str
) -> None:
    before = tree.tree.zxid
    done = run(tree.hosts, *(word.format(tree.hosts) for word in words))
    assert (done.status, done.out, says in done.err) == (2, "", True), done.err
    changed = {path for path, node in tree.tree.nodes.items() if node.mzxid > before}
    assert changed == set()


def test_a_tree_through_a_pipe(tree: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    dumped = run(tree.hosts, "dump", "/a").out
    for text, status in ((dumped.rpartition("{")[0], 2), (dumped, 0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert run(tree.hosts, "load", "-", "/b").status == status
        with Client(tree.hosts) as client:
            assert (client.exists("/b") is None) is (status != 0), "a dump cut off changes nothing"


def test_the_end_of_the_session_and_the_second_run(tree: Server, run: Run) -> None:
    tree.refuse_next("create", -112, nth=6)
    done = run(tree.hosts, "copy", "/a", "/b")
    assert (done.status, done.out) == (5, "")
    done = run(tree.hosts, "copy", "/a", "/b")
    assert done == (0, "created 6, changed 0, deleted 0, equal 5\n", "")
    assert text_of(run, tree.hosts, "/b") == text_of(run, tree.hosts, "/a")


def test_a_node_that_another_client_makes_meanwhile_stays(tree: Server, run: Run) -> None:
    tree.refuse_next("create", -110, nth=3)  # and nothing is there: it has gone again
    assert run(tree.hosts, "copy", "/a", "/b").status == 1
    with FaultProxy(tree.hosts) as proxy, Client(tree.hosts) as client:

        def first(frame: object) -> tuple[()]:
            client.create("/c", b"mine")
            return cut_before(frame)  # type: ignore[arg-type, return-value]

        proxy.on("create", action=first)
        done = run(proxy.hosts, "copy", "/a", "/c")
        assert (done.status, "/c: " in done.err) == (1, True)
        assert client.get_data("/c").data == b"mine"


def test_every_cut_at_every_request(tree: Server, run: Run) -> None:
    """A dump, and a load that creates, changes and deletes, through a break at each request."""
    wanted = text_of(run, tree.hosts, "/a")
    with Client(tree.hosts) as client, FaultProxy(tree.hosts) as proxy:
        other_acl = [*OPEN_ACL_UNSAFE, *READ_ACL_UNSAFE]

        def prepare(path: str) -> None:
            client.create(path, b"old")
            client.create(f"{path}/-n", b"old", other_acl)
            client.create(f"{path}/ü€", bytes(range(20)), other_acl)
            client.create(f"{path}/ü€/more")
            client.create(f"{path}/more")

        client.create("/t")
        prepare("/t/clean")
        proxy.reset()
        words = ["copy", "/a", "/t/clean", "--force", "--delete"]
        assert run(proxy.hosts, *words).status == 0
        count = sum(frame.number is not None for frame in proxy.frames())
        assert count > 60
        for number, action in itertools.product(range(count), (cut_before, cut_after)):
            path = f"/t/{number}-{action.__name__}"
            prepare(path)
            proxy.reset()
            proxy.on_frame(number, action)
            done = run(proxy.hosts, "copy", "/a", path, "--force", "--delete")
            assert (done.status, done.err) == (0, ""), (number, action)
            assert done.out == "created 8, changed 3, deleted 2, equal 0\n", (number, action)
            assert text_of(run, tree.hosts, path) == wanted, (number, action)
            client.delete_tree(path)


def test_many_more_nodes_than_are_in_flight(server: Server, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    with Server() as source:
        with Client(source.hosts) as client:
            client.create("/many")
            pipeline = client.pipeline
            replies = [
                pipeline.create(
                    f"/many/{n}" if n < 100 else f"/many/{n % 100}/{n}", b"x" * (n % 100)
                )
                for n in range(1_999)
            ]
            for reply in replies:
                reply.result()
        assert run(source.hosts, "dump", "/many", str(file)).status == 0
        done = run(server.hosts, "copy", f"zk://{source.hosts}/many", "/many")
        assert done == (0, "created 2000, changed 0, deleted 0, equal 0\n", "")
    assert run(server.hosts, "load", str(file)).out.endswith("equal 2000\n")


def test_a_child_is_created_behind_its_parent_also_after_a_break(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, Client(proxy.hosts) as client:
        plan = Plan(Place(client, proxy.hosts, "/t"), "keep")

        def nodes() -> Iterator[Node]:
            yield Node("/", b"", OPEN_ACL_UNSAFE)
            proxy.wait_for(lambda log: sum(frame.op == "connect" for frame in log) >= 4)
            yield Node("/child", b"", OPEN_ACL_UNSAFE)

        plan.look([Node("/", b"", OPEN_ACL_UNSAFE), Node("/child", b"", OPEN_ACL_UNSAFE)])
        proxy.on("create", action=cut_before)
        writer = Writer(plan)
        writer.write(nodes())
        assert (writer.done["created"], client.get_children("/t")) == (2, ["child"])


def test_the_largest_node_there_can_be(server: Server, run: Run) -> None:
    largest = SEND_LIMIT - len(CreateRequest.pack("/b", b"", OPEN_ACL_UNSAFE, 0)) - 8
    with Client(server.hosts) as client:
        client.create("/a", b"x" * largest)
        assert run(server.hosts, "copy", "/a", "/b").status == 0
        done = run(server.hosts, "copy", "/a", "/bb")
        assert (done.status, "too large" in done.err, client.exists("/bb")) == (2, True, None)


def test_a_node_above_the_usual_limit_is_copied_where_the_server_takes_it(run: Run) -> None:
    limit = 4 << 20
    with Server(jute_maxbuffer=limit) as server:
        with Client(server.hosts, send_limit=limit) as client:
            client.create("/a", bytes(3 << 20))
        refused = run(server.hosts, "copy", "/a", "/b")
        assert (refused.status, "--send-limit is 1048575" in refused.err) == (2, True)
        assert run(server.hosts, "--send-limit", f"{limit}", "copy", "/a", "/b").status == 0
        assert run(server.hosts, "--send-limit", "1 MB", "ls", "/").status == 2

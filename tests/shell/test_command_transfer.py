"""dump, load and copy: what arrives is what was there, with its counters, also through breaks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import plays, run
from zkwire import (
    ACL,
    CREATOR_ALL_ACL,
    Client,
    Create,
    MultiError,
    NoAuthError,
    NodeExistsError,
    Perms,
    Queue,
    digest_auth,
    digest_id,
)
from zkwire.cli.output import entry_text
from zkwire.jute.frames import SEND_LIMIT
from zkwire.jute.records import CreateRequest
from zkwire.operations.sequence import next_number
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, cut_after, cut_before
from zkwire.wire.model import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

UNUSUAL = ("a b", "ü€", "comma,name", '"quoted"', "-n", "#", "0000000007", "x" * 200)
BOB = digest_auth("bob", "secret")


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


def text_of(hosts: str, path: str) -> str:
    """The dump of a tree, without the line that says where it was."""
    done = run(hosts, "dump", path)
    assert (done.status, done.err) == (0, "")
    return done.text.partition("\n")[2]


def test_a_file_is_replaced_by_a_whole_one_only(tree: Server, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("mine")
    plays(tree, "dump /a FILE => 1", FILE=file)
    tree.refuse_next("get_data", -102, nth=5)
    assert run(tree.hosts, "dump", "/a", str(file), "--force").status == 1
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("mine", [file])
    plays(tree, "dump /a FILE --force ->", FILE=file)
    assert file.read_text().endswith('{"end": true}\n')


def test_what_is_missing_or_goes_meanwhile(tree: Server) -> None:
    plays(tree, "dump /nothing => 1 NoNode")
    whole = text_of(tree.hosts, "/a").splitlines()
    tree.refuse_next("get_acl", -101, nth=2)
    done = run(tree.hosts, "dump", "/a")
    assert (done.status, done.err) == (0, "1 node is deleted meanwhile, left out\n")
    assert done.lines[1:] == [whole[0], *whole[2:]]
    tree.refuse_next("get_children", -101, nth=2)
    below = [line for line in whole if "€/" in line.replace("\\u20ac", "€")]
    assert run(tree.hosts, "dump", "/a").lines[1:] == [line for line in whole if line not in below]


def test_nothing_is_overwritten_without_force(tree: Server) -> None:
    with Client(tree.hosts) as client:
        client.create("/b")
        client.create("/b/-n", b"mine")
        client.create("/b/more")
        before = text_of(tree.hosts, "/b")
        plays(tree, """
            copy /a /b => 1 NodeExists: load /b: 2 nodes differ, this one in its data; nothing was \
changed (--force overwrites, --dry-run lists)
        """)  # fmt: skip
        listed = run(tree.hosts, "copy", "/a", "/b", "--dry-run", "--delete")
        changes = ["change /b (data)", "change /b/-n (data)", "delete /b/more"]
        assert (listed.status, listed.lines[9:]) == (1, changes)
        assert text_of(tree.hosts, "/b") == before
        plays(
            tree,
            """
            copy /a /b --force     -> created 9, changed 2, deleted 0, equal 0
            copy /a /b --delete    -> created 0, changed 0, deleted 1, equal 11
        """,
        )
        assert text_of(tree.hosts, "/b") == text_of(tree.hosts, "/a")
        client.delete("/b/#")
        client.create("/b/#", ephemeral=True)
        plays(tree, "copy /a /b --force => 1 (it is ephemeral)")


def test_ephemerals(server: Server) -> None:
    with Client(server.hosts) as client:
        for path in ("/a", "/b", "/b/more", "/b/more/other"):
            client.create(path)
        client.create("/a/own", b"x", ephemeral=True)
        client.create("/b/more/own", ephemeral=True)
        plays(
            server,
            """
            copy /a /b --delete -> created 0, changed 0, deleted 1, equal 1 \
| 1 node is ephemeral, left out (--ephemerals persistent)
            copy --ephemerals persistent /a /c --quiet -> created 2, changed 0, deleted 0, equal 0
            ls /b/more  -> own
            dump /a/own => 2
        """,
        )
        assert client.get_data("/c/own")[1].ephemeral_owner == 0


def test_what_becomes_of_access_lists(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(server.hosts, auth=[BOB]) as client:

        def acl(path: str) -> list[str]:
            return [entry_text(entry) for entry in client.get_acl(path).acl]

        client.create("/a", acl=[*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])
        whole = acl("/a")
        done = run(server.hosts, "copy", "/a", "/b")
        assert (done.status, done.text, client.exists("/b")) == (2, "", None)
        note, error = done.err.splitlines()
        assert note == "1 node is shown without the hash of a password in the ACL"
        assert "hidden in the ACL of /" in error
        plays(
            server,
            """
            copy /a /open --acl open --quiet    -> created 1, changed 0, deleted 0, equal 0
            acl get /open                       -> world:anyone:cdrwa
        """,
        )
        assert run(server.hosts, "copy", "/a", "/own", "--acl", "creator", "--quiet").status == 1

        monkeypatch.setenv("ZKWIRE_AUTH", "digest:bob:secret")
        for words, counts in {
            "copy /a /own --acl creator": "created 1",
            "copy /a /b": "created 1",
            "copy /a /open --force": "created 0, changed 1",
        }.items():
            done = run(server.hosts, *words.split())
            assert (done.status, done.text.startswith(counts)) == (0, True)
        assert client.get_acl("/own").acl == [ACL(Perms.ALL, digest_id("bob", "secret"))]
        assert acl("/b") == acl("/open") == whole


def test_between_ensembles_and_chroots(tree: Server) -> None:
    with Server() as other:
        plays(tree, """
            copy /a zk://OTHER/x/y/              -> created 11, changed 0, deleted 0, equal 0
            -s OTHER/x copy /y zk://TREE/a       -> created 0, changed 0, deleted 0, equal 11
        """, OTHER=other.hosts, TREE=tree.hosts)  # fmt: skip
        # /zookeeper is the servers' own, but not below a chroot.
        with Client(f"{other.hosts}/x") as client:
            client.create("/zookeeper", b"mine")
        assert '"/zookeeper"' in text_of(f"{other.hosts}/x", "/")
        assert '"/zookeeper"' not in text_of(other.hosts, "/")
        plays(other, "copy /x / => 2 servers' own")


@pytest.mark.parametrize(("words", "says"), [
    ("copy /a /a", "overlap"),
    ("copy /a /a/b", "overlap"),
    ("copy / zk://TREE/b", "overlap"),
    ("copy --delete /a/ü€ /a", "overlap"),
    ("copy /a http://TREE/", "neither a path nor"),
    ("copy /a zk://host:port/", "bad port"),
    ("load /dev/null", "line 1: not a JSON object"),
])  # fmt: skip
def test_nonsense_is_refused_before_anything_changes(tree: Server, words: str, says: str) -> None:
    before = tree.tree.zxid
    done = run(tree.hosts, *words.replace("TREE", tree.hosts).split())
    assert (done.status, done.text, says in done.err) == (2, "", True), done.err
    assert [path for path, node in tree.tree.nodes.items() if node.mzxid > before] == []


def test_the_end_of_the_session_and_the_second_run(tree: Server) -> None:
    tree.refuse_next("create", -112, nth=6)
    done = run(tree.hosts, "copy", "/a", "/b")
    assert (done.status, done.text) == (5, "")
    plays(tree, "copy /a /b -> created 6, changed 0, deleted 0, equal 5")
    assert text_of(tree.hosts, "/b") == text_of(tree.hosts, "/a")


def test_every_cut_at_every_request(tree: Server) -> None:
    """A dump, and a load that creates, changes and deletes, through a break at each request."""
    wanted = text_of(tree.hosts, "/a")
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
            assert done.text == "created 8, changed 3, deleted 2, equal 0\n", (number, action)
            assert text_of(tree.hosts, path) == wanted, (number, action)
            client.delete_tree(path)


def test_the_largest_node_there_can_be() -> None:
    largest = SEND_LIMIT - len(CreateRequest.pack("/b", b"", OPEN_ACL_UNSAFE, 0)) - 8
    limit = 4 << 20
    with Server(jute_maxbuffer=limit) as server, Client(server.hosts, send_limit=limit) as client:
        client.create("/a", b"x" * largest)
        client.create("/big", bytes(3 << 20))
        plays(server, """
            copy /a /b                             -> created 1, changed 0, deleted 0, equal 0
            copy /a /bb                            => 2 too large
            exists /b                              ->
            copy /big /b2                          => 2 --send-limit is 1048575
            --send-limit LIMIT copy /big /b2       -> created 1, changed 0, deleted 0, equal 0
            --send-limit '1 MB' ls /               => 2
        """, LIMIT=limit)  # fmt: skip
        assert client.exists("/bb") is None


cuts = pytest.mark.parametrize("action", [cut_before, cut_after])


def makes(server: Server, folder: str, *names: str, counter: int | None = None) -> None:
    """Create nodes of these names in a folder; its counter is then as many, or as given."""
    with Client(server.hosts) as client:
        client.ensure_path(folder)
        for name in names:
            client.create(f"{folder}/{name}", name.encode())
    if counter is not None:
        server.tree.nodes[folder].created = counter


def counter_of(server: Server, path: str) -> int:
    with Client(server.hosts) as client:
        stat = client.exists(path)
        assert stat is not None
        return next_number(stat.cversion, stat.num_children)


def reloaded(server: Server, file: Path) -> list[int]:
    """The statuses of loads of what was dumped with the counters, and without."""
    statuses = []
    for option in ("--stat", "--force"):
        assert run(server.hosts, "dump", "/a", str(file), option).status == 0
        statuses.append(run(server.hosts, "load", str(file), "/b").status)
    return statuses


@pytest.mark.parametrize("by_file", [False, True])
def test_hazard_E14_a_copy_counts_on_behind_its_names(
    whole: str, tmp_path: Path, by_file: bool
) -> None:
    path, new, file = f"/{tmp_path.name}", f"/new-{tmp_path.name}", str(tmp_path / "dump")
    with Client(whole) as client:
        queue = Queue(client, path)
        queue.put_many([b"%d" % number for number in range(30)])
        assert [queue.get().data for _ in range(27)][-1] == b"26"
        if by_file:
            assert run(whole, "dump", path, file).status == 0
            ran = run(whole, "load", file, new)
        else:
            ran = run(whole, "copy", "--quiet", path, new)
        assert (ran.status, ran.err) == (0, "")
        moved = Queue(client, new)
        moved.put_many([b"new", b"newer"])
        assert [moved.get().data for _ in range(5)] == [b"27", b"28", b"29", b"new", b"newer"]
        for root in (path, new):
            client.delete_tree(root)


def test_counter_that_is_not_moved_is_status_6_and_told(server: Server, tmp_path: Path) -> None:
    """Out of reach, or, until it may be moved, not to be."""
    makes(server, "/a", "x-0001000001", counter=1_000_002)
    ran = run(server.hosts, "copy", "/a", "/b", "--json")
    assert (ran.status, ran.record["created"], ran.record["behind"]) == (6, 2, ["/b"])
    assert "/b for sequential names stands at 1, behind a name" in ran.err
    assert "number 1000001" in ran.err
    assert reloaded(server, tmp_path / "dump") == [6, 6]
    makes(server, "/c", "x-0000000041", counter=42)
    server.refuse_next("multi", NoAuthError.code)
    ran = run(server.hosts, "copy", "/c", "/d")
    assert (ran.status, ran.err.count("\n")) == (6, 1)
    assert "NoAuth" in ran.err or "allow it" in ran.err
    assert run(server.hosts, "copy", "/c", "/d").status == 0
    assert counter_of(server, "/d") == 42


@cuts
@pytest.mark.parametrize(
    "faults",
    [[("get_children2", 1)], [("multi", 2)], [("multi", 3)], [("multi", 2), ("exists", 1)]],
)
def test_queue_whose_connection_breaks_uses_up_no_number_twice(
    server: Server, faults: list[tuple[str, int]], action: Any
) -> None:
    """Its multis: one that is refused, two that use up numbers, the put."""
    makes(server, "/q/entries", "entry-100-0000000002", "entry-100-0000000900")
    with FaultProxy(server.hosts) as proxy, Client(proxy.hosts) as client:
        for op, nth in faults:
            proxy.on(op, action=action, nth=nth)
        Queue(client, "/q").put(b"")
        assert proxy.unfired == []
        assert len(client.get_children("/q/entries")) == 3
    assert counter_of(server, "/q/entries") == 902


def test_queue_whose_counter_is_far_behind_says_so(server: Server) -> None:
    makes(server, "/q/entries", "entry-100-0000000002", "entry-100-0000200001")
    said = r"stands at 2, .* the number 200001, .* 200000 num"
    with Client(server.hosts) as client:
        with pytest.raises(NodeExistsError, match=said):
            Queue(client, "/q").put(b"")
        assert len(client.get_children("/q/entries")) == 2


def test_create_whose_number_is_taken_says_why(server: Server) -> None:
    makes(server, "/a", "x-0000000002", "x-0000000009")
    why = r"/a/x-: .* server's next number: the parent's"
    with Client(server.hosts) as client:
        for create in (client.create, client.create_with_stat):
            with pytest.raises(NodeExistsError, match=why):
                create("/a/x-", sequential=True)
        with pytest.raises(MultiError, match="server's next number"):
            client.multi([Create("/a/x-", sequential=True, ephemeral=True)])
        with pytest.raises(NodeExistsError, match="exists already"):
            client.create("/a/x-0000000002")
    ran = run(server.hosts, "create", "-s", "/a/x-")
    assert (ran.status, ran.out) == (1, b"")
    assert "the counter of /a for sequential names stands at 2, behind a name" in ran.err
    assert "with the number 9" in ran.err
    dumped = run(server.hosts, "dump", "/a").out
    assert run(server.hosts, "load", "-", stdin=dumped).status == 0
    assert run(server.hosts, "create", "-s", "/a/x-").lines == ["/a/x-0000000010"]

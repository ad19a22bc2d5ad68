"""Sequence numbers, fences and versions in a tree that was copied, or restored by another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run
from zkwire import (
    Client,
    Create,
    MultiError,
    NoAuthError,
    NodeExistsError,
    Queue,
)
from zkwire.operations.sequence import next_number
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, cut_after, cut_before

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


def test_number_that_is_no_sequence_number_is_no_fault(server: Server, tmp_path: Path) -> None:
    """The source has counted to 3 alone: a time in seconds stands in the name."""
    makes(server, "/a", "at-1732752000", "n-0000000001", "at-9999999999")
    ran = run(server.hosts, "copy", "/a", "/b")
    assert (ran.status, ran.err) == (0, "")
    assert counter_of(server, "/b") == 3
    assert reloaded(server, tmp_path / "dump") == [0, 6]  # the first tells the counter


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

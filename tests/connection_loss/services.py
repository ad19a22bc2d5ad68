"""What services, those that hold locks too, do by themselves when connection or session is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.connection_loss.clients import BLOCKING
from tests.connection_loss.losses import HASTE, NODES, NOTHING, Call, Trial
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll


def unchanged(_: Trial) -> str:
    """A read changes nothing."""
    return "nothing to change"


def provide_node(trial: Trial) -> None:
    trial.observer.create(trial.path, b"a")


def set_data(trial: Trial, data: str = "b") -> None:
    trial.observer.set_data(trial.path, data.encode())


def add_child(trial: Trial, name: str = "b") -> None:
    trial.observer.create(f"{trial.path}/{name}")


# --- watches forever, cache -----------------------------------------------------------------------


def watching(verb: str, wire: str, change: Callable[..., None], rivals: str) -> Call:
    def watch(trial: Trial) -> object:
        """Watch from now on; the first state."""
        trial.notes["it"] = trial.run(lambda: getattr(trial.home, verb)(trial.path))
        return next_state(trial)

    def next_state(trial: Trial) -> object:
        return getattr(trial.do("next", PATIENCE), verb.removeprefix("watch_"))

    def told_of_last(trial: Trial) -> str:
        change(trial, "last")
        poll("it is told", lambda: "last" in str(next_state(trial)) or None, PATIENCE)
        return "the next change is told"

    return Call(f"`{verb}`", wire, watch, unchanged, told_of_last, prepare=provide_node,
                rival=change, rivals=rivals, wait=next_state)  # fmt: skip


def mirror(trial: Trial) -> object:
    """The cache is ready; its first event."""
    cache = trial.make("Cache", trial.path)
    assert trial.run(lambda: cache.wait_ready(PATIENCE))
    trial.notes["events"] = trial.run(cache.events)
    return next_event(trial)


def next_event(trial: Trial) -> object:
    event = trial.run(lambda: trial.notes["events"].next(PATIENCE))
    return f"{event.kind}, `{event.data}`"


def shows_last(trial: Trial) -> str:
    """It shows the next change."""
    set_data(trial, "last")
    poll("it shows it", lambda: trial.do("get", trial.path).data == b"last" or None, PATIENCE)
    return "the next change is shown"


def mirroring(title: str, wire: str) -> Call:
    return Call(title, wire, mirror, unchanged, shows_last, prepare=provide_node, rival=set_data,
                rivals="data set", wait=next_event)  # fmt: skip


# --- kept nodes -----------------------------------------------------------------------------------


def keep(trial: Trial, *, ephemeral: bool = True, data: bytes = b"a") -> object:
    trial.make("PersistentNode", trial.path, data, ephemeral=ephemeral)

    def settled() -> object:
        return trial.do("wait_present", HASTE) or (look(trial, "conflict") and "`conflict`")

    return poll("it is present, or cannot be", settled, PATIENCE)


def look(trial: Trial, name: str) -> object:
    """A property of the node that is kept."""
    return trial.run(lambda: getattr(trial.notes["it"], name)) or None


def remove_conflict(trial: Trial) -> str:
    """A node that is not its own, since no session has told whose it is."""
    if look(trial, "conflict") is None:
        return NOTHING
    trial.observer.delete(trial.path)
    return "`conflict` is the node that the lost create has made: delete it"


def write(trial: Trial, timeout: float = PATIENCE) -> object:
    return trial.do("set_data", b"b", timeout)


def close(trial: Trial, timeout: float = PATIENCE) -> object:
    return trial.do("close", timeout)


def join(trial: Trial) -> object:
    """A membership is a kept node like the others, made by the group."""
    group = trial.make("Group", trial.base)
    trial.notes["it"] = trial.run(lambda: group.join(b"a", "node", PATIENCE))
    return look(trial, "present")


def node(trial: Trial) -> str:
    """What is there, in words."""
    if trial.observer.exists(trial.path) is None:
        return "no node"
    return {
        b"a": "its node",
        b"b": "its node, with the new data",
        b"other": "another client's node",
    }[trial.observer.get_data(trial.path).data]


def delete_node(trial: Trial) -> None:
    trial.notes["czxid"] = trial.observer.get_data(trial.path).stat.czxid
    trial.observer.delete(trial.path)


def put_back(trial: Trial) -> object:
    """Wait until it is there again; no caller waits for that."""

    def is_new() -> bool | None:
        stat = trial.observer.exists(trial.path)
        return (stat is not None and stat.czxid != trial.notes["czxid"]) or None

    poll("it is put back", is_new, PATIENCE)
    return NOTHING


def kept(trial: Trial, *, data: bytes = b"a", ephemeral: bool = True) -> str:
    """The node is there, and there again when it is deleted."""
    poll("it is present", lambda: look(trial, "present"), PATIENCE)
    for _ in range(2):
        found, stat = trial.observer.get_data(trial.path)
        assert (found, stat.ephemeral_owner) == (data, trial.session_id if ephemeral else 0)
        poll("no more", lambda: trial.children(trial.base) == ["node"] or None, PATIENCE)
        delete_node(trial)
        put_back(trial)
    return "its node is there, and put back when it is deleted"


def gone(trial: Trial) -> str:
    """Nothing of it is left, and another client's node is."""
    expected: str = trial.notes.get("other", "no node")
    assert node(trial) == expected
    return expected


def others_node(trial: Trial) -> None:
    trial.observer.create(trial.path, b"other")
    trial.notes["other"] = "another client's node"


def keeping(title: str, wire: str, *, ephemeral: bool = True) -> Call:
    return Call(title, wire, partial(keep, ephemeral=ephemeral), node,
                partial(kept, ephemeral=ephemeral), rival=delete_node, rivals="node deleted",
                wait=put_back, mend=remove_conflict)  # fmt: skip


# --- groups ---------------------------------------------------------------------------------------


def members(trial: Trial) -> object:
    trial.make("Group", trial.path)
    return names(trial)


def names(trial: Trial) -> list[str]:
    return sorted(member.name for member in trial.do("members", PATIENCE))


def knows_last(trial: Trial) -> str:
    add_child(trial, "last")
    assert "last" in names(trial)
    return "the next list is right"


def one_member(trial: Trial) -> None:
    provide_node(trial)
    add_child(trial, "a")


# --- partitioner ----------------------------------------------------------------------------------

MEMBERS, LOCK = "members", "items/x"


def used_partitioner(trial: Trial) -> None:
    """What it needs is there."""
    share(trial)
    trial.do("close")


def share(trial: Trial) -> object:
    """Be a member; the first share with the item: one may come without it."""
    trial.make("Partitioner", trial.path, ["x"], name="one")
    return poll("it owns it", lambda: sorted(trial.do("next", PATIENCE)) or None, PATIENCE)


def owns(trial: Trial) -> str:
    """One node of its session stands for each; and none when it is closed."""
    places = [f"{trial.path}/{place}" for place in (MEMBERS, LOCK)]
    for place in places:
        (only,) = trial.children(place)
        trial.owned(f"{place}/{only}")
    trial.do("close")
    assert not any(map(trial.children, places))
    return "the item is its own, until it is closed"


def sharing(title: str, place: str, wire: str) -> Call:
    def there(trial: Trial) -> list[str]:
        return [f"{trial.path}/{place}/{n}" for n in trial.children(f"{trial.path}/{place}")]

    return Call(title, wire, share, lambda trial: NODES[len(there(trial))], owns,
                prepare=used_partitioner, rivals="this node deleted",
                rival=lambda trial: trial.observer.delete(there(trial)[0]))  # fmt: skip


# --- leadership -----------------------------------------------------------------------------------


def lead(trial: Trial) -> object:
    """Run for leader; in a term."""
    terms = trial.notes["terms"] = []

    def work(lock: Any) -> None:
        terms.append(lock)
        lock.lost.wait()

    async def work_async(lock: Any) -> None:
        terms.append(lock)
        await asyncio.Event().wait()  # the end of the term cancels it

    function = work if trial.client_kind is BLOCKING else work_async
    trial.run(lambda: trial.home.lead(trial.path, function))
    return leads(trial)


def leads(trial: Trial, nth: int = 1) -> object:
    """A term is on, after so many less one; no caller waits for that."""
    terms = trial.notes["terms"]
    poll("it leads", lambda: (len(terms) >= nth and terms[-1].held) or None, PATIENCE)
    return NOTHING


def leads_alone(trial: Trial) -> str:
    """One term is on, of this session."""
    leads(trial)
    (only,) = trial.nodes(trial.path)
    assert trial.owned(only).czxid == trial.notes["terms"][-1].fence
    return "it leads, by one node"


CALLS = (
    watching("watch_data", "get_data", set_data, "data set"),
    watching("watch_children", "get_children2", add_child, "child created"),
    mirroring("`Cache`, its watch", "add_watch"),
    mirroring("`Cache`, a read", "get_data"),
    keeping("`PersistentNode`", "create"),
    keeping("`PersistentNode`, `ephemeral=False`", "multi", ephemeral=False),
    Call("`Group.join`", "create", join, node, kept, rival=delete_node, rivals="node deleted",
         wait=put_back),
    Call("`PersistentNode.set_data`", "set_data", write, node, partial(kept, data=b"b"),
         prepare=keep, rival=delete_node, rivals="node deleted", again=partial(keep, data=b"b"),
         hasty=partial(write, timeout=HASTE)),
    Call("`PersistentNode.close`", "delete", close, node, gone, prepare=keep, rival=others_node,
         rivals="another client's node created", hasty=partial(close, timeout=HASTE)),
    Call("`Group.members`", "get_children", members, unchanged, knows_last, prepare=one_member,
         rival=add_child, rivals="a member has joined",
         wait=lambda trial: trial.do("wait_for", 2, PATIENCE)),
    sharing("`Partitioner`, the member's node", MEMBERS, "create"),
    sharing("`Partitioner`, the item's lock", LOCK, "create2"),
    Call("`Supervisor.lead`", "create2", lead,
         lambda trial: NODES[len(trial.nodes(trial.path))], leads_alone, prepare=provide_node,
         rival=lambda trial: trial.observer.delete(trial.nodes(trial.path)[0]),
         rivals="its node deleted", wait=partial(leads, nth=2), alone=False),
)  # fmt: skip

"""What each service does by itself when its connection, or its session, is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.connection_loss.recipe_calls import NOTHING, Call, Trial
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll

HASTE = 0.3  # seconds: a time limit that passes while the client is away


def unchanged(_: Trial) -> str:
    """A read changes nothing."""
    return "nothing to change"


def provide_node(trial: Trial) -> None:
    trial.observer.create(trial.path, b"a")


def set_data(trial: Trial, data: bytes = b"b") -> None:
    trial.observer.set_data(trial.path, data)


def add_child(trial: Trial, name: str = "b") -> None:
    trial.observer.create(f"{trial.path}/{name}")


# --- watches forever -----------------------------------------------------------------------------


def watch(trial: Trial, verb: str) -> object:
    """Watch from now on; the first state."""
    trial.notes["it"] = trial.run(lambda: getattr(trial.home, verb)(trial.path))
    return next_state(trial, verb)


def next_state(trial: Trial, verb: str) -> object:
    return getattr(trial.do("next", PATIENCE), verb.removeprefix("watch_"))


def told_of_last(trial: Trial, verb: str, change: Callable[..., None], last: str) -> str:
    """The next change is told."""
    change(trial, last.encode() if verb == "watch_data" else last)
    poll("it is told", lambda: last in str(next_state(trial, verb)) or None, PATIENCE)
    return "the next change is told"


def watching(verb: str, wire: str, change: Callable[..., None], rivals: str) -> Call:
    return Call(
        f"`{verb}`", wire, partial(watch, verb=verb), unchanged,
        partial(told_of_last, verb=verb, change=change, last="last"),
        prepare=provide_node, rival=change, rivals=rivals, wait=partial(next_state, verb=verb),
    )  # fmt: skip


# --- cache ----------------------------------------------------------------------------------------


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
    set_data(trial, b"last")
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
    stat = trial.observer.exists(trial.path)
    if stat is None:
        return "no node"
    data = trial.observer.get_data(trial.path).data
    if data == b"other":
        return "another client's node"
    return {b"a": "its node", b"b": "its node, with the new data"}[data]


def delete_node(trial: Trial) -> None:
    trial.notes["czxid"] = trial.observer.get_data(trial.path).stat.czxid
    trial.observer.delete(trial.path)


def put_back(trial: Trial) -> object:
    """Wait until it is there again; no caller waits for that."""
    before = trial.notes["czxid"]

    def is_new() -> bool | None:
        stat = trial.observer.exists(trial.path)
        return (stat is not None and stat.czxid != before) or None

    poll("it is put back", is_new, PATIENCE)
    return NOTHING


def children(trial: Trial) -> list[str]:
    return trial.observer.get_children(trial.base)


def kept(trial: Trial, *, data: bytes = b"a", ephemeral: bool = True) -> str:
    """The node is there, and there again when it is deleted."""
    poll("it is present", lambda: look(trial, "present"), PATIENCE)
    for _ in range(2):
        stat = trial.observer.exists(trial.path)
        assert stat is not None
        assert stat.ephemeral_owner == (trial.session_id if ephemeral else 0)
        assert trial.observer.get_data(trial.path).data == data
        poll("nothing else is left", lambda: children(trial) == ["node"] or None, PATIENCE)
        delete_node(trial)
        put_back(trial)
    return "its node is there, and put back when it is deleted"


def gone(trial: Trial) -> str:
    """Nothing of it is left, and another client's node is."""
    expected = trial.notes.get("other", "no node")
    assert node(trial) == expected
    return expected


def keeping(title: str, wire: str, *, ephemeral: bool = True) -> Call:
    return Call(title, wire, partial(keep, ephemeral=ephemeral), node,
                partial(kept, ephemeral=ephemeral), rival=delete_node, rivals="node deleted",
                wait=put_back, mend=remove_conflict)  # fmt: skip


def others_node(trial: Trial) -> None:
    trial.observer.create(trial.path, b"other")
    trial.notes["other"] = "another client's node"


# --- groups ---------------------------------------------------------------------------------------


def members(trial: Trial) -> object:
    trial.make("Group", trial.path)
    return names(trial)


def names(trial: Trial) -> list[str]:
    return sorted(member.name for member in trial.do("members", PATIENCE))


def second(trial: Trial) -> object:
    return trial.do("wait_for", 2, PATIENCE)


def knows_last(trial: Trial) -> str:
    add_child(trial, "last")
    assert "last" in names(trial)
    return "the next list is right"


def one_member(trial: Trial) -> None:
    provide_node(trial)
    add_child(trial, "a")


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
         rival=add_child, rivals="a member has joined", wait=second),
)  # fmt: skip

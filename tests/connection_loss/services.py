"""What each service does by itself when its connection, or its session, is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.connection_loss.deeds import NOTHING, Deed, Play
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll

HASTE = 0.3  # seconds: a time limit that passes while the client is away


def unchanged(_: Play) -> str:
    """A read changes nothing."""
    return "nothing to change"


def provide_node(play: Play) -> None:
    play.observer.create(play.path, b"a")


def set_data(play: Play, data: bytes = b"b") -> None:
    play.observer.set_data(play.path, data)


def add_child(play: Play, name: str = "b") -> None:
    play.observer.create(f"{play.path}/{name}")


# --- watches forever -----------------------------------------------------------------------------


def watch(play: Play, verb: str) -> object:
    """Watch from now on; the first state."""
    play.notes["it"] = play.run(lambda: getattr(play.home, verb)(play.path))
    return next_state(play, verb)


def next_state(play: Play, verb: str) -> object:
    return getattr(play.do("next", PATIENCE), verb.removeprefix("watch_"))


def told_of_last(play: Play, verb: str, change: Callable[..., None], last: str) -> str:
    """The next change is told."""
    change(play, last.encode() if verb == "watch_data" else last)
    poll("it is told", lambda: last in str(next_state(play, verb)) or None, PATIENCE)
    return "the next change is told"


def watching(verb: str, wire: str, change: Callable[..., None], rivals: str) -> Deed:
    return Deed(
        f"`{verb}`", wire, partial(watch, verb=verb), unchanged,
        partial(told_of_last, verb=verb, change=change, last="last"),
        prepare=provide_node, rival=change, rivals=rivals, wait=partial(next_state, verb=verb),
    )  # fmt: skip


# --- cache ----------------------------------------------------------------------------------------


def mirror(play: Play) -> object:
    """The cache is ready; its first event."""
    cache = play.make("Cache", play.path)
    assert play.run(lambda: cache.wait_ready(PATIENCE))
    play.notes["events"] = play.run(cache.events)
    return next_event(play)


def next_event(play: Play) -> object:
    event = play.run(lambda: play.notes["events"].next(PATIENCE))
    return f"{event.kind}, `{event.data}`"


def shows_last(play: Play) -> str:
    """It shows the next change."""
    set_data(play, b"last")
    poll("it shows it", lambda: play.do("get", play.path).data == b"last" or None, PATIENCE)
    return "the next change is shown"


def mirroring(title: str, wire: str) -> Deed:
    return Deed(title, wire, mirror, unchanged, shows_last, prepare=provide_node, rival=set_data,
                rivals="data set", wait=next_event)  # fmt: skip


# --- kept nodes -----------------------------------------------------------------------------------


def keep(play: Play, *, ephemeral: bool = True, data: bytes = b"a") -> object:
    play.make("PersistentNode", play.path, data, ephemeral=ephemeral)

    def settled() -> object:
        return play.do("wait_present", HASTE) or (look(play, "conflict") and "`conflict`")

    return poll("it is present, or cannot be", settled, PATIENCE)


def look(play: Play, name: str) -> object:
    """A property of the node that is kept."""
    return play.run(lambda: getattr(play.notes["it"], name)) or None


def remove_conflict(play: Play) -> str:
    """A node that is not its own, since no session has told whose it is."""
    if look(play, "conflict") is None:
        return NOTHING
    play.observer.delete(play.path)
    return "`conflict` is the node that the lost create has made: delete it"


def write(play: Play, timeout: float = PATIENCE) -> object:
    return play.do("set_data", b"b", timeout)


def close(play: Play, timeout: float = PATIENCE) -> object:
    return play.do("close", timeout)


def join(play: Play) -> object:
    """A membership is a kept node like the others, made by the group."""
    group = play.make("Group", play.base)
    play.notes["it"] = play.run(lambda: group.join(b"a", "node", PATIENCE))
    return look(play, "present")


def node(play: Play) -> str:
    """What is there, in words."""
    stat = play.observer.exists(play.path)
    if stat is None:
        return "no node"
    data = play.observer.get_data(play.path).data
    if data == b"other":
        return "another client's node"
    return {b"a": "its node", b"b": "its node, with the new data"}[data]


def delete_node(play: Play) -> None:
    play.notes["czxid"] = play.observer.get_data(play.path).stat.czxid
    play.observer.delete(play.path)


def put_back(play: Play) -> object:
    """Wait until it is there again; no caller waits for that."""
    before = play.notes["czxid"]

    def is_new() -> bool | None:
        stat = play.observer.exists(play.path)
        return (stat is not None and stat.czxid != before) or None

    poll("it is put back", is_new, PATIENCE)
    return NOTHING


def children(play: Play) -> list[str]:
    return play.observer.get_children(play.base)


def kept(play: Play, *, data: bytes = b"a", ephemeral: bool = True) -> str:
    """The node is there, and there again when it is deleted."""
    poll("it is present", lambda: look(play, "present"), PATIENCE)
    for _ in range(2):
        stat = play.observer.exists(play.path)
        assert stat is not None
        assert stat.ephemeral_owner == (play.session_id if ephemeral else 0)
        assert play.observer.get_data(play.path).data == data
        poll("nothing else is left", lambda: children(play) == ["node"] or None, PATIENCE)
        delete_node(play)
        put_back(play)
    return "its node is there, and put back when it is deleted"


def gone(play: Play) -> str:
    """Nothing of it is left, and another client's node is."""
    expected = play.notes.get("other", "no node")
    assert node(play) == expected
    return expected


def keeping(title: str, wire: str, *, ephemeral: bool = True) -> Deed:
    return Deed(title, wire, partial(keep, ephemeral=ephemeral), node,
                partial(kept, ephemeral=ephemeral), rival=delete_node, rivals="node deleted",
                wait=put_back, mend=remove_conflict)  # fmt: skip


def others_node(play: Play) -> None:
    play.observer.create(play.path, b"other")
    play.notes["other"] = "another client's node"


# --- groups ---------------------------------------------------------------------------------------


def members(play: Play) -> object:
    play.make("Group", play.path)
    return names(play)


def names(play: Play) -> list[str]:
    return sorted(member.name for member in play.do("members", PATIENCE))


def second(play: Play) -> object:
    return play.do("wait_for", 2, PATIENCE)


def knows_last(play: Play) -> str:
    add_child(play, "last")
    assert "last" in names(play)
    return "the next list is right"


def one_member(play: Play) -> None:
    provide_node(play)
    add_child(play, "a")


DEEDS = (
    watching("watch_data", "get_data", set_data, "data set"),
    watching("watch_children", "get_children2", add_child, "child created"),
    mirroring("`Cache`, its watch", "add_watch"),
    mirroring("`Cache`, a read", "get_data"),
    keeping("`PersistentNode`", "create"),
    keeping("`PersistentNode`, `ephemeral=False`", "multi", ephemeral=False),
    Deed("`Group.join`", "create", join, node, kept, rival=delete_node, rivals="node deleted",
         wait=put_back),
    Deed("`PersistentNode.set_data`", "set_data", write, node, partial(kept, data=b"b"),
         prepare=keep, rival=delete_node, rivals="node deleted", again=partial(keep, data=b"b"),
         hasty=partial(write, timeout=HASTE)),
    Deed("`PersistentNode.close`", "delete", close, node, gone, prepare=keep, rival=others_node,
         rivals="another client's node created", hasty=partial(close, timeout=HASTE)),
    Deed("`Group.members`", "get_children", members, unchanged, knows_last, prepare=one_member,
         rival=add_child, rivals="a member has joined", wait=second),
)  # fmt: skip

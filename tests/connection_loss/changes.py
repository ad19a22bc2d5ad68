"""The operations that change something: each with its advice, and the function that follows it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.connection_loss.case import Case, repeat
from tests.connection_loss.points import Act, Ask, Count, Operation, Recover
from zkwire import (
    ACL,
    BadVersionError,
    Client,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Perms,
    ReconfigInProgressError,
    SetData,
)
from zkwire.jute.records import Id

READ_WRITE = [ACL(Perms.READ | Perms.WRITE | Perms.ADMIN | Perms.DELETE, Id("world", "anyone"))]
THEIRS = b"another client"

# Observers that are never started: with them an ensemble goes on as before.
OUR_SERVER = "server.8=127.0.0.1:1008:2008:observer;127.0.0.1:3008"
THEIR_SERVER = "server.9=127.0.0.1:1009:2009:observer;127.0.0.1:3009"


def on_same_version(ask: Ask, ours: Count) -> Recover:
    """Once more on the same version; if that is gone, see by whom."""

    def recover(case: Case, client: Client) -> str:
        while True:
            try:
                repeat(ask, client, case)
            except ReconfigInProgressError:
                continue
            except BadVersionError:
                return "done" if ours(case, client) else "another client's"
            return "done"

    return recover


# --- create ---------------------------------------------------------------------------------------


def create(**kind: Any) -> Ask:
    return lambda operations, case: operations.create(case.path, case.id.encode(), **kind)


def create_numbered(**kind: Any) -> Ask:
    kind["sequential"] = True
    return lambda operations, case: operations.create(f"{case.base}/{case.id}-", **kind)


def made(case: Case, client: Client) -> int:
    """Whether the node is there, and is ours."""
    with suppress(NoNodeError):
        return int(repeat(client.get_data, case.path).data == case.id.encode())
    return 0


def made_in_sequence(case: Case, client: Client) -> int:
    """How many nodes there are that carry our id."""
    with suppress(NoNodeError):
        return sum(name.startswith(case.id) for name in repeat(client.get_children, case.base))
    return 0


def create_again(ask: Any) -> Recover:
    """Repeat a create until it is known whose the node is: "done", or "another client's"."""

    def recover(case: Case, client: Client) -> str:
        while True:
            with suppress(NodeExistsError):
                repeat(ask, client, case)
                return "done"
            with suppress(NoNodeError):  # gone between the two: try again
                data, stat = repeat(client.get_data, case.path)
                owned = stat.ephemeral_owner in {0, client.session_id}
                return "done" if owned and data == case.id.encode() else "another client's"

    return recover


def look_for_id(ask: Any) -> Recover:
    """Look for the node by the id in its name before making another one."""

    def recover(case: Case, client: Client) -> str:
        repeat(client.sync, case.base)
        if not made_in_sequence(case, client):
            ask(client, case)
        return "done"

    return recover


def occupy(case: Case) -> None:
    """Another client has the path."""
    case.observer.create(case.path, THEIRS)


def has_theirs(case: Case, client: Client) -> int:
    """Whether the other client's data are still there."""
    return int(client.get_data(case.path).data == THEIRS)


# --- delete, set_data, set_acl --------------------------------------------------------------------


def make(case: Case) -> None:
    """The node is there, and its stat is known."""
    case.notes["stat"] = case.observer.create_with_stat(case.path, b"old").stat


def deleted(case: Case, client: Client) -> int:
    """Whether the node that was meant is gone."""
    stat = repeat(client.exists, case.path)
    return int(stat is None or stat.czxid != case.notes["stat"].czxid)


def delete_again(case: Case, client: Client) -> str:
    """Delete the node if it is still the one that was meant."""
    repeat(client.sync, case.path)
    if not deleted(case, client):
        with suppress(NoNodeError):
            repeat(client.delete, case.path)
    return "done"


def set_version(operations: Any, case: Case) -> Any:
    return operations.set_data(case.path, case.id.encode(), version=case.notes["stat"].version)


def written(case: Case, client: Client) -> int:
    """How often our data has been written."""
    with suppress(NoNodeError):
        data, stat = repeat(client.get_data, case.path)
        return stat.version - case.notes["stat"].version if data == case.id.encode() else 0
    return 0


def set_acl(operations: Any, case: Case) -> Any:
    return operations.set_acl(case.path, READ_WRITE, version=case.notes["stat"].aversion)


def acl_set(case: Case, client: Client) -> int:
    """How often the list was replaced by ours."""
    acl, stat = repeat(client.get_acl, case.path)
    return stat.aversion - case.notes["stat"].aversion if acl == READ_WRITE else 0


# --- multi ----------------------------------------------------------------------------------------


def make_counter(case: Case) -> None:
    """Two nodes that are to be changed together."""
    case.observer.create(f"{case.base}/total", b"0")
    case.observer.create(f"{case.base}/done")


def transfer(operations: Any, case: Case) -> Any:
    marker = f"{case.base}/done/{case.id}"
    return operations.multi([Create(marker), SetData(f"{case.base}/total", b"1")])


def transferred(case: Case, client: Client) -> int:
    """How often the total was changed; the marker is there if and only if it was."""
    stat = repeat(client.exists, f"{case.base}/total")
    times = 0 if stat is None else stat.version  # None: it is refused
    marked = case.id in repeat(client.get_children, f"{case.base}/done")
    assert marked == (times > 0), "half of a multi"
    return times


def transfer_again(case: Case, client: Client) -> str:
    """The same multi once more; its marker refuses what was done already."""
    try:
        repeat(transfer, client, case)
    except MultiError as error:
        if error.index != 0 or error.code != NodeExistsError.code:
            raise
    return "done"


# --- reconfig -------------------------------------------------------------------------------------


def read_config(case: Case, client: Client | None = None) -> str:
    """The ensemble's members and version."""
    return repeat((client or case.subject).get_config).data.decode()


def note_version(case: Case) -> None:
    """The version that the change is to be made to."""
    case.notes["version"] = int(read_config(case).rpartition("version=")[2], 16)


def without_both(case: Case) -> None:
    """Neither server is a member."""
    case.observer.reconfig(leaving=["8", "9"])
    note_version(case)


def reconfig(operations: Any, case: Case) -> Any:
    return operations.reconfig(joining=[OUR_SERVER], version=case.notes["version"])


def joined(case: Case, client: Client) -> int:
    """Whether our server is a member."""
    return int(OUR_SERVER in read_config(case, client))


reconfig_again = on_same_version(reconfig, joined)


def join_another(case: Case) -> None:
    """Another client has made another server a member."""
    case.observer.reconfig(joining=[THEIR_SERVER])


def another_joined(case: Case, client: Client) -> int:
    """Whether it still is."""
    return int(THEIR_SERVER in read_config(case, client))


# --- the list -------------------------------------------------------------------------------------

CREATE_AGAIN = (
    "repeat it; on `NodeExistsError` read the node: your unique id in its data (and, if it is "
    "ephemeral, `ephemeral_owner` equal to `session_id`) means done, else the node is another "
    "client's"
)
LOOK_FOR_IT = (
    "do **not** repeat it: `sync`, list the children, look for the unique id that you put into the "
    "name; create again only if it is not there"
)
GONE = "make a new `Client`, and create it again"
DONE = {0: "not done", 1: "done", 2: "done twice"}


def _change(
    title: str, ask: Ask, wire: str, again: str, recover: Recover, count: Count, **more: Any
) -> Operation:
    goals = more.pop("goals", frozenset({1}))
    return Operation(title, ask, wire, again, recover, count=count, words=DONE, goals=goals, **more)


def _create(title: str, ask: Ask, wire: str, **more: Any) -> Operation:
    return _change(
        title, ask, wire, CREATE_AGAIN, create_again(ask), made,
        refuse=occupy, mend=lambda case: case.observer.delete(case.path),
        refused="the path is taken: decide what to do; when it is free, ask again",
        rival=occupy, spared=has_theirs, **more,
    )  # fmt: skip


def _numbered(title: str, ask: Ask, **more: Any) -> Operation:
    return _change(
        title, ask, "create", LOOK_FOR_IT, look_for_id(ask), made_in_sequence,
        refuse=lambda case: case.observer.delete(case.base),
        mend=lambda case: case.observer.create(case.base),
        refused="create the parent, then ask again", **more,
    )  # fmt: skip


def written_first(rival: Act) -> dict[str, Any]:
    """Another client has written meanwhile; this one reads again, and writes nevertheless."""

    def read_version(case: Case) -> None:
        case.notes["stat"] = case.subject.get_data(case.path).stat

    return {"prepare": make, "refuse": rival, "rival": rival, "mend": read_version,
            "refused": "read it and decide again"}  # fmt: skip


CHANGES: tuple[Operation, ...] = (
    _create("create", create(), "create"),
    _create("create_with_stat", lambda v, c: v.create_with_stat(c.path, c.id.encode()), "create2"),
    _create("create, container", create(container=True), "create_container"),
    _create("create, with a ttl", create(ttl=3600.0), "create_ttl"),
    _create("create, ephemeral", create(ephemeral=True), "create", new_client=GONE),
    _numbered("create, sequential", create_numbered()),
    _numbered("create, ephemeral and sequential", create_numbered(ephemeral=True), new_client=GONE),
    _change(
        "delete", lambda operations, case: operations.delete(case.path), "delete",
        "`sync` and `exists`: gone, or another `czxid` than the one you meant, is done; else "
        "repeat it, where `NoNodeError` means done",
        delete_again, deleted, prepare=make,
        refuse=lambda case: case.observer.create(f"{case.path}/child"),
        mend=lambda case: case.observer.delete(f"{case.path}/child"),
        refused="delete the children, then ask again", rival=occupy, spared=has_theirs,
    ),
    _change(
        "set_data, with a version", set_version, "set_data",
        "repeat it with the same version; on `BadVersionError` read it: your data means done, "
        "else another client has changed it: decide again",
        on_same_version(set_version, written), written,
        **written_first(lambda case: case.observer.set_data(case.path, THEIRS)), spared=has_theirs,
    ),
    _change(
        "set_data, of any version", lambda v, c: v.set_data(c.path, c.id.encode()), "set_data",
        "repeat it if it may overwrite what other clients have written meanwhile; it can write "
        "twice",
        lambda case, client: repeat(client.set_data, case.path, case.id.encode()), written,
        prepare=make,
        goals=frozenset({1, 2}), refuse=lambda case: case.observer.delete(case.path),
        mend=lambda case: case.observer.create(case.path, b"old"),
        refused="create the node, then ask again",
    ),
    _change(
        "set_acl, with a version", set_acl, "set_acl",
        "repeat it with the same `aversion`; on `BadVersionError` read it: your list means done, "
        "else another client has changed it: decide again",
        on_same_version(set_acl, acl_set), acl_set,
        **written_first(
            lambda case: case.observer.set_acl(case.path, case.observer.get_acl(case.path).acl)
        ),
        spared=lambda case, client: int(client.get_acl(case.path).acl != READ_WRITE),
    ),
    _change(
        "multi, with a create of a unique name", transfer, "multi",
        "repeat it: a `MultiError` whose `index` is the create's and whose code is that of "
        "`NodeExistsError` means that all of it was done",
        transfer_again, transferred, prepare=make_counter,
        refuse=lambda case: case.observer.delete(f"{case.base}/total"),
        mend=lambda case: case.observer.create(f"{case.base}/total", b"0"),
        refused="nothing of it was done; correct what its `index` names, then ask again",
    ),
    _change(
        "reconfig, with a version", reconfig, "reconfig",
        "repeat it with the same version (again after `ReconfigInProgressError`); on "
        "`BadVersionError` read `get_config`: your change means done, else another client "
        "has changed it: decide again",
        reconfig_again, joined, prepare=without_both,
        by_ensemble=True, refuse=join_another, mend=note_version,
        refused="read `get_config` and decide again",
        rival=join_another, spared=another_joined,
    ),
)  # fmt: skip

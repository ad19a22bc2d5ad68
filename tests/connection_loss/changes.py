"""The operations that change something: each with its advice, and the function that follows it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.connection_loss.case import Case, repeat
from tests.connection_loss.operation import DONE, ONCE, Operation
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


# --- create ---------------------------------------------------------------------------------------


def create(operations: Any, case: Case) -> Any:
    return operations.create(case.path, case.id.encode())


def create_with_stat(operations: Any, case: Case) -> Any:
    return operations.create_with_stat(case.path, case.id.encode())


def create_ephemeral(operations: Any, case: Case) -> Any:
    return operations.create(case.path, case.id.encode(), ephemeral=True)


def create_container(operations: Any, case: Case) -> Any:
    return operations.create(case.path, case.id.encode(), container=True)


def create_ttl(operations: Any, case: Case) -> Any:
    return operations.create(case.path, case.id.encode(), ttl=3600.0)


def create_sequential(operations: Any, case: Case) -> Any:
    return operations.create(f"{case.base}/{case.id}-", sequential=True)


def create_in_queue(operations: Any, case: Case) -> Any:
    return operations.create(f"{case.base}/{case.id}-", ephemeral=True, sequential=True)


def made(case: Case, client: Client) -> int:
    """Whether the node is there, and is ours."""
    try:
        data, _ = repeat(client.get_data, case.path)
    except NoNodeError:
        return 0
    return int(data == case.id.encode())


def made_in_sequence(case: Case, client: Client) -> int:
    """How many nodes there are that carry our id."""
    try:
        return sum(name.startswith(case.id) for name in repeat(client.get_children, case.base))
    except NoNodeError:
        return 0


def lose_parent(case: Case) -> None:
    case.observer.delete(case.base)


def make_parent(case: Case) -> None:
    case.observer.create(case.base)


def create_again(ask: Any) -> Any:
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


def look_for_id(ask: Any) -> Any:
    """Look for the node by the id in its name before making another one."""

    def recover(case: Case, client: Client) -> str:
        repeat(client.sync, case.base)
        if not made_in_sequence(case, client):
            ask(client, case)
        return "done"

    return recover


def occupy(case: Case) -> None:
    """Another client has the path."""
    case.observer.create(case.path, b"another client")


def occupied(case: Case, client: Client) -> int:
    """Whether it still has it."""
    return int(client.get_data(case.path).data == b"another client")


def vacate(case: Case) -> None:
    """It deletes its node."""
    case.observer.delete(case.path)


# --- delete ---------------------------------------------------------------------------------------


def make(case: Case) -> None:
    """The node is there, and its stat is known."""
    _, stat = case.observer.create_with_stat(case.path, b"old")
    case.notes["stat"] = stat


def delete(operations: Any, case: Case) -> Any:
    return operations.delete(case.path)


def deleted(case: Case, client: Client) -> int:
    """Whether the node that was meant is gone."""
    stat = repeat(client.exists, case.path)
    return int(stat is None or stat.czxid != case.notes["stat"].czxid)


def delete_again(case: Case, client: Client) -> str:
    """Delete the node if it is still the one that was meant."""
    repeat(client.sync, case.path)
    stat = repeat(client.exists, case.path)
    if stat is not None and stat.czxid == case.notes["stat"].czxid:
        with suppress(NoNodeError):
            repeat(client.delete, case.path)
    return "done"


def have_child(case: Case) -> None:
    case.observer.create(f"{case.path}/child")


def lose_child(case: Case) -> None:
    case.observer.delete(f"{case.path}/child")


# --- set_data, set_acl ----------------------------------------------------------------------------


def set_version(operations: Any, case: Case) -> Any:
    return operations.set_data(case.path, case.id.encode(), version=case.notes["stat"].version)


def set_any(operations: Any, case: Case) -> Any:
    return operations.set_data(case.path, case.id.encode())


def written(case: Case, client: Client) -> int:
    """How often our data has been written."""
    try:
        data, stat = repeat(client.get_data, case.path)
    except NoNodeError:
        return 0
    return stat.version - case.notes["stat"].version if data == case.id.encode() else 0


def set_version_again(case: Case, client: Client) -> str:
    """Write once more on the same version; if that is gone, see by whom."""
    try:
        repeat(set_version, client, case)
    except BadVersionError:
        data, _ = repeat(client.get_data, case.path)
        return "done" if data == case.id.encode() else "another client's"
    return "done"


def overwritten(case: Case, client: Client) -> int:
    """Whether the other client's data is there."""
    return int(client.get_data(case.path).data == b"newer")


def overwrite(case: Case) -> None:
    """Another client has written meanwhile."""
    case.observer.set_data(case.path, b"newer")


def read_version(case: Case) -> None:
    """Read again, and decide that it is to be written nevertheless."""
    _, case.notes["stat"] = case.subject.get_data(case.path)


def set_acl(operations: Any, case: Case) -> Any:
    return operations.set_acl(case.path, READ_WRITE, version=case.notes["stat"].aversion)


def acl_set(case: Case, client: Client) -> int:
    """How often the list was replaced by ours."""
    acl, stat = repeat(client.get_acl, case.path)
    return stat.aversion - case.notes["stat"].aversion if acl == READ_WRITE else 0


def set_acl_again(case: Case, client: Client) -> str:
    """Replace it once more on the same version; if that is gone, see by whom."""
    try:
        repeat(set_acl, client, case)
    except BadVersionError:
        acl, _ = repeat(client.get_acl, case.path)
        return "done" if acl == READ_WRITE else "another client's"
    return "done"


def acl_replaced(case: Case, client: Client) -> int:
    """Whether the other client's list is there."""
    return int(client.get_acl(case.path).acl != READ_WRITE)


def replace_acl(case: Case) -> None:
    """Another client has replaced it meanwhile."""
    acl, _ = case.observer.get_acl(case.path)
    case.observer.set_acl(case.path, acl)


# --- multi ----------------------------------------------------------------------------------------


def make_counter(case: Case) -> None:
    """Two nodes that are to be changed together."""
    case.notes["stat"] = case.observer.create_with_stat(f"{case.base}/total", b"0").stat
    case.observer.create(f"{case.base}/done")


def transfer(operations: Any, case: Case) -> Any:
    marker = f"{case.base}/done/{case.id}"
    return operations.multi([Create(marker), SetData(f"{case.base}/total", b"1")])


def transferred(case: Case, client: Client) -> int:
    """How often the total was changed; the marker is there if and only if it was."""
    _, stat = repeat(client.get_data, f"{case.base}/total")
    marked = case.id in repeat(client.get_children, f"{case.base}/done")
    assert marked == (stat.version > 0), "half of a multi"
    return stat.version


def transfer_again(case: Case, client: Client) -> str:
    """The same multi once more; its marker refuses what was done already."""
    try:
        repeat(transfer, client, case)
    except MultiError as error:
        if error.index != 0 or error.code != NodeExistsError.code:
            raise
    return "done"


def block_transfer(case: Case) -> None:
    case.observer.delete(f"{case.base}/total")
    case.notes["blocked"] = True


def unblock_transfer(case: Case) -> None:
    case.observer.create(f"{case.base}/total", b"0")
    case.notes["blocked"] = False


def transferred_or_blocked(case: Case, client: Client) -> int:
    """As `transferred`, also while there is no total."""
    return 0 if case.notes.get("blocked") else transferred(case, client)


# --- reconfig -------------------------------------------------------------------------------------

# Observers that are never started: with them an ensemble goes on as before.
OURS = "server.8=127.0.0.1:1008:2008:observer;127.0.0.1:3008"
THEIRS = "server.9=127.0.0.1:1009:2009:observer;127.0.0.1:3009"


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
    return operations.reconfig(joining=[OURS], version=case.notes["version"])


def joined(case: Case, client: Client) -> int:
    """Whether our server is a member."""
    return int(OURS in read_config(case, client))


def reconfig_again(case: Case, client: Client) -> str:
    """Once more on the same version; if that is gone, see by whom."""
    while True:
        try:
            repeat(reconfig, client, case)
        except ReconfigInProgressError:
            continue
        except BadVersionError:
            return "done" if joined(case, client) else "another client's"
        return "done"


def join_another(case: Case) -> None:
    """Another client has made another server a member."""
    case.observer.reconfig(joining=[THEIRS])


def another_joined(case: Case, client: Client) -> int:
    """Whether it still is."""
    return int(THEIRS in read_config(case, client))


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
TAKEN = "the path is taken: decide what to do; when it is free, ask again"

_PLAIN = {
    "create": (create, "create"),
    "create_with_stat": (create_with_stat, "create2"),
    "create, container": (create_container, "create_container"),
    "create, with a ttl": (create_ttl, "create_ttl"),
}

CHANGES: tuple[Operation, ...] = (
    *(
        Operation(
            title, ask, wire, CREATE_AGAIN, create_again(ask),
            count=made, words=DONE, goals=ONCE, refuse=occupy, mend=vacate, refused=TAKEN,
            rival=occupy, spared=occupied,
        )
        for title, (ask, wire) in _PLAIN.items()
    ),
    Operation(
        "create, ephemeral", create_ephemeral, "create", CREATE_AGAIN,
        create_again(create_ephemeral),
        count=made, words=DONE, goals=ONCE, refuse=occupy, mend=vacate, refused=TAKEN,
            rival=occupy, spared=occupied,
        new_client="make a new `Client`, and create it again",
    ),
    Operation(
        "create, sequential", create_sequential, "create", LOOK_FOR_IT,
        look_for_id(create_sequential), count=made_in_sequence, words=DONE, goals=ONCE,
        refuse=lose_parent, mend=make_parent, refused="create the parent, then ask again",
    ),
    Operation(
        "create, ephemeral and sequential", create_in_queue, "create", LOOK_FOR_IT,
        look_for_id(create_in_queue), count=made_in_sequence, words=DONE, goals=ONCE,
        refuse=lose_parent, mend=make_parent, refused="create the parent, then ask again",
        new_client="make a new `Client`, and create it again",
    ),
    Operation(
        "delete", delete, "delete",
        "`sync` and `exists`: gone, or another `czxid` than the one you meant, is done; else "
        "repeat it, where `NoNodeError` means done",
        delete_again, prepare=make, count=deleted, words=DONE, goals=ONCE,
        refuse=have_child, mend=lose_child, refused="delete the children, then ask again",
        rival=occupy, spared=occupied,
    ),
    Operation(
        "set_data, with a version", set_version, "set_data",
        "repeat it with the same version; on `BadVersionError` read it: your data means done, "
        "else another client has changed it: decide again",
        set_version_again, prepare=make, count=written, words=DONE, goals=ONCE,
        refuse=overwrite, mend=read_version, refused="read it and decide again",
        rival=overwrite, spared=overwritten,
    ),
    Operation(
        "set_data, of any version", set_any, "set_data",
        "repeat it if it may overwrite what other clients have written meanwhile; it can write "
        "twice",
        lambda case, client: repeat(set_any, client, case),
        prepare=make, count=written, words=DONE,
        goals=frozenset({1, 2}), refuse=lambda case: case.observer.delete(case.path),
        mend=lambda case: case.observer.create(case.path, b"old"),
        refused="create the node, then ask again",
    ),
    Operation(
        "set_acl, with a version", set_acl, "set_acl",
        "repeat it with the same `aversion`; on `BadVersionError` read it: your list means done, "
        "else another client has changed it: decide again",
        set_acl_again, prepare=make, count=acl_set, words=DONE, goals=ONCE,
        refuse=replace_acl, mend=read_version, refused="read it and decide again",
        rival=replace_acl, spared=acl_replaced,
    ),
    Operation(
        "multi, with a create of a unique name", transfer, "multi",
        "repeat it: a `MultiError` whose `index` is the create's and whose code is that of "
        "`NodeExistsError` means that all of it was done",
        transfer_again, prepare=make_counter, count=transferred_or_blocked, words=DONE, goals=ONCE,
        refuse=block_transfer, mend=unblock_transfer,
        refused="nothing of it was done; correct what its `index` names, then ask again",
    ),
    Operation(
        "reconfig, with a version", reconfig, "reconfig",
        "repeat it with the same version (again after `ReconfigInProgressError`); on "
        "`BadVersionError` read `get_config`: your change means done, else another client "
        "has changed it: decide again",
        reconfig_again, prepare=without_both, count=joined, words=DONE, goals=ONCE,
        by_ensemble=True, refuse=join_another, mend=note_version,
        refused="read `get_config` and decide again",
        rival=join_another, spared=another_joined,
    ),
)  # fmt: skip

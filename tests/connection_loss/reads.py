"""The operations that change nothing, those on watches and credentials among them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.connection_loss.case import Case, repeat
from tests.connection_loss.points import Ask, Operation
from tests.support.operation_samples import SAMPLES, Sample
from zkwire import ACL, Client, NoAuthError, Perms, WatchType, digest_auth, digest_id
from zkwire.operations import Operations
from zkwire.wire import ops
from zkwire.wire.ops import Op

AGAIN = "repeat it; `sync` first if it must show what other clients have finished"
WATCH_AGAIN = (
    "repeat it: the lost call has set no watch, and what the repeated call returns may be different"
)
CREDENTIALS = digest_auth("bob", "secret")
WATCH = {0: "no watch", 1: "the watch is set"}


def make(case: Case) -> None:
    case.observer.create(case.path, b"old")


def nothing(*_: object) -> None:
    """What is left to do."""


# --- with a watch ---------------------------------------------------------------------------------


def watched(case: Case, _: Client) -> int:
    """How many of two changes are reported: of a one-shot watch the first, of others both."""
    if case.subject.state.terminal:
        return 0
    case.events()
    stat = repeat(case.observer.exists, case.path)
    if stat is None:
        return 0
    for _change in range(2):
        case.observer.set_data(case.path, b"probe")
        case.observer.delete(case.observer.create(f"{case.path}/probe"))
    return int(bool(set(case.events()) - {"REREAD"}))


def get_data_watching(operations: Any, case: Case) -> Any:
    return operations.get_data(case.path, watch=case.watch)


def set_watch(case: Case) -> None:
    make(case)
    get_data_watching(case.subject, case)


def remove_watches(operations: Any, case: Case) -> Any:
    return operations.remove_watches(case.path, WatchType.DATA)


def unwatched(case: Case, client: Client) -> int:
    """Whether nothing is reported any more."""
    if case.subject.state.terminal:
        return 1
    case.events()
    case.observer.set_data(case.path, b"probe")
    fired = "NODE_DATA_CHANGED" in case.events()
    if fired:  # it was a one-shot watch
        get_data_watching(case.subject, case)
    return int(not fired)


def remove_before(case: Case) -> None:
    """There is no such watch any more."""
    remove_watches(case.subject, case)
    case.events()


# --- credentials ----------------------------------------------------------------------------------


def make_private(case: Case) -> None:
    case.observer.create(case.path, b"private", [ACL(Perms.ALL, digest_id("bob", "secret"))])


def add_auth(operations: Any, case: Case) -> Any:
    return operations.add_auth(*case.notes.get("credentials", CREDENTIALS))


def authenticated(case: Case, _: Client) -> int:
    """Whether the client's connection has the rights."""
    if case.subject.state.terminal:
        return 0
    with suppress(NoAuthError):
        repeat(case.subject.get_data, case.path)
        return 1
    return 0


def unknown_scheme(case: Case) -> None:
    case.notes["credentials"] = "no-such-scheme", b""


def known_scheme(case: Case) -> None:
    del case.notes["credentials"]
    case.fresh_client()


# --- the list -------------------------------------------------------------------------------------


def _asked(title: str, ask: Ask, wire: str, again: str, refusable: bool, **more: Any) -> Operation:
    """One that may be asked for again, and that needs a node if it is ``refusable``."""
    if refusable:
        more |= {"refuse": lambda case: case.observer.delete(case.path), "mend": make}
    return Operation(
        title, ask, wire, again, lambda case, client: ask(client, case),
        prepare=make, refused="create the node, then ask again", **more,
    )  # fmt: skip


def _read(method: str, ask: Ask, op: Op, *, refusable: bool = True) -> Operation:
    since = max((3, 6), (op.release[0], op.release[1]))
    return _asked(method, ask, op.name, AGAIN, refusable, since=since)


def _sampled(sample: Sample) -> Operation:
    """One that has nothing but a sample; its docstring says whether it needs a node."""
    doc = getattr(Operations, sample.method).__doc__ or ""
    return _read(sample.method, lambda v, c: sample.call(v, c.path), sample.op,
                 refusable="Refused with: NoNodeError" in doc)  # fmt: skip


def _watch(title: str, wire: str, ask: Ask, *, refusable: bool = False) -> Operation:
    return _asked(title, ask, wire, WATCH_AGAIN, refusable, count=watched, words=WATCH,
                  goals=frozenset({1}), by_client=True)  # fmt: skip


BY_HAND: tuple[Operation, ...] = (
    _read("exists", lambda v, c: v.exists(c.path), ops.EXISTS, refusable=False),
    _read("get_data", lambda v, c: v.get_data(c.path), ops.GET_DATA),
    _read("get_children", lambda v, c: v.get_children(c.path), ops.GET_CHILDREN),
    _read("get_children_with_stat", lambda v, c: v.get_children_with_stat(c.path),
          ops.GET_CHILDREN2),
    _read("get_config", lambda v, c: v.get_config(), ops.GET_DATA, refusable=False),
    _watch("exists, with a watch", "exists", lambda v, c: v.exists(c.path, watch=c.watch)),
    _watch("get_data, with a watch", "get_data", get_data_watching, refusable=True),
    _watch("get_children, with a watch", "get_children",
           lambda v, c: v.get_children(c.path, watch=c.watch), refusable=True),
    _watch("add_watch", "add_watch", lambda v, c: v.add_watch(c.path, c.watch)),
    _watch("add_watch, recursive", "add_watch",
           lambda v, c: v.add_watch(c.path, c.watch, recursive=True)),
    Operation(
        "remove_watches", remove_watches, "remove_watches",
        "nothing is left to do: the client does not set the watch on a new connection", nothing,
        prepare=set_watch, count=unwatched, words={0: "the watch is set", 1: "no watch"},
        goals=frozenset({1}), by_client=True,
        unsent="nothing: the client does not set the watch on a new connection", resend=nothing,
        refuse=remove_before, settle=nothing, refused="nothing: there is no watch to remove",
        new_client="nothing: watches end with the session",
    ),
    Operation(
        "add_auth", add_auth, "auth",
        "nothing is left to do: the call waits for the next connection, where it is sent again",
        nothing, prepare=make_private, count=authenticated,
        words={0: "not authenticated", 1: "authenticated"}, goals=frozenset({1}), by_client=True,
        unsent="nothing: it was sent on the next connection", resend=nothing,
        refuse=unknown_scheme, mend=known_scheme,
        refused="make a new `Client` with credentials that the server knows",
        new_client="make a new `Client`, and add them there",
        renew=lambda case, client: add_auth(client, case),
    ),
)  # fmt: skip
_NAMED = {op.title.partition(",")[0] for op in BY_HAND}
_OTHERS = [s for s in SAMPLES if not s.op.changes and s.method not in _NAMED]
READS = (*BY_HAND, *map(_sampled, _OTHERS))
"""Those by hand, and all others that have a sample."""

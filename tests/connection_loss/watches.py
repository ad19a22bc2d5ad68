"""What becomes of each kind of watch when things happen while its connection is lost.

The watch is set, the client is kept away, an observer changes something, the client comes back; a
round trip later every event that is going to come has come. Then the advice: read again, and the
next change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import Case, Row, Rows, Setting, repeat, run_each
from tests.connection_loss.lagging import Lag
from tests.support.lock_helpers import PATIENCE
from zkwire import Client, SessionExpiredError

HEADS = ("watch", "while the connection was lost", "events after it", "not told", "what to do")


class Kind(NamedTuple):
    """One way of setting a watch."""

    title: str
    set: Callable[[Client, Case], object]
    there: bool = True
    """Whether the node is there when it is set."""
    lasting: bool = False


KINDS = (
    Kind("`exists`, no node", lambda client, case: client.exists(case.path, watch=case.watch),
         there=False),
    Kind("`exists` or `get_data`",
         lambda client, case: client.get_data(case.path, watch=case.watch)),
    Kind("`get_children`", lambda client, case: client.get_children(case.path, watch=case.watch)),
    Kind("`add_watch`", lambda client, case: client.add_watch(case.path, case.watch),
         lasting=True),
    Kind("`add_watch`, recursive",
         lambda client, case: client.add_watch(case.path, case.watch, recursive=True),
         lasting=True),
)  # fmt: skip

Change: TypeAlias = list[tuple[Any, ...]]
"""What the observer does: its operations, each with a place below the node, and data."""

CREATE, DELETE, SET = ("create", "", b"a"), ("delete", ""), ("set_data", "", b"b")
CREATE_CHILD, DELETE_CHILD = ("create", "/child"), ("delete", "/child")
ON_NOTHING: dict[str, Change] = {
    "nothing": [],
    "node created": [CREATE],
    "node created and deleted again": [CREATE, DELETE],
}
ON_NODE: dict[str, Change] = {
    "nothing": [],
    "data set": [SET],
    "data set, and set back": [SET, ("set_data", "", b"a")],
    "child created": [CREATE_CHILD],
    "child created and deleted again": [CREATE_CHILD, DELETE_CHILD],
    "node deleted": [DELETE],
    "node deleted and created again": [DELETE, CREATE],
}


def make(change: Change, case: Case) -> None:
    for verb, place, *data in change:
        getattr(case.observer, verb)(case.path + place, *data)


def begin(kind: Kind, case: Case) -> None:
    """Set the watch on a state that is the same for all."""
    if kind.there:
        case.observer.create(case.path, b"a")
    kind.set(case.subject, case)


def again(kind: Kind, case: Case) -> str:
    """Follow the advice, and see that the next change is told."""
    if not kind.lasting:
        spent = not case.watch._set  # fired, or still waiting
        if spent and repeat(case.observer.exists, case.path) is not None:
            kind.set(case.subject, case)
        elif spent:
            case.subject.exists(case.path, watch=case.watch)
    stir(case)
    assert set(case.events()) - {"REREAD"}, f"{kind.title} is deaf"
    if kind.lasting:
        return "read again on `REREAD`"
    return "read again, which sets it again" if spent else "nothing: it is still set"


def stir(case: Case) -> None:
    """A change that every kind of watch is told of, on the way or at the end."""
    client, path = case.observer, case.path
    if client.exists(path) is None:
        client.create(path)
    else:
        client.set_data(path, b"stirred")
        client.create(f"{path}/stirred")


def compared(kind: Kind, title: str, change: Change, setting: Setting) -> Row:
    """One change, for a client that has stayed and for one that comes back."""
    with Case(setting) as case:
        begin(kind, case)
        make(change, case)
        told = case.events()
    with Case(setting) as case:
        begin(kind, case)
        case.keep_away()
        make(change, case)
        case.proxy.refuse(False)
        seen = case.events()
        advice = again(kind, case)
    missing = ", ".join(name for name in told if name not in seen)
    return kind.title, title, ", ".join(seen) or "none", missing, advice


def session_ended(kind: Kind, setting: Setting) -> Row:
    """The session expires meanwhile."""
    with Case(setting) as case:
        begin(kind, case)
        case.expire(case.subject)
        error = case.ending(lambda: case.watch.wait(PATIENCE))
        assert isinstance(error, SessionExpiredError)
        case.fresh_client()
        kind.set(case.subject, case)
        stir(case)
        assert case.events(), f"{kind.title} is deaf"
    return (kind.title, "session expired", "`wait` raises `SessionExpiredError`", "everything",
            "make a new `Client`, read again and set it again")  # fmt: skip


def moved(kind: Kind, setting: Setting, lag: Lag) -> Row:
    """The next server is behind: it does not know of the change yet."""
    with Case(setting) as case:
        begin(kind, case)
        lag.catch_up()
        case.proxy.upstream = lag.hosts
        lag.begin()
        case.keep_away()
        make([SET, CREATE_CHILD] if kind.there else [CREATE], case)
        case.proxy.refuse(False)
        repeat(case.subject.exists, "/")
        early = case.taken()
        lag.end()
        case.subject.sync()
        late = case.events()
        assert late, f"{kind.title} is deaf"
    title = "changed, and moved to a server that is behind"
    seen = f"{', '.join(early) or 'none'}; when it has caught up: {', '.join(late)}"
    return (kind.title, title, seen, "", "`sync`, and read again" if kind.lasting else
            "read again, which sets it again")  # fmt: skip


def run_all(setting: Setting) -> Rows:
    """Every kind of watch through every change, and through the end of its session."""
    cells = []
    for kind in KINDS:
        for title, change in (ON_NODE if kind.there else ON_NOTHING).items():
            cells.append((kind.title, partial(compared, kind, title, change, setting)))
        cells.append((kind.title, partial(session_ended, kind, setting)))
    return run_each(setting, cells)


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Every kind of watch, moved to a server that is behind; one after the other."""
    behind = lag.around(moved)
    cells = [(kind.title, partial(behind, kind, setting, lag)) for kind in KINDS]
    return run_each(setting, cells, 1)

"""What becomes of each kind of watch when things happen while its connection is lost.

The watch is set, the client is kept away, an observer changes something, the client comes back; a
round trip later every event that is going to come has come. Then the advice: read again, and the
next change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import Case, Setting, repeat
from tests.connection_loss.document import table
from tests.connection_loss.lagging import Lag
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import Client, SessionExpiredError

AT_ONCE = 6
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


def nothing(_: Client, __: str) -> None:
    pass


def change_back(client: Client, path: str) -> None:
    client.set_data(path, b"b")
    client.set_data(path, b"a")


def recreate(client: Client, path: str) -> None:
    client.delete(path)
    client.create(path, b"a")


def come_and_go(client: Client, path: str) -> None:
    client.create(f"{path}/child")
    client.delete(f"{path}/child")


def created_and_deleted(client: Client, path: str) -> None:
    client.create(path, b"a")
    client.delete(path)


ON_NOTHING: dict[str, Callable[[Client, str], object]] = {
    "nothing": nothing,
    "node created": lambda client, path: client.create(path, b"a"),
    "node created and deleted again": created_and_deleted,
}
ON_NODE: dict[str, Callable[[Client, str], object]] = {
    "nothing": nothing,
    "data set": lambda client, path: client.set_data(path, b"b"),
    "data set, and set back": change_back,
    "child created": lambda client, path: client.create(f"{path}/child"),
    "child created and deleted again": come_and_go,
    "node deleted": lambda client, path: client.delete(path),
    "node deleted and created again": recreate,
}
Make: TypeAlias = Callable[[Client, str], object]
Row: TypeAlias = tuple[str, ...]


def live(kind: Kind, case: Case, make: Make) -> list[str]:
    """The events of the same change for a client that has stayed, with the same kind of watch."""
    begin(kind, case)
    make(case.observer, case.path)
    return case.events()


def begin(kind: Kind, case: Case) -> None:
    """Set the watch on a state that is the same for all."""
    if kind.there:
        case.observer.create(case.path, b"a")
    kind.set(case.subject, case)


def lost(kind: Kind, case: Case, make: Make) -> list[str]:
    """The events after a loss during which the change was made."""
    begin(kind, case)
    keep_away(case)
    make(case.observer, case.path)
    case.proxy.refuse(False)
    return case.events()


def keep_away(case: Case) -> None:
    """Lose the connection, and find none."""
    case.proxy.refuse()
    case.proxy.cut_all()
    poll("it notices", lambda: not case.subject.state.usable or None, PATIENCE)


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


def row(kind: Kind, change: str, make: Make, setting: Setting) -> Row:
    """One change, once with a connection and once without."""
    with Case(setting) as case:
        told = live(kind, case, make)
    with Case(setting) as case:
        seen = lost(kind, case, make)
        advice = again(kind, case)
    missing = [name for name in told if name not in seen]
    return (kind.title, change, listed(seen) or "none", listed(missing), advice)


def listed(names: list[str]) -> str:
    return ", ".join(names)


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
        keep_away(case)
        change(kind, case)
        case.proxy.refuse(False)
        repeat(case.subject.exists, "/")
        early = taken(case)
        lag.end()
        case.subject.sync()
        late = case.events()
        assert late, f"{kind.title} is deaf"
    title = "changed, and moved to a server that is behind"
    seen = f"{listed(early) or 'none'}; when it has caught up: {listed(late)}"
    return (kind.title, title, seen, "", "`sync`, and read again" if kind.lasting else
            "read again, which sets it again")  # fmt: skip


def change(kind: Kind, case: Case) -> None:
    """Something that the watch is for."""
    if kind.there:
        case.observer.set_data(case.path, b"b")
        case.observer.create(f"{case.path}/child")
    else:
        case.observer.create(case.path)


def taken(case: Case) -> list[str]:
    """The events that have come, without asking the server for more."""
    seen = []
    while case.watch.ready and (event := case.watch.take()) is not None:
        seen.append(getattr(event.type, "name", str(event.type)))
    return seen


def run_all(setting: Setting) -> list[Row]:
    """Every kind of watch through every change, and through the end of its session."""
    jobs: list[tuple[Any, ...]] = []
    for kind in KINDS:
        for title, make in (ON_NODE if kind.there else ON_NOTHING).items():
            jobs.append((row, kind, title, make, setting))
        jobs.append((session_ended, kind, setting))

    def run(job: tuple[Any, ...]) -> Row:
        function, *arguments = job
        try:
            return function(*arguments)
        except Exception as error:
            error.add_note(f"in an experiment on a watch: {arguments}")
            raise

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="experiment") as pool:
        return list(pool.map(run, jobs))


def run_behind(setting: Setting, lag: Lag) -> list[Row]:
    """Every kind of watch, moved to a server that is behind."""
    rows = []
    for kind in KINDS:
        try:
            rows.append(moved(kind, setting, lag))
        finally:
            lag.end()
    return rows


def render(rows: list[Row]) -> str:
    """One table, by kind of watch."""
    order = [kind.title for kind in KINDS]
    return table(HEADS, sorted(rows, key=lambda cells: order.index(cells[0])))

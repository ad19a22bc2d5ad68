"""The points at which a connection can be lost while a recipe does something, for any recipe.

The client's requests after the loss are read off the proxy, what is on the server is looked up by
an observer while the client is kept away, and each experiment ends with the question whether what
the deed is for is true, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tests.connection_loss.case import Scene
from tests.connection_loss.deeds import NOTHING, Deed, Play, Row, outcome
from tests.connection_loss.document import table
from tests.support.lock_helpers import PATIENCE, Running
from zkwire.testing.proxy import Action, Frame, cut_after, cut_before

AT_ONCE = 6
HEADS = ("point of failure", "on the server", "what it does by itself", "the caller gets",
         "what is safe next", "then")  # fmt: skip
WATCHING = {"exists", "get_data", "get_children", "get_children2"}
Point: TypeAlias = Callable[[Play], Row]


def no_connection(play: Play) -> Row:
    """The first request waits for a connection."""
    play.cut()
    call = play.begin(play.deed.call)
    server = play.deed.seen(play)
    play.come_back()
    return play.row("no connection", server, call)


def not_received(play: Play) -> Row:
    """The request never arrives."""
    call, server = lost(play, cut_before)
    play.come_back()
    return play.row(f"`{play.deed.wire}` sent, not received", server, call)


def reply_lost(play: Play) -> Row:
    """The request is carried out, and its sender does not know."""
    call, server = lost(play, cut_after)
    play.come_back()
    return play.row(f"`{play.deed.wire}` applied, reply lost", server, call)


def overtaken(play: Play) -> Row:
    """Another client comes between the loss and the recovery."""
    call, server = lost(play, cut_after)
    assert play.deed.rival
    play.deed.rival(play)
    play.come_back()
    point = f"`{play.deed.wire}` applied, reply lost; {play.deed.rivals} meanwhile"
    return play.row(point, server, call)


def later(play: Play) -> Row:
    """It has been done, and another client comes while the connection is lost."""
    play.deed.call(play)
    play.flush()
    play.cut()
    assert play.deed.rival
    assert play.deed.wait
    play.deed.rival(play)
    call = play.begin(play.deed.wait)
    server = play.deed.seen(play)
    play.come_back()
    return play.row(f"connection lost later; {play.deed.rivals} meanwhile", server, call)


def expired(play: Play) -> Row:
    """The session ends before its client is back."""
    call, _ = lost(play, cut_after)
    play.end()
    server = play.deed.seen(play)
    play.come_back()
    caller = outcome(call)
    did = play.done_by_itself()
    advice = []
    if "Error" in caller:
        advice.append(play.deed.renew)
        play.begin_anew()
    if (more := play.deed.mend(play)) is not NOTHING or not advice:
        advice.append(more)
    point = f"`{play.deed.wire}` applied, then the session expired"
    return point, server, did, caller, "; ".join(advice), play.deed.goal(play)


def while_waiting(play: Play) -> Row:
    """It waits, and is away when that ends."""
    wait = play.deed.waits
    assert wait
    call = play.begin(wait.call)
    play.proxy.wait_for(has_watch, PATIENCE)
    play.cut()
    wait.release(play)
    server = play.deed.seen(play)
    play.come_back()
    caller = outcome(call)
    play.flush()
    did = play.done_by_itself()
    point = f"connection lost while it waits; {wait.words} meanwhile"
    return point, server, did, caller, NOTHING, wait.goal(play)


def has_watch(frames: list[Frame]) -> bool:
    """Whether a read that sets a watch has been answered."""
    answered = [f.request for f in frames if f.direction == "s2c" and f.request is not None]
    return any(f.op in WATCHING and f.raw[-1] == 1 for f in answered)


def timed_out(play: Play) -> Row:
    """The client does not come back within the caller's time limit."""
    assert play.deed.hasty
    call, server = lost(play, cut_after, play.deed.hasty)
    caller = outcome(call)
    play.come_back()
    play.flush()
    did = play.done_by_itself()
    if play.deed.late is not NOTHING and play.deed.again:
        play.deed.again(play)
    point = f"`{play.deed.wire}` applied, reply lost, and its time limit passes"
    return point, server, did, caller, play.deed.late, play.deed.goal(play)


def succeeded(play: Play) -> Row:
    """The same, with a supervisor."""
    call, _ = lost(play, cut_after)
    play.end()
    server = play.deed.seen(play)
    play.come_back()
    caller = outcome(call)
    play.succeed()
    play.flush()
    did = play.done_by_itself()
    point = f"`{play.deed.wire}` applied, then the session expired; with a `Supervisor`"
    return point, server, did, caller, play.deed.mend(play), play.deed.goal(play)


def lost(
    play: Play, action: Action, function: Callable[[Play], object] | None = None
) -> tuple[Running[object], str]:
    """The call, and what the server has of it while the client is away."""
    play.proxy.refuse()
    play.proxy.on(play.deed.wire, action=action)
    call = play.begin(function or play.deed.call)
    play.wait_cut()
    return call, play.deed.seen(play)


# --- all of them ----------------------------------------------------------------------------------

Rows = dict[str, list[Row]]


def points_of(deed: Deed) -> Iterable[tuple[Point, bool]]:
    """The points of a deed, and whether each needs a supervisor."""
    needed = not deed.alone
    yield no_connection, needed
    yield not_received, needed
    yield reply_lost, needed
    if deed.rival is not None:
        yield overtaken, needed
    if deed.wait is not None:
        yield later, needed
    if deed.waits is not None:
        yield while_waiting, needed
    if deed.hasty is not None:
        yield timed_out, needed
    if deed.alone:
        yield expired, False
    if deed.supervised:
        yield succeeded, True


def run_all(scene: Scene, deeds: Iterable[Deed]) -> Rows:
    """Every deed at every point."""
    cells = [(deed, *point) for deed in deeds for point in points_of(deed)]

    def run(cell: tuple[Deed, Point, bool]) -> Row:
        deed, point, supervised = cell
        try:
            with Play(scene, deed, supervised=supervised) as play:
                play.prepare()
                return point(play)
        except Exception as error:
            error.add_note(f"in {point.__name__} of {deed.title}, with {scene.way.title}")
            raise

    rows: Rows = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="experiment") as pool:
        for (deed, *_), row in zip(cells, pool.map(run, cells), strict=True):
            rows.setdefault(deed.title, []).append(row)
    return rows


def render(rows: Rows) -> str:
    """One section for each group of deeds that go exactly the same way."""
    groups: dict[str, list[str]] = {}
    for title, lines in rows.items():
        groups.setdefault(table(HEADS, lines), []).append(title)
    return "\n\n".join(f"### {'; '.join(titles)}\n\n{body}" for body, titles in groups.items())

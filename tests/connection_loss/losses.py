"""The points at which a connection can be lost while a recipe does something, for any recipe.

The client's requests after the loss are read off the proxy, what is on the server is looked up by
an observer while the client is kept away, and each experiment ends with the question whether what
the call is for is true, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tests.connection_loss.case import Setting
from tests.connection_loss.document import table
from tests.connection_loss.recipe_calls import NOTHING, Call, Row, Trial, outcome
from tests.support.lock_helpers import PATIENCE, Running
from zkwire.testing.proxy import Action, Frame, cut_after, cut_before

AT_ONCE = 6
HEADS = ("point of failure", "on the server", "what it does by itself", "the caller gets",
         "what is safe next", "then")  # fmt: skip
WATCHING = {"exists", "get_data", "get_children", "get_children2"}
Point: TypeAlias = Callable[[Trial], Row]


def no_connection(trial: Trial) -> Row:
    """The first request waits for a connection."""
    trial.cut()
    call = trial.begin(trial.asked.call)
    server = trial.asked.seen(trial)
    trial.come_back()
    return trial.row("no connection", server, call)


def not_received(trial: Trial) -> Row:
    """The request never arrives."""
    call, server = lost(trial, cut_before)
    trial.come_back()
    return trial.row(f"`{trial.asked.wire}` sent, not received", server, call)


def reply_lost(trial: Trial) -> Row:
    """The request is carried out, and its sender does not know."""
    call, server = lost(trial, cut_after)
    trial.come_back()
    return trial.row(f"`{trial.asked.wire}` applied, reply lost", server, call)


def overtaken(trial: Trial) -> Row:
    """Another client comes between the loss and the recovery."""
    call, server = lost(trial, cut_after)
    assert trial.asked.rival
    trial.asked.rival(trial)
    trial.come_back()
    point = f"`{trial.asked.wire}` applied, reply lost; {trial.asked.rivals} meanwhile"
    return trial.row(point, server, call)


def later(trial: Trial) -> Row:
    """It has been done, and another client comes while the connection is lost."""
    trial.asked.call(trial)
    trial.flush()
    trial.cut()
    assert trial.asked.rival
    assert trial.asked.wait
    trial.asked.rival(trial)
    call = trial.begin(trial.asked.wait)
    server = trial.asked.seen(trial)
    trial.come_back()
    return trial.row(f"connection lost later; {trial.asked.rivals} meanwhile", server, call)


def expired(trial: Trial) -> Row:
    """The session ends before its client is back."""
    call, _ = lost(trial, cut_after)
    trial.end()
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    did = trial.done_by_itself()
    advice = []
    if "Error" in caller:
        advice.append(trial.asked.renew)
        trial.begin_anew()
    if (more := trial.asked.mend(trial)) is not NOTHING or not advice:
        advice.append(more)
    point = f"`{trial.asked.wire}` applied, then the session expired"
    return point, server, did, caller, "; ".join(advice), trial.asked.goal(trial)


def while_waiting(trial: Trial) -> Row:
    """It waits, and is away when that ends."""
    wait = trial.asked.waits
    assert wait
    call = trial.begin(wait.call)
    trial.proxy.wait_for(has_watch, PATIENCE)
    trial.cut()
    wait.release(trial)
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    trial.flush()
    did = trial.done_by_itself()
    point = f"connection lost while it waits; {wait.words} meanwhile"
    return point, server, did, caller, NOTHING, wait.goal(trial)


def has_watch(frames: list[Frame]) -> bool:
    """Whether a read that sets a watch has been answered."""
    answered = [f.request for f in frames if f.direction == "s2c" and f.request is not None]
    return any(f.op in WATCHING and f.raw[-1] == 1 for f in answered)


def timed_out(trial: Trial) -> Row:
    """The client does not come back within the caller's time limit."""
    assert trial.asked.hasty
    call, server = lost(trial, cut_after, trial.asked.hasty)
    caller = outcome(call)
    trial.come_back()
    trial.flush()
    did = trial.done_by_itself()
    if trial.asked.late is not NOTHING and trial.asked.again:
        trial.asked.again(trial)
    point = f"`{trial.asked.wire}` applied, reply lost, and its time limit passes"
    return point, server, did, caller, trial.asked.late, trial.asked.goal(trial)


def succeeded(trial: Trial) -> Row:
    """The same, with a supervisor."""
    call, _ = lost(trial, cut_after)
    trial.end()
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    trial.succeed()
    trial.flush()
    did = trial.done_by_itself()
    point = f"`{trial.asked.wire}` applied, then the session expired; with a `Supervisor`"
    return point, server, did, caller, trial.asked.mend(trial), trial.asked.goal(trial)


def lost(
    trial: Trial, action: Action, function: Callable[[Trial], object] | None = None
) -> tuple[Running[object], str]:
    """The call, and what the server has of it while the client is away."""
    trial.proxy.refuse()
    trial.proxy.on(trial.asked.wire, action=action)
    call = trial.begin(function or trial.asked.call)
    trial.wait_cut()
    return call, trial.asked.seen(trial)


# --- all of them ----------------------------------------------------------------------------------

Rows = dict[str, list[Row]]


def points_of(asked: Call) -> Iterable[tuple[Point, bool]]:
    """The points of a recipe's call, and whether each needs a supervisor."""
    needed = not asked.alone
    yield no_connection, needed
    yield not_received, needed
    yield reply_lost, needed
    if asked.rival is not None:
        yield overtaken, needed
    if asked.wait is not None:
        yield later, needed
    if asked.waits is not None:
        yield while_waiting, needed
    if asked.hasty is not None:
        yield timed_out, needed
    if asked.alone:
        yield expired, False
    if asked.supervised:
        yield succeeded, True


def run_all(setting: Setting, calls: Iterable[Call]) -> Rows:
    """Every recipe's call at every point."""
    cells = [(asked, *point) for asked in calls for point in points_of(asked)]

    def run(cell: tuple[Call, Point, bool]) -> Row:
        asked, point, supervised = cell
        try:
            with Trial(setting, asked, supervised=supervised) as trial:
                trial.prepare()
                return point(trial)
        except Exception as error:
            error.add_note(
                f"in {point.__name__} of {asked.title}, with {setting.client_kind.title}"
            )
            raise

    rows: Rows = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="experiment") as pool:
        for (asked, *_), row in zip(cells, pool.map(run, cells), strict=True):
            rows.setdefault(asked.title, []).append(row)
    return rows


def render(rows: Rows) -> str:
    """One section for each group of recipes' calls that go exactly the same way."""
    groups: dict[str, list[str]] = {}
    for title, lines in rows.items():
        groups.setdefault(table(HEADS, lines), []).append(title)
    return "\n\n".join(f"### {'; '.join(titles)}\n\n{body}" for body, titles in groups.items())

"""Bugs that are planted into recipes and the state machine, each with where it is looked for.

A row of `_TABLE` is ``worlds: name | faults | what it may break | how``, then what it changes:
``Class.function: text => what the bug makes of it``, or ``Class.function: = what it returns``.
Without worlds a bug is only for `test_hazards_simulated`.  ``how`` may be: ``beside``, it must be
found by who holds beside whom, and not by the end of their nodes; ``tick``, the server's unit of
time is short, so that sessions hardly outlive their promise, which would hide it; ``every``, chance
is too slow, and every schedule is followed; ``minutes``, even so it takes some, so that only a
longer search looks for it.  Numbers are rows of docs/hazards.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import zkwire
from tests.simulation.scenarios import MEMBERS, QUEUES, RANDOM, SIMPLE
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    Usage,
    contenders,
    disagreement,
    meeting,
    semaphore,
)
from tests.support.simulation_parts import NETWORK, Change
from tests.support.simulation_queue import ITEMS, Plan, queues
from tests.support.simulation_services import mirror
from tests.support.simulation_sessions import following
from zkwire.errors import ConnectionLossError, MultiError, NoNodeError, OutcomeUnknownError
from zkwire.jute.records import Stat
from zkwire.operations.multi import Appended
from zkwire.recipes.queue import AsyncQueue
from zkwire.recipes.runtime import in_time, retry
from zkwire.testing.simulation import Claims, Scenario

# --- what is too long for the table ---------------------------------------------------------------


async def look_without_sync(lock: Any, operations: Any, attempt: Any) -> None:
    with suppress(NoNodeError):
        seen = await operations.get_data(lock.path)
        if lock._is_own(attempt, seen):
            await operations.delete(lock.path, seen.stat.version)
    await operations.delete(lock._token(attempt))


async def look_for_the_item(mine: Any, beginning: str, items: list[bytes], deadline: float) -> int:
    """After a lost reply the queue is searched: a consumer may have the item already."""
    runtime, operations = mine._runtime, mine._runtime.operations
    while True:
        try:
            await runtime.until(operations.multi([Appended(beginning, items, None)]), deadline)
            return 0
        except MultiError:
            await mine._provide(deadline)
        except OutcomeUnknownError:
            await retry(runtime, deadline, operations.sync, ITEMS)
            for name in await mine._list(deadline):
                with suppress(NoNodeError):
                    read, path = operations.get_data, f"{ITEMS}/{name}"
                    if (await retry(runtime, deadline, read, path)).data in items:
                        return 0
        except ConnectionLossError:
            pass


_list = AsyncQueue._list


async def sees_no_return(queue: Any, deadline: float | None, watch: Any) -> list[str]:
    """Waits for new items only, and not for those that are given back."""
    names = await _list(queue, deadline)
    if watch is not None:
        read, limit = queue._runtime.operations.get_children, in_time(queue._runtime, deadline)
        await retry(queue._runtime, limit, read, ITEMS, watch=watch)
    return names


def as_if_made(token: Any) -> Stat:
    """What would stand in a token if its change had been made."""
    return Stat(1, 1, 0, 0, token.version + 1, 0, 0, 0, 0, 0, 1)


# --- where they are looked for --------------------------------------------------------------------

MODULES = [
    import_module(f"zkwire.{package}.{module.name}")
    for package in ("recipes", "session")
    for module in iter_modules([str(Path(zkwire.__file__).parent / package)])
]
HOMES: dict[str, Any] = {
    **{module.__name__.rpartition(".")[2]: module for module in MODULES},
    **{name: home for module in MODULES for name, home in vars(module).items()},
}
WORLDS: dict[str, Scenario] = {
    **{name: world.scenario for name, world in RANDOM.items()},
    **SIMPLE,
    "try": RANDOM["sequential, try"].scenario,
    "alone": contenders(SEQUENTIAL, 1, Usage(stay=0)),
    "brief": contenders(BLOCKING, 2, Usage(stay=1)),
    "blocking, held": contenders(BLOCKING, 2, Usage(stay=1, hold=30.0)),  # longer than a session
    "readers": meeting(),
    "semaphore, long": semaphore(1, 3, Usage(stay=12)),
    "disagreement": disagreement(),
    "queue of 1": QUEUES["put and get"],
    "queue of 2": queues(Plan(items=2)),
    "queue of 3": queues(Plan(items=3)),
    "queue, both ways": queues(Plan(consumers=("take", "get"), items=2)),
    "flat queue": queues(Plan(consumers=("take", "get"), items=2, flat=True)),
    "queue, long": queues(Plan(consumers=("take", "take"), items=3, stay=12)),
    "queue, one long": queues(Plan(consumers=("take",), stay=12)),
    "queue, given back": queues(Plan(consumers=("fail", "get"), patience=30.0)),
    "nodes of one": MEMBERS["two objects of one client"],
    "cache": mirror(),
    "watch": following(),
    "watch, behind": following(sessions=3, lagging=True),
    "barrier": RANDOM["barrier of 2 of 3"].scenario,
    "supervisor": RANDOM["2 supervisors"].scenario,
}
LOCKS = {"blocking": "AsyncBlockingLock"}
"""What ``Lock`` stands for; elsewhere for `AsyncSequentialLock`."""
_TABLE = r"""
sequential + blocking: no cleaning | cancel | ORPHAN LIVE WATCH | beside
  # An attempt that ends badly leaves what it has left (B5, B6, B7).
  Lock._clean_up_pending: self._clean_up_after(self._pending_cleanup)
    => self._pending_cleanup = None
sequential + blocking: one cleaning | cut cancel | ORPHAN LIVE | beside
  # A clean-up is tried once (B5, B25).
  Lock._delete_until_gone: while True: => for _ in range(1):
sequential + blocking: busy is never | cancel refuse | ORPHAN LIVE | beside
  Lock._delete_until_gone: errors.BUSY:\n            pass => errors.BUSY:\n            return
sequential + blocking: no lease | pause | ME FENCE | beside
  Lock._lasts: self._runtime.now() < self._runtime.lease_deadline => True
sequential + blocking: late end | | ME | beside
  # Claims until the answer to the delete has come (B21).
  Lock._delete: self._end_claim() => self._granted = attempt
  Lock._delete: self._pending_cleanup = None => self._end_claim(); self._pending_cleanup = None
sequential: no guard | delete | STATE | beside
  Lock._watch_own_node: = None
sequential: by name | | ME FIFO FENCE LIVE | beside
  # Contenders are ordered by their names, which begin with the session's id (B14).
  Lock._ahead: = [(at, name) for at, name in enumerate(sorted(names)) if name < own]
sequential: lowest watched | | HERD | beside
  # Everybody watches the holder: of two before it, so that the event alone does not decide.
  Lock._ahead: return before(names, own)
    => return [min(ahead)] * 2 if (ahead := before(names, own)) else []
sequential: blind repeat | cut linger | LIVE ORPHAN | beside
  Lock._join: names = await self._find(attempt, deadline) => continue
  Lock._contend: await self._prune(attempt, names, deadline) => pass
sequential: no second look | | ME FIFO FENCE | beside
  # Whoever is woken believes that it is its turn.
  Lock._look_again: return await self._list(deadline) => return [own]
sequential: exists | | LIVE | beside
  # Waits by ``exists``, which says nothing when the node is gone already (B10).
  Lock._wait_for: operations.get_data => operations.exists
  Lock._wait_for: seen.stat.ephemeral_owner == 0 => False
sequential: watch kept | | WATCH HERD | beside
  Lock._wait_for: watch.close() => pass
sequential: session is name | linger cut | ME FENCE ERROR LIVE FIFO ORPHAN | beside
  # Finds the node of another attempt of the same client, and takes it (B31).
  Lock._find: attempt.node is None and name.startswith(attempt.id) => True
  Lock._find: attempt.node, attempt.stat = path, stat
    => attempt.node, attempt.stat, attempt.id = path, stat, name.rpartition('-lock-')[0]
sequential: any event | touch | ME FIFO FENCE | beside
  # Whatever happens to the node ahead, it has gone.
  Lock._wait_for: return event.type is EventType.NODE_DELETED => return True
sequential: needs its parent | | ERROR ORPHAN LIVE | beside
  # Makes the parent once, and does not expect it to go.
  Lock._join: await self._provide(self._path, deadline) => raise KeyError(self._path)
sequential: counts on | wrap | ME FIFO FENCE | beside
  Lock._check_sequence: = None
sequential: not itself | delete | ME FIFO FENCE STATE LIVE ERROR | beside
  Lock._contend: own not in names => False
sequential: no deadline | | TIME | beside
  Lock._look_again: self._wait_for(last, deadline) => self._wait_for(last, None)
try: step back once | linger cut | ORPHAN | beside
  Lock._leave_queue: self._clean_up_after(attempt) => pass
sequential: not told | delete | TOLD
  OwnNodeWatch._deliver: self.lost is not None => False
alone: no sync before cleaning | cut cancel lag | ORPHAN | every
  # Looks for what it has left on a server that may not know of it yet (B5): three faults in the
  # right order, the last of them before the new connection has answered.
  Lock._leave: await newest(operations, operations.get_children, self._path)
    => await operations.get_children(self._path)
sequential: hopeful | expire | STATE
  # Whoever has waited long enough holds, whatever became of its session meanwhile (B23).
  Lock._lasts: return ( => return True or (
  Lock._acquire: won = await self._contend(attempt, deadline, wait)
    => try:\n            won = await self._contend(attempt, deadline, wait)
    \n        except errors.SessionExpiredError:\n            won = attempt.stat is not None
  Lock._grant: self._runtime.hold(self._lost) => pass
  Lock._grant: self._runtime.check_open() => pass
blocking: exists means taken | linger cut | ORPHAN LIVE | beside
  # A node that exists is somebody else's, even after a lost reply (C1).
  Lock._create: if not doubt: => if True:
  Lock._adopt: = False
blocking: session is owner | | ME FENCE ORPHAN LIVE | beside
  # A node of this session is this lock's (B31).
  Lock._is_own: = seen.stat.ephemeral_owner == self._runtime.session_id
blocking: exists | | LIVE | beside
  # Waits by ``exists``, which says nothing when the node is gone already (C6).
  Lock._contend: operations.get_data => operations.exists
  Lock._contend: self._adopt(attempt, seen) => False
blocking: deletes anything | cancel | ME FENCE | beside
  # Cleans up whatever stands there, be it somebody else's (C4).
  Lock._leave: or not self._is_own(attempt, seen) =>
  Lock._leave: self._path, version => self._path
blocking: beside tokens | delete | STATE ME FENCE ERROR
  # Does not wait until no earlier holder can delete the node that stands there by now.
  Lock._outlast: runtime, operations = self._runtime, self._runtime.operations => return True
blocking: releases what is lost | delete | ERROR
  # Deletes its path although it knows that the node there is another's by now (C4).
  Lock._refuse_if_lost: = None
brief: no sync before looking | cut lag | STATE ME | every minutes
  # Looks for what it has left on a server that still shows it where another's is by now (B5).
  AsyncBlockingLock._leave: = await look_without_sync(self, operations, attempt)
: content is owner | | ME FENCE
  # A node of the same content is one's own (C3).
  AsyncBlockingLock._is_own: = seen.data == attempt.id.encode()
sequential + blocking: watches are not restored | cut | LIVE | beside tick
  WatchTable.frames: = iter(())
sequential + blocking: the lease is too long | partition | ME FENCE | beside tick
  Liveness.lease_deadline: + self.timeout => + 1.5 * self.timeout
blocking, held: the lease counts from the receipt | slow partition | ME FENCE ERROR | beside tick
  Liveness.received: self._trickle += size
    => self._trickle += size\n    self._contact = now if whole else self._contact
sequential + blocking: what was lost counts as not sent | linger cancel | LIVE ORPHAN | beside tick
  outcomes.broken: if not (request.sent and request.end <= written): => if True:
sequential + blocking: the end of a lease is not noticed | partition | ERROR ME | beside tick
  Session._lapse: = None
sequential + blocking: any session will do | cut swap | ME STATE LIVE HERD | beside tick
  Identity.recognised: answer.time_out <= 0 or answer.session_id == 0 => answer.session_id == 0
  Identity.recognised: known not in {0, answer.session_id} => False
sequential + blocking: a close does not end claims | close | STATE | beside tick
  Session.close: self._lose_all(outcomes.CLOSING) => pass

read-write: a reader ignores writers | | ME FIFO FENCE
  AsyncReadLock._ahead: = []
read-write: a reader waits for later writers | | LIVE FIFO ONCE
  AsyncReadLock._ahead:
    = [(0, n) for n in names if not is_reader(n) and n != self._write._node_name]
readers: a reader waits for readers | | ONCE LIVE
  AsyncReadLock._ahead: = before(names, own)
read-write: a downgrade goes to the end | | LIVE ONCE
  AsyncReadLock._join: (mine := self._write._own_place) is not None => (mine := '')
read-write: a downgrade is tried once | linger cut | ERROR
  # Does not expect its own node from a try whose answer was lost.
  AsyncReadLock._stand_beside: and error.code != NodeExistsError.code =>
: first try forgotten | | ORPHAN
  # Queues anew, after a try to stand beside the writer that may have worked.
  AsyncReadLock._join: if unknown: => if False:
read-write: a writer ignores readers | | ME FIFO FENCE
  AsyncWriteLock._ahead: = before([n for n in names if not is_reader(n)], own)
read-write: a writer believes the event | | ME FIFO FENCE
  # Does not look whether a reader has come in where the writer before it stood.
  AsyncWriteLock._leaves_its_place: = True
semaphore: one lease too many | | ME FENCE
  AsyncLease._ahead: len(ahead) < self._places => len(ahead) <= self._places
semaphore: no watch on the leases | | LIVE
  AsyncLease._await_change: read, self._path, watch=watch)
    => read, self._path)\n        await retry(self._runtime, deadline,
    self._runtime.operations.get_data, self._base, watch=watch)
semaphore: no look behind the watch | | LIVE
  # Waits for a change that may have come before the watch.
  AsyncLease._await_change: set(names).issubset(now) => True
semaphore: the queue is kept | cancel | ORPHAN LIVE
  # Is still the first of the queue when it does not get a lease.
  AsyncLease._clean_up_pending: self._queue._release_in_background() => pass
  AsyncLease._contend: finally:\n        self._queue._release_in_background()
    => finally:\n        pass
  AsyncLease._contend: return won => self._queue._release_in_background(); return won
semaphore: the lease is kept | cut linger cancel | ORPHAN LIVE
  # What fails behind the create of the lease is not cleaned up (D3, D4).
  AsyncLease._clean_up_pending: = setattr(self, "_pending_cleanup", None)
  AsyncLease._contend: finally:\n        self._queue._release_in_background()
    => finally:\n        pass
  AsyncLease._contend: return won => self._queue._release_in_background(); return won
disagreement: the last number counts | | ME FENCE
  AsyncLease._agree: count, stat.version => count
semaphore, long: no queue | partition | HERD FIFO
  AsyncLease._contend: won = await self._take_lease
    => await self._queue._step_out(deadline)\n            self._queue._release_in_background()
    \n            won = await self._take_lease
multi-lock: in the order of the arguments | | LIVE
  AsyncMultiLock.__init__: sorted(locks, key=lambda lock: lock._path) => list(locks)
multi-lock: the first is kept | cancel | ERROR LIVE ORPHAN
  # Does not give back what it had before it failed.
  AsyncMultiLock._acquire_or_release: self._release_taken() => self._taken = []
  AsyncMultiLock._acquire: self._release_taken() => self._taken = []
multi-lock: no last look | delete pause | ERROR
  # Believes that the first is still held when it has the last.
  AsyncMultiLock._acquire: if not self.held: => if False:
multi-lock: one release | delete cancel | ORPHAN LIVE WATCH
  # Gives the others up only if nothing happens to the first.
  AsyncMultiLock._release_all: failed.append(error) => raise
  AsyncMultiLock._release_all: self._release_taken() => self._taken, self._acquired = [], False

queue of 2: repeats blindly | linger cut | ONCE LOST TWICE
  # Sends a multi again without anything that tells whether it was executed.
  TokenPool._look: return stat if data == value else None => return None
queue of 3: repeats for its mark | delete | ONCE
  # Takes a change for not made when an outsider has deleted the token that it has made.
  TokenPool.execute: return self._done(token, results[-1], results[: -len(marking)])
    => look = runtime.operations.exists
    \n                if token.version < 0 and not await retry(runtime, deadline, look, token.node):
    \n                    continue
    \n                return self._done(token, results[-1], results[: -len(marking)])
queue: looks for the item | linger cut | ONCE
  AsyncQueue._add: = await look_for_the_item(self, beginning, items, deadline)
queue of 1: forgets its removal | linger cut | LOST
  # Takes the removal that it has made, and whose reply was lost, for another consumer's.
  AsyncQueue._claimed: self._tokens.execute(token, operations, in_time(self._runtime, deadline))
    => retry(self._runtime, deadline, self._runtime.operations.multi, operations)
queue, both ways: ignores claims | | CLAIM TWICE
  # Removes whatever is first, also what a consumer works on.
  AsyncQueue._removal: self._flat and not version => True
  AsyncQueue._list: name not in claimed and =>
queue, long: removes anything | delete | TWICE
  # Removes the item without a proof that it is still claimed by this consumer.
  Taking._remove: Delete(path, taken.deliveries) => Delete(path)
queue: keeps its claim | | LEFT STARVED LIVE
  Taking._leave: node, taken = attempt.node, self._item => return
queue, one long: tells nothing | pause | TOLD
  # The item's ``lost`` is not set when the session's lease ends.
  Taking._enter_body: return self._item => self._runtime.unhold(lost); return self._item
queue: all watch | | HERD
  Search._stand_in_line: self._line is None or not self._line._owned => False
flat queue: trusts the version | | CLAIM TWICE
  # In the flat layout removes what it has read, also if it was claimed before that.
  AsyncQueue._removal: self._flat and not version => True
queue, given back: sees no return | | STARVED LIVE
  AsyncQueue._list: = await sees_no_return(self, deadline, watch)
queue: leaves marks | | LEFT
  TemporaryTokens.release: = None

node: forgets doubt | linger cut | LIVE TRUTH
  AsyncPersistentNode._create: self._doubt or error.maybe_applied => False
node: takes anything | | ONE FOREIGN
  AsyncPersistentNode._is_own: stat.czxid != self._czxid and not doubted => False
nodes of one: session is owner | | ONE
  # Does not mind other objects of its client, and takes their nodes for its own.
  AsyncPersistentNode._is_own: self._doubt and =>
  AsyncPersistentNode._serve: other._path == self._path for other in others => ()
node: deletes once | cut | LEFT LIVE
  AsyncPersistentNode._delete: except errors.BadVersionError:\n        return
    => except (errors.BadVersionError, *REPEATABLE):\n        pass
node: deletes blindly | cut linger | FOREIGN
  AsyncPersistentNode._delete: await self._is_own(runtime, stat) and =>
  AsyncPersistentNode._delete: , stat.version =>
: no sync before delete | | LEFT
  # Looks on a server that may not know of the node yet.
  AsyncPersistentNode._delete: newest(operations, operations.exists, self._path)
    => operations.exists(self._path)
node: oldest wins | delete | TRUTH
  # A node that is put back has the data that it was made with.
  AsyncPersistentNode._settle: self._data = wishes[-1].data => pass
node: looks without watch | | TRUTH
  AsyncPersistentNode._create: exists(self._path, watch=watch) => exists(self._path)
  AsyncPersistentNode._create: return made, await look
    => await runtime.operations.exists(self._path + '-', watch=watch)\n    return made, await look
standing node: no token | cut linger | ONE FOREIGN TRUTH
  PersistentModeKeeper._is_own: if self._token:
    => self._czxid = stat.czxid if self._doubt and stat else self._czxid\n    if self._token:
standing node: leaves token | cut | LEFT
  PersistentModeKeeper._drop_token: with suppress
    => token, self._token = self._token, ''\n    with suppress
  PersistentModeKeeper._drop_token: delete(self._token) => delete(token)
group: created meanwhile | | TRUTH
  # Does not read the group that was created between two looks.
  AsyncGroup._list: [] if there is None else None => []
group: knows names | | TRUTH SEEN
  # Does not read the data of a name that it has read.
  AsyncGroup._note: self._known.pop(event.path.rpartition("/")[2], None) => pass
group: notes late | | SEEN
  # Answers with data that changed before the list was read.
  AsyncGroup._read: self._note(watch) => pass
group: answers from memory | | SEEN
  AsyncGroup.members: answer: list[tuple[Member, ...]] = []
    => if self._members is not None:\n        return list(self._members)
    \n    answer: list[tuple[Member, ...]] = []

cache: a gap is not noticed | cut | MIRROR LIVE EVENTS
  Reading._hear: self.compare() => pass
cache: the root tells of all | cut | MIRROR LIVE EVENTS
  Reading.compare: *self._tree.nodes, *self.stale]
    => *([] if self.recursive and self._tree.nodes else [*self._tree.nodes, *self.stale])]
cache: a deletion is believed | | MIRROR LIVE EVENTS
  # Believes the event, although an older answer may still come.
  Reading._hear: if kind is EventType.REREAD:
    => if kind is EventType.NODE_DELETED and path != self._scope.root:
    \n        self._tree.remove(path)\n    elif kind is EventType.REREAD:
cache, one by one: no watch on new children | | MIRROR LIVE EVENTS
  # Forgets that the watch on the children of a deleted node has gone with it.
  Reading._hear: if kind in _APPEARS else => if kind is EventType.NODE_CREATED else
cache: a stat without its data | | MIRROR LIVE EVENTS
  Tree.put_stat: node is None or node.stat.mzxid != stat.mzxid => node is None
cache: nothing below a new name | | MIRROR LIVE EVENTS
  # Lists the children only of what a list has named.
  Reading.has_data: self._check_children => before and self._check_children
cache: an answer overtakes the gap | blip | MIRROR LIVE EVENTS
  # Takes the answers of a new connection before it knows that there was a gap.
  Reading.listen: while watch.ready: => while watch.ready and not self._asked:
cache: what was asked is forgotten | expire | MIRROR LIVE EVENTS
  Reading._take_back: self._mark(path, bits) => pass
cache: a reader is told of one step | | EVENTS ERROR
  AsyncCacheEvents._note: = self._waiting is not None and self._waiting.update({path: before})

watch: reads, then watches | | LAST ORDER
  AsyncDataWatch._read: return await operations.get_data(self._path, watch=watch)
    => state = await operations.get_data(self._path)
    \n    await operations.exists(self._path, watch=watch)\n    return state
watch: drops what a slow reader misses | | LAST
  # Takes an event that comes while no reader waits as read.
  AsyncDataWatch._serve: await runtime.wait_for(self._asked)
    => self._last or await runtime.wait_for(self._asked)
  AsyncDataWatch._serve: await self._look(
    => await runtime.operations.exists(self._path, watch=watch) or True if self._next
    else await self._look(
watch: waits behind a loss | cut linger | LAST
  # Reads once; where that was lost it has a watch set, and waits for its event.
  AsyncDataWatch._look: except NoNodeError:
    => except REPEATABLE:\n        await operations.exists(self._path, watch=watch)
    \n    except NoNodeError:
watch: missing is missing | | LAST ORDER
  # Does not read again where the node was created between its two looks.
  AsyncDataWatch._look: return False => pass
watch: skips nothing | | SKIPPED
  AsyncDataWatch._kind: = staticmethod(lambda data, stat, _: SeenData(data, stat, False))
watch: counts versions only | | SKIPPED
  AsyncDataWatch._arrived: (stat.czxid, self._count(stat)) != following
    => self._count(stat) != following[1]
watch: leaves its watch | | LEFT
  AsyncDataWatch._serve: closing(Watch()) => __import__('contextlib').nullcontext(Watch())
watch: watches are not set again | cut | LAST
  WatchTable.frames: = iter(())

barrier: begins blindly | crash expire cancel | EARLY
  # Begins a round with those that it has seen, be they there or not.
  AsyncDoubleBarrier._begin_round: [*checks, *steps] => steps
barrier: any round | cancel crash expire | EARLY LIVE LATE STUCK
  # Enters the round that is on, whenever that began.
  AsyncDoubleBarrier._waits: seen.round > attempt.stat.czxid => seen.round
barrier: ends at once | | LIVE STUCK LATE
  # The first to leave deletes ``ready``, as kazoo's does: others may not have seen it yet.
  AsyncDoubleBarrier._exit: with suppress(errors.NoNodeError):\n        while
    => await ensure_gone(self._runtime, deadline, f'{self._path}/{READY}')
    \n    with suppress(errors.NoNodeError):\n        while
barrier: leaves alone | | LATE
  AsyncDoubleBarrier._exit: await self._gone(others[0], deadline) => break
barrier: keeps its node | cancel slow | ORPHAN LIVE
  AsyncDoubleBarrier._clean_up_pending: = setattr(self, "_pending_cleanup", None)
barrier: waits for an event | | LIVE
  # Believes that there is something to wait for, also where it has gone meanwhile.
  AsyncDoubleBarrier._gone: operations.get_data => operations.exists
barrier: deletes any round | cancel slow | LIVE STUCK ORPHAN LATE
  # What cleans up deletes ``ready``, whatever has become of the barrier since.
  AsyncDoubleBarrier._leave: names == [READY] => READY in names
  AsyncDoubleBarrier._leave: Check(self._path, stat.version), =>

counter: repeats blindly | linger cut | ONCE VALUE ORPHAN
  TokenPool._look: = None
counter: believes in luck | network | ONCE VALUE
  TokenPool._look: = as_if_made(token)
counter: looks for anything | linger cut | ONCE VALUE
  # Takes a token that is there for the change's own, whatever stands in it.
  TokenPool._look: stat if data == value else None => stat
counter: keeps doubt | network | ONCE
  # Does not say that what it could not look at may have been made.
  TokenPool.execute: error.maybe_applied or doubt => False
counter: leaves marks | cancel | ORPHAN
  # Does not delete the token of a change that has ended in doubt.
  TokenPool._clean_up_after: = None
counter: keeps no mark | | ORPHAN
  TokenPool.release: = None
counter: keeps its mark | linger cut cancel | ONCE VALUE ORPHAN
  # Goes on with the token of a change that has ended in doubt, as if it had not been made.
  TokenPool.release: token.in_doubt or =>
counter: blind set | | ONCE VALUE
  AsyncCounter._set: data, max(version, 0))] => data)]
crowded counter: stays in line | | LIVE ORPHAN ERROR
  ContentionQueue._release: turn._release_in_background() => pass

once per: believes a loss | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer.claim: doubt = True => won = True; break
once per: a new name | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer._try: data = attempt.id.encode()
    => attempt.id = attempt.id[:-8] + self._runtime.unique()[-8:]
    \n    data = attempt.id.encode()
once per: keeps doubt | cut linger cancel slow | ORPHAN
  AsyncOncePer._clean_up_after: = None
once per: gives back anything | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer.claim: self._clean_up_after => attempt.entered = True; self._clean_up_after
  AsyncOncePer._leave: data.startswith(attempt.id.encode()) => True

partitioner: a revoked item is let go | | KEPT
  AsyncPartitioner._confirm: asked = self._current
    => self._given = {i: own for i, own in self._given.items() if own.wanted}
    \n    asked = self._current
partitioner: what was not told is confirmed | | KEPT
  # Takes it for told what has been revoked when the reader asks.
  AsyncPartitioner.next: limit = check_timeout("timeout", timeout)
    => self._share is None or self._share.changed
    \n    limit = check_timeout("timeout", timeout)
partitioner: a share that waits is forgotten | | KEPT BACK
  AsyncPartitioner._confirm: asked = self._current
    => waits, self._next = self._next, None\n    asked = self._current\n    self._next = waits
partitioner: the lease is not looked at | partition | TOLD LIVE
  AsyncShare._keeps: ownership.kept => ownership.wanted
partitioner: the allotment is believed | | ME
  # Believes the allotment: an item that is to be this member's is.
  ItemLock._ahead: = None
partitioner: the order of members counts | | LIVE
  partitioner.rendezvous_assign: = {i: members[n % len(members)] for n, i in enumerate(items)}
partitioner: a share is never empty | expire | LIVE
  # Does not tell a reader that has not looked that everything has to stop.
  AsyncPartitioner._hand_out: (now or self._given) => now
partitioner: an empty share never ends | expire pause | ERROR | minutes
  AsyncShare._stale: partitioning._leaving => False
  AsyncShare._stale: partitioning._member is None => False
partitioner: dead members count | | LIVE
  AsyncPartitioner._look: roll.keys() - set(names) => ()
partitioner: a lost item does not come back | delete | LIVE
  ItemOwnership._session_ended: = None
partitioner: a lost item comes back at once | delete partition | BACK
  AsyncPartitioner._hand_out: owned = {item
    => self._given = {i: own for i, own in self._given.items() if not own.ended}
    \n    owned = {item

supervisor: another session beside the old | cut | ONE
  # Takes a lost connection for the end of the session, and leaves the client as it is.
  SessionLoop._run: await driver.holds(self._stopped, None)
    => while driver.usable and not self._closed:
    \n                await self.within(self._stopped, 1)
  SessionLoop._run: await self._leave(client)
    => for service in tuple(driver.services): driver.dismiss(service)
supervisor: a service is begun once | expire | LIVE
  SessionLoop._enter: in list(self._services)
    => in list(self._services) if self._present[0] < 2 else ()
watch, behind: no sync | lag | ORDER
  SessionLoop._run: self._present[0] > 0 => False
supervisor: the old run goes on | expire slow | RUNS
  # Leaves it to the services to notice the end of their session.
  SessionLoop._leave: client._driver.dismiss(service) => pass
supervisor: a term outlasts its lock | pause partition | TERM
  AsyncSequentialLock.check: = None
"""


class Bug(NamedTuple):
    """A row of the table, for one of its worlds."""

    scenario: Any  # None for those without worlds
    faults: str
    invariants: str
    how: str
    changes: tuple[Change, ...]


BESIDE = Change(Claims, "_is_gone", (), "None")


def _changes(lines: list[str], lock: str) -> Iterator[Change]:
    edits: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        target, _, text = line.replace("\\n", "\n").partition(": ")
        home, _, name = target.partition(".")
        home = lock if home == "Lock" else home
        if text.startswith("= "):
            yield Change(HOMES[home], name, (), text[2:], globals())
        else:
            old, _, new = text.partition("=>")
            edits.setdefault(f"{home}.{name}", []).append((old.strip(" "), new.strip(" ")))
    for target, pairs in edits.items():
        home, _, name = target.partition(".")
        yield Change(HOMES[home], name, tuple(pairs))


def _rows() -> Iterator[tuple[str, Bug]]:
    text = re.sub(r"\n    (\\n)?", lambda found: found[1] or " ", _TABLE)
    text = re.sub(r"\n  # .*(\n  #.*)*", "", text)
    for row in re.split(r"\n+(?=\S)", text.strip()):
        head, *lines = row.split("\n  ")
        worlds, _, rest = head.partition(": ")
        name, faults, invariants, *how = (part.strip() for part in rest.split("|"))
        faults = faults.replace("network", " ".join(NETWORK))
        for world in worlds.split(" + "):
            changes = tuple(_changes(lines, LOCKS.get(world[:8], "AsyncSequentialLock")))
            if "beside" in "".join(how):
                changes += (BESIDE,)
            bug = Bug(WORLDS.get(world), faults, invariants, " ".join(how), changes)
            yield f"{world}: {name}".removeprefix(": "), bug


EVERY = dict(_rows())
BUGS = {name: bug for name, bug in EVERY.items() if bug.scenario is not None}
"""Those that `test_hazards_simulated` searches for."""

"""What must be true of a history: of locks, and of operations on nodes.

A history is a list of `Record`, in any order, of a real run or of a simulated one; all times are of
one clock.  `check` says in plain sentences what is wrong with it, each after the name of what is
broken; an empty list means that nothing is.

Every record has ``at`` (seconds), ``who`` (one thread of control: it does one thing at a time) and
``what``; ``key`` is the lock's name or the node's path.  By ``what``:

``lock``     ``key`` follows these rules from the beginning to the end: ``limit`` holders at a time
             (1 unless told otherwise).  Who has the ``role`` "read" may hold together with
             others of that role.
``ask``      begins to acquire.
``grant``    `acquire` has returned, with ``fence``; the claim begins.  Of who holds already, with
             another ``role``, it is a downgrade: its fence is not compared.
``give up``  `acquire` has ended otherwise; ``note`` says how.
``release``  the claim is over (with a ``role``: that one's); ``at`` is before the request is sent.
``die``      its process is gone, and with it its claims and its wait.
``calm``     all faults are over; from now on a free lock is granted within ``limit`` seconds.
``left``     after everything was closed there was still this node: ``note``.
``write``    a write of ``value`` to ``key`` from ``at`` to ``end``; ``ok`` is None if it is not
             known whether it happened.  If it did, ``zxid`` and ``version`` are the new ones;
             ``fence`` is the token it was made with.
``read``     a read from ``at`` to ``end`` that has seen ``value``, ``zxid`` (mzxid), ``version``.

Values that are written must differ, so that a value tells who has written it.  ``session`` may name
the session of an operation: the promises for reads are made to a session.

Broken may be: ME (two hold at a time), FENCE (a later grant has no higher fence, or a write with
an older one was accepted), LIVE (nobody gets what is free, or somebody waits at the end),
ORPHAN, WRITES (not linearizable), READS (not sequentially consistent), FORMAT (no history at all).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from math import inf


@dataclass(frozen=True, slots=True)
class Record:
    """See the module's docstring."""

    at: float
    who: str
    what: str
    key: str = ""
    role: str = ""
    fence: int = 0
    limit: float | None = None
    note: str = ""
    end: float = inf
    ok: bool | None = True
    value: str = ""
    zxid: int = 0
    version: int = 0
    session: str = ""


WHATS = frozenset({
    "lock", "ask", "grant", "give up", "release", "die", "calm", "left",
    "write", "read",
})  # fmt: skip

_DEFAULTS = {field.name: field.default for field in fields(Record)}


def to_line(record: Record) -> str:
    """As JSON, without what is as usual."""
    return json.dumps({k: v for k, v in asdict(record).items() if v != _DEFAULTS[k]})


def check(history: Iterable[Record]) -> list[str]:
    """What is wrong with this history."""
    records = sorted(history, key=lambda record: record.at)  # stable: as written, if simultaneous
    unknown = [r for r in records if r.what not in WHATS]
    if unknown:
        return [f"FORMAT: {record}" for record in unknown]
    found = [f"ORPHAN: {r.note or r.key} is left" for r in records if r.what == "left"]
    rules = {r.key: r for r in records if r.what == "lock"}
    keys = dict.fromkeys(r.key for r in records if r.what in ("ask", "grant"))
    for key in keys:
        lock = _Lock(rules.get(key) or Record(0.0, "", "lock", key))
        for record in records:
            if not record.key or record.key == key:
                lock.take(record)
        lock.finish(records[-1].at)
        found += lock.found
    found += _fenced(records)
    for key in dict.fromkeys(r.key for r in records if r.what in ("write", "read")):
        found += _node(key, [r for r in records if r.key == key])
    return found


class _Lock:
    """Reads the history of one lock from its beginning to its end."""

    def __init__(self, rule: Record) -> None:
        self.found: list[str] = []
        self._rule = rule
        self._most = 1 if rule.limit is None else round(rule.limit)
        self._claims: dict[tuple[str, str], Record] = {}  # by who and role
        self._asked: dict[str, Record] = {}
        self._highest: dict[bool, Record] = {}  # grants, by whether they are for reading
        self._fences: dict[int, Record] = {}  # who was granted each first
        self._patience: float | None = None  # known as soon as all is calm
        self._free_since = inf

    def take(self, record: Record) -> None:
        """The next record."""
        self._look_at_rest(record.at)
        who = record.who
        match record.what:
            case "ask":
                self._asked[who] = record
            case "grant":
                self._asked.pop(who, None)
                self._grant(record)
            case "give up":
                self._asked.pop(who, None)
            case "release":
                self._end_claims(who, record.role)
            case "die":
                self._end_claims(who, "")
                self._asked.pop(who, None)
            case "calm":
                self._patience = record.limit
        free = self._patience is not None and bool(self._asked) and not self._claims
        self._free_since = min(self._free_since, record.at) if free else inf

    def finish(self, at: float) -> None:
        """There are no more records; the last one was written at ``at``."""
        self._look_at_rest(at)
        if self._patience is not None:
            for who, asked in self._asked.items():
                self._say("LIVE", f"{who}, who has asked at {asked.at:.3f}, waits at the end")

    def _say(self, name: str, text: str) -> None:
        self.found.append(f"{name}: {self._rule.key}: {text}")

    def _end_claims(self, who: str, role: str) -> None:
        for claim in list(self._claims):
            if claim[0] == who and role in ("", claim[1]):
                del self._claims[claim]

    def _grant(self, grant: Record) -> None:
        if not any(who == grant.who for who, _ in self._claims):  # else it is a downgrade
            self._compare(grant)
        self._claims[grant.who, grant.role] = grant
        holding = self._claims.values()
        many = len({claim.who for claim in holding}) > self._most
        if many and any(claim.role != "read" for claim in holding):
            names = " and ".join(f"{c.who} (since {c.at:.3f})" for c in holding)
            self._say("ME", f"{names} hold at {grant.at:.3f}")

    def _compare(self, grant: Record) -> None:
        """Its fence with those before it."""
        first = self._fences.setdefault(grant.fence, grant)
        if first is not grant:
            self._say("FENCE", f"{grant.who} has {grant.fence}, as {first.who} at {first.at:.3f}")
        reading = grant.role == "read"
        for earlier_reading, earlier in self._highest.items():
            together = self._most > 1 or (reading and earlier_reading)
            if grant.fence < earlier.fence and not together:
                self._say(
                    "FENCE",
                    f"{grant.who} has {grant.fence} at {grant.at:.3f}, {earlier.who} had "
                    f"{earlier.fence} at {earlier.at:.3f}",
                )
        if reading not in self._highest or grant.fence > self._highest[reading].fence:
            self._highest[reading] = grant

    def _look_at_rest(self, now: float) -> None:
        if self._patience is not None and now > self._free_since + self._patience:
            names = ", ".join(self._asked)
            since = self._free_since
            self._say("LIVE", f"free from {since:.3f} to {now:.3f} at least, and {names} wait")
            self._free_since = inf


def _fenced(records: Sequence[Record]) -> Iterator[str]:
    """A fenced write belongs to a grant of who has made it, and no later grant's came before it."""
    owners = {(r.who, r.fence) for r in records if r.what == "grant"}
    for key in dict.fromkeys(r.key for r in records if r.what == "write"):
        writes = [w for w in _happened([r for r in records if r.key == key]) if w.fence]
        for earlier, later in pairwise(writes):
            if later.fence < earlier.fence:
                yield (
                    f"FENCE: {key}: {later.value!r} of {later.who} with {later.fence} was "
                    f"accepted after {earlier.value!r} of {earlier.who} with {earlier.fence}"
                )
        for write in writes:
            if owners and (write.who, write.fence) not in owners:
                yield f"FENCE: {key}: {write.who} was never granted {write.fence}"


def _happened(records: Sequence[Record]) -> list[Record]:
    """The writes of one node in the order of their zxids.

    Of those whose outcome is not known, the ones that somebody has read: the first read is the
    moment by which they had happened.  What was there before them all counts as the first one.
    """
    first_read: dict[str, Record] = {}
    for read in sorted((r for r in records if r.what == "read" and r.ok), key=lambda r: r.end):
        first_read.setdefault(read.value, read)
    writes = []
    for write in (r for r in records if r.what == "write"):
        seen = first_read.pop(write.value, None)
        if write.ok:
            writes.append(write)
        elif write.ok is None and seen is not None:
            zxid, version = seen.zxid, seen.version
            writes.append(replace(write, ok=True, end=seen.end, zxid=zxid, version=version))
    before = min(first_read.values(), key=lambda r: r.zxid, default=None)
    if before is not None and all(before.zxid < write.zxid for write in writes):
        writes.append(replace(before, at=-inf, end=-inf, what="write"))
    return sorted(writes, key=lambda write: write.zxid)


def _node(key: str, records: Sequence[Record]) -> Iterator[str]:
    """Whether the order in which the server says to have written can be true.

    ZooKeeper names the order of its writes by their zxids.  So there is no search for an order:
    that one must agree with the clock (a write that had been answered comes before one that was
    sent later), with the versions, and with whatever was read.
    """
    writes = _happened(records)
    values = {write.value for write in writes}
    lost = [r for r in records if r.what == "write" and r.ok is None and r.value not in values]
    refused = [r for r in records if r.what == "write" and r.ok is False]
    reads = [r for r in records if r.what == "read" and r.ok]
    yield from _order(key, writes)
    yield from _gaps(key, writes, lost)
    yield from _seen(key, writes, reads, {w.value for w in refused})
    yield from _sessions(key, [r for r in records if r.what in ("write", "read") and r.ok])


def _order(key: str, writes: Sequence[Record]) -> Iterator[str]:
    latest: Record | None = None  # to have been sent, of those with a lower zxid
    for earlier, later in pairwise(writes):
        if later.zxid == earlier.zxid:
            yield f"WRITES: {key}: {earlier.value!r} and {later.value!r} have zxid {later.zxid:#x}"
        if latest is None or earlier.at > latest.at:
            latest = earlier
        if later.end < latest.at:
            yield (
                f"WRITES: {key}: {later.value!r} was answered before {latest.value!r} was sent, "
                f"and has the higher zxid"
            )


def _gaps(key: str, writes: Sequence[Record], lost: Sequence[Record]) -> Iterator[str]:
    """Versions that nobody has seen were made by writes of unknown outcome, each by one.

    And by one that had been sent before the next version was seen.
    """
    sent = sorted(write.at for write in lost)
    used = 0
    for earlier, later in sorted(pairwise(writes), key=lambda pair: pair[1].end):
        gap = later.version - earlier.version - 1
        used += max(gap, 0)
        if gap < 0 or (gap > 0 and used > bisect_right(sent, later.end)):
            yield (
                f"WRITES: {key}: version {later.version} of {later.value!r} comes after version "
                f"{earlier.version} of {earlier.value!r}"
            )


def _seen(
    key: str, writes: Sequence[Record], reads: Sequence[Record], refused: set[str]
) -> Iterator[str]:
    """A read sees what was written, all of it, and not before it was sent."""
    by_zxid = {write.zxid: write for write in writes}
    values = {write.value for write in writes}
    for read in reads:
        write = by_zxid.get(read.zxid)
        if read.value in refused:
            yield f"READS: {key}: {read.who} has read {read.value!r}, which was refused"
        elif write is None:
            why = (
                "has another zxid than its write" if read.value in values else "nobody has written"
            )
            yield f"READS: {key}: {read.value!r}, read by {read.who}, {why}"
        elif (write.value, write.version) != (read.value, read.version):
            yield (
                f"READS: {key}: {read.who} has read {read.value!r} ({read.version}), "
                f"not {write.value!r} ({write.version})"
            )
        elif read.end < write.at:
            yield f"READS: {key}: {read.who} has read {read.value!r} before it was written"


def _sessions(key: str, operations: Sequence[Record]) -> Iterator[str]:
    """What a session has seen or written stays so for it."""
    last: dict[tuple[str, str], Record] = {}
    for now in sorted(operations, key=lambda r: (r.at, r.end)):
        before = last.get((now.who, now.session))
        if before is None or now.zxid >= before.zxid:
            last[now.who, now.session] = now
        elif now.at >= before.end:
            yield (
                f"READS: {key}: {now.who} saw {before.zxid:#x} ({before.value!r}) and then "
                f"{now.zxid:#x} ({now.value!r})"
            )

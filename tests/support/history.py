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
ORPHAN, WRITES (what was written is not there), READS (of what was not written, or back in
time), FORMAT (no history at all).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
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
    written = [r for r in records if r.what == "write" and r.ok and r.fence]
    for key in dict.fromkeys(write.key for write in written):
        writes = sorted((w for w in written if w.key == key), key=lambda write: write.zxid)
        for earlier, later in pairwise(writes):
            if later.fence < earlier.fence:
                yield (
                    f"FENCE: {key}: {later.value!r} of {later.who} with {later.fence} was "
                    f"accepted after {earlier.value!r} of {earlier.who} with {earlier.fence}"
                )
        for write in writes:
            if owners and (write.who, write.fence) not in owners:
                yield f"FENCE: {key}: {write.who} was never granted {write.fence}"


def _node(key: str, records: Sequence[Record]) -> Iterator[str]:
    """What a client must not say of a node, whatever the order in which the server writes.

    ZooKeeper names that order by zxids. What a client calls written is there, with its version, and
    what it calls refused is not; nobody reads what nobody has written, and no session goes back.
    """
    writes = {r.zxid: r for r in records if r.what == "write" and r.ok}
    unknown = {r.value for r in records if r.what == "write" and r.ok is None}
    refused = {r.value for r in records if r.what == "write" and r.ok is False}
    reads = [r for r in records if r.what == "read" and r.ok]
    in_order = [writes[zxid] for zxid in sorted(writes)]
    gaps = [later.version - earlier.version - 1 for earlier, later in pairwise(in_order)]
    if any(gap < 0 for gap in gaps) or sum(gaps) > len(unknown):
        versions = [write.version for write in in_order]
        yield f"WRITES: {key}: versions {versions}, with {len(unknown)} of unknown outcome"
    for read in reads:
        write = writes.get(read.zxid)
        if read.value in refused:
            yield f"READS: {key}: {read.who} has read {read.value!r}, which was refused"
        elif write is not None and (write.value, write.version) != (read.value, read.version):
            yield (
                f"READS: {key}: {read.who} has read {read.value!r} ({read.version}), "
                f"not {write.value!r} ({write.version})"
            )
        elif write is None and read.value not in unknown and read.zxid > min(writes, default=inf):
            yield f"READS: {key}: {read.value!r}, read by {read.who}, nobody has written"
    yield from _sessions(key, [r for r in records if r.what in ("write", "read") and r.ok])


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

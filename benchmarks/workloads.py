"""What is measured: a table of workloads, in the order in which they are run and printed."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.firing import TOGETHER
from benchmarks.jobs import SMALL, Job

SYNC_VERBS = ("get", "create", "set", "delete", "exists", "children")
PIPELINED_VERBS = ("get", "create", "set", "delete")
WINDOW = 1000
BUSY = 4
QUICK_VERBS = ("get", "create", "delete")
FEWER = 5
MANY = 1_000_000
SIZES = (SMALL, 10 * 1024, 900 * 1024)
LISTS = (10, 1000, 10_000, 50_000)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One kind of segment."""

    title: str
    kind: str
    server: str = "real"
    width: int = 1
    size: int = SMALL
    most: int = 50_000
    """Operations in a segment, at most."""
    exactly: int = 0
    """Operations in a segment, if that is not for the benchmark to find."""
    fresh: bool = False
    """Whether each segment takes a new process."""
    rounds: int | None = None
    """Fewer rounds than others: it takes long, or spreads little."""
    quick: bool = True
    """Whether `--quick` runs it too."""

    def job(self, count: int) -> Job:
        return Job(self.server, self.kind, count, self.width, self.size)

    @property
    def name(self) -> str:
        """What `--only` looks at."""
        return (
            self.title if self.kind.startswith("decode") else f"{self.title}, {self.server} server"
        )


def one_at_a_time(server: str) -> list[Workload]:
    return [
        Workload(
            title=f"{verb}, one at a time",
            kind=verb,
            server=server,
            size=10 if verb == "children" else SMALL,
            quick=verb in QUICK_VERBS,
        )
        for verb in SYNC_VERBS
    ]


def pipelined(server: str) -> list[Workload]:
    return [
        Workload(
            title=f"{verb}, {WINDOW:,} in flight",
            kind=f"pipelined-{verb}",
            server=server,
            width=WINDOW,
            quick=verb in QUICK_VERBS,
        )
        for verb in PIPELINED_VERBS
    ]


def windows() -> list[Workload]:
    return [
        Workload(
            title=f"get, {width:,} in flight",
            kind="pipelined-get",
            width=width,
            rounds=FEWER,
            quick=width == 10,
        )
        for width in (1, 10, 100, 10_000)
    ]


def payloads() -> list[Workload]:
    return [
        Workload(
            title=f"{verb} of {size // 1024} KiB",
            kind=verb,
            size=size,
            most=10_000_000 // size,  # each one that is set goes to the server's disk
            rounds=FEWER,
            quick=False,
        )
        for size in SIZES[1:]
        for verb in ("get", "set")
    ]


def lists() -> list[Workload]:
    return [
        Workload(
            title=f"children, {size:,} names",
            kind="children",
            size=size,
            most=200,
            rounds=FEWER,
            quick=size == 1000,
        )
        for size in LISTS[1:]
    ]


def threads() -> list[Workload]:
    return [
        Workload(
            title=f"get, {width} threads or tasks",
            kind="threads-get",
            width=width,
            rounds=FEWER,
            quick=width == 8,
        )
        for width in (1, 8, 64)
    ]


def busy() -> list[Workload]:
    """The same client is called by other threads, too."""
    return [
        Workload(title=f"{what}, {BUSY} other threads call", kind=kind, width=width, most=most)
        for what, kind, width, most in (
            ("get", "busy-get", BUSY + 1, 50_000),
            ("free lock", "busy-lock", BUSY + 1, 50_000),
            ("lock, hand-off", "busy-handoff", BUSY, 20),
        )
    ]


def clients() -> list[Workload]:
    return [
        Workload(
            title=f"{width:,} client{'s' * (width > 1)} in one process",
            kind="clients",
            width=width,
            exactly=width,
            fresh=True,
            rounds=1 if width == 1000 else FEWER,
            quick=width == 1,
        )
        for width in (1, 100, 1000)
    ]


def recipes() -> list[Workload]:
    return [
        Workload(title="free lock, acquire and release", kind="lock"),
        Workload(title="lock that two contend for, per acquisition", kind="contended", most=2000),
        Workload(title="lock, hand-off from release to running", kind="handoff", most=20),
    ]


def events() -> list[Workload]:
    return [
        Workload(
            title=f"10,000 watches fired{how}, {way}",
            kind=kind,
            width=width,
            exactly=10_000,
            rounds=FEWER,
            quick=False,
        )
        for how, width in (("", TOGETHER), (" one by one", 1))
        for way, kind in (("waited for", "watches"), ("to callbacks", "callbacks"))
    ]


def codecs() -> list[Workload]:
    return [
        Workload(title="decode a Stat", kind="decode_stat", server="replay", most=MANY),
        Workload(title="decode a GetData reply", kind="decode_data", server="replay", most=MANY),
        Workload(title="decode 10,000 names", kind="decode_names", server="replay"),
    ]


def all_workloads() -> list[Workload]:
    return [
        *one_at_a_time("real"),
        *pipelined("real"),
        *windows(),
        *one_at_a_time("replay"),
        *pipelined("replay"),
        *payloads(),
        *lists(),
        *threads(),
        *recipes(),
        *busy(),
        *events(),
        Workload(title="connect, one after the other", kind="connect", most=50),
        *clients(),
        *codecs(),
    ]

"""Events from a capture of packets, as the proxy of the spy puts them down: ``events``.

All connections are taken apart first, and then shown in the order of time.  Decides which of them
speak ZooKeeper's protocol, from which side, and where messages begin again behind missing bytes;
the notes say what a reader of the events would else not know.
"""

from __future__ import annotations

from typing import NamedTuple

from zkwire.cli.spy.conversing import CapturedConnection
from zkwire.cli.spy.packet_file import PacketFile
from zkwire.cli.spy.segments import LINKS, is_fragment, segment_of
from zkwire.cli.spy.tap import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.spy.conversing import Moment
    from zkwire.cli.spy.segments import Place, Segment
    from zkwire.cli.spy.stream import When


class Capture(NamedTuple):
    """``start``: the time of the first packet; ``notes``: what is missing, and why."""

    start: float
    events: list[Event]
    notes: list[str]


class _Counts:
    """What packets there were."""

    def __init__(self) -> None:
        self.packets = 0
        self.fragments = 0
        self.short = 0
        self.links: set[int] = set()


def read(data: bytes, source: str) -> Capture:
    """The capture in these bytes; ValueError if they are none, or none of ZooKeeper's protocol."""
    file, counts = PacketFile(data), _Counts()
    try:
        start, all_of_them = _connections(file, counts)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    shown = [connection for connection in all_of_them if connection.is_zookeeper]
    notes = _notes(file, counts, all_of_them, shown)
    if not shown:
        what = ["no connection of ZooKeeper's protocol in it", *notes]
        raise ValueError(f"{source}: " + "; ".join(what))
    found: list[tuple[Moment, int]] = []
    for number, connection in enumerate(shown, 1):
        found += [(moment, number) for moment in connection.moments(number)]
    found.sort(key=lambda pair: pair[0].when)
    return Capture(start, _numbered(found), notes)


def _numbered(found: list[tuple[Moment, int]]) -> list[Event]:
    """The moments as events; a reply has the number of its request, which comes before it."""
    events: list[Event] = []
    numbers: dict[int, int] = {}
    for number, (moment, connection) in enumerate(found, 1):
        frame = moment.frame
        if frame is not None:
            numbers[id(frame)] = number
            request = frame.request
            if request is not None:
                request = request._replace(number=numbers.get(id(request)))
            frame = frame._replace(number=number, request=request)
        time, what = moment.when[0], moment.what
        events.append(Event(number, time, connection, what, moment.detail, frame))
    return events


def _connections(file: PacketFile, counts: _Counts) -> tuple[float, list[CapturedConnection]]:
    found: list[CapturedConnection] = []
    open_: dict[frozenset[Place], CapturedConnection] = {}
    start = 0.0
    for packet in file.packets():
        start = start if counts.packets else packet.time
        counts.packets += 1
        if packet.link not in LINKS:
            counts.links.add(packet.link)
        counts.short += len(packet.data) < packet.size
        segment = segment_of(packet)
        if segment is None:
            counts.fragments += is_fragment(packet)
            continue
        when = (segment.time, counts.packets)
        _of(segment, when, open_, found).add(segment, when)
    return start, found


def _of(
    segment: Segment,
    when: When,
    open_: dict[frozenset[Place], CapturedConnection],
    found: list[CapturedConnection],
) -> CapturedConnection:
    """The connection of a segment; a SYN with a number of its own begins another one."""
    ends = frozenset({segment.source, segment.target})
    connection = open_.get(ends)
    if connection is None or connection.is_followed_by(segment):
        connection = open_[ends] = CapturedConnection(segment, when)
        found.append(connection)
    return connection


def _notes(
    file: PacketFile,
    counts: _Counts,
    all_of_them: list[CapturedConnection],
    shown: list[CapturedConnection],
) -> list[str]:
    notes: list[str] = []
    if file.cut:
        notes.append(f"the capture ends in the middle of a packet; whole ones: {counts.packets}")
    if counts.short:
        notes.append(f"packets are cut short: {counts.short} (`tcpdump -s 0` keeps them whole)")
    if counts.fragments:
        notes.append(f"fragments of IP are left out: {counts.fragments}")
    if counts.links:
        kinds = ", ".join(map(str, sorted(counts.links)))
        notes.append(f"packets of an unknown kind of link are left out: {kinds}")
    if early := sum(not connection.begun for connection in shown):
        notes.append(f"connections that were open before the capture began: {early}")
    if others := len(all_of_them) - len(shown):
        tls = sum(connection.is_tls for connection in all_of_them)
        keys = f" (with TLS, whose keys are not in it: {tls})" if tls else ""
        notes.append(f"other connections are left out: {others}{keys}")
    return notes

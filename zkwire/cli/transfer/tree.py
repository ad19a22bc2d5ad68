"""A tree of nodes: where it is, how it is read, and how far that is."""

from __future__ import annotations

import posixpath
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import zkwire
from zkwire.cli.context import Context
from zkwire.cli.output import Output, tell
from zkwire.errors import BUSY, ConnectionLossError, NoNodeError, ServerError
from zkwire.net.pipeline import Pipeline
from zkwire.session.hosts import parse_hosts
from zkwire.wire.paths import join

# What is asked for an item, and what has been answered: for each request its result or error.
Ask = Callable[[Pipeline, Any], Sequence[Any]]
Answers = list[Any]


# A node on its way from one tree to another, and paths in a tree.


class Node(NamedTuple):
    """One node.  ``path`` begins at the root of its tree, which is ``/`` itself.

    ``sequence``: the number that its next sequential child would have got where it was read.
    """

    path: str
    data: bytes
    acl: Sequence[zkwire.ACL]
    stat: zkwire.Stat | None = None
    sequence: int | None = None


def below(root: str, path: str) -> str:
    """The absolute path of what is at ``path`` in the tree of ``root``."""
    return join("" if root == "/" else root, path)


def has_hidden_hash(acl: Sequence[zkwire.ACL]) -> bool:
    """Whether the server has hidden a password's hash: no password would fit what it shows.

    It does from clients that may not change the list (3.4.14, 3.5.5: ZOOKEEPER-1392).
    """
    return any(entry.id.scheme == "digest" and entry.id.id.endswith(":x") for entry in acl)


# --- place ----------------------------------------------------------------------------------------
# Where a tree is: a path of ``--server``, or ``zk://HOST:PORT,HOST:PORT/PATH``.

SCHEME = "zk://"
SERVERS_OWN = "/zookeeper"


class Place:
    """The root of a tree: ``path`` for this ``client``, whose servers and chroot are ``hosts``."""

    def __init__(self, client: zkwire.Client, hosts: str, path: str) -> None:
        self.client = client
        self.path = path
        servers, self._chroot = parse_hosts(hosts)
        self._servers = frozenset(servers)

    def is_reserved(self, path: str) -> bool:
        """Whether the node at ``path`` of this tree is the servers' own, ``/zookeeper``."""
        return not self._chroot and below(self.path, path) == SERVERS_OWN

    def is_within(self, other: Place) -> bool:
        """Whether this is the root of ``other`` or below it, as far as the names tell."""
        if self._servers.isdisjoint(other._servers):
            return False
        inside, outside = (below(place._chroot or "/", place.path) for place in (self, other))
        return outside == "/" or f"{inside}/".startswith(f"{outside}/")


def check_place(text: str) -> str:
    """``text`` if it can be a place; ValueError says what is wrong before anything connects."""
    if text.startswith(SCHEME):
        hosts, _ = _split(text)
        parse_hosts(hosts)
    elif "://" in text:
        raise ValueError(f"{text!r} is neither a path nor {SCHEME}HOST:PORT,.../PATH")
    return text


@contextmanager
def at(context: Context, text: str) -> Generator[Place]:
    """The place that ``text`` names, connected."""
    if not text.startswith(SCHEME):
        yield Place(context.client, context.server, context.path(text))
        return
    hosts, path = _split(text)
    client = context.connect(hosts)
    try:
        yield Place(client, hosts, path)
    finally:
        client.close()


def _split(text: str) -> tuple[str, str]:
    hosts, _, path = text.removeprefix(SCHEME).partition("/")
    return hosts, posixpath.normpath("/" + path).replace("//", "/")


# --- window ---------------------------------------------------------------------------------------
# Requests in flight for one item after another, bounded in number and in bytes.
#
# Answers come in the order of the items.  What a lost connection has cost is asked again, so each
# request must be one that can be repeated: a read, or a change whose second execution is refused in
# a way that the caller understands.  Nothing waits forever: without any answer for two session
# timeouts the error of the oldest request is raised.

MOST_ITEMS = 256
MOST_BYTES = 4 << 20
PAUSE = 0.1  # seconds, for a server that is overloaded


class Window:
    """The items whose answers have not been taken yet; see the module's docstring."""

    def __init__(self, client: zkwire.Client, ask: Ask) -> None:
        self._client = client
        self._ask = ask
        self._asked: deque[_Asked] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def full(self) -> bool:
        """Whether an answer is to be taken before the next item."""
        return len(self._asked) >= MOST_ITEMS or self._bytes >= MOST_BYTES

    def add(self, item: Any, size: int = 0) -> None:
        """Ask for an item; ``size`` is how many bytes its requests or answers have, about."""
        self._asked.append(_Asked(item, size, self._ask(self._client.pipeline, item)))
        self._bytes += size

    def pop(self) -> tuple[Any, Answers]:
        """Wait for the oldest item's answers: the result, or the ServerError, of each request."""
        oldest, limit = self._asked[0], 2 * self._client.session_timeout
        latest = time.monotonic() + limit
        while (trouble := _trouble(answers := oldest.answers(limit))) is not None:
            if time.monotonic() >= latest:
                raise trouble
            if isinstance(trouble, ServerError):
                time.sleep(PAUSE)
            self._ask_again()
        self._asked.popleft()
        self._bytes -= oldest.size
        return oldest.item, answers

    def each(self, items: Iterable[Any]) -> Iterator[tuple[Any, Answers]]:
        """All items with their answers."""
        for item in items:
            while self.full:
                yield self.pop()
            self.add(item)
        while self._asked:
            yield self.pop()

    def _ask_again(self) -> None:
        """Ask again, all at once, for each item that the same break has cost its answer."""
        for asked in self._asked:
            if asked.ready and _trouble(asked.answers(0.0)) is not None:
                asked.replies = self._ask(self._client.pipeline, asked.item)


def result(client: zkwire.Client, ask: Callable[[Pipeline], Any]) -> Any:
    """The result of one request, which is repeated in the same way; raises the ServerError."""
    window = Window(client, lambda operations, _: [ask(operations)])
    window.add(None)
    _, (answer,) = window.pop()
    if isinstance(answer, ServerError):
        raise answer
    return answer


class _Asked:
    """An item and the replies to come for it."""

    __slots__ = ("item", "replies", "size")

    def __init__(self, item: Any, size: int, replies: Sequence[Any]) -> None:
        self.item = item
        self.size = size
        self.replies = replies

    @property
    def ready(self) -> bool:
        return all(reply.ready for reply in self.replies)

    def answers(self, limit: float) -> Answers:
        return [_answer(reply, limit) for reply in self.replies]


def _answer(reply: Any, limit: float) -> Any:
    try:
        return reply.result(limit)
    except (ServerError, ConnectionLossError) as error:
        return error


def _trouble(answers: Answers) -> ServerError | ConnectionLossError | None:
    """Why these answers are none, if the same may be asked again."""
    for answer in answers:
        if isinstance(answer, (ConnectionLossError, *BUSY)):
            return answer
    return None


# --- reading --------------------------------------------------------------------------------------
# Reads a tree: level by level, so parents come before their children, names in order.
#
# What is read is no snapshot: each node is as it was at some moment of the walk.  A node that goes
# meanwhile is skipped.  Only paths are kept, and the nodes in flight.

EACH = 512  # bytes of an answer beside the data, about


class TreeReader:
    """The nodes of one tree.

    ``ephemerals``: whether the ephemeral ones are among them.  ``left_out`` counts those that are
    not, ``gone`` the nodes that were deleted meanwhile, and ``hidden`` the nodes with an access
    list that the server has shown in part.
    """

    def __init__(self, place: Place, *, ephemerals: bool) -> None:
        self._place = place
        self._ephemerals = ephemerals
        self.left_out: int = 0
        self.gone: int = 0
        self.hidden: int = 0

    def __iter__(self) -> Iterator[Node]:
        client, root = self._place.client, self._place.path
        nodes = Window(
            client,
            lambda ops, path: [ops.get_data(below(root, path)), ops.get_acl(below(root, path))],
        )
        lists = Window(client, lambda ops, path: [ops.get_children(below(root, path))])
        todo, size = deque(["/"]), EACH
        while todo or nodes or lists:
            if lists and (lists.full or not todo):
                todo.extend(self._children(*lists.pop()))
            elif todo and not nodes.full:
                nodes.add(todo.popleft(), size)
            else:
                node = self._node(*nodes.pop())
                if node is None or node.stat is None:
                    continue
                # The next ones may be as large: with large ones fewer are asked for at a time.
                size = max(len(node.data) + EACH, size * 7 // 8)
                if node.stat.num_children:
                    lists.add(node.path)
                if node.stat.ephemeral_owner and not self._ephemerals:
                    self.left_out += 1
                    continue
                self.hidden += has_hidden_hash(node.acl)
                yield node

    def _node(self, path: str, answers: Answers) -> Node | None:
        read, listed = answers
        for answer in answers:
            if isinstance(answer, NoNodeError) and path != "/":
                self.gone += 1
                return None
            if isinstance(answer, ServerError):
                raise answer
        data, stat = read
        return Node(path, data, listed[0], stat)

    def _children(self, path: str, answers: Answers) -> list[str]:
        names = answers[0]
        if isinstance(names, NoNodeError):
            return []
        if isinstance(names, ServerError):
            raise names
        paths = [f"{path.rstrip('/')}/{name}" for name in sorted(names)]
        return [found for found in paths if not self._place.is_reserved(found)]


# --- progress -------------------------------------------------------------------------------------
# How far a transfer is: one line on a terminal, which is gone at the end; else nothing.

EVERY = 0.2  # seconds
WIDTH = 79


def progress(
    output: Output, items: Iterable[Any], verb: str, total: int | None = None
) -> Iterator[Any]:
    """The items, and how many there have been meanwhile, of how many if that is known."""
    if output.quiet or sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    shown, of = time.monotonic(), "" if total is None else f" of {total:,}"
    try:
        for done, item in enumerate(items, 1):
            yield item
            if (now := time.monotonic()) - shown >= EVERY:
                shown = now
                tell(f"\r{f'{verb} {done:,}{of} nodes':{WIDTH}}\r", 0.0)
    finally:
        tell(f"\r{'':{WIDTH}}\r", 0.0)

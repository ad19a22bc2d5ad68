"""Requests in flight for one item after another, bounded in number and in bytes.

Answers come in the order of the items.  What a lost connection has cost is asked again, so each
request must be one that can be repeated: a read, or a change whose second execution is refused in a
way that the caller understands.  Nothing waits for ever: without any answer for two session
timeouts the error of the oldest request is raised.
"""

from __future__ import annotations

import time
from collections import deque

from zkwire.errors import BUSY, ConnectionLossError, ServerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from zkwire import Client
    from zkwire.net.pipeline import Pipeline

    # What is asked for an item, and what has been answered: for each request its result or error.
    Ask = Callable[[Pipeline, Any], Sequence[Any]]
    Answers = list[Any]

MOST_ITEMS = 256
MOST_BYTES = 4 << 20
PAUSE = 0.1  # seconds, for a server that is overloaded


class Window:
    """The items whose answers have not been taken yet; see the module's docstring."""

    def __init__(self, client: Client, ask: Ask) -> None:
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


def result(client: Client, ask: Callable[[Pipeline], Any]) -> Any:
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

"""What the document says of one operation, beside the functions that make it true.

An operation brings how it is asked for, how one sees whether the server has done it, what makes a
server refuse it, and the recovery: its text stands in the table, its function is run there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.connection_loss.case import Case
from zkwire import Client

Ask: TypeAlias = Callable[[Any, Case], Any]
Act: TypeAlias = Callable[[Case], object]
Recover: TypeAlias = Callable[[Case, Client], object]
Count: TypeAlias = Callable[[Case, Client], int]

# What the server has of a change, by how often it was done.
DONE = {0: "not done", 1: "done", 2: "done twice"}
ONCE = frozenset({1})
NOTHING_TO_DO = {0: "nothing to change"}


def nothing(_: Case) -> None:
    """For operations that need no preparation."""


def never(_: Case, __: Client) -> int:
    """How often a read has been done, as far as the server remembers it."""
    return 0


@dataclass(frozen=True)
class Operation:
    """One operation, in one way of using it."""

    title: str
    """How the document calls it."""
    ask: Ask
    """Ask for it, given the client's pipeline or the client: the reply, or the result."""
    wire: str
    """Its name in the proxy."""
    again: str
    """What is safe after OutcomeUnknownError; one sentence."""
    recover: Recover
    """Do that."""
    prepare: Act = nothing
    since: tuple[int, int] = (3, 6)
    """The line of releases from which on servers know it."""
    count: Count = never
    """How often it has been done, as this client sees it."""
    words: Mapping[int, str] = field(default_factory=lambda: NOTHING_TO_DO)
    goals: frozenset[int] = frozenset({0})
    """The counts that are intended."""
    refuse: Act | None = None
    """Make the server refuse it."""
    mend: Act = nothing
    """Take that away again."""
    refused: str = ""
    """What is safe after the refusal."""
    new_client: str = "make a new `Client`, and recover"
    """What is safe in a new session."""
    by_ensemble: bool = False
    """A server alone refuses it, and an ensemble does one at a time."""
    by_client: bool = False
    """Only the client itself can tell whether it is done, when it is connected."""
    unsent: str = "repeat it"
    """What is safe after NotSentError."""
    resend: Recover | None = None
    """Do that; None for the same request again."""
    renew: Recover | None = None
    """Recover in a new session, where that is not the same."""
    settle: Recover | None = None
    """Do what is safe after the refusal; None for the same request again."""
    rival: Act | None = None
    """Have another client do the same thing, or undo it, before the recovery."""
    spared: Count = never
    """Whether what he did is still there."""

    def repeat(self, case: Case, client: Client) -> object:
        """The same request again, to the end."""
        return self.ask(client, case)


def repeated(ask: Ask) -> Recover:
    """The recovery of everything that may be asked for again."""
    return lambda case, client: ask(client, case)

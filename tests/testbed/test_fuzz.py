"""Any bytes give replies or a `ProtocolError`, in bounded time and memory.

The targets are those of `tests.interop.fuzz`. What they are given is the same in every run, but for
`check.py long`, where it is more, and new.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop import fuzz
from tests.interop.fuzz import TALKS, Mutation, mutate
from tests.support.examples import ROUNDS, examples

BOUNDED = settings(derandomize=ROUNDS == 1, deadline=None, suppress_health_check=list(HealthCheck))
TARGETS = fuzz.targets()
NUMBER = st.integers(0, 2**16 - 1)
MUTATIONS = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=6)
SOUP = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.binary(max_size=120).map(lambda body: struct.pack(">i", len(body)) + body),
    ),
    max_size=8,
)
# What may be kept beyond what an honest conversation of the same length needs.
SPARE_BYTES = 512 * 1024


def fuzzed(*names: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """The test runs once for each of these targets."""
    return pytest.mark.parametrize("name", names)


def examine(name: str, count: int = 200) -> None:
    """Mutated conversations, and soup behind the first frames of one."""
    target = TARGETS[name]
    seeds = st.sampled_from(sorted(target.seeds))

    @settings(BOUNDED, max_examples=examples(count))
    @given(seeds, MUTATIONS)
    def mutated(seed: str, mutations: list[Mutation]) -> None:
        fuzz.run(target, mutate(target.seeds[seed], mutations))

    @settings(BOUNDED, max_examples=examples(count // 3))
    @given(seeds, st.integers(0, 3), SOUP)
    def soup(seed: str, honest: int, pieces: list[bytes]) -> None:
        fuzz.run(target, [*target.seeds[seed][:honest], *pieces])

    for _ in range(ROUNDS):
        mutated()
        soup()


@fuzzed(*(f"session_{talk}" for talk in TALKS), "restoration")
def test_session(name: str) -> None:
    """The state machine, with calls of every kind on their way."""
    examine(name)


@fuzzed("server", "server_with_sasl")
def test_server(name: str) -> None:
    """The embedded server."""
    examine(name)


def test_proxy() -> None:
    """What tells the fault proxy's frames apart."""
    examine("proxy")


@fuzzed("session_nodes", "session_watches", "session_multis", "server", "restoration")
def test_claims_cost_nothing(name: str) -> None:
    """Every number of every conversation that could be a length or a count, made a huge one."""
    target = TARGETS[name]
    for seed, frames in target.seeds.items():
        honest = peak(target, frames)
        for index, at in lengths(frames):
            claim = (2**31 - 1, 2**26, 2**20 - 1)[(index + at) % 3]
            lying = frames[index][:at] + struct.pack(">i", claim) + frames[index][at + 4 :]
            kept = peak(target, [*frames[:index], lying, *frames[index + 1 :]])
            assert kept < honest + SPARE_BYTES, (seed, index, at, claim)


def lengths(frames: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where a number stands that fits into what follows it: the frame, and the offset in it."""
    return [
        (index, at)
        for index, raw in enumerate(frames)
        for at in range(len(raw) - 3)
        if 0 < int.from_bytes(raw[at : at + 4], "big") <= len(raw) - at - 4
    ]


def peak(target: fuzz.Target, pieces: Sequence[bytes]) -> int:
    """How many bytes were in use at the most; frames of the past do not count."""
    gc.collect(0)
    tracemalloc.start()
    try:
        target.run(pieces)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

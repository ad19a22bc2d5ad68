"""The table in docs/testing.md has each other client, and the comparison finds what differs."""

from __future__ import annotations

from tests.interop.other_clients.compare import BEGIN, CLIENTS, END, HEAD, PAGE, Compared
from tests.interop.other_clients.differences import DIFFERENT, differences

SAID = ["nodes: create /a = ok", "nodes: get /none = -101", "cut: states = CONNECTED"]


def test_the_table_has_a_row_for_each_client() -> None:
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    rows = [line.strip("|").split("|") for line in table.removeprefix(HEAD).splitlines()]
    assert table.startswith(HEAD)
    assert [row[0].strip() for row in rows] == [client.what for client in CLIENTS]
    for (_, _, answers, alike, listed), client in zip(rows, CLIENTS, strict=True):
        lines = DIFFERENT.get(client.name, {})
        assert int(listed) == len(lines)
        assert int(answers) - int(alike) == sum(line.startswith("-") for line in lines)


def test_another_error_code_is_a_difference() -> None:
    other = [SAID[0], "nodes: get /none = -102", SAID[2]]
    found = differences(SAID, other)
    assert found == ["-nodes: get /none = -101", "+nodes: get /none = -102"]
    assert Compared(CLIENTS[0], SAID, found).new == found


def test_a_program_that_is_not_done_is_no_proof() -> None:
    assert Compared(CLIENTS[0], SAID, []).complete
    assert not Compared(CLIENTS[0], [], []).complete
    assert not Compared(CLIENTS[0], [*SAID, "end: not done within 120 s"], []).complete

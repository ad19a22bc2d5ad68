"""docs/wire.md shows the bytes of a run, as one more run has them."""

from __future__ import annotations

from tests.support import wire_page


def test_the_page_has_the_bytes_of_a_run() -> None:
    """Else: python3 -m tests.support.wire_page."""
    text = wire_page.PATH.read_text()
    assert wire_page.written(text) == text


def test_the_bytes_of_each_frame_are_whole() -> None:
    """No field is cut, hidden or left out: the length in front counts them all."""
    for name, table in wire_page.tables().items():
        cells = [line.split(" | ")[1].strip("`") for line in table.splitlines()[2:]]
        data = bytes.fromhex("".join(cells))
        assert int.from_bytes(data[:4], "big") == len(data) - 4, name

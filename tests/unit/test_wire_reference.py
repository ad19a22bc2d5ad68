"""docs/wire-reference.md is what docs/wire-exchanges.json says, and leaves no operation out."""

from __future__ import annotations

import re

from tests.support import wire_exchanges, wire_reference
from tests.support.wire_exchanges import EXCHANGES, Frames, message, stored
from zkwire.wire import ops


def test_the_page_is_written_from_the_exchanges() -> None:
    """Else: python3 -m tests.support.wire_reference."""
    assert wire_reference.PATH.read_text() == wire_reference.page()


def test_each_operation_has_an_exchange() -> None:
    shown = {exchange.op for exchange in EXCHANGES} | {ops.CHECK}  # which is sent in a multi only
    assert set(ops.OPS.values()) <= shown


def test_each_byte_of_each_release_is_named() -> None:
    for release, exchanges in stored().items():
        assert list(exchanges) == [exchange.name for exchange in EXCHANGES], release
        for name, frames in exchanges.items():
            for part, data in zip(Frames._fields, frames, strict=True):
                if data:
                    found = message(data, name, part)
                    assert found.problem is None, f"{release} {name} {part}"
                    sizes = [row.size for row in found.rows]
                    assert sum(sizes) == len(data), f"{release} {name} {part}"


def test_the_decoded_fields_are_behind_a_click() -> None:
    text = wire_reference.PATH.read_text()
    opened, closed = text.count("<details><summary>"), text.count("</details>")
    assert opened == closed >= 2 * (len(EXCHANGES) - 1)
    assert not re.search(r"\|[^|\n]*unknown[^|\n]*\|\s*\d*\s*bytes", text)


def test_what_changes_from_run_to_run_is_masked_and_nothing_else() -> None:
    frames = stored()["3.8.0"]["get_data: with a watch"]
    later = bytearray(frames.reply)
    later[15] ^= 1  # the zxid of the reply
    assert wire_exchanges.alike(
        frames, frames._replace(reply=bytes(later)), "get_data: with a watch"
    )
    later[24] ^= 1  # the data
    assert not wire_exchanges.alike(
        frames, frames._replace(reply=bytes(later)), "get_data: with a watch"
    )

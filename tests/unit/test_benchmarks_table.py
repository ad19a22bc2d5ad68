"""What writes the tables of the benchmarks and docs/how-fast.md, without a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import __main__ as main
from benchmarks import cache, contenders, scale
from benchmarks.compare_worker import Works
from benchmarks.pages import README, marks, parts, write
from benchmarks.sides import OFFERS_NOT, SIDES, Floor
from benchmarks.where import pruned
from tests.support.speed_pictures import OPERATIONS, by_layer, kept, rows

ROUNDS = [
    {name: {"CPU µs": cpu, "wall µs": 9.0, "voluntary switches": 1.0} for name, cpu in each.items()}
    for each in ({"zkwire": 3.0, "floor": 2.0}, {"zkwire": 5.0, "floor": 1.0})
]


def cells(page: Path, command: str) -> list[list[str]]:
    """The cells of a table that stands in a page."""
    lines = parts(command, page)[1].splitlines()
    return [[cell.strip() for cell in x.split("|")[1:-1]] for x in lines if x.startswith("|")]


def test_a_row_has_medians_and_what_the_target_says_of_them() -> None:
    work, *found = main.row("get", ROUNDS)
    assert work == main.WORKS["get"]
    target, verdict = (
        "CPU \N{LESS-THAN OR EQUAL TO} 1.6 \N{MULTIPLICATION SIGN} floor",
        "**no**: 3.25",
    )
    assert found == ["4", "9", "1", "3.25", "", "", target, verdict]


@pytest.mark.parametrize("work", main.WORKS)
def test_each_side_can_be_asked_for_each_work(work: str) -> None:
    kind = work.partition(" ")[0]
    for name, side in SIDES.items():
        plain = kind in OFFERS_NOT.get(name, ())
        made = getattr(side, "func", side)
        assert plain != (hasattr(made, kind) or hasattr(made, f"do_{kind}")), (name, work)
    assert issubclass(Floor, Works)


def test_the_tables_of_the_page_have_the_rows_of_their_programs() -> None:
    assert [row[0] for row in cells(README, main.COMMAND)[2:]] == [*main.WORKS.values()]
    assert [row[0] for row in cells(README, contenders.COMMAND)[2:]] == [*contenders.JOBS]
    assert [row[0] for row in cells(README, cache.COMMAND)[2:]] == [*cache.NAMES.values()]


def test_the_table_of_sizes_has_each_part_at_three_sizes() -> None:
    found = cells(scale.PAGE, scale.COMMAND)
    heads = [row for row in found if row[0].startswith("**")]
    assert [row[:-1] for row in heads] == [
        [f"**{part}**", *(f"**{size:,}**" for size in sizes)]
        for part, (_, sizes) in scale.PARTS.items()
    ]
    for row in found[2:]:
        assert len(row) == 5
        assert row in heads or all(float(cell.replace(",", "")) >= 0 for cell in row[1:4])


def test_a_text_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page, (begin, end) = tmp_path / "page.md", marks("it --write")
    page.write_text(f"before\n\n{begin}\n{end}\nbehind\n")
    for text in ("first", "second\n\nline"):
        write("it --write", text, page)
        assert page.read_text() == f"before\n\n{begin}\n{text}\n\n{end}\nbehind\n"
    with pytest.raises(ValueError, match="no place for other"):
        write("other", "", page)


def test_rare_stacks_count_for_their_callers() -> None:
    seen = Counter({"a": 500, "a;b": 3, "a;b;c": 2, "a;b;d": 1, "e;f": 494})
    assert pruned(seen) == {"a": 500, "a;b": 6, "e;f": 494}


def test_the_parts_of_an_operation_are_all_of_it() -> None:
    for name in OPERATIONS:
        assert round(sum(by_layer(name).values()), 3) == round(kept()[name]["cpu"], 3)


def test_the_plot_has_the_rows_of_the_table() -> None:
    shown = rows()
    assert list(shown) == [*main.WORKS.values()]
    assert all(row["zkwire"] == 1.0 for row in shown.values())
    assert shown["get, one at a time"].keys() == {"zkwire", *main.PEERS}

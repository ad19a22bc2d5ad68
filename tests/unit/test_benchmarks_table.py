"""What writes the tables of the benchmarks and docs/how-fast.md, without a run."""

from __future__ import annotations

from collections import Counter

from benchmarks import imports
from benchmarks.targets import TARGETS
from benchmarks.where import pruned
from benchmarks.workloads import all_workloads
from tests.support.speed_pictures import OPERATIONS, by_layer, kept, rows


def test_each_target_is_one_of_a_workload() -> None:
    """A row without one would keep the whole table from being written."""
    assert {target.workload for target in TARGETS} <= {
        imports.TITLE, *(workload.name for workload in all_workloads())
    }  # fmt: skip


def test_rare_stacks_count_for_their_callers() -> None:
    seen = Counter({"a": 500, "a;b": 3, "a;b;c": 2, "a;b;d": 1, "e;f": 494})
    assert pruned(seen) == {"a": 500, "a;b": 6, "e;f": 494}


def test_the_parts_of_an_operation_are_all_of_it() -> None:
    for name in OPERATIONS:
        assert round(sum(by_layer(name).values()), 3) == round(kept()[name]["cpu"], 3)


def test_the_plot_has_the_rows_of_the_table() -> None:
    shown = rows()
    assert "get, one at a time" in shown
    assert all(row["zkwire"] == 1.0 for row in shown.values())
    assert {"floor", "kazoo", "C client", "Java client"} <= shown["get, one at a time"].keys()

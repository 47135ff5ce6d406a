"""Statistics of access: the curve and the bins are what slow counts give; a file that is not in order is refused."""

import io
import zipfile
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import DataError, FileError
from bagpipe_hpc.rows import access_statistics
from bagpipe_hpc.rows.access_statistics import (
    REUSE_LIMITS,
    STEPS,
    TableAccesses,
    access_curve,
    read_statistics,
    write_statistics,
)
from bagpipe_hpc.rows.array_file import ArrayFile, open_arrays
from bagpipe_hpc.rows.placements import table_plan
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import read_plan, write_plan
from tests.statistics_files import write_accesses

COUNTS = {"C1": [0, 5, 1, 0, 5, 2], "C2": [0, 0], "C3": [40_000]}
SAMPLES = 40_000


def write(path: Path) -> None:
    write_accesses(path, COUNTS, SAMPLES)


@given(st.lists(st.integers(1, 9), max_size=8).map(lambda counts: sorted(counts, reverse=True)), st.integers(1, 12))
def test_the_curve_has_the_fewest_rows_of_each_share(falling: list[int], steps: int) -> None:
    curve = access_curve(np.array(falling, dtype=np.int64), steps)
    for step, rows in enumerate(curve.tolist()):
        assert sum(falling[:rows]) * steps >= step * sum(falling)
        assert rows == 0 or sum(falling[: rows - 1]) * steps < step * sum(falling)
    assert (curve[0], curve[-1]) == (0, len(falling))


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=30))
def test_each_used_row_is_in_the_bin_of_its_look_ups(counts: list[int]) -> None:
    found = TableAccesses.of_counts("C1", np.array(counts, dtype=np.int64), 1, 1).reuse
    bounds = [0, *REUSE_LIMITS, float("inf")]
    assert list(found) == [sum(low < count <= high for count in counts) for low, high in pairwise(bounds)]
    assert len(found) == 17


def test_a_file_says_what_was_counted(tmp_path: Path) -> None:
    write(tmp_path / "accesses.npz")
    found = read_statistics(tmp_path / "accesses.npz")
    assert (found.data, found.samples, list(found.tables)) == ("ab" * 32, SAMPLES, ["C1", "C2", "C3"])
    first, second, third = found.tables.values()
    assert (first.rows, first.used, first.look_ups, first.samples_with) == (6, 4, 13, 13)
    assert (first.coverage, first.pooling, first.sample_look_ups) == (13 / SAMPLES, 1.0, 13 / SAMPLES)
    assert (first.curve[38], first.curve[39], first.curve[77], first.curve[93]) == (1, 2, 3, 4)
    assert (second.used, second.pooling, set(second.curve), sum(second.reuse_shares)) == (0, 0.0, {0}, 0.0)
    assert third.reuse_shares == (0.0,) * 16 + (1.0,)
    of_second, (rows, counts) = found.hottest(["C2", "C1"])
    assert (rows.tolist(), counts.tolist()) == ([1, 4, 5, 2], [5, 5, 2, 1])
    assert [part.tolist() for part in of_second] == [[], []]


def test_many_tables_are_read_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a file takes the longer, the more tables it has."""
    names, counts = [f"C{number}" for number in range(50)], np.array([2, 1])
    with (tmp_path / "accesses.npz").open("wb") as file:
        tables = [TableAccesses.of_counts(name, counts, 3, 3) for name in names]
        write_statistics(file, "ab" * 32, tables, [counts] * len(names), 3)
    with (tmp_path / "plan.npz").open("wb") as file:
        whole = [WholeTable(name, 2, 1, 4) for name in names]
        write_plan(file, "greedy", "ab" * 32, 1, whole, [0] * len(names), {"C7": np.array([1])})
    found, plan = read_statistics(tmp_path / "accesses.npz"), read_plan(tmp_path / "plan.npz")
    opened: list[Path] = []

    def open_noted(path: Path, kind: str, cure: str) -> AbstractContextManager[ArrayFile]:
        opened.append(path)
        return open_arrays(path, kind, cure)

    for module in (access_statistics, table_plan):
        monkeypatch.setattr(module, "open_arrays", open_noted)
    assert [rows.tolist() for rows, _ in found.hottest(names)] == [[0, 1]] * len(names)
    assert [name for name, (pinned, _) in zip(names, plan.kept_rows(names), strict=True) if pinned.size] == ["C7"]
    assert opened == [found.source, plan.source]


def test_other_tables_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "accesses.npz")
    found = read_statistics(tmp_path / "accesses.npz")
    assert found.of("C1", 6) is found.tables["C1"]
    with pytest.raises(DataError, match=r"knows no table 'C9'; write it again with `bagpipe inspect"):
        found.of("C9", 6)
    with pytest.raises(DataError, match="table 'C1' has 6 rows, the data's has 7"):
        found.of("C1", 7)


@pytest.mark.parametrize(
    ("member", "value", "problem"),
    [
        ("format", np.array(2), "has format 2 instead of 1"),
        ("names", np.array(["C1", "C1", "C3"]), "must be different names"),
        ("names", np.array([1, 2, 3]), "must be different names"),
        ("rows", np.array([6, 2]), r"rows must be int64 \[3\]"),
        ("rows", np.array([3, 2, 1]), "of table 'C1' does not fit together"),
        ("look_ups", np.array([13, 0, -1]), "none negative"),
        ("used", np.array([5, 0, 1]), "of table 'C1' does not fit together"),
        ("curve", np.zeros((3, STEPS + 1), dtype=np.int64), "of table 'C1' does not fit together"),
        ("reuse", np.zeros((3, 17)), r"reuse must be int64 \[3, 17\]"),
        ("samples", None, "has no samples"),
        ("data", np.array([object()], dtype=object), "allow_pickle"),
        ("data", np.array(3), "data must be a text"),
    ],
)
def test_a_damaged_summary_is_refused(tmp_path: Path, member: str, value: Any, problem: str) -> None:
    write(tmp_path / "whole.npz")
    members = dict(np.load(tmp_path / "whole.npz")) | {member: value}
    np.savez(tmp_path / "a.npz", **{name: found for name, found in members.items() if found is not None})
    with pytest.raises(DataError, match=problem):
        read_statistics(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("order/0", np.array([1, 4, 5, 6])),
        ("order/0", np.array([1, 4, 4, 2])),
        ("order/0", np.array([1, 4, 5])),
        ("counts/0", np.array([5, 5, 1, 2])),
        ("counts/0", np.array([5, 5, 2, 2])),
    ],
)
def test_a_damaged_order_is_refused(tmp_path: Path, member: str, value: Any) -> None:
    write(tmp_path / "whole.npz")
    np.savez(tmp_path / "a.npz", **dict(np.load(tmp_path / "whole.npz")) | {member: value})
    with pytest.raises(DataError, match=r"order/0 must be|does not order the rows of table 'C1'"):
        list(read_statistics(tmp_path / "a.npz").hottest(["C1"]))


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    torn = bytearray(whole)
    torn[200:260] = bytes(60)
    for content in (b"", b"text", whole[:-30], whole[: len(whole) // 2], bytes(torn)):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"a\.npz"):
            read_statistics(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(DataError, match="cannot be read as a file of statistics"):
        read_statistics(tmp_path / "a.npy")
    with pytest.raises(FileError, match="absent"):
        read_statistics(tmp_path / "absent.npz")


def test_an_array_that_the_file_does_not_hold_takes_no_memory(tmp_path: Path) -> None:
    """It says that it has 2^45 numbers."""
    write(tmp_path / "whole.npz")
    members = dict(np.load(tmp_path / "whole.npz"))
    del members["samples"]
    np.savez(tmp_path / "a.npz", **members)
    promised = io.BytesIO()
    np.lib.format.write_array_header_2_0(promised, {"descr": "<i8", "fortran_order": False, "shape": (1 << 45,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("samples.npy", promised.getvalue())
    with pytest.raises(DataError, match=r"a\.npz: samples is int64 \[35184372088832\] in 0 bytes; write it again"):
        read_statistics(tmp_path / "a.npz")

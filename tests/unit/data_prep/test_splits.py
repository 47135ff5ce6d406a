"""Days are splits: the last files are for tests, as a whole or by half, as MLPerf has Criteo's Terabyte data."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.splits import Split, split_rows

DAYS = (40, 25, 31)


@pytest.fixture
def days(tmp_path: Path) -> list[str]:
    """Three days, compressed, of 40, 25 and 31 rows; the tenth comes last."""
    generate_clicks(sum(DAYS), tmp_path / "clicks", seed=4)
    lines = (tmp_path / "clicks").read_bytes().splitlines(keepends=True)
    for name, rows, first in zip(("day_0", "day_2", "day_10"), DAYS, np.cumsum([0, *DAYS]).tolist(), strict=False):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"".join(lines[first : first + rows])))
    return [str(tmp_path / "day_*.gz")]


def silent(_: str) -> None:
    """Progress that nobody reads."""


def dense(output: Path, manifest: ShardManifest, split: str) -> np.ndarray:
    with ClickShards(output, manifest, split) as shards:
        return shards.read_dense(0, shards.rows)


@pytest.mark.parametrize(
    ("rows", "half", "said"),
    [(0, None, "hold 0 good rows"), (1, "second", "hold 1 good rows, and the second half of them is for tests")],
)
def test_files_without_rows_for_tests_are_noted(tmp_path: Path, rows: int, half: str | None, said: str) -> None:
    schema = {"columns": [{"name": "click", "kind": "label"}, {"name": "item", "kind": "categorical"}]}
    (tmp_path / "day_0").write_text("click,item\n0,a\n1,b\n")
    (tmp_path / "day_1").write_text("click,item\n" + "0,a\n" * rows)
    settings = PrepareSettings("schema", schema=schema, min_count=1, test_files=1, test_half=half)
    progress: list[str] = []
    manifest = prepare_clicks([str(tmp_path / "day_*")], tmp_path / "out", settings, progress.append)
    assert (manifest.rows("train"), manifest.rows("test")) == (2, 0)
    assert f"note: no row is left for tests: the last 1 of 2 files {said}" in progress


@pytest.mark.parametrize(
    ("files", "half", "train", "first", "last"),
    [(1, None, 65, 65, 96), (2, None, 40, 40, 96), (1, "first", 65, 65, 81), (1, "second", 65, 81, 96)],
)
def test_the_last_files_are_for_tests(
    tmp_path: Path, days: list[str], files: int, half: str | None, train: int, first: int, last: int
) -> None:
    whole = prepare_clicks(days, tmp_path / "whole", PrepareSettings(test_fraction=0), silent)
    rows = dense(tmp_path / "whole", whole, "train")
    settings = PrepareSettings("criteo_terabyte", test_files=files, test_half=half, rows_per_shard=30)
    manifest = prepare_clicks(days, tmp_path / "out", settings, silent)
    assert (manifest.rows("train"), manifest.rows("test")) == (train, last - first)
    assert np.array_equal(dense(tmp_path / "out", manifest, "train"), rows[:train])
    assert np.array_equal(dense(tmp_path / "out", manifest, "test"), rows[first:last])
    assert manifest.settings is not None
    assert manifest.settings["test_files"] == files
    assert prepare_clicks(days, tmp_path / "out", settings, silent) == manifest


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_values_are_those_of_mlperf(tmp_path: Path, days: list[str], backend: str) -> None:
    rows = [
        line.split("\t")
        for name in ("day_0", "day_2", "day_10")
        for line in gzip.decompress((tmp_path / f"{name}.gz").read_bytes()).decode().splitlines()
    ]
    settings = PrepareSettings("criteo_terabyte", ("max_ind_range=1000",), min_count=1, test_files=1, backend=backend)
    manifest = prepare_clicks(days, tmp_path / "out", settings, silent)
    with ClickShards(tmp_path / "out", manifest, "train") as shards:
        sparse, integers = shards.read_sparse(0, 65), shards.read_dense(0, 65)
    for column in range(26):
        values = np.concatenate(([-1], read_vocabulary(tmp_path / "out", manifest, f"C{column + 1}").astype(np.int64)))
        expected = [int(row[14 + column] or "0", 16) % 1000 for row in rows[:65]]
        assert values[sparse[:, column]].tolist() == expected
    counts = np.array([[max(0, int(field or 0)) for field in row[1:14]] for row in rows[:65]])
    assert np.array_equal(integers, np.log(counts + 1.0).astype(np.float32))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"test_files": 3}, "test-files = 3: there are 3 input files, and one at least is for training"),
        ({"test_files": 0}, "test-files = 0: use 1 or more"),
        ({"test_files": 1, "test_fraction": 0.5}, "test-files = 1: use it without --test-fraction and --like"),
        ({"test_half": "first"}, "test-half = 'first': use it with --test-files N"),
        ({"test_files": 1, "test_half": "third"}, "test-half = 'third': use first or second"),
    ],
)
def test_splits_that_cannot_be_are_refused(
    tmp_path: Path, days: list[str], settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        prepare_clicks(days, tmp_path / "out", PrepareSettings(**settings), silent)  # type: ignore[arg-type]


def test_a_range_that_cannot_be_is_refused() -> None:
    settings = PrepareSettings("criteo_terabyte", ("max_ind_range=0",))
    with pytest.raises(ConfigError, match="max_ind_range = 0: use 1 or more"):
        prepare_clicks(["x"], Path("out"), settings, silent)


def test_rows_between_the_splits_and_behind_them_are_in_none() -> None:
    assert Split(10, 12, 15).rows == 13
    assert Split(10, 10, 10).rows == 10


def test_the_last_part_of_all_rows_is_for_tests() -> None:
    parts: Any = [SimpleNamespace(rows=7), SimpleNamespace(rows=4)]
    settings = PrepareSettings(test_fraction=0.25)
    assert split_rows(settings, parts, [], 1) == Split(8, 8, 11)

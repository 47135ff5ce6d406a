"""Batches of look-ups are those of a stream, for any number of threads; what fails in a thread fails the reader."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import DataError, PlanError
from bagpipe_hpc.kernels import look_ups
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.look_up_batches import LookUpBatches, PlaceIds, place_ids
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.shards.sample_stream import SampleStream
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from tests.drawing import share_of
from tests.end_to_end.policies import EvenFirst
from tests.ragged_shards import write_ragged

TABLES = (TableInfo("C1", 7), TableInfo("C2", 1000), TableInfo("C3", 1))
SHARD_ROWS = (5, 1, 17, 4)
ROWS = sum(SHARD_ROWS)
Written = tuple[Path, ShardManifest]
PLACES: list[PlaceIds] = [place_ids, look_ups.place] if is_built("look_ups") else [place_ids]


def write_one_hot(folder: Path) -> ShardManifest:
    rng = np.random.default_rng(3)
    shards = []
    for number, rows in enumerate(SHARD_ROWS):
        ids = np.stack([rng.integers(0, table.rows, rows) for table in TABLES], axis=1).astype(np.int32)
        part = Samples(np.zeros((rows, 1), np.float32), ids, np.zeros(rows, np.uint8))
        shards.append(write_shard(folder / f"train-{number}.h5", rows, [part]))
    return ShardManifest(1, "criteo", 1, TABLES, tuple(shards), ())


@pytest.fixture(scope="module", params=["one-hot", "ragged"])
def written(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Written:
    folder = tmp_path_factory.mktemp("shards")
    if request.param == "one-hot":
        return folder, write_one_hot(folder)
    return folder, write_ragged(folder, 3, ROWS, rows_per_shard=7)


def facts(manifest: ShardManifest) -> tuple[np.ndarray, np.ndarray]:
    offsets, tables = table_offsets(manifest.table_rows), list(manifest.feature_tables)
    return np.diff(offsets)[tables], offsets[tables]


@settings(max_examples=share_of(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, ROWS), min_size=2, max_size=9).map(sorted),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([1, 2, 5]),
    st.sampled_from(PLACES),
    st.sampled_from(["default", "own", "lanes"]),
)
def test_batches_are_those_of_a_stream(
    written: Written, bounds: list[int], block_rows: int, shuffle: bool, threads: int, place: PlaceIds, kind: str
) -> None:
    folder, manifest = written
    order: SampleOrder | LaneOrder = SampleOrder(ROWS, block_rows, seed=5, epoch=1, shuffle=shuffle)
    if kind == "own":
        order = EvenFirst(ROWS, block_rows, seed=5, epoch=1, shuffle=shuffle)
    elif kind == "lanes":
        blocks = ShardBlocks(ROWS, block_rows, 5, 1, shuffle, tuple(shard.rows for shard in manifest.shards("train")))
        order = LaneOrder(blocks, batch_size=9, lanes=4)
    table_rows, first_rows = facts(manifest)
    with ClickShards(folder, manifest, "train") as shards:
        stream = SampleStream(shards.read_look_ups, order)
        batches = LookUpBatches(shards, order, table_rows, first_rows, place)
        found = list(batches.read(len(bounds) - 1, list(pairwise(bounds)).__getitem__, threads))
        assert len(found) == len(bounds) - 1
        for batch, (first, last) in zip(found, pairwise(bounds), strict=True):
            expected = stream.read(first, last).plus(first_rows)
            assert batch.values.dtype == np.int64
            np.testing.assert_array_equal(batch.values, expected.values)
            np.testing.assert_array_equal(batch.lengths, expected.lengths)
        assert not batches._held


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wrong", [-1, 7, 1 << 30, -(1 << 31)])
def test_an_id_outside_its_table_is_named(tmp_path: Path, threads: int, place: PlaceIds, wrong: int) -> None:
    manifest = write_one_hot(tmp_path)
    with h5py.File(tmp_path / "train-2.h5", "r+") as file:
        file["sparse"][4, 0] = wrong
    order = SampleOrder(ROWS, 4, seed=0, epoch=0, shuffle=False)
    with ClickShards(tmp_path, manifest, "train") as shards:
        batches = LookUpBatches(shards, order, *facts(manifest), place).read(2, [(0, 6), (6, 20)].__getitem__, threads)
        assert next(batches).samples == 6
        with pytest.raises(DataError, match=rf"train-2\.h5: an id of table C1 is {wrong}, outside 0 \.\. 6"):
            next(batches)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_missing_shard_fails_every_batch_of_its_block(tmp_path: Path, threads: int) -> None:
    manifest = write_one_hot(tmp_path)
    (tmp_path / "train-2.h5").unlink()
    order = SampleOrder(ROWS, ROWS, seed=0, epoch=0, shuffle=False)
    with ClickShards(tmp_path, manifest, "train") as shards:
        batches = LookUpBatches(shards, order, *facts(manifest)).read(
            3, [(0, 2), (2, 4), (4, ROWS)].__getitem__, threads
        )
        with pytest.raises(DataError, match=r"train-2\.h5: the shard is missing"):
            list(batches)


def test_no_more_is_read_ahead_than_threads_need(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, manifest = written
    order = SampleOrder(ROWS, 2, seed=0, epoch=0)
    with ClickShards(folder, manifest, "train") as shards:
        batches = LookUpBatches(shards, order, *facts(manifest))
        begun: list[int] = []
        make: Callable[..., object] = batches._batch
        monkeypatch.setattr(batches, "_batch", lambda batch, whole: begun.append(batch[0]) or make(batch, whole))
        asked: list[int] = []

        def range_of(batch: int) -> tuple[int, int]:
            asked.append(batch)
            return 2 * batch, 2 * batch + 2

        taken = batches.read(13, range_of, threads=2)
        next(taken)
        taken.close()  # what is not begun never is
    assert len(begun) <= 1 + 2 + 2
    assert len(set(asked) - {12}) <= 1 + 2 + 2, "of the last one, where all end is asked"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_become_rows(place: PlaceIds, dtype: type) -> None:
    rng = np.random.default_rng(1)
    table_rows = np.array([5, 1 << 31, 3, 100])
    first_rows = np.array([0, 5, 1 << 40, 7])
    ids = np.stack([rng.integers(0, rows, 50) for rows in table_rows], axis=1).astype(dtype)
    samples = rng.permutation(50)[:20]
    rows = np.empty((20, 4), dtype=np.int64)
    assert place(ids, samples, table_rows, first_rows, rows)
    np.testing.assert_array_equal(rows, ids[samples] + first_rows)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    for feature, wrong in ((0, -1), (0, 5), (0, least), (2, 3), (3, most), (1, -1), (3, 100)):
        damaged = ids.copy()
        damaged[samples[7], feature] = wrong
        assert not place(damaged, samples, table_rows, first_rows, rows)
        assert place(damaged, np.delete(samples, 7), table_rows, first_rows, rows[:-1])
    assert place(ids, samples[:0], table_rows, first_rows, rows[:0])


def test_an_order_of_other_samples_is_refused(written: Written) -> None:
    class Short(SampleOrder):
        def block_samples(self, block: int) -> int:
            return super().block_samples(block) - 1

    folder, manifest = written
    with ClickShards(folder, manifest, "train") as shards, pytest.raises(PlanError, match=f"of {ROWS} samples"):
        LookUpBatches(shards, Short(ROWS, 5, seed=0, epoch=0), *facts(manifest))

"""Ragged features, several labels and weights come back as they were written; hostile shards are named."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.kernels import lzf
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest, save_manifest
from bagpipe_hpc.storage.shards.raw_chunks import ChunkDecoder
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.shards.sample_stream import SampleStream
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, CHUNK_VALUES, RaggedColumn, Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from tests.drawing import share_of
from tests.ragged_shards import FEATURES, TABLES, bags_of, draw_samples, part_of, write_ragged

ROWS = 30
LABELS = ("click", "buy")
LIMITS = ((), (0, 0, 0, 0), (1, 2, 1, 3), (0, 1, 5, 1), (7, 100, 3, 0))
ALL_RAGGED = tuple(replace(feature, ragged=True, longest=5) for feature in FEATURES)
Written = tuple[Path, ShardManifest, Samples]


@pytest.fixture(scope="module", params=[FEATURES, ALL_RAGGED], ids=["mixed", "all ragged"])
def written(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Written:
    folder = tmp_path_factory.mktemp("shards")
    manifest = write_ragged(
        folder, 3, ROWS, features=request.param, labels=LABELS, weighted_samples=True, rows_per_shard=7
    )
    whole = draw_samples(3, ROWS + 20, features=request.param, labels=2, weighted_samples=True)
    return folder, manifest, part_of(whole, 0, ROWS)


def equal(found: Bags, expected: Bags) -> bool:
    same = found.values.dtype == expected.values.dtype and np.array_equal(found.values, expected.values)
    return same and np.array_equal(found.lengths, expected.lengths)


@settings(max_examples=share_of(25))
@given(
    st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted),
    st.sampled_from(LIMITS),
    st.sampled_from((None, lzf) if is_built("lzf") else (None,)),
)
def test_any_range_is_what_was_written(
    written: Written, bounds: list[int], longest: tuple[int, ...], decoder: ChunkDecoder | None
) -> None:
    folder, manifest, whole = written
    first, last = bounds
    part = part_of(whole, first, last)
    ids, weights = bags_of(part, manifest.features, longest)
    assert part.weight is not None
    with ClickShards(folder, manifest, "train", longest, decoder) as shards:
        assert equal(shards.read_look_ups(first, last), ids)
        assert equal(shards.read_id_weights(first, last), weights)
        np.testing.assert_array_equal(shards.read_lengths(first, last), ids.lengths)
        np.testing.assert_array_equal(shards.read_labels(first, last), part.label.astype(np.float32))
        np.testing.assert_array_equal(shards.read_sample_weights(first, last), part.weight)
        np.testing.assert_array_equal(shards.read_sparse(first, last), part.sparse)


@settings(max_examples=share_of(15))
@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 99))
def test_a_stream_gives_bags_in_any_order(written: Written, block_rows: int, batch: int, seed: int) -> None:
    folder, manifest, whole = written
    order = SampleOrder(ROWS, block_rows, seed, epoch=0)
    ids, _ = bags_of(whole, manifest.features)
    samples = [np.arange(*order.block_range(block))[order.inside_block(block)] for block in order.blocks().tolist()]
    expected = ids.take(np.concatenate(samples))
    with ClickShards(folder, manifest, "train") as shards:
        stream = SampleStream(shards.read_look_ups, order)
        for first in range(0, ROWS, batch):
            last = min(first + batch, ROWS)
            assert equal(stream.read(first, last), expected.part(first, last))
        assert stream.read(ROWS, ROWS).samples == 0


def test_what_a_stream_gave_is_the_callers_own(written: Written) -> None:
    folder, manifest, _ = written
    with ClickShards(folder, manifest, "train") as shards:
        stream = SampleStream(shards.read_look_ups, SampleOrder(ROWS, ROWS, 1, 0))
        kept = stream.read(0, 9).values.copy()
        stream.read(0, 9).values[:] = -1
        np.testing.assert_array_equal(stream.read(0, 9).values, kept)


def test_the_manifest_says_what_is_there(written: Written) -> None:
    folder, manifest, whole = written
    assert load_manifest(folder) == replace(manifest, settings={})
    assert manifest.schema_version == 2
    verify_shards(folder, manifest, "full")
    assert [sum(counts) for counts in zip(*(shard.values for shard in manifest.train), strict=True)] == [
        len(column.values) for column in whole.ragged.values()
    ]
    train = replace(manifest, test=())
    assert train.label_rates == tuple(whole.label.mean(axis=0))
    assert train.label_rate == whole.label[:, 0].mean()


def test_samples_of_many_chunks_come_back(tmp_path: Path) -> None:
    """Blocks end within chunks of offsets, of values and of both."""
    rows = 2 * CHUNK_ROWS + 5
    features = (FeatureInfo("history", "item", ragged=True, weighted=True, longest=9),)
    whole = draw_samples(1, rows, features=features)
    assert len(whole.ragged["history"].values) > 2 * CHUNK_VALUES
    cuts = [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS, rows - 1, rows]
    blocks = [part_of(whole, first, last) for first, last in pairwise(cuts)]
    shard = write_shard(tmp_path / "a.h5", rows, blocks, chunk_checksums=True)
    with h5py.File(tmp_path / "a.h5") as file:
        assert "sparse" not in file
        assert all(file["ragged/history"][name].fletcher32 for name in ("offsets", "values", "weights"))
        assert file["ragged/history/offsets"].shuffle
    manifest = ShardManifest(1, "drawn", 3, TABLES[1:2], (shard,), (), features=features)
    ids, weights = bags_of(whole, features)
    with ClickShards(tmp_path, manifest, "train") as shards:
        assert equal(shards.read_look_ups(0, rows), ids)
        assert equal(shards.read_id_weights(0, rows), weights)


def test_a_feature_whose_bags_are_all_empty(tmp_path: Path) -> None:
    features = (FeatureInfo("history", "item", ragged=True, longest=0), FeatureInfo("item", "item"))
    manifest = write_ragged(tmp_path, samples=9, features=features, tables=TABLES[1:2])
    verify_shards(tmp_path, manifest, "full")
    with ClickShards(tmp_path, manifest, "train") as shards:
        assert shards.read_look_ups(2, 9).lengths.tolist() == [[0, 1]] * 7


def test_limits_are_one_a_feature(written: Written) -> None:
    folder, manifest, _ = written
    with pytest.raises(ValueError, match="3 limits for 4 features"):
        ClickShards(folder, manifest, "train", (1, 2, 3))


Damage = Callable[[h5py.File], object]
READ_DAMAGE: dict[str, Damage] = {
    r"ragged/history/offsets: that of sample 2 is 99, outside the \d+ values": lambda file: put(file, "offsets", 2, 99),
    r"ragged/history/offsets: that of sample 4 is -1, outside": lambda file: put(file, "offsets", 4, -1),
    r"ragged/history/offsets: that of sample 0 is 1, not 0": lambda file: put(file, "offsets", 0, 1),
    r"ragged/history/offsets: that of sample 7 is 12, not the 13 of all values": lambda file: put(
        file, "offsets", 7, 12
    ),
    r"ragged/history/offsets: that of sample 3 is 3, less than the one before it": lambda file: put(
        file, "offsets", slice(2, 4), (4, 3)
    ),
    r"feature history has 12 ids in sample 0, more than the manifest's 6": lambda file: put(
        file, "offsets", slice(0, 8), (0, *(12,) * 6, 13)
    ),
    r"an id of table item is 40, outside 0 \.\. 39 \(feature history, sample 0 of": lambda file: put(
        file, "values", 1, 40
    ),
    r"an id of table item is -1, outside 0 \.\. 39 \(feature history, sample 6 of": lambda file: put(
        file, "values", 12, -1
    ),
    r"an id of table user is 23, outside 0 \.\. 22 \(feature user, sample 3 of": lambda file: file[
        "sparse"
    ].__setitem__((3, 0), 23),
}


def put(file: h5py.File, name: str, place: int | slice, value: object) -> None:
    file["ragged/history"][name][place] = value


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, ShardManifest]:
    """Two shards of 7 samples; bags of 2, 2, 2, 2, 2, 2 and 1 ids."""
    manifest = write_ragged(tmp_path, samples=14, test_samples=0, rows_per_shard=7, weighted_samples=True)
    whole = draw_samples(1, 14, weighted_samples=True)
    lengths = np.array([2, 2, 2, 2, 2, 2, 1])
    history = RaggedColumn(lengths, np.arange(13, dtype=np.int32))
    part = part_of(whole, 7, 14)
    shard = write_shard(
        tmp_path / "train-00001.h5", 7, [replace(part, ragged={"history": history, "genres": part.ragged["genres"]})]
    )
    manifest = replace(manifest, train=(manifest.train[0], shard))
    save_manifest(tmp_path, manifest)
    return tmp_path, manifest


@pytest.mark.parametrize("problem", READ_DAMAGE)
def test_look_ups_that_cannot_be_are_named(small: tuple[Path, ShardManifest], problem: str) -> None:
    folder, manifest = small
    with h5py.File(folder / "train-00001.h5", "r+") as file:
        READ_DAMAGE[problem](file)
    with ClickShards(folder, manifest, "train") as shards:
        shards.read_look_ups(0, 7)
        with pytest.raises(DataError, match=rf"train-00001\.h5: {problem}"):
            shards.read_look_ups(5, 14)
        if "offsets" in problem:
            for read in (shards.read_lengths, shards.read_id_weights):
                with pytest.raises(DataError, match=problem):
                    read(5, 14)


def test_a_sample_is_named_by_its_place_in_the_file(small: tuple[Path, ShardManifest]) -> None:
    """Whatever the range begins with."""
    folder, manifest = small
    with h5py.File(folder / "train-00001.h5", "r+") as file:
        put(file, "values", 11, 77)
        file["sparse"][6, 1] = 50
        file["ragged/genres/weights"][-1] = np.inf
        file["weight"][5] = np.nan
        row = int(np.searchsorted(file["ragged/genres/offsets"][:], file["ragged/genres/offsets"][-1])) - 1
    with ClickShards(folder, manifest, "train") as shards:
        with pytest.raises(DataError, match=r"is 77, outside 0 \.\. 39 \(feature history, sample 5 of"):
            shards.read_look_ups(10, 13)
        with pytest.raises(DataError, match=r"is 50, outside 0 \.\. 39 \(feature item, sample 6 of"):
            shards.read_look_ups(13, 14)
        with pytest.raises(DataError, match=rf"a weight of feature genres in sample {row} is inf, no finite number"):
            shards.read_id_weights(8, 14)
        with pytest.raises(DataError, match=r"the weight of sample 5 is nan instead of a finite number, 0 or more"):
            shards.read_sample_weights(10, 13)


def test_a_weight_of_a_sample_below_zero(small: tuple[Path, ShardManifest]) -> None:
    folder, manifest = small
    with h5py.File(folder / "train-00001.h5", "r+") as file:
        file["weight"][0] = -0.5
    with (
        ClickShards(folder, manifest, "train") as shards,
        pytest.raises(DataError, match=r"the weight of sample 0 is -0\.5 instead of"),
    ):
        shards.read_sample_weights(0, 14)


def replaced(file: h5py.File, name: str, **kind: object) -> None:
    """Put something else in the place of a dataset."""
    found = file[name][:]
    del file[name]
    file.create_dataset(name, **({"data": found} | kind))


FILE_DAMAGE: dict[str, Damage] = {
    "it has no dataset ragged/history/offsets": lambda file: file["ragged"].move("history", "other"),
    "it has no dataset ragged/genres/weights": lambda file: file["ragged/genres"].pop("weights"),
    "it has no dataset weight": lambda file: file.pop("weight"),
    "it has no dataset ragged/history/values": lambda file: (
        file["ragged/history"].__setitem__("values", h5py.SoftLink("/ragged/genres/values"))
        if file["ragged/history"].pop("values", None) is None
        else None
    ),
    r"ragged/history/offsets is int64 \[7\] instead of int64 \[8\]": lambda file: file["ragged/history/offsets"].resize(
        (7,)
    ),
    r"ragged/history/values is int32 \[14\] instead of int32 \[13\]": lambda file: file["ragged/history/values"].resize(
        (14,)
    ),
    r"ragged/history/values is int64 \[13\] instead of int32": lambda file: replaced(
        file, "ragged/history/values", dtype="int64"
    ),
    "ragged/history/values is not stored in full": lambda file: replaced(
        file, "ragged/history/values", data=None, shape=(13,), dtype="int32", chunks=(5,)
    ),
    r"a chunk of ragged/history/values has 67108868 bytes; use 67108864 at most": lambda file: replaced(
        file, "ragged/history/values", maxshape=(None,), chunks=((1 << 24) + 1,), compression="lzf"
    ),
}


@pytest.mark.parametrize("problem", FILE_DAMAGE)
def test_datasets_that_the_shard_does_not_hold_are_refused(small: tuple[Path, ShardManifest], problem: str) -> None:
    folder, manifest = small
    path = folder / "train-00001.h5"
    with h5py.File(path, "r+") as file:
        FILE_DAMAGE[problem](file)
    resized = replace(manifest.train[1], bytes=path.stat().st_size)
    with pytest.raises(DataError, match=rf"train-00001\.h5: {problem}"):
        verify_shards(folder, replace(manifest, train=(manifest.train[0], resized)), "quick")


def test_a_group_in_another_file_is_refused(small: tuple[Path, ShardManifest]) -> None:
    folder, manifest = small
    with h5py.File(folder / "train-00001.h5", "r+") as file:
        del file["ragged"]
        file["ragged"] = h5py.ExternalLink("train-00000.h5", "/ragged")
    with (
        ClickShards(folder, manifest, "train") as shards,
        pytest.raises(DataError, match=r"train-00001\.h5: it has no dataset ragged/history/offsets"),
    ):
        shards.read_look_ups(7, 14)

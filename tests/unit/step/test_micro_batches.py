"""What a slice is computed with in several micro-batches is what it is computed with as one, in parts."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.ready_batch import split_positions
from bagpipe_hpc.step.slice_reader import SliceReader
from tests.ragged_shards import write_ragged

SIZES = np.asarray([3, 0, 5, 8], dtype=np.int32)
ORDER = np.random.default_rng(1).permutation(16).astype(np.int32)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """100 samples with bags and a sequence, in tables of two widths; batches of 16."""
    write_ragged(tmp_path)
    train = TrainConfig(batch_size=16, output=str(tmp_path / "run"))
    model = ModelConfig(embedding_dim=8, embedding_dim_of={"user": 3})
    return prepare_run(Config(data=DataConfig(path=str(tmp_path), block_rows=16), train=train, model=model))


def test_samples_and_look_ups_are_cut_alike(run: Run) -> None:
    rows = list(run.batches(run.schedule[0]))[1]
    with SliceReader(run, 0, 1) as reader:
        reader.start_segment(run.schedule[0])
        parts = reader.read_parts(1, ORDER, SIZES)
        alone = [reader.read(1, samples) for samples in np.split(ORDER, np.cumsum(SIZES)[:-1])]
    assert [len(part.labels) for part in parts] == SIZES.tolist()
    for part, one in zip(parts, alone, strict=True):
        np.testing.assert_array_equal(part.dense, one.dense)
        np.testing.assert_array_equal(part.labels, one.labels)
        for bags, wanted in zip(part.bags, one.bags, strict=True):
            assert (bags is None) == (wanted is None)
            if bags is not None and wanted is not None:
                np.testing.assert_array_equal(bags.counts, wanted.counts)
    for number, group in enumerate(run.groups):
        own = group.look_ups.of(rows)
        positions = own.take(ORDER).values.astype(np.int32)
        split = split_positions(positions, parts, number)
        for found, samples in zip(split, np.split(ORDER, np.cumsum(SIZES)[:-1]), strict=True):
            np.testing.assert_array_equal(found, own.take(samples).values)


def test_one_hot_look_ups_are_as_many_for_each_sample() -> None:
    from bagpipe_hpc.step.slice_reader import SliceSamples

    parts = [SliceSamples(np.zeros((n, 1), np.float32), np.zeros(n, np.float32), None, (None,)) for n in (2, 0, 3)]
    found = split_positions(np.arange(20, dtype=np.int32), parts, 0)
    assert [own.tolist() for own in found] == [list(range(8)), [], list(range(8, 20))]

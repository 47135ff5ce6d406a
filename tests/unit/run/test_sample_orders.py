"""A run's lanes, what they take of memory, and readers that go on with their blocks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.schema import Config, DataConfig, PolicyConfig, TrainConfig
from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.run_facts import TrainingRows
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.step.slice_reader import SliceReader
from bagpipe_hpc.storage.shards.entries import FeatureInfo, ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from tests.ragged_shards import write_ragged

TABLES = (TableInfo("C1", 5), TableInfo("C2", 5))
SHARDS = tuple(ShardInfo(f"train-{number}.h5", rows, 0, 1, "") for number, rows in enumerate((100, 30, 110)))
ONE_HOT = ShardManifest(1, "criteo", 3, TABLES, SHARDS, ())
SEGMENT = Segment(
    SegmentKind.TRAIN, 1, first_batch=0, batches=4, first_step=0, samples=240, batch_size=64, checkpoint=True
)
EVALUATION = replace(SEGMENT, kind=SegmentKind.EVALUATE)


def orders(manifest: ShardManifest = ONE_HOT, policy: str = "bagpipe", **settings: Any) -> SampleOrders:
    data = DataConfig(**({"block_rows": 8, "lanes": 3} | settings))
    return SampleOrders(Config(data=data, policy=PolicyConfig(policy), train=TrainConfig(batch_size=64)), manifest)


def test_training_is_in_lanes_and_evaluations_are_not() -> None:
    blocks = ShardBlocks(240, 8, 1, 1, shuffle=True, shard_rows=(100, 30, 110))
    assert orders().of(SEGMENT) == LaneOrder(blocks, 64, 3)
    assert orders().of(EVALUATION) == SampleOrder(240, 8, 1, 1, shuffle=False)
    assert orders(shuffle=False).of(SEGMENT) == SampleOrder(240, 8, 1, 1, shuffle=False)
    assert orders(lanes=1).of(SEGMENT) == SampleOrder(240, 8, 1, 1, shuffle=True)


def test_a_policys_own_order_has_no_lanes() -> None:
    own = orders(policy="tests.end_to_end.policies:Interleaved")
    assert not isinstance(own.of(SEGMENT), LaneOrder)
    assert own.lanes == 1
    assert "without effect" in own.remark(2)


class Salted(LookaheadPolicy):
    """As one that goes by `hash` of a text, which is another in each process."""

    salt = 0

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return replace(default, seed=default.seed + cls.salt)


def test_ranks_see_whether_they_order_samples_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = f"{__name__}:Salted"
    marks = []
    for salt in (0, 1, 1, 2):
        monkeypatch.setattr(Salted, "salt", salt)
        marks.append(orders(policy=policy, lanes=1).mark(SEGMENT))
    assert marks[1] == marks[2]
    assert len(set(marks)) == 3
    assert orders().mark(SEGMENT) == orders(lanes=1).mark(SEGMENT) == 0


class NoOrder(LookaheadPolicy):
    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> Any:  # noqa: ARG003
        return None


class OrderFails(LookaheadPolicy):
    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> Any:  # noqa: ARG003
        raise LookupError("no such thing")


class RepeatsOnceItHears(LookaheadPolicy):
    """From the first evaluation on it uses the sample 0 in the place of each other one."""

    @classmethod
    def hears(cls, settings: Any) -> bool:  # noqa: ARG003
        return True

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return (ZerosAlone if training.heard else Reversed)(default.rows, default.block_rows, 0, 0, shuffle=False)


class Reversed(SampleOrder):
    def inside_block(self, block: int) -> np.ndarray:
        return super().inside_block(block)[::-1].copy()


class ZerosAlone(SampleOrder):
    def inside_block(self, block: int) -> np.ndarray:
        return np.zeros_like(super().inside_block(block))


def test_what_a_policy_lays_out_behind_an_evaluation_is_looked_at_too() -> None:
    own = orders(policy=f"{__name__}:RepeatsOnceItHears")
    assert isinstance(own.of(SEGMENT), Reversed)
    with pytest.raises(BagpipeError, match=r"RepeatsOnceItHears': .*order"):
        own.of(replace(SEGMENT, heard=(Heard(0, 5, 0.5),)))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (NoOrder, "its order is a NoneType; give a SampleOrder or SectionOrder"),
        (OrderFails, r"order fails: LookupError: no such thing \(test_sample_orders\.py, line"),
    ],
)
def test_an_order_that_there_is_not_is_its_policys(kind: type, said: str) -> None:
    with pytest.raises(BagpipeError, match=rf"policy\.name = '{__name__}:{kind.__name__}': {said}"):
        orders(policy=f"{__name__}:{kind.__name__}").of(SEGMENT)


@pytest.mark.parametrize(
    ("settings", "lanes", "told"),
    [
        ({"lanes": 1}, 1, None),
        ({"lanes": 2}, 2, None),
        ({"lanes": 3}, 3, "data.lanes = 3; 2 trainers read 1.3 times as much as they need: take a multiple"),
        ({"lanes": 16}, 2, "data.lanes = 16: 2 of them are used; more training rows"),
        ({"lanes": 16, "block_rows": 4}, 4, "data.lanes = 16: 4 of them are used; more training rows"),
        ({"lanes": 9, "shuffle": False}, 1, "data.lanes = 9: without effect, since nothing is shuffled"),
    ],
)
def test_lanes_are_as_many_as_there_is_room_for(settings: dict[str, Any], lanes: int, told: str | None) -> None:
    """31 blocks of 8 rows, or 61 of 4: shards of 100, 30 and 110 rows."""
    own = orders(**settings)
    assert own.lanes == lanes
    assert own.remark(2).startswith(told) if told else own.remark(2) == ""


@pytest.mark.parametrize(
    ("block_rows", "batch_size", "lanes"), [(8, 64, 1), (4, 64, 1), (2, 64, 2), (1, 64, 4), (1, 3, 2), (1, 1, 1)]
)
def test_the_data_decide_how_many_lanes_there_are(block_rows: int, batch_size: int, lanes: int) -> None:
    """32 blocks each; a run whose data have room for one alone has the order of the blocks, as with `lanes = 1`."""
    data, train = DataConfig(block_rows=block_rows), TrainConfig(batch_size=batch_size)
    own = SampleOrders(Config(data=data, train=train), ONE_HOT)
    assert own.lanes == lanes
    assert isinstance(own.of(replace(SEGMENT, batch_size=batch_size)), LaneOrder) == (lanes > 1)
    assert f"together from {lanes} lanes" in own.remark(8) if lanes > 1 else own.remark(8) == ""


def test_open_blocks_have_a_limit_where_the_data_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test rows have no say: they may be others when a run goes on."""
    block_bytes = 1 * (2 * 4 + 8)
    monkeypatch.setattr("bagpipe_hpc.run.sample_orders._MOST_OPEN_BYTES", 3 * block_bytes)
    assert orders(lanes=0, block_rows=1).lanes == 2
    features = (FeatureInfo("C1", "C1"), FeatureInfo("C2", "C2", ragged=True, longest=9))
    train = tuple(replace(shard, values=(3 * shard.rows,)) for shard in SHARDS)
    test = (replace(train[0], values=(0,)),)
    ragged = replace(ONE_HOT, features=features, train=train, test=test)
    monkeypatch.setattr("bagpipe_hpc.run.sample_orders._MOST_OPEN_BYTES", 4 * (4 * 8 + 2 * 8 + 8) - 1)
    assert orders(ragged, lanes=0, block_rows=1).lanes == 2


@pytest.mark.parametrize(("trainers", "times"), [(1, ""), (8, ""), (3, "1.1"), (6, "1.2"), (32, "2.0")])
def test_trainers_that_read_more_than_they_need_are_told_of(trainers: int, times: str) -> None:
    """Of 16 lanes, of each of which a batch takes 4 samples: 6 slices cut 4 of them in two, 3 slices 2 of them."""
    manifest = replace(ONE_HOT, train=(ShardInfo("train-0.h5", 32 * 16, 0, 1, ""),))
    said = "batches are put together from 16 lanes of the data (data.lanes = 0)"
    more = f"; {trainers} trainers read {times} times as much as they need" * bool(times)
    assert orders(manifest, lanes=0, block_rows=1).remark(trainers) == said + more


def test_more_trainers_than_lanes_are_told_of() -> None:
    """Three lanes of 21 and 22 samples, and eight slices of 8: ten pieces."""
    assert orders(lanes=3).remark(8).startswith("data.lanes = 3; 8 trainers read 3.3 times as much as they need: ")
    assert "2 of them are used; 3 trainers read 2.0 times as much as they need; " in orders(lanes=16).remark(3)


def test_open_blocks_are_counted() -> None:
    """Of 8 samples, in 3 lanes, and one that is read."""
    own = orders(lanes=3)
    assert own.oracle_bytes() == (3 + 1) * 8 * (2 * 4 + 8)
    assert own.trainer_bytes(1) == (3 + 1) * 8 * 4 * (3 + 1)
    assert own.trainer_bytes(2) == (3 + 1) * 8 * 4 * (3 + 1)
    assert own.trainer_bytes(4) == (2 + 1) * 8 * 4 * (3 + 1)
    features = (FeatureInfo("C1", "C1"), FeatureInfo("C2", "C2", ragged=True, weighted=True, longest=9))
    shards = tuple(replace(shard, values=(3 * shard.rows,)) for shard in SHARDS)
    ragged = orders(replace(ONE_HOT, features=features, train=shards, weighted_samples=True), lanes=3)
    assert ragged.oracle_bytes() == (3 + 1) * 8 * (4 * 8 + 2 * 8 + 8)
    assert ragged.trainer_bytes(1) == (3 + 1) * 8 * (4 * (3 + 1 + 1) + 8 * 2 + 4 * 4)


def test_blocks_stay_open_between_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation or a checkpoint within an epoch has no block read again."""
    manifest = write_ragged(tmp_path, 3, 240, rows_per_shard=100)
    config = Config(data=DataConfig(path=str(tmp_path), block_rows=8, lanes=3), train=TrainConfig(batch_size=24))
    run = Run(config, manifest, ())
    whole = replace(SEGMENT, samples=240, batch_size=24, batches=10)
    reads: list[tuple[int, int]] = []
    read = ClickShards.read_dense

    def noted(shards: ClickShards, first: int, last: int) -> Any:
        reads.append((first, last))
        return read(shards, first, last)

    monkeypatch.setattr(ClickShards, "read_dense", noted)
    with SliceReader(run, 1, 3) as reader:
        reader.start_segment(whole)
        expected = [reader.read(batch).dense for batch in range(10)]
    at_once, reads[:] = list(reads), []
    found = []
    with SliceReader(run, 1, 3) as reader:
        for first in range(0, 10, 2):
            reader.start_segment(replace(whole, first_batch=first, batches=2))
            found += [reader.read(batch).dense for batch in range(2)]
            reader.start_segment(replace(EVALUATION, samples=3, batch_size=3, split="train"))
            reader.read(0)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    assert [bounds for bounds in reads if bounds[1] > 3 or bounds[0]] == [
        bounds for bounds in at_once if bounds[1] > 3 or bounds[0]
    ]

"""A run asks its policy for the order of samples, in one place; readers give what plans name."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.config.schema import Config, DataConfig, PolicyConfig, TrainConfig
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.sample_order import SampleOrder, require_each_once
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policy import TrainingRows
from bagpipe_hpc.run import sample_orders
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.slice_reader import GroupReader, SliceReader
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.end_to_end.policies import EvenFirst

SHARDS = ShardManifest(1, "criteo", 1, (TableInfo("C1", 5),), (), ())


class Half(LookaheadPolicy):
    """Leaves samples out, and says so."""

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return SampleOrder(default.rows // 2, default.block_rows, default.seed, default.epoch)


class FirstBlockAgain(SampleOrder):
    """Comes to the first block in the place of the second one, which is as long."""

    def blocks(self) -> np.ndarray:
        blocks = super().blocks()
        return np.where(blocks == 1, 0, blocks)


class Repeating(LookaheadPolicy):
    """Uses some samples twice and others not at all."""

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return FirstBlockAgain(default.rows, default.block_rows, default.seed, default.epoch)


def segment(kind: SegmentKind = SegmentKind.TRAIN) -> Segment:
    return Segment(kind, epoch=2, first_batch=1, batches=3, first_step=0, samples=40, batch_size=10, checkpoint=False)


def run_of(policy: str) -> Run:
    return Run(Config(data=DataConfig(path=str(Path()), block_rows=8), policy=PolicyConfig(policy)), SHARDS, ())


def test_the_policy_orders_the_samples() -> None:
    assert run_of("bagpipe").order(segment()) == SampleOrder(40, 8, 1, 2, shuffle=True)
    assert run_of("bagpipe").order(segment(SegmentKind.EVALUATE)) == SampleOrder(40, 8, 1, 2, shuffle=False)
    ordering = run_of("tests.end_to_end.policies:Interleaved")
    assert ordering.order(segment()) == EvenFirst(40, 8, 1, 2, shuffle=True)
    assert ordering.order(segment(SegmentKind.EVALUATE)) == SampleOrder(40, 8, 1, 2, shuffle=False)


def test_an_order_of_fewer_samples_is_refused() -> None:
    with pytest.raises(PlanError, match=r"policy\.name = '.*:Half': its order has 20 of 40 samples; use all"):
        run_of(f"{__name__}:Half").order(segment())


def test_an_order_that_repeats_samples_is_refused() -> None:
    """It has as many as there are."""
    told = r"policy\.name = '.*:Repeating': the order of 40 samples uses sample 0 several times; use each sample once"
    with pytest.raises(PlanError, match=told):
        run_of(f"{__name__}:Repeating").order(segment())


@dataclass(frozen=True)
class Listed(SampleOrder):
    """Keeps its blocks in an array, so that it has no hash."""

    listed: NDArray[np.int64] = field(default_factory=lambda: np.arange(5)[::-1])

    def blocks(self) -> NDArray[np.int64]:
        return self.listed


class Listing(LookaheadPolicy):
    """Orders blocks by a list."""

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return Listed(default.rows, default.block_rows, default.seed, default.epoch)


def test_an_order_of_its_own_is_looked_at_once_for_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it consists of, and however often a rank asks for it."""
    seen = []
    monkeypatch.setattr(
        sample_orders, "require_each_once", lambda order: (seen.append(order), require_each_once(order))
    )
    run = run_of(f"{__name__}:Listing")
    for epoch in (2, 3, 2, 3):
        assert run.order(replace(segment(), epoch=epoch)).blocks().tolist() == [4, 3, 2, 1, 0]
    assert [order.epoch for order in seen] == [2, 3]


@pytest.mark.parametrize("samples", [None, [3, 0, 9], [], [8, 10, 13, 19], [12, 17]])
def test_a_reader_gives_the_samples_of_a_plan(samples: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(40, dtype=np.float32)
    shards = SimpleNamespace(
        read_dense=lambda first, last: numbers[first:last, None],
        read_labels=lambda first, last: -numbers[first:last],
        close=lambda: None,
    )
    monkeypatch.setattr(Run, "shards", lambda *_: shards)
    run = run_of("bagpipe")
    order = run.order(segment())
    in_order = np.concatenate([order.block_range(block)[0] + order.inside_block(block) for block in order.blocks()])
    batch = in_order[20:]  # from the second of the segment on, which begins with the second of the epoch
    with SliceReader(run, 1, 3) as reader:
        reader.start_segment(segment())
        found = reader.read(1, None if samples is None else np.asarray(samples, dtype=np.int32))
    expected = (
        batch[slice(*slice_bounds(10, 3)[1:3])] if samples is None else batch[np.asarray(samples, dtype=np.int64)]
    )
    np.testing.assert_array_equal(found.dense[:, 0], expected)
    np.testing.assert_array_equal(found.labels, -expected)
    assert found.weights is None
    assert found.bags == (None,)


class Hearing(LookaheadPolicy):
    """Turns its blocks round when it has heard of a loss above 1."""

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        turns = any(one.log_loss > 1 for one in training.heard)
        return replace(default, seed=default.seed + 1) if turns else default


def test_a_reader_goes_by_what_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens its files anew where that has changed the order, and evaluations do not mind."""
    numbers, opened = np.arange(40, dtype=np.float32), []
    shards = SimpleNamespace(
        read_dense=lambda first, last: numbers[first:last, None],
        read_labels=lambda first, last: numbers[first:last],
        close=lambda: None,
    )
    monkeypatch.setattr(Run, "shards", lambda _, own: opened.append(own) or shards)
    run = run_of(f"{__name__}:Hearing")

    def numbers_of(own: Segment) -> list[int]:
        return np.concatenate(
            [run.order(own).block_range(b)[0] + run.order(own).inside_block(b) for b in run.order(own).blocks()]
        )[10:20].tolist()

    losses = [Heard(0, 1, loss) for loss in (0.5, 0.75, 2.0, 0.5)]
    segments = [replace(segment(), heard=tuple(losses[:count])) for count in range(5)]
    tests = [replace(own, kind=SegmentKind.EVALUATE) for own in segments]
    with SliceReader(run, 0, 1) as reader:
        for own in [one for pair in zip(segments, tests, strict=True) for one in pair]:
            reader.start_segment(own)
            assert reader.read(0).labels.tolist() == numbers_of(own)
    assert opened == [segments[0], tests[0], segments[3]]


@pytest.mark.parametrize("samples", [None, [3, 0, 9]])
def test_groups_are_those_of_the_same_samples(samples: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.arange(40 * 2).reshape(40, 2)
    monkeypatch.setattr(
        Run, "shards", lambda *_: nullcontext(SimpleNamespace(read_sparse=lambda first, last: ids[first:last]))
    )
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 100), TableInfo("C2", 100)), (), ())
    evaluation = segment(SegmentKind.EVALUATE)
    run = replace(run_of("bagpipe"), manifest=manifest)
    with GroupReader(run, 1, 3, evaluation) as reader:
        assert reader.read(0) is None
    grouped = replace(run, config=replace(run.config, train=TrainConfig(auc_group="C2")))
    with GroupReader(grouped, 1, 3, evaluation) as reader:
        own = reader.read(2, None if samples is None else np.asarray(samples, dtype=np.int32))
    assert own is not None
    chosen = range(34, 37) if samples is None else [30 + number for number in samples]
    assert own.tolist() == [2 * sample + 1 for sample in chosen]
    few = replace(grouped.config.train, exact_auc_samples=39)
    with GroupReader(replace(grouped, config=Config(train=few)), 1, 3, evaluation) as reader:
        assert reader.read(0) is None

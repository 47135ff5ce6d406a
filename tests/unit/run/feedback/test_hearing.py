"""What a run hears of its test rows reaches the order of the samples that are left; another run may replay it."""

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import Config, PolicyConfig, TrainConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policy import TrainingRows
from bagpipe_hpc.run.feedback.hearing import Hearing, find_replayed, place_of
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

TABLES = (4,)
ROWS = ShardInfo("train-00000.h5", 2560, 7, 1, "0" * 64)
SHARDS = ShardManifest(1, "criteo", 1, (TableInfo("C1", 4),), (ROWS,), ())
"""80 batches of 32, as the checkpoints have them that are written here."""
EARLIER = Heard(0, 5, 0.5), Heard(0, 80, 0.4)
REPLAYED = ""


class Hearer(LookaheadPolicy):
    """Says how much it has heard."""

    @classmethod
    def hears(cls, settings: Any) -> bool:  # noqa: ARG003
        return True

    @classmethod
    def replays(cls, settings: Any) -> str:  # noqa: ARG003
        return REPLAYED

    @classmethod
    def decision(cls, settings: Any, training: TrainingRows) -> str:  # noqa: ARG003
        return f"{len(training.heard)} heard, last {training.heard[-1].log_loss}"


def evaluation(epoch: int, step: int) -> Segment:
    kind, batches = SegmentKind.EVALUATE, 1
    return Segment(kind, epoch, 0, batches, step, 5, 32, checkpoint=False, is_judged=True, is_heard=True)


def run_of(*schedule: Segment, replayed: tuple[Heard, ...] = ()) -> Run:
    config = Config(policy=PolicyConfig(f"{__name__}:Hearer"), train=TrainConfig(batch_size=32))
    return Run(config, SHARDS, schedule, replayed=replayed)


def test_each_segment_is_told_what_came_before_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second = evaluation(0, 10), evaluation(1, 90)
    training = replace(first, kind=SegmentKind.TRAIN, is_heard=False)
    hearing = Hearing(run_of(first, training, second), speaks=True)
    assert hearing.told(first).heard == ()
    with caplog.at_level(logging.INFO):
        hearing.hear(first, 0.5)
    assert "policy.name: behind step 10: 1 heard, last 0.5" in caplog.text
    assert hearing.told(training).heard == (Heard(0, 10, 0.5),)
    hearing.hear(second, 0.25)
    assert hearing.told(training).heard == (Heard(0, 10, 0.5), Heard(1, 10, 0.25))


def test_an_evaluation_that_is_made_once_more_takes_the_place_of_the_first() -> None:
    """Where a run goes on from a checkpoint of its step."""
    segments = [replace(evaluation(0, 5), heard=EARLIER[:1]), replace(evaluation(0, 10), heard=EARLIER[:1])]
    hearing = Hearing(run_of(*segments))
    assert hearing.now == EARLIER[:1]
    hearing.hear(segments[0], 0.75)
    assert hearing.now == (Heard(0, 5, 0.75),)


def test_what_is_no_number_is_not_heard() -> None:
    hearing = Hearing(run_of(evaluation(0, 10)))
    hearing.hear(evaluation(0, 10), math.nan)
    hearing.hear(evaluation(0, 10), math.inf)
    assert hearing.now == ()


def test_the_end_of_an_epoch_belongs_to_it() -> None:
    assert place_of(run_of(), evaluation(0, 80)) == (0, 80)
    assert place_of(run_of(), evaluation(1, 81)) == (1, 1)


def test_a_run_that_replays_hears_another_ones_losses() -> None:
    hearing = Hearing(run_of(evaluation(0, 5), replayed=EARLIER))
    hearing.hear(evaluation(0, 5), 0.9)
    assert hearing.now == EARLIER[:1]


def test_what_is_replayed_is_looked_at_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"train_samples": 2560, "batch_size": 32, "training_data": SHARDS.digest("train"), "heard": EARLIER}
    for name, other in {"same": {}, "rows": {"training_data": "1" * 64}, "batches": {"batch_size": 16}}.items():
        written = facts | other
        epochs = divmod(100, 2560 // int(str(written["batch_size"])))
        written |= {"epoch": epochs[0], "epoch_step": epochs[1]}
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, **written)

    def found(folder: str, *schedule: Segment) -> tuple[Heard, ...]:
        monkeypatch.setattr(f"{__name__}.REPLAYED", str(tmp_path / folder))
        return find_replayed(run_of(*schedule))

    own = evaluation(0, 5), evaluation(0, 80)
    assert found("same", *own) == EARLIER
    assert found("same", replace(own[0], is_heard=False)) == ()
    for folder, schedule, problem in (
        ("rows", own, "is of other training rows"),
        ("batches", own, r"has train\.batch_size = 16, and this run 32"),
        ("same", (*own, evaluation(1, 85)), "has heard no evaluation behind batch 5 of epoch 1"),
    ):
        with pytest.raises(SettingError, match=rf"policy\.replay = '.*{folder}': .*{problem}; name a run"):
            found(folder, *schedule)
    with pytest.raises(CheckpointError):
        found("none", *own)
    monkeypatch.setattr(f"{__name__}.REPLAYED", "")
    assert find_replayed(run_of(*own)) == ()

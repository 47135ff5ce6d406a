"""TensorBoard reads what the run tells; without its package the setting is refused."""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.telemetry.records import tensorboard_record
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.records.tensorboard_record import TensorBoardRecord
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

INTERVAL = StepStats(steps=5, samples=640, total_s=2.0, wait_rows_s=0.5, unique_rows=200, fetched_rows=20)
QUALITY = Evaluation(7, 0.75, 0.0, 0.25, 0.5, 0.875, None)
WITH_TENSORBOARD = pytest.mark.skipif(
    find_spec("tensorboard") is None and os.environ.get("CI") != "true",
    reason="tensorboard is not installed: make setup",
)


def test_without_the_package_it_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_record, "find_spec", lambda _: None)
    config = Config(train=TrainConfig(output=str(tmp_path / "run"), tensorboard=True))
    with pytest.raises(ConfigError, match=r"train\.tensorboard = True: .* pip install tensorboard"):
        Training(config).check()
    assert list(tmp_path.iterdir()) == []


def tell_everything(record: Record, folder: Path) -> None:
    with record:
        record.resumed(3, folder)
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), 0.5, {"rows_lr": 0.125})
        record.scored(1, 2)
        record.evaluation(5, 0, {"click": QUALITY}, 1.5)
        record.saving(5)
        directory = write_checkpoint(folder, sample_records((4,), 2), (4,), step=5)
        record.checkpoint(load_checkpoint(directory).manifest, directory, 0.5, 2.5)
        record.prediction(7, 1.0)
        record.summary([], INTERVAL, {})
        record.stopped()


def told_to(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by their names, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@WITH_TENSORBOARD
@pytest.mark.filterwarnings("default")
def test_a_run_that_goes_on_takes_back_what_it_did_not_keep(tmp_path: Path) -> None:
    """It goes on from step 5; what was told of steps 6 to 9 before it was killed is of steps that it does anew."""
    for steps_done, losses in ((0, {3: 0.5, 5: 0.25, 9: 0.75}), (5, {7: 0.125, 9: 1.5})):
        with TensorBoardRecord(tmp_path, steps_done, has_cache=True) as record:
            for step, loss in losses.items():
                record.progress(step, 0, TrainerSteps.of([StepStats()]), loss)
    assert told_to(tmp_path)["train/loss"] == [(3, 0.5), (5, 0.25), (7, 0.125), (9, 1.5)]


@WITH_TENSORBOARD
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("evaluated_first", "kept", "told"),
    [
        ({7}, (), [0.875]),  # as it is made now
        (set(), (), [0.75]),
        ({5}, (QUALITY,), [0.75, 0.875, 0.875]),  # scalars do not tell which one, on fewer test rows, is made again
    ],
)
def test_an_evaluation_that_is_made_again_is_told_once(
    tmp_path: Path, evaluated_first: set[int], kept: tuple[Evaluation, ...], told: list[float]
) -> None:
    """Beside it stays whatever else was told of the checkpoint's step; the run goes on from it twice."""
    config = Config(train=TrainConfig(output=str(tmp_path), tensorboard=True))
    again = {"steps_done": 5, "evaluated_first": evaluated_first, "kept_evaluations": kept}
    lives: list[dict[str, Any]] = [{"steps_done": 0, "evaluated_first": set(), "kept_evaluations": ()}, again, again]
    for life, facts in enumerate(lives):
        run: Any = SimpleNamespace(config=config, total_steps=9, **facts)
        with Training(config).record(run, has_cache=True) as record:
            for step in range(facts["steps_done"] + 1, 6 + life):
                record.progress(step, 0, TrainerSteps.of([INTERVAL]), step + life / 4, {"rows_lr": 0.125})
            if life == 0 or evaluated_first:
                auc = 0.75 if life == 0 else 0.875
                record.evaluation(5, 0, {"click": replace(QUALITY, auc=auc)}, 1.5)
        written = max((tmp_path / "tensorboard").iterdir())
        with written.open("ab") as file:
            file.write(b"cut")  # as it ends where a rank is killed
        written.rename(written.with_name(f"events.out.tfevents.0{life}"))  # the lives are of one second
    found = told_to(tmp_path / "tensorboard")
    assert found["test/click/auc"] == [(5, auc) for auc in told]
    assert found["train/loss"] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (6, 6.5), (7, 7.5)]
    assert found["rows/hit_rate"] == [(step, pytest.approx(0.9)) for step in range(1, 8)]


@WITH_TENSORBOARD
@pytest.mark.filterwarnings("default")
def test_a_run_may_go_on_where_nothing_was_told(tmp_path: Path) -> None:
    """From a checkpoint of another folder, or of a run without event files."""
    with TensorBoardRecord(tmp_path / "events", 5, has_cache=True, is_evaluated_again=True) as record:
        record.evaluation(5, 0, {"click": QUALITY}, 1.5)
    assert told_to(tmp_path / "events")["test/click/auc"] == [(5, 0.75)]


@WITH_TENSORBOARD
@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_what_was_told(tmp_path: Path) -> None:
    tell_everything(TensorBoardRecord(tmp_path / "events", 3, has_cache=True), tmp_path)
    told = told_to(tmp_path / "events")
    assert told["train/loss"] == [(5, 0.5)]
    assert told["train/rows_lr"] == [(5, 0.125)]
    assert told["speed/samples_per_s"] == [(5, 320.0)]
    assert told["rows/hit_rate"] == [(5, pytest.approx(0.9))]
    assert told["test/click/auc"] == [(5, 0.75)]
    assert told["checkpoint/stood_still_s"] == [(5, 0.5)]

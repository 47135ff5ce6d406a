"""A policy is shown the rows that it watches; what it keeps is on the disk, and a run that goes on finds it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import NoSettings, SettingError
from bagpipe_hpc.config.schema import Config, PolicyConfig, TrainConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policy import RunFacts, Sight, TrainingRows, WatchedRows
from bagpipe_hpc.run.feedback.watch import Watch, require_seen, watched_rows
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.policy_memory import load_memory, memory_path, save_memory

ROWS = np.asarray([2, 5, 6])
BEFORE = (3, 7)
SEGMENT = Segment(SegmentKind.TRAIN, 1, 0, 3, first_step=10, samples=100, batch_size=10, checkpoint=False)
"""Of the second epoch, each of which has ten batches."""


class Watching(LookaheadPolicy):
    """Keeps the first weight of each row."""

    @classmethod
    def watched(cls, settings: Any, training: TrainingRows) -> WatchedRows:  # noqa: ARG003
        return WatchedRows(ROWS, BEFORE)

    def see(self, sight: Sight) -> dict[str, NDArray[Any]]:
        self.sight = sight
        return {"kept": sight.weights[:, 0]}

    def restore(self, kept: Mapping[str, NDArray[Any]]) -> None:
        self.kept = kept["kept"]


def run_of(output: Path, *schedule: Segment, start: Path | None = None, policy: str = f"{__name__}:Watching") -> Run:
    run = SimpleNamespace(
        trains=True,
        config=Config(train=TrainConfig(output=str(output)), policy=PolicyConfig(policy)),
        sample_orders=SimpleNamespace(training=TrainingRows()),
        start=None if start is None else SimpleNamespace(output=start),
        schedule=schedule,
        batches=lambda segment: iter([Bags.one_hot(np.asarray([[segment.first_batch]]))]),
    )
    return cast(Run, run)


def policy() -> Watching:
    return Watching(NoSettings(), RunFacts(np.asarray([0, 9]), 1, 10))


def test_rows_are_shown_and_what_is_kept_is_written(tmp_path: Path) -> None:
    own, run = policy(), run_of(tmp_path)
    watch = Watch(run, own)
    assert watch.rows.tolist() == watched_rows(run).tolist() == ROWS.tolist()
    weights = np.random.default_rng(1).random((3, 4), dtype=np.float32)
    watch.see(SEGMENT, weights)
    assert (own.sight.epoch, own.sight.batch, own.sight.step) == (1, 3, 13)
    np.testing.assert_array_equal(own.sight.weights, weights)
    assert own.sight.look_ups(8).values.tolist() == [8]
    np.testing.assert_array_equal(load_memory(memory_path(tmp_path, 13, 17))["kept"], weights[:, 0])
    last = replace(SEGMENT, first_batch=3, batches=4, first_step=13)
    watch.see(last, weights)
    assert {*(tmp_path / "policy").iterdir()} == {memory_path(tmp_path, 13, 17), memory_path(tmp_path, 17)}


@pytest.mark.parametrize(("batch", "step"), [(0, None), (2, None), (3, 13), (6, 13), (7, 17), (9, 17)])
def test_a_run_that_goes_on_finds_the_last_of_its_epoch(tmp_path: Path, batch: int, step: int | None) -> None:
    """In the folder of the run that wrote the checkpoint; it is copied to its own."""
    for number in (3, 13):
        save_memory(_path(tmp_path / "earlier", number, number + 4), {"kept": np.asarray([number])})
        save_memory(_path(tmp_path / "earlier", number + 4), {"kept": np.asarray([number + 4])})
    following = replace(SEGMENT, first_batch=batch, batches=1, first_step=10 + batch)
    evaluation = replace(following, kind=SegmentKind.EVALUATE, first_batch=0)
    (tmp_path / "own").mkdir()
    run, own = run_of(tmp_path / "own", evaluation, following, start=tmp_path / "earlier"), policy()
    Watch(run, own)
    if step is None:
        assert not hasattr(own, "kept")
        return
    assert own.kept.tolist() == [step]
    until = 17 if step == 13 else None
    copied = memory_path(tmp_path / "own", step, until)
    assert load_memory(copied)["kept"].tolist() == [step]
    missing = _path(tmp_path / "earlier", step, until)
    as_once = missing.rename(_path(tmp_path / "earlier", step))  # older versions called each so
    copied.unlink()
    Watch(run, own)
    assert load_memory(copied)["kept"].tolist() == own.kept.tolist() == [step]
    as_once.unlink()
    with pytest.raises(CheckpointError, match=rf"{missing}: is missing: what policy\.name = .*Watching' keeps"):
        require_seen(run)


def _path(output: Path, step: int, until: int | None = None) -> Path:
    output.mkdir(exist_ok=True)
    return memory_path(output, step, until)


class Replaying(Watching):
    """Takes over what another run has decided."""

    @classmethod
    def replays(cls, settings: Any) -> str:  # noqa: ARG003
        return "other"


def test_what_is_to_be_replayed_is_there_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept last in each epoch, of those that are left to train."""
    monkeypatch.chdir(tmp_path)
    last = replace(SEGMENT, first_batch=3, batches=4, first_step=13, shows_rows=True)
    schedule = [replace(SEGMENT, shows_rows=True), last, replace(last, epoch=2, first_step=23)]
    run = run_of(tmp_path, *schedule, policy=f"{__name__}:Replaying")
    save_memory(_path(tmp_path / "other", 17), {"kept": ROWS})
    with pytest.raises(SettingError, match=r"policy\.replay = 'other': other/policy/step-00000027\.h5 is missing"):
        require_seen(run)
    save_memory(_path(tmp_path / "other", 27), {"kept": ROWS})
    require_seen(run)
    require_seen(run_of(tmp_path, *schedule))


def test_others_watch_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path, replace(SEGMENT, first_batch=5), start=tmp_path, policy="bagpipe")
    require_seen(run)
    assert watched_rows(run).size == 0

"""The window of a run and its cache are chosen on batches, before anything is trained; what cannot be is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.schema import (
    CacheConfig,
    Config,
    DebugConfig,
    KernelsConfig,
    LookaheadConfig,
    OptimizerConfig,
    PolicyConfig,
)
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning import capacity
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation import window_choice
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from tests.unit.preparation.test_prepare import TEST_ROWS, write_clicks

needs_native = pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")


def test_repeated_evaluations_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows in the same order need the same cache; those of other lengths do not."""
    config = write_clicks(tmp_path)
    often = replace(config.train, epochs=3, evaluate_every_steps=1, evaluate_samples=4)
    run = prepare_run(replace(config, train=often))
    measured: list[Segment] = []
    batches = Run.batches
    monkeypatch.setattr(
        Run, "batches", lambda run, segment, threads: measured.append(segment) or batches(run, segment, threads)
    )
    choose_window(run, trainers=2)
    assert sum(not segment.is_training for segment in run.schedule) == 15
    assert [segment.samples for segment in measured if not segment.is_training] == [4, TEST_ROWS]
    assert [segment for segment in measured if segment.is_training] == [s for s in run.schedule if s.is_training]


def test_the_window_is_cut_to_the_cache(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    wanted = choose_window(prepare_run(config), trainers=2)
    assert wanted.window == Window(6, 2)
    small = replace(config, cache=CacheConfig(wanted.total_rows - 1))
    fitted = choose_window(prepare_run(small), trainers=2)
    assert fitted.total_rows < wanted.total_rows
    assert fitted.window.lookahead < 6


ADDS = PolicyConfig("tests.end_to_end.added_changes:AddedChanges")


def test_a_policy_that_adds_takes_rows_without_state(tmp_path: Path) -> None:
    config = replace(write_clicks(tmp_path), policy=ADDS, optimizer=OptimizerConfig(rows="sgd"))
    assert choose_window(prepare_run(config), trainers=2).window == Window(1, 1)
    stateful = replace(config, optimizer=OptimizerConfig(rows="adam"))
    with pytest.raises(ConfigError, match=r":AddedChanges': .* optimizer\.rows = 'adam' keeps a state.*=sgd"):
        choose_window(prepare_run(stateful), trainers=2)
    verified = replace(config, debug=DebugConfig(verify_rows=True))
    with pytest.raises(ConfigError, match=r":AddedChanges': .* leave out debug\.verify_rows = true"):
        choose_window(prepare_run(verified), trainers=2)
    decaying = replace(config, optimizer=OptimizerConfig(rows="sgd", rows_weight_decay=0.5))
    with pytest.raises(
        ConfigError, match=r":AddedChanges': .*, and optimizer\.rows_weight_decay = 0\.5 is once a step"
    ):
        choose_window(prepare_run(decaying), trainers=2)
    clipped = replace(config, optimizer=OptimizerConfig(rows="sgd", rows_clip_norm=0.5))
    with pytest.raises(ConfigError, match=r":AddedChanges': .*, and optimizer\.rows_clip_norm = 0\.5 is of a row's"):
        choose_window(prepare_run(clipped), trainers=2)


def test_a_planner_without_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare_run(write_clicks(tmp_path))
    least = job.policy(2).least_bytes(job.window, job.longest_segment)
    monkeypatch.setattr(window_choice, "free_bytes", lambda: least)
    with pytest.raises(CapacityError, match=r"lookahead\.batches = 6: with 1 batch read, the planner takes"):
        choose_window(job, trainers=2)


@pytest.mark.parametrize(
    ("policy", "kernels", "cure"),
    [
        ("bagpipe", {"backend": "reference"}, "a shorter window, or"),
        pytest.param("bagpipe", {}, "kernels.planner_state=sparse, a shorter", marks=needs_native),
        pytest.param("bagpipe", {"planner_state": "sparse"}, "a shorter window, or", marks=needs_native),
        ("herald", {}, "a shorter window, or"),
    ],
)
def test_a_planner_that_takes_too_much_for_sure_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, kernels: dict[str, str], cure: str
) -> None:
    config = replace(write_clicks(tmp_path), kernels=KernelsConfig(**kernels), policy=PolicyConfig(policy))
    job = prepare_run(config)
    monkeypatch.setattr(window_choice, "free_bytes", lambda: 1)
    monkeypatch.delattr(RunPolicy, "planner")
    sizes = r"needs 0\.0 GB, and 0\.0 GB are free here"
    with pytest.raises(CapacityError, match=rf"planner of 39 rows {sizes}; use {re.escape(cure)}"):
        choose_window(job, trainers=2)


def test_a_cache_below_one_batch_is_refused(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    tiny = replace(config, cache=CacheConfig(3))
    with pytest.raises(CapacityError, match=r"cache\.rows = 3: a single batch needs"):
        choose_window(prepare_run(tiny), trainers=2)


def chosen_segments(config: Config, monkeypatch: pytest.MonkeyPatch) -> tuple[CacheNeed, list[Segment]]:
    """What the choice of a window gives, and the segments that it reads."""
    run, measured, batches = prepare_run(config), list[Segment](), Run.batches
    monkeypatch.setattr(
        Run, "batches", lambda run, segment, threads: measured.append(segment) or batches(run, segment, threads)
    )
    need = choose_window(run, trainers=2)
    monkeypatch.setattr(Run, "batches", batches)
    return need, measured


def test_a_long_run_is_measured_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_LEAST_BEGINNING", 1)
    config = replace(write_clicks(tmp_path), lookahead=LookaheadConfig(2, 1))  # begins with 4 of 5 batches an epoch
    long = replace(config, train=replace(config.train, epochs=4))
    need, read = chosen_segments(long, monkeypatch)
    assert not need.is_exact
    assert [(segment.kind, segment.epoch, segment.batches) for segment in read[:1]] == [(SegmentKind.TRAIN, 0, 4)]
    assert not any(segment.is_training for segment in read[1:])
    exact, all_read = chosen_segments(replace(long, cache=CacheConfig(measure="all")), monkeypatch)
    assert exact.is_exact
    assert sum(segment.batches for segment in all_read if segment.is_training) == 20
    assert need.total_rows >= exact.total_rows  # by chance, of these samples
    short, _ = chosen_segments(config, monkeypatch)
    assert short.is_exact
    few, _ = chosen_segments(replace(long, lookahead=LookaheadConfig(3, 2)), monkeypatch)
    assert few.is_exact, "fetches cannot come later"
    limited, all_read = chosen_segments(replace(long, cache=CacheConfig(need.total_rows - 1)), monkeypatch)
    assert limited.is_exact
    assert len(all_read) > len(read)


def test_a_policy_that_fetches_nothing_late_is_measured_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_LEAST_BEGINNING", 1)
    monkeypatch.setattr(LookaheadPolicy, "fetches_late", False)
    config = replace(write_clicks(tmp_path), lookahead=LookaheadConfig(2, 1))
    need, _ = chosen_segments(replace(config, train=replace(config.train, epochs=4)), monkeypatch)
    assert need.is_exact


def test_the_beginning_goes_on_in_the_next_segment_of_training() -> None:
    training = [replace(_SEGMENT, first_batch=3 * n, batches=3) for n in range(4)]
    evaluations = [replace(_SEGMENT, kind=SegmentKind.EVALUATE, samples=n, batches=n) for n in (2, 9)]
    segments = [training[0], evaluations[0], training[1], evaluations[1], *training[2:]]
    assert window_choice._beginnings(segments, 7) == [
        *(training[0], evaluations[0], training[1], replace(evaluations[1], batches=7)),
        replace(training[2], batches=1),
    ]


_SEGMENT = Segment(SegmentKind.TRAIN, 0, 0, 3, 0, samples=100, batch_size=5, checkpoint=False)

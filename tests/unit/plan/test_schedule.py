"""Every rank derives the same run: all steps once and in order, cut only where a checkpoint or an evaluation is due."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.config.schema import TrainConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.schedule import Segment, build_schedule, training_batch_sizes, without_effect

settings_of_a_run = st.builds(
    TrainConfig,
    batch_size=st.integers(1, 12),
    epochs=st.integers(1, 4),
    max_steps=st.integers(0, 40),
    checkpoint_every_steps=st.integers(0, 9),
    checkpoint_at_end=st.booleans(),
    evaluate=st.booleans(),
    evaluate_every_steps=st.integers(0, 9),
    evaluate_samples=st.integers(0, 20),
)
compared_runs = st.builds(
    TrainConfig,
    batch_size=st.integers(1, 12),
    epochs=st.integers(1, 3),
    max_steps=st.integers(0, 40),
    evaluate_every_steps=st.integers(0, 9),
    evaluate_samples=st.integers(0, 20),
    keep_best=st.booleans(),
    stop_after=st.integers(0, 2),
)


def plain_steps(config: TrainConfig, samples: int) -> list[tuple[int, int, int]]:
    """(epoch, first sample, one after the last) of every step, as nested loops give them."""
    steps = [
        (epoch, first, min(first + config.batch_size, samples))
        for epoch in range(config.epochs)
        for first in range(0, samples, config.batch_size)
    ]
    return steps[: config.max_steps or None]


def training(schedule: list[Segment]) -> list[Segment]:
    return [segment for segment in schedule if segment.is_training]


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30))
def test_the_segments_are_the_run(config: TrainConfig, train_samples: int, test_samples: int) -> None:
    schedule = training(build_schedule(config, train_samples, test_samples))
    found = [(segment.epoch, *segment.sample_range(batch)) for segment in schedule for batch in range(segment.batches)]
    assert found == plain_steps(config, train_samples)


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30), st.sets(st.integers(1, 20), max_size=3))
def test_each_epoch_ends_segments_where_the_policy_is_shown_rows(
    config: TrainConfig, train_samples: int, test_samples: int, before: set[int]
) -> None:
    """No cut comes without that, none is left out, and behind the last step of a run or an epoch there is nothing."""
    plain = training(build_schedule(config, train_samples, test_samples))
    cut = training(build_schedule(config, train_samples, test_samples, shown_before=sorted(before)))
    ends = [(segment.epoch, segment.first_batch + segment.batches) for segment in cut]
    shown = {end for segment, end in zip(cut, ends, strict=True) if segment.shows_rows}
    steps = len(plain_steps(config, train_samples))
    batches = -(-train_samples // config.batch_size)
    places = {divmod(step, batches) for step in range(1, steps)}
    assert shown == {(epoch, batch) for epoch, batch in places if batch in before}
    assert {segment.last_step for segment in cut} == {segment.last_step for segment in plain} | {
        epoch * batches + batch for epoch, batch in shown
    }
    assert [step for segment in cut for step in range(segment.first_step, segment.last_step)] == list(range(steps))


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30))
def test_steps_count_through(config: TrainConfig, train_samples: int, test_samples: int) -> None:
    done = 0
    for segment in build_schedule(config, train_samples, test_samples):
        assert segment.first_step == done
        done = segment.last_step
        assert segment.batches > 0
    assert done == len(plain_steps(config, train_samples))


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30))
def test_checkpoints_come_every_so_many_steps_and_at_the_end_where_it_is_wanted(
    config: TrainConfig, train_samples: int, test_samples: int
) -> None:
    schedule = build_schedule(config, train_samples, test_samples)
    total = len(plain_steps(config, train_samples))
    every = config.checkpoint_every_steps or total + 1
    due = sorted({*range(every, total + 1, every), *([total] if config.checkpoint_at_end else [])})
    assert [segment.last_step for segment in schedule if segment.checkpoint] == due


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30))
def test_evaluations_follow_each_epoch_the_end_and_every_so_many_steps(
    config: TrainConfig, train_samples: int, test_samples: int
) -> None:
    """Within an epoch they may have fewer samples, the first ones."""
    schedule = build_schedule(config, train_samples, test_samples)
    steps = plain_steps(config, train_samples)
    last_of_epoch = [
        number for number, step in enumerate(steps, 1) if number == len(steps) or steps[number][0] > step[0]
    ]
    every = config.evaluate_every_steps
    due = {*last_of_epoch, *(range(every, len(steps) + 1, every) if every else [])}
    wanted = sorted(due) if config.evaluate and test_samples else []
    evaluations = [segment for segment in schedule if not segment.is_training]
    assert [segment.first_step for segment in evaluations] == wanted
    for segment in evaluations:
        assert segment.epoch == steps[segment.first_step - 1][0]
        ranges = [segment.sample_range(batch) for batch in range(segment.batches)]
        is_bounded = segment.first_step not in last_of_epoch and 0 < config.evaluate_samples < test_samples
        samples = config.evaluate_samples if is_bounded else test_samples
        assert [first for first, _ in ranges] == list(range(0, samples, config.batch_size))
        assert sum(last - first for first, last in ranges) == segment.samples == samples


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30))
def test_each_step_trains_its_samples(config: TrainConfig, train_samples: int, test_samples: int) -> None:
    steps = plain_steps(config, train_samples)
    sizes = [last - first for _, first, last in steps]
    assert training_batch_sizes(build_schedule(config, train_samples, test_samples)) == sizes


@given(settings_of_a_run, st.integers(1, 60))
def test_nothing_is_cut_without_need(config: TrainConfig, train_samples: int) -> None:
    """Each cut empties the caches, so there are no more than epochs and checkpoints ask for."""
    schedule = training(build_schedule(config, train_samples, 0))
    for segment, following in pairwise(schedule):
        assert segment.checkpoint or segment.epoch != following.epoch


def test_a_run_by_hand() -> None:
    """10 samples in batches of 4, two epochs, a checkpoint every 2 steps, stopped after 5 of 6 steps."""
    config = TrainConfig(batch_size=4, epochs=2, max_steps=5, checkpoint_every_steps=2)
    found = [
        (segment.kind.value, segment.epoch, segment.first_batch, segment.batches, segment.checkpoint)
        for segment in build_schedule(config, 10, 3)
    ]
    assert found == [
        ("train", 0, 0, 2, True),
        ("train", 0, 2, 1, False),
        ("evaluate", 0, 0, 1, False),
        ("train", 1, 0, 1, True),
        ("train", 1, 1, 1, True),
        ("evaluate", 1, 0, 1, False),
    ]


@given(compared_runs, st.integers(1, 60), st.integers(1, 30))
def test_compared_evaluations_are_of_the_same_samples(
    config: TrainConfig, train_samples: int, test_samples: int
) -> None:
    """Each evaluated step has one of them, the last of its step; after an epoch all samples are evaluated, too."""
    schedule = build_schedule(config, train_samples, test_samples)
    evaluations = [segment for segment in schedule if not segment.is_training]
    judged = [segment for segment in evaluations if segment.is_judged]
    assert len({segment.samples for segment in judged}) <= 1
    if config.keep_best or config.stop_after:
        last_of_step = {segment.first_step: segment for segment in evaluations}
        assert judged == list(last_of_step.values())
    last_step = schedule[-1].last_step
    for segment in evaluations:
        assert segment.may_end == (segment.is_judged and config.stop_after > 0 and segment.first_step < last_step)
        if segment.may_end:
            assert schedule[schedule.index(segment) + 1].is_training
    whole = [segment.first_step for segment in evaluations if segment.samples == test_samples]
    epoch_ends = {segment.last_step for segment in training(schedule) if segment is training(schedule)[-1]}
    assert epoch_ends <= set(whole)


@pytest.mark.parametrize(
    ("settings", "test_samples", "problem"),
    [
        ({"keep_best": True}, 0, "train.keep_best = true: the data has no test rows to evaluate on"),
        ({"stop_after": 3}, 0, "train.stop_after = 3: the data has no test rows to evaluate on"),
        (
            {"stop_after": 3, "best_by": "group_auc", "auc_group": "C1", "exact_auc_samples": 4},
            5,
            "train.best_by = 'group_auc': evaluations of 5 test rows have no AUC by group",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(settings: dict[str, int], test_samples: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        build_schedule(TrainConfig(batch_size=5, **settings), 10, test_samples)  # type: ignore[arg-type]


def test_a_bounded_evaluation_may_have_an_area_by_group() -> None:
    few = {"evaluate_every_steps": 2, "evaluate_samples": 4, "exact_auc_samples": 4}
    config = TrainConfig(batch_size=5, stop_after=1, best_by="group_auc", auc_group="C1", **few)  # type: ignore[arg-type]
    assert [segment.samples for segment in build_schedule(config, 10, 5) if segment.is_judged] == [4]


def test_evaluations_within_an_epoch_by_hand() -> None:
    """10 samples in batches of 4, evaluated every 2 steps on the first of 3 rows, after an epoch on all."""
    config = TrainConfig(batch_size=4, epochs=2, evaluate_every_steps=2, evaluate_samples=1)
    found = [(segment.kind.value, segment.last_step, segment.samples) for segment in build_schedule(config, 10, 3)]
    steps = [("train", 2, 10), ("evaluate", 2, 1), ("train", 3, 10), ("evaluate", 3, 3), ("train", 4, 10)]
    assert found == [*steps, ("evaluate", 4, 1), ("train", 6, 10), ("evaluate", 6, 3)]


def test_without_training_rows_there_is_no_run() -> None:
    with pytest.raises(ConfigError, match=r"no training rows.*--test-fraction"):
        build_schedule(TrainConfig(), 0, 100)


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30), st.data())
def test_a_resumed_run_has_what_came_after_the_checkpoint(
    config: TrainConfig, train_samples: int, test_samples: int, data: st.DataObject
) -> None:
    """With the same settings: every segment after the checkpointed one, unchanged."""
    schedule = build_schedule(config, train_samples, test_samples)
    saved = [number for number, segment in enumerate(schedule) if segment.is_training]
    number = data.draw(st.sampled_from(saved))
    resumed = build_schedule(config, train_samples, test_samples, schedule[number].last_step)
    assert resumed == schedule[number + 1 :]


def test_a_checkpoint_beyond_the_run_is_refused() -> None:
    config = TrainConfig(batch_size=5, epochs=2)
    with pytest.raises(ConfigError, match=r"of step 5, and the run ends with step 4: set a larger train\.epochs"):
        build_schedule(config, 10, 0, steps_done=5)


@pytest.mark.parametrize(
    ("settings", "test_samples", "remarks"),
    [
        ({}, 5, []),
        ({"max_steps": 4, "checkpoint_every_steps": 4}, 5, []),
        ({"max_steps": 5}, 5, ["train.max_steps = 5: train.epochs = 2 ends the run sooner, after 4 steps"]),
        (
            {"checkpoint_every_steps": 5},
            5,
            ["train.checkpoint_every_steps = 5: the run has 4 .* before its end"],
        ),
        ({"checkpoint_every_steps": 5, "checkpoint_at_end": False}, 5, ["no checkpoint at all"]),
        ({}, 0, ["train.evaluate = true: the data has no test rows"]),
        ({"evaluate": False}, 0, []),
        ({"evaluate_every_steps": 4, "evaluate_samples": 3}, 5, []),
        ({"evaluate_every_steps": 5}, 5, ["train.evaluate_every_steps = 5: the run has 4 steps, .* of epochs alone"]),
        ({"evaluate": False, "evaluate_every_steps": 2}, 5, ["train.evaluate = false goes first"]),
        ({"evaluate_samples": 2}, 5, ["train.evaluate_samples = 2: .* train.evaluate_every_steps = 0 makes none"]),
        ({"auc_group": "C1"}, 5, []),
        ({"auc_group": "C1", "exact_auc_samples": 4}, 5, ["train.auc_group = 'C1': evaluations of all 5 .* = 4"]),
    ],
)
def test_what_a_run_of_this_length_does_not_do(settings: dict[str, int], test_samples: int, remarks: list[str]) -> None:
    config = TrainConfig(batch_size=5, epochs=2, **settings)  # type: ignore[arg-type]
    found = without_effect(config, 10, test_samples)
    assert len(found) == len(remarks)
    assert all(re.search(remark, told) for remark, told in zip(remarks, found, strict=True))


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 10**9}, {"epochs": 10**5, "checkpoint_every_steps": 1}, {"epochs": 10**5, "evaluate_every_steps": 1}],
)
def test_more_segments_than_can_be_listed_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"train\.epochs = 10+, .* use 100000 of them together at most"):
        build_schedule(TrainConfig(batch_size=5, **settings), 10, 5)
    assert len(build_schedule(TrainConfig(batch_size=5, max_steps=3, **settings), 10, 0)) <= 3


@given(settings_of_a_run, st.integers(1, 60), st.integers(0, 30), st.integers(0, 40), st.integers(0, 50))
def test_on_later_rows_a_run_is_cut_as_if_they_were_the_first(
    config: TrainConfig, train_samples: int, test_samples: int, done: int, before: int
) -> None:
    """Only the steps count on, from those on the rows before."""
    done = min(done, len(plain_steps(config, train_samples)))
    alone = build_schedule(config, train_samples, test_samples, done)
    later = build_schedule(config, train_samples, test_samples, before + done, before)
    assert later == [replace(segment, first_step=before + segment.first_step) for segment in alone]


def test_a_checkpoint_beyond_the_end_on_later_rows_is_refused_with_both_steps() -> None:
    with pytest.raises(ConfigError, match="checkpoint is of step 111, and the run ends with step 110"):
        build_schedule(TrainConfig(batch_size=10), 100, 0, 111, 100)


@given(compared_runs, st.integers(1, 60), st.integers(1, 30))
def test_what_a_policy_hears_is_compared_and_training_follows(
    config: TrainConfig, train_samples: int, test_samples: int
) -> None:
    """All evaluations of the same test rows but the last, of each evaluated step one; nothing else changes."""
    config = replace(config, evaluate=True, evaluate_every_steps=max(1, config.evaluate_every_steps))
    schedule = build_schedule(config, train_samples, test_samples, hears=True)
    heard = [segment for segment in schedule if segment.is_heard]
    last_step = schedule[-1].last_step
    assert heard == [segment for segment in schedule if segment.is_judged and segment.last_step < last_step]
    assert [segment.last_step for segment in heard] == sorted({segment.last_step for segment in heard})
    assert len({segment.samples for segment in heard}) <= 1
    evaluated = {segment.last_step for segment in schedule if not segment.is_training}
    assert {segment.last_step for segment in heard} == evaluated - {last_step}
    for segment in heard:
        assert schedule[schedule.index(segment) + 1].is_training
    compared = build_schedule(replace(config, keep_best=True), train_samples, test_samples)
    assert [replace(segment, is_heard=False) for segment in schedule] == compared


@pytest.mark.parametrize(
    ("settings", "test_samples"),
    [({"evaluate_every_steps": 0}, 5), ({"evaluate_every_steps": 2, "evaluate": False}, 5), ({}, 0)],
)
def test_without_evaluations_within_an_epoch_nothing_is_heard(settings: dict[str, Any], test_samples: int) -> None:
    config = TrainConfig(batch_size=5, **settings)
    with pytest.raises(ConfigError, match=r"train\.evaluate_every_steps = .*orders samples by the test loss within"):
        build_schedule(config, 10, test_samples, hears=True)
    build_schedule(config, 10, test_samples)

"""The reference: one process, whole tables in memory, plain synchronous training. What the distributed run must equal.

It shares the arithmetic with the trainers (row operations, dense half, optimizers) and nothing of what is to be
proven: no plan, no cache, no window, no reduction.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.checkpointing.protocol import checkpoint_manifest
from bagpipe_hpc.evaluation.peers import Alone
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.full_batches import sliced
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.plan.slices import BatchSlices, slice_samples
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.roles.reference_rows import ByChanges, BySums, GroupBatch, as_slots
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.run.evaluations import start_evaluation, start_prediction
from bagpipe_hpc.run.feedback.hearing import Hearing
from bagpipe_hpc.run.feedback.judging import best_of, outcome, segment_end, start_judge
from bagpipe_hpc.run.feedback.watch import Watch
from bagpipe_hpc.run.output.folder import is_own_checkpoint
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.run.row_group import RowGroup
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.dense_start import check_dense
from bagpipe_hpc.run.start.first_records import fill_partition
from bagpipe_hpc.run.start.resumed_settings import changes_since
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.compute_setup import start_threads, usable_linear
from bagpipe_hpc.step.dense.linear_choice import LinearWish, Offer, choose_linear, must_time
from bagpipe_hpc.step.dense.linear_timing import time_linear_layers
from bagpipe_hpc.step.dense.passes import GradientTotals, predict
from bagpipe_hpc.step.ready_batch import BatchInputs, LookUps, added, split_positions
from bagpipe_hpc.step.slice_reader import GroupReader, NumberReader, SliceReader, SliceSamples
from bagpipe_hpc.step.slice_step import Loop, Session, SliceStep
from bagpipe_hpc.storage.checkpoints.best import outdo_best, write_best
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, KeptCheckpoints
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter
from bagpipe_hpc.storage.policy_memory import remove_unwanted_memories
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)


class _ScoredSlice(NamedTuple):
    """Logits of a slice, with the numbers of its batch and of itself, and its samples; within the batch, if named."""

    batch: int
    slice_number: int
    chosen: NDArray[np.int32] | None
    samples: SliceSamples
    logits: NDArray[np.float32]


class Reference:
    """Trains the whole run in one process.

    Gradients are summed over `train.reference_slices` slices of a batch, in order, as that many trainers would; the
    samples of each slice are those that the policy gives to that trainer. Where trainers add changes of rows, it adds
    those of the slices.

    Args:
        purpose: of the run.
        run: settings, data and schedule.
        device: that it computes on; `compute_check` has looked at it.
    """

    def __init__(self, purpose: Purpose, run: Run, device: torch.device) -> None:
        config = run.config
        self._purpose = purpose
        self._device = device
        check_dense(run)
        self._slices = config.train.reference_slices
        own = 0, frozenset(os.sched_getaffinity(0))
        start_threads(config.train.threads, [own] * self._slices)  # as that many trainers here
        self._run = run = self._settle_linear(run, device)
        slots = [CacheSlots(group.tables.total_rows, 0) for group in run.groups]
        self._parts = parts = ComputeParts.of(run, device, slots, self._slices, holds_all_rows=True)
        short = short_floats(config.train.row_sums, config.train.batch_size)
        self._short = short if self._slices > 1 else None
        self._divergence = parts.divergence
        for group, tables, partition in self._tables():
            first_records = np.empty((group.tables.total_rows, group.record.width), dtype=np.float32)
            fill_partition(first_records, run, group, partition, server=0)
            tables.scatter(self._all_slots(group), first_records)
        self._stats = StepStats()
        self._loss_sums = [0.0] * self._slices
        self._judge = start_judge(run)
        self._hearing = Hearing(run, speaks=True)
        self._keep_best = config.train.keep_best
        self._kept = KeptCheckpoints(config.train.keep_checkpoints)
        self._saved = run.steps_done if is_own_checkpoint(config, run.start) else None
        self._checkpoints = Path(config.train.output) / CHECKPOINTS_FOLDER
        self._policy = run.policy(self._slices)
        self._features = run.model_facts.features
        self._readers = [SliceReader(run, number, self._slices) for number in range(self._slices)]

    @property
    def settled(self) -> Run:
        """The run, with its linear layers settled."""
        return self._run

    def _settle_linear(self, run: Run, device: torch.device) -> Run:
        """Choose the linear layers, alone: as another run did only if `kernels.linear` says what that was."""
        usable, wish = usable_linear(run.config, device), LinearWish.of(run.config, run.start)
        timed = must_time(wish, usable)
        offer: Offer = dict.fromkeys(usable)
        if timed:
            offer = time_linear_layers(run.config, run.model_facts, device, usable, self._slices, float)
        choice = choose_linear(wish, offer)
        log.info("%s", choice)
        if timed:
            log.info("to compare with a run, set the kernels.linear and train.device that are in its config.toml")
        return run.with_linear(choice.implementation)

    def run(self, loop: Loop) -> None:
        """Train, evaluate and save as the schedule says.

        Args:
            loop: computes the loss of each slice.

        Raises:
            ConfigError: the loop has left something out.
        """
        session = Session(self._parts.model, self._run.model_facts, self._slice_steps(), 0, 1)
        with ExitStack() as opened:
            for reader in self._readers:
                opened.enter_context(reader)
            loop(session)
            session.require_end()

    def _slice_steps(self) -> Iterator[SliceStep]:
        """The slices of all training batches; what belongs before, between and behind them is done on the way."""
        slices = counted(self._slices, "slice")
        log.info("one process, %d rows in memory, batches of %s", self._run.total_rows, slices)
        self._watch = Watch(self._run, self._policy.whole)
        self._parts.require_own_weights()
        with self._purpose.record(self._run, has_cache=False) as record:
            if self._run.start:
                changes = changes_since(self._run.start.manifest, self._run, self._parts.arithmetic)
                record.resumed(self._run.steps_done, self._run.start.directory, changes)
            ended_early_at = None
            for segment in map(self._hearing.told, self._run.schedule):
                for reader in self._readers:
                    reader.start_segment(segment)
                if segment.is_training:
                    yield from self._train(segment, record)
                elif segment.kind is SegmentKind.PREDICT:
                    self._predict(segment, record)
                else:
                    self._evaluate(segment, record)
                ends = segment.may_end and self._judge.has_lost_patience
                end = segment_end(segment, self._judge, keep_best=self._keep_best, ends=ends)
                if end.saves:
                    self._save(segment, record)
                if end.marks_best or (
                    end.outdoes_best
                    and outdo_best(self._checkpoints, best_of(self._judge), is_saved=segment.last_step == self._saved)
                ):
                    write_best(self._checkpoints, best_of(self._judge))
                if ends:
                    ended_early_at = segment.last_step
                    break
            details = {"servers": 0, **outcome(self._run, self._judge, ended_early_at)}
            record.summary([self._stats.per_step()], self._stats, details)

    def _train(self, segment: Segment, record: Record) -> Iterator[SliceStep]:
        log_every = self._run.config.train.log_every_steps
        reported = self._stats.copy()
        step, slicing, keep = segment.first_step, self._policy.start_slicing(), self._policy.keeping(segment)

        def report() -> None:
            nonlocal reported
            self._divergence.require_finite()
            interval = self._stats.since(reported)
            reported = self._stats.copy()
            loss = sum(self._loss_sums) / interval.steps
            record.progress(step, segment.epoch, TrainerSteps.of([interval]), loss, self._parts.rates(step))
            self._loss_sums = [0.0] * self._slices

        for number, (rows, slices) in enumerate(sliced(self._run.batches(segment), slicing, keep)):
            assert slices is not None, "there is a slicing"
            step = segment.first_step + number + 1
            with self._stats.timed("total_s"):
                yield from self._step(number, rows, slices, step)
            if step % log_every == 0:
                report()
        if step % log_every:
            report()
        if remark := segment.passed_over(step - segment.first_step):
            log.info("%s", remark)
        if segment.shows_rows:
            slots = as_slots(self._watch.rows, self._parts.device)
            self._watch.see(segment, self._parts.device.to_host(self._parts.caches[0].gather(slots)))

    def _step(self, number: int, rows: Bags, slices: BatchSlices, step: int) -> Iterator[SliceStep]:
        """One batch, slice by slice: its number in the segment, global rows, slices, number of the step in the run."""
        groups = [GroupBatch.of(group.look_ups.of(rows), slices) for group in self._run.groups]
        update = (ByChanges if self._policy.adds_rows else BySums)(self._parts, groups, self._short, step)
        self._parts.clear_gradients()
        of_slices = GradientTotals(self._parts.model)
        for slice_number, reader in enumerate(self._readers):
            own_sums: dict[int, Tensor] = {}
            for own, samples in self._micro_batches(number, slice_number, reader, slices, groups):
                self._parts.begin_pass(step, partial(np.asarray, samples))
                embeddings = own.embeddings(self._parts.caches, self._features).requiring_gradients()
                slice_step = SliceStep(self._parts.weights, own, embeddings, slices.sample_count, step)
                yield slice_step
                loss, gradients = slice_step.result()
                self._divergence.see_loss(step, loss, gradients, own.look_ups)
                for group, sums in enumerate(own.sum_gradients(self._parts.caches, gradients)):
                    own_sums[group] = added(own_sums.get(group), sums)
                self._loss_sums[slice_number] += float(loss)
            update.add(slice_number, own_sums)
            of_slices.add()
        of_slices.finish()
        update.finish()
        self._parts.update_dense(step)
        self._stats.steps += 1
        self._stats.samples += slices.sample_count
        self._stats.unique_rows += sum(batch.unique.size for batch in groups)

    def _micro_batches(
        self, number: int, slice_number: int, reader: SliceReader, slices: BatchSlices, groups: Sequence[GroupBatch]
    ) -> Iterator[tuple[BatchInputs, NDArray[np.int64]]]:
        """What a slice of batch `number` is computed with, and which samples: mostly at once."""
        named, sizes = slices.of_trainer(slice_number), slices.micro_batches_of(slice_number)
        parts = reader.read_parts(number, named, sizes)
        positions = [split_positions(batch.positions[slice_number], parts, group) for group, batch in enumerate(groups)]
        ends = np.cumsum([len(samples.labels) for samples in parts])[:-1]
        numbers = np.split(slice_samples(named, slices.sample_count, self._slices, slice_number), ends)
        for samples, of_batch, *look_ups in zip(parts, numbers, *positions, strict=True):
            rows = [(batch.unique, own) for batch, own in zip(groups, look_ups, strict=True)]
            yield self._inputs(samples, rows, is_training=True), of_batch

    def _tables(self) -> Iterator[tuple[RowGroup, RowCache, RoundRobinPartition]]:
        """Each group of tables, its rows, and that every row is in its own place."""
        for group, cache in zip(self._run.groups, self._parts.caches, strict=True):
            yield group, cache, RoundRobinPartition(group.tables.total_rows, servers=1)

    def _inputs(
        self, samples: SliceSamples, look_ups: Iterable[tuple[np.ndarray, np.ndarray]], *, is_training: bool
    ) -> BatchInputs:
        """A slice where it is computed.

        Args:
            samples: of the slice.
            look_ups: of each group of tables the rows, whose slots are their numbers, and positions of the look-ups
                among them.
            is_training: whether gradients will be summed.
        """
        groups = zip(look_ups, samples.bags, self._parts.caches, strict=True)
        on_device = (
            LookUps.of(rows.astype(np.int32), positions.astype(np.int32), bags, cache, is_training=is_training)
            for (rows, positions), bags, cache in groups
        )
        return BatchInputs.of(samples, self._parts.device, on_device)

    def _all_slots(self, group: RowGroup) -> Tensor:
        return torch.arange(group.tables.total_rows, dtype=torch.int32, device=self._device)

    def _evaluate(self, segment: Segment, record: Record) -> None:
        start = time.perf_counter()
        whole = start_evaluation(self._run, segment)
        with ExitStack() as stack:
            readers = [GroupReader(self._run, number, self._slices, segment) for number in range(self._slices)]
            groups = [stack.enter_context(reader) for reader in readers]
            for one in self._scored(segment, record):
                of_samples = groups[one.slice_number].read(one.batch, one.chosen)
                whole.add(one.samples.labels, one.logits, of_samples, one.samples.weights)
        evaluations = whole.finish(Alone())
        first = next(iter(evaluations.values()))
        record.evaluation(segment.last_step, segment.epoch, evaluations, time.perf_counter() - start)
        if segment.is_judged:
            self._judge.see(segment.last_step, first)
        if segment.is_heard:
            self._hearing.hear(segment, first.log_loss)

    def _predict(self, segment: Segment, record: Record) -> None:
        start = time.perf_counter()
        numbers = [NumberReader(self._run, number, self._slices, segment) for number in range(self._slices)]
        with start_prediction(self._run, trainer=0) as own:
            for one in self._scored(segment, record):
                own.add(numbers[one.slice_number].read(one.batch, one.chosen), one.logits)
        record.prediction(segment.samples, time.perf_counter() - start)

    def _scored(self, segment: Segment, record: Record) -> Iterator[_ScoredSlice]:
        """The slices of an evaluation or a prediction, with their logits."""
        slicing = self._policy.start_slicing()
        for number, rows in enumerate(self._run.batches(segment)):
            slices = slicing(rows)
            for slice_number, (reader, own_rows) in enumerate(zip(self._readers, slices.parts(rows), strict=True)):
                chosen = slices.of_trainer(slice_number)
                samples = reader.read(number, chosen)
                look_ups = (group.look_ups.of(own_rows).values for group in self._run.groups)
                unique = [np.unique(values, return_inverse=True) for values in look_ups]
                own = self._inputs(samples, unique, is_training=False)
                embeddings = own.embeddings(self._parts.caches, self._features)
                logits = self._parts.device.to_host(predict(self._parts.model, own.dense, embeddings))
                self._divergence.require_finite_predictions(segment.last_step, logits)
                yield _ScoredSlice(number, slice_number, chosen, samples, logits)
            record.scored(number + 1, segment.batches)

    def _save(self, segment: Segment, record: Record) -> None:
        """Write the checkpoint, unless there is one already; the records are copied once in memory."""
        if segment.last_step == self._saved:
            return
        self._saved = segment.last_step
        start = time.perf_counter()
        self._parts.require_own_weights()
        self._divergence.require_finite_state(segment.last_step)
        writer = CheckpointWriter(Path(self._run.config.train.output), segment.last_step)
        infos = [writer.write_dense(self._parts.model.state_dict(), self._parts.dense_optimizer.state_dict())]
        for group, tables, partition in self._tables():
            records, names_width = tables.gather_records(self._all_slots(group)), len(self._run.groups) > 1
            infos.append(writer.write_rows(0, partition, records, group.width, names_width=names_width))
        step = segment.last_step
        standing = self._judge.before(step)
        manifest = checkpoint_manifest(self._run, self._parts.arithmetic, 1, step, segment, infos, standing=standing)
        directory = writer.commit(manifest)
        self._kept.remove_older(directory)
        remove_unwanted_memories(Path(self._run.config.train.output))
        seconds = time.perf_counter() - start
        record.checkpoint(manifest, directory, seconds, seconds)

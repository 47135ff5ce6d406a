"""The trainer's main loop: segments of batches whose rows the mover brings, and checkpoints between them."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.models.size import count_weights
from bagpipe_hpc.models.sums.contract import open_dense_sums
from bagpipe_hpc.mpi.plan_channel import Word
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_barrier
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.preparation.settling.trainer_compute import cores_beside_threads
from bagpipe_hpc.roles.context import RoleContext
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.trainer.parts import TrainerParts, open_trainer_parts
from bagpipe_hpc.roles.trainer.sums_thread import open_sums_thread
from bagpipe_hpc.rows.store import Use
from bagpipe_hpc.run.evaluations import start_evaluation, start_prediction
from bagpipe_hpc.run.feedback.hearing import Hearing
from bagpipe_hpc.run.feedback.judging import best_of, outcome, segment_end, start_judge
from bagpipe_hpc.run.feedback.watch import watched_rows
from bagpipe_hpc.run.output.folder import is_own_checkpoint
from bagpipe_hpc.run.start.resumed_settings import changes_since
from bagpipe_hpc.step.dense.replicas import dense_digests
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.slice_reader import GroupReader, NumberReader
from bagpipe_hpc.step.slice_step import Loop, Session, SliceStep
from bagpipe_hpc.telemetry.server_load import ServerLoad, server_loads
from bagpipe_hpc.telemetry.step_stats import StepStats

_SHOWN_AT_ONCE = 1 << 16
"""Watched rows whose records are fetched in a call."""


def run_trainer(context: RoleContext, windows: Sequence[RowWindow], loop: Loop) -> None:
    """Make one trainer, whose threads `offer_linear_layers` has started, and run it to the end of the run.

    Collective over: the trainers. Arguments as for `Trainer`.
    """
    comms, train = context.comms, context.run.config.train
    timeout_s = train.timeout_s
    wait_for_barrier(comms.trainers, "the other trainers to be ready to start", timeout_s)
    with TimeLimit("the other trainers to say which cores they have", timeout_s):
        cores = cores_beside_threads(comms)
    backend = context.run.config.kernels.backend
    pace = MoverPace.open(backend, has_core=cores > 0)
    sums_thread = open_sums_thread(train.sums_thread, backend, cores)
    with TimeLimit("the other trainers to start sums of dense gradients", timeout_s):
        sums = open_dense_sums(train.dense_sums, comms.dense, deterministic=train.deterministic)
    parts = open_trainer_parts(context, windows, sums, pace, sums_thread, loop)
    Trainer(context, windows, parts, loop).run()
    with TimeLimit("the other trainers to end sums of dense gradients", timeout_s):
        sums.close()


class Trainer:
    """One trainer. Collective over: the trainers; `run` also meets the servers at checkpoints.

    Args:
        context: of this rank.
        windows: the rows at the servers, of each group of tables.
        parts: what it is put together from.
        loop: computes the loss of each slice.
    """

    def __init__(self, context: RoleContext, windows: Sequence[RowWindow], parts: TrainerParts, loop: Loop) -> None:
        self._loop = loop
        self._run = run = context.run
        self._need = context.need
        self._comms = context.comms
        self._trace = context.trace
        self._fill_timeout_s = context.fill_timeout_s
        self._windows = windows
        self._parts = parts
        self._compute = parts.compute
        self._receiver = parts.receiver
        self._mover = parts.mover
        self._step = parts.step
        self._record = parts.record
        self._reports = parts.reports
        self._checkpoints = parts.checkpoints
        self._divergence = parts.compute.divergence
        self._own_slice = self._comms.role_rank, self._comms.layout.trainers
        self._judge = start_judge(run)
        self._hearing = Hearing(run)
        self._ended_early_at: int | None = None
        self._saved = run.steps_done if is_own_checkpoint(run.config, run.start) else None
        self._digests = partial(dense_digests, self._compute.model, self._compute.dense_optimizer)

    def run(self) -> None:
        """Train, evaluate and save as the schedule says.

        Raises:
            ConfigError: the loop has left something out.
        """
        layout = self._comms.layout
        session = Session(
            self._compute.model, self._run.model_facts, self._slices(), self._comms.role_rank, layout.trainers
        )
        self._loop(session)
        session.require_end()

    def _slices(self) -> Iterator[SliceStep]:
        """The slices of all training batches; what belongs before, between and behind them is done on the way."""
        wait_for_barrier(self._comms.store, "the servers to fill their tables", self._fill_timeout_s)
        self._compute.require_own_weights()
        self._reports.require_equal_replicas(self._run.steps_done, self._digests, are_new=True)
        if self._record and self._run.start:
            changes = changes_since(self._run.start.manifest, self._run, self._compute.arithmetic)
            self._record.resumed(self._run.steps_done, self._run.start.directory, changes)
        with self._parts.reader:
            self._mover.start()
            for segment in map(self._hearing.told, self._run.schedule):
                if segment.is_training:
                    done = yield from self._train(segment)
                else:
                    done = self._predict(segment) if segment.kind is SegmentKind.PREDICT else self._evaluate(segment)
                stopped = not done
                if segment.shows_rows and not stopped and self._record:
                    self._show_rows()
                step = segment.first_step if stopped else segment.last_step
                end = segment_end(segment, self._judge, keep_best=self._run.config.train.keep_best, stopped=stopped)
                if end.saves:
                    self._save(step, segment)
                if end.marks_best:
                    self._checkpoints.mark_best(best_of(self._judge))
                elif end.outdoes_best:
                    self._checkpoints.outdo_best(best_of(self._judge), is_saved=step == self._saved)
                if stopped:
                    break
            self._mover.join()
            if self._parts.sums_thread is not None:
                self._parts.sums_thread.stop()
            self._receiver.finish(self._run.config.train.timeout_s, self._mover.check)
        self._checkpoints.finish()
        is_complete = not stopped or self._ended_early_at is not None
        self._reports.summary(self._moved_rows(), self._details, is_complete=is_complete)

    def _show_rows(self) -> None:
        """Send the oracle the weights that the policy watches; all rows are at the servers, and the mover is idle."""
        rows, width = watched_rows(self._run), self._run.groups[0].width
        weights = np.empty((rows.size, width), dtype=np.float32)
        for first in range(0, rows.size, _SHOWN_AT_ONCE):
            part = rows[first : first + _SHOWN_AT_ONCE]
            self._windows[0].announce(Use.GET, part)
            weights[first : first + _SHOWN_AT_ONCE] = self._windows[0].get(part)[:, :width]
        self._receiver.show_weights(weights, self._run.config.train.timeout_s, self._parts.threads.check)

    def _save(self, step: int, segment: Segment) -> None:
        """Start the checkpoint of a step, unless there is one already. Collective over: servers and trainers."""
        if step == self._saved:
            return
        self._compute.require_own_weights()
        self._divergence.require_finite_state(step)
        self._reports.require_equal_replicas(step, self._digests)
        dense = self._compute.model.state_dict(), self._compute.dense_optimizer.state_dict()
        self._checkpoints.save(step, segment, dense, self._judge.before(step))
        self._saved = step

    def _train(self, segment: Segment) -> Generator[SliceStep, None, int]:
        """Train on the batches of a segment; how many there were: none, if the run is to stop."""
        stats = self._step.stats
        log_every = self._run.config.train.log_every_steps
        done, reported = 0, True
        while True:
            with stats.timed("total_s"):
                batch = self._next_batch(done)
                if batch.plan.is_closing:
                    break
                step = segment.first_step + done + 1
                slice_step = self._step.start(batch, step)
                with self._trace.span("forward, backward", batch=batch.plan.batch):
                    yield slice_step
                self._step.add(batch, slice_step)
                if not batch.is_last:
                    continue
                done += 1
                self._step.finish(batch, step)
                if batch.plan.retire_group:
                    self._mover.retire(batch)
                self._receiver.give_credit()
                self._checkpoints.check()
                self._trace.step = step
            if reported := step % log_every == 0 or done == segment.batches:
                self._report(step, segment.epoch)
        with stats.timed("total_s"):
            self._close(batch, stats)
        if not reported:  # the policy has left samples out, so that there are fewer batches
            self._report(step, segment.epoch)
        return done

    def _next_batch(self, number: int) -> ReadyBatch:
        """The next micro-batch of batch `number`, mostly all of it; or the closing one."""
        with self._step.stats.timed("wait_rows_s"), self._trace.span("wait for rows", batch=number):
            return self._mover.next_batch()

    def _close(self, batch: ReadyBatch, stats: StepStats) -> None:
        """The closing batch of a segment: afterwards every row of every trainer is at its server."""
        self._parts.rows.finish_delayed()
        self._step.settle()
        self._mover.retire(batch)
        stats.count_written(batch.plan)
        with stats.timed("wait_rows_s"):
            self._mover.wait_drained()
        self._divergence.require_finite()
        self._receiver.give_credit()

    def _evaluate(self, segment: Segment) -> int:
        """Evaluate on the batches of a segment; how many there were: none, if the run is to stop."""
        start = time.perf_counter()
        own, to_host = start_evaluation(self._run, segment), self._compute.device.to_host
        with GroupReader(self._run, *self._own_slice, segment) as groups:

            def take(batch: ReadyBatch, logits: NDArray[np.float32]) -> None:
                labels, weights = batch.inputs.labels, batch.inputs.weights
                of_samples = groups.read(batch.plan.batch, batch.plan.samples)
                own.add(to_host(labels), logits, of_samples, None if weights is None else to_host(weights))

            done = self._score(segment, take)
        if not done:
            return done
        evaluations = own.finish(self._parts.peers)
        first = next(iter(evaluations.values()))
        self._trace.values |= {"auc": first.auc, "log_loss": first.log_loss}
        if self._record:
            self._record.evaluation(segment.last_step, segment.epoch, evaluations, time.perf_counter() - start)
        if segment.is_judged:
            self._judge.see(segment.last_step, first)
        if segment.is_heard:
            self._hearing.hear(segment, first.log_loss)
            self._mover.tell(self._hearing.now)
        if segment.may_end or segment.is_heard:
            self._decide(segment, first.log_loss)
        return done

    def _predict(self, segment: Segment) -> int:
        """Write the logits of the batches of a segment; how many there were."""
        start = time.perf_counter()
        numbers = NumberReader(self._run, *self._own_slice, segment)
        with start_prediction(self._run, self._comms.role_rank) as own:

            def take(batch: ReadyBatch, logits: NDArray[np.float32]) -> None:
                own.add(numbers.read(batch.plan.batch, batch.plan.samples), logits)

            done = self._score(segment, take)
        if self._record:
            self._record.prediction(segment.samples, time.perf_counter() - start)
        return done

    def _score(self, segment: Segment, take: Callable[[ReadyBatch, NDArray[np.float32]], None]) -> int:
        """Compute the logits of this trainer's slices, each of which `take` is given; how many batches there were."""
        done = 0
        while not (batch := self._mover.next_batch()).plan.is_closing:
            done += 1
            logits = self._step.predict(batch)
            self._divergence.require_finite_predictions(segment.last_step, logits)
            take(batch, logits)
            if self._record:
                self._record.scored(done, segment.batches)
            if batch.plan.retire_group:
                self._mover.retire(batch)
            self._receiver.give_credit()
        self._close(batch, StepStats())
        return done

    def _decide(self, segment: Segment, log_loss: float) -> None:
        """Let training go on, or end for want of better evaluations: the oracle waits for the word and sees to it."""
        ends = segment.may_end and self._judge.has_lost_patience
        self._ended_early_at = segment.last_step if ends else None
        if self._record:
            self._receiver.give_word(Word(not ends, log_loss))

    def _report(self, step: int, epoch: int) -> None:
        """Tell of the steps since the last report, unless one of them has diverged, of which all updates are made."""
        with self._step.stats.timed("total_s"):
            self._step.settle()
        loss = self._step.take_loss()
        self._divergence.require_finite()
        self._reports.progress(step, epoch, loss, self._compute.rates(step))

    def _moved_rows(self) -> list[ServerLoad]:
        """What this trainer has moved at each server."""
        sizes = [group.record.bytes for group in self._run.groups]
        return server_loads([window.moved for window in self._windows], sizes)

    def _details(self) -> dict[str, Any]:
        """What the summary says of this trainer and of the run's evaluations."""
        return {
            "lookahead_batches": self._need.window.lookahead,
            "group_batches": self._need.window.group,
            "cache_rows": self._need.total_rows,
            "cache_bytes": self._parts.cache_bytes,
            "planner_bytes": self._need.planner_bytes,
            "dense_weights": count_weights(self._compute.model),
            **outcome(self._run, self._judge, self._ended_early_at),
        }

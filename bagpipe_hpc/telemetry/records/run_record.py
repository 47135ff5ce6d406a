"""What a run tells the user: progress on stderr, the metrics file, and the summary on stdout. Written by one rank."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.schema import TrainConfig
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.progress import clock
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.output_errors import writing
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME
from bagpipe_hpc.telemetry.records.progress_line import Interval, ProgressLine
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.records.summary_text import judgement, summary_lines
from bagpipe_hpc.telemetry.results import quality, strict_json
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.told_evaluations import told_evaluations
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps
from bagpipe_hpc.terminal import IN_FILE_ONLY, counted, printable

log = logging.getLogger(__name__)

_LINE_EVERY_S = 30.0
"""Seconds between lines of progress where they stay, since they do not go to a terminal."""


class RunRecord(Record):
    """Keeps the metrics of a run that trains; a context manager that closes the metrics file.

    Args:
        output: the run's output folder.
        total_steps: steps of the whole run, for the time that is left.
        has_cache: whether rows come through a cache, so that there are hits and waits to report.
        each_of: with up to so many trainers, the metrics have the figures of each.

    Raises:
        OutputError: by every method that writes, if it cannot.
    """

    def __init__(
        self, output: Path, total_steps: int, *, has_cache: bool = True, each_of: int = TrainConfig.log_trainers
    ) -> None:
        self._has_cache = has_cache
        self._each_of = each_of
        self._output = output
        self._path = output / METRICS_NAME
        self._total_steps = total_steps
        self._evaluations = [
            {key: value for key, value in event.items() if key not in ("event", "seconds", "time_s")}
            for event in told_evaluations(self._path)  # of the run that this one goes on with
        ]
        with writing(self._path):
            self._file = self._path.open("a", encoding="utf-8")
        self._start_s = time.monotonic()
        self._resident_rows: int | None = 0
        self._line = ProgressLine()
        self._said_s = -math.inf

    def __enter__(self) -> "RunRecord":
        return self

    def __exit__(self, *_: object) -> None:
        with writing(self._path):
            self._file.close()

    def resumed(self, step: int, directory: Path, changes: Sequence[str] = ()) -> None:
        """Report the checkpoint that the run goes on from, and what has changed since, as `NAME: THEN -> NOW`."""
        for change in changes:
            log.info("resumed with another %s", change)
        self._write(event="resumed", step=step, directory=str(directory), changes=list(changes))

    def progress(
        self,
        step: int,
        epoch: int,
        trainers: TrainerSteps,
        loss: float,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Report an interval of training.

        A terminal shows the newest in one line, which fits it; elsewhere, a line is shown now and then.

        Args:
            step: steps done.
            epoch: from 0.
            trainers: of the interval, on each trainer; the line on the screen is of the first.
            loss: mean of the losses of the interval's batches.
            rates: learning rates of the last of them, by their names.
        """
        stats = trainers[0]
        rate = stats.samples_per_s
        left_s = (self._total_steps - step) * stats.total_s / max(1, stats.steps)
        waiting = stats.wait_rows_s / stats.total_s if stats.total_s else 0.0
        self._write(
            event="progress",
            step=step,
            epoch=epoch,
            loss=loss,
            **(rates or {}),
            samples_per_s=rate,
            hit_rate=stats.hit_rate,
            wait_rows_share=waiting,
            resident_rows=self._count_resident(trainers),
            of_trainers={"number": len(trainers), "mean": trainers.mean(), "waited_for": trainers.waited_for()},
            **({"trainers": trainers.each()} if len(trainers) <= self._each_of else {}),
        )
        hits = [f"hits {stats.hit_rate:.1%}"] if self._has_cache else []
        waits = [f"waiting for rows {waiting:.1%}"] if self._has_cache else []
        parts = [f"step {step}/{self._total_steps}", f"loss {loss:.5f}", f"{rate:,.0f} samples/s", *hits]
        self._say([*parts, *waits, f"{clock(left_s)} left to train"], is_last=step >= self._total_steps)
        share, shown_waits = step / self._total_steps, f"waiting {waiting:.1%}" if waits else ""
        self._line.show(Interval(parts, shown_waits, clock(left_s), share))

    def _count_resident(self, trainers: TrainerSteps) -> int | None:
        """Distinct rows that the caches hold after an interval; None where there are none, or plans do not tell."""
        change = trainers.newly_resident() if self._has_cache else None
        before = self._resident_rows
        self._resident_rows = None if before is None or change is None else before + change
        return self._resident_rows

    def _say(self, parts: Sequence[str], *, is_last: bool) -> None:
        """A line in the log; shown now and then where it goes to no terminal."""
        now_s = time.monotonic()
        is_due = not self._line.columns and (is_last or now_s - self._said_s >= _LINE_EVERY_S)
        log.info("  ".join(parts), extra=None if is_due else IN_FILE_ONLY)
        if is_due:
            self._said_s = now_s

    def saving(self, step: int) -> None:
        """Show that a checkpoint is being written, until it is complete."""
        self._line.saving(step)

    def scored(self, batches: int, of: int) -> None:
        """Show a bar for the evaluation."""
        self._line.scored(batches, of)

    def evaluation(self, step: int, epoch: int, evaluations: Mapping[str, Evaluation], seconds: float) -> None:
        """Report an evaluation of each label, by its name, that took `seconds`; the run is judged by the first."""
        self._line.end()
        first, *further = evaluations
        more = {"further_labels": {name: asdict(evaluations[name]) for name in further}} if further else {}
        self._evaluations.append({"step": step, "epoch": epoch, **asdict(evaluations[first]), **more})
        self._write(event="evaluation", seconds=seconds, **self._evaluations[-1])
        for name, evaluation in evaluations.items():
            label = f", {name}" if further else ""
            log.info("epoch %d, step %d%s: %s (%.1f s)", epoch + 1, step, label, quality(asdict(evaluation)), seconds)

    def checkpoint(self, manifest: CheckpointManifest, directory: Path, stood_still_s: float, seconds: float) -> None:
        """Report a checkpoint that is complete.

        Args:
            manifest: its manifest.
            directory: where it is.
            stood_still_s: how long training stood still for it.
            seconds: from its announcement to now.
        """
        self._line.saved()
        base_step = manifest.base.step if manifest.base else None
        self._write(
            event="checkpoint",
            step=manifest.step,
            directory=str(directory),
            seconds=stood_still_s,
            complete_after_s=seconds,
            bytes=manifest.total_bytes,
            base_step=base_step,
        )
        what = "all rows" if base_step is None else f"rows updated since step {base_step}"
        log.info(
            "checkpoint %s, %s: %.1f MB in %.1f s, training stood still for %.2f s",
            directory,
            what,
            manifest.total_bytes / 1e6,
            seconds,
            stood_still_s,
        )

    def summary(self, trainers: list[dict[str, float]], stats: StepStats, details: dict[str, Any]) -> None:
        """Report the whole run.

        Args:
            trainers: means per step of each trainer (`StepStats.per_step`).
            stats: of this trainer, over the whole run.
            details: further facts for the summary file.
        """
        self._line.end()
        rate = stats.samples_per_s
        summary = {
            "steps": stats.steps,
            "samples_per_s": rate,
            "hit_rate": stats.hit_rate,
            "evaluations": self._evaluations,
            "trainers": trainers,
            "seconds": time.monotonic() - self._start_s,
            **details,
        }
        path = self._output / SUMMARY_NAME
        with writing(path), atomic_write(path) as partial:  # its presence says that the run has finished
            partial.write_text(strict_json(summary, indent=1) + "\n", encoding="utf-8")
        lines = summary_lines(trainers, self._line.columns) if self._has_cache else []
        if self._evaluations:
            last = max(self._evaluations, key=lambda evaluation: (evaluation["step"], evaluation["samples"]))
            lines.append(quality(last))
            lines += [f"{name}: {quality(measures)}" for name, measures in last.get("further_labels", {}).items()]
        if len({evaluation["step"] for evaluation in self._evaluations}) > 1:
            lines += judgement(details, self._output)
        hits = f", hit rate {stats.hit_rate:.1%}" if self._has_cache else ""
        lines += [f"{rate:,.0f} samples/s over {counted(stats.steps, 'step')}{hits}", f"outputs: {self._output}"]
        _tell(lines)

    def stopped(self) -> None:
        """Report that the run ends early, as it was asked to."""
        self._line.end()
        log.info("stopped as asked, with a checkpoint: go on with train.resume=auto")

    def _write(self, **fields: Any) -> None:
        fields["time_s"] = round(time.monotonic() - self._start_s, 3)
        with writing(self._path):
            self._file.write(strict_json(fields) + "\n")
            self._file.flush()


def _tell(lines: Sequence[str]) -> None:
    """Results: to the log file, and to stdout.

    All at once: a launcher that passes on a second piece which nobody reads, as behind `head`, ends the ranks.
    """
    for line in lines:
        log.info("%s", line, extra=IN_FILE_ONLY)
    try:
        print("\n".join(map(printable, lines)), flush=True)
    except BrokenPipeError:
        log.warning("standard output was closed: the results stand in the log and in %s alone", SUMMARY_NAME)

"""`bagpipe evaluate`: the measures of training, for any checkpoint and any rows that were prepared like its data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import DataError, require_appendable
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.output_errors import require_writable
from bagpipe_hpc.telemetry.results import quality
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.scoring.purpose import Scoring, ScoringRecord, load_named, of_training


class EvaluationRecord(ScoringRecord):
    """Prints an evaluation, and a JSON line of it.

    Args:
        run: the run that evaluates.
        split: split of the rows.
        save: file that the JSON line is appended to; None for none.
    """

    def __init__(self, run: Run, split: str, save: Path | None) -> None:
        super().__init__()
        assert run.start is not None, "a checkpoint is evaluated"
        self._save = save
        self._split = split
        self._report = Report("evaluate")
        self._report.figures |= {"checkpoint": str(run.start.directory), "data": run.config.data.path, "split": split}

    def resumed(self, step: int, directory: Path, changes: Sequence[str] = ()) -> None:
        """As `ScoringRecord.resumed`; the JSON line says it, too."""
        super().resumed(step, directory, changes)
        self._report.figures["changes"] = list(changes)

    def evaluation(self, step: int, epoch: int, evaluations: Mapping[str, Evaluation], seconds: float) -> None:
        """Take in the only evaluation; its values have the names of the metrics of training."""
        first, *further = evaluations
        rows = evaluations[first].samples
        self._report.figures |= {"step": step, "epoch": epoch, **asdict(evaluations[first])}
        if further:
            self._report.figures["further_labels"] = {name: asdict(evaluations[name]) for name in further}
        self._report.figures |= {"seconds": seconds, "rows_per_s": rows / seconds}
        for name, measures in evaluations.items():
            label = f"{name}: " if further else ""
            self._report.lines.append(f"{label}{quality(asdict(measures), self._split)}")
        self._report.lines.append(f"step {step}, {seconds:.1f} s, {rows / seconds:,.0f} rows/s")

    def summary(self, trainers: list[dict[str, float]], stats: StepStats, details: dict[str, Any]) -> None:  # noqa: ARG002
        """Print all.

        Raises:
            FileError: the file to save to cannot be written.
        """
        self._report.figures |= {"trainers": len(trainers), "servers": details["servers"]}
        self._report.finish(self._save)


class Evaluating(Scoring):
    """The purpose of `bagpipe evaluate`.

    Args:
        config: as for `Scoring`.
        checkpoint: the checkpoint to evaluate.
        split: `train` or `test`.
        save: file that a JSON line is appended to; None for none.
        logs: as for `Scoring`.
        names_data: whether the user named the data; otherwise it must be that of the training.
    """

    def __init__(
        self,
        config: Config,
        checkpoint: Checkpoint,
        split: str,
        save: Path | None = None,
        logs: Path | None = None,
        *,
        names_data: bool = True,
    ) -> None:
        super().__init__(config, checkpoint, split, logs)
        self._save = save
        self._names_data = names_data

    def lay_out(self, trainers: int) -> tuple[Run, str]:
        """As `Scoring.lay_out`.

        Raises:
            DataError: the user named no data, and the folder of the training's data is absent or holds other data.
        """
        path, then = self.config.data.path, self.checkpoint.manifest
        if not self._names_data:
            shards = load_named(Path(path), self._names_data)
            if shards.digest(self.split) != (then.training_data if self.split == "train" else then.evaluation_data):
                raise DataError(
                    f"{path}: holds other {self.split} rows than those that {self.checkpoint.directory} knows "
                    f"({of_training(path)})"
                )
        return super().lay_out(trainers)

    def check(self) -> None:
        """Check that its files can be written.

        Raises:
            BagpipeError: one of them cannot.
        """
        super().check()
        if self._save and self._save.exists():
            require_appendable(self._save)
        elif self._save:
            require_writable("--save", str(self._save), self._save.parent)

    def start(self, run: Run) -> None:
        """Make the file that the JSON line is appended to.

        Raises:
            BagpipeError: it cannot be made.
        """
        super().start(run)
        if self._save:
            require_appendable(self._save)

    def record(self, run: Run, *, has_cache: bool) -> EvaluationRecord:  # noqa: ARG002 - it tells nothing of rows
        """As `Purpose.record`."""
        return EvaluationRecord(run, self.split, self._save)

"""`bagpipe predict`: raw rows in, probabilities out, through the vocabulary and settings of the checkpoint's data.

The rows are prepared into a folder beside the output, which all ranks read. Trainers write their logits there, and at
the end one rank puts them in order. The folder is then removed.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import NoRowsError, refused
from bagpipe_hpc.plan.schedule import SegmentKind
from bagpipe_hpc.preparation.scoring import prepare_scoring, require_same_ids
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.scored_settings import with_data
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.logits import LogitsFolder, ordered_logits
from bagpipe_hpc.storage.scratch_folder import ScratchFolder, scratch_folder
from bagpipe_hpc.terminal import counted, printable
from bagpipe_hpc.tools.scoring.predictions_file import check_predictions_file, columns_of, write_predictions
from bagpipe_hpc.tools.scoring.purpose import Scoring, ScoringRecord, load_named
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

log = logging.getLogger(__name__)


class PredictionRecord(ScoringRecord):
    """Logs how fast predictions were computed."""

    def prediction(self, samples: int, seconds: float) -> None:
        """Log the number of rows and the speed."""
        log.info("predicted %s in %.1f s, %.0f rows/s", counted(samples, "row"), seconds, samples / seconds)


class Predicting(Scoring):
    """The purpose of `bagpipe predict`.

    Args:
        config: as for `Scoring`; its data says how rows are prepared, and may lack its shards.
        checkpoint: the checkpoint that predicts.
        inputs: names and glob patterns of files with raw rows.
        output: file for the predictions.
        with_logits: write logits as well.
        logs: as for `Scoring`.
        names_data: whether the user named the data; otherwise the checkpoint names it.
    """

    def __init__(
        self,
        config: Config,
        checkpoint: Checkpoint,
        inputs: Sequence[str],
        output: Path,
        *,
        with_logits: bool = False,
        logs: Path | None = None,
        names_data: bool = True,
    ) -> None:
        super().__init__(config, checkpoint, logs=logs)
        self.conclude = self._conclude
        self._inputs = inputs
        self._output = output
        self._with_logits = with_logits
        self._names_data = names_data
        self._held = ExitStack()
        self._own: ScratchFolder | None = None
        self._run: Run | None = None

    def check(self) -> None:
        """Check that the output can be written, and that the vocabulary is the checkpoint's.

        Raises:
            BagpipeError: one of these is not so.
        """
        super().check()
        check_predictions_file(self._output)
        directory = Path(self.config.data.path)
        require_same_ids(self.checkpoint, load_named(directory, self._names_data), directory)

    def lay_out(self, trainers: int) -> tuple[Run, str]:
        """Prepare the rows, and lay out a run that predicts them; where there are none, write a file without rows.

        Raises:
            BagpipeError: a row is malformed, or data or checkpoint are damaged.
        """
        try:
            self._own = self._held.enter_context(scratch_folder(self._output))
            logits = LogitsFolder(self._own.path / "logits", self._output)
            logits.path.mkdir()
        except OSError as error:
            raise refused(error, self._output) from error
        shards = self._own.path / "shards"
        data = Path(self.config.data.path)
        like = PrepareSettings(like=data, labelled=False, compression="none")
        try:
            prepare_clicks(self._inputs, shards, like, log.info, made_for=self._output)
        except NoRowsError:
            earlier = load_named(data, self._names_data)
            self._write(np.empty((0, len(earlier.labels)), np.float32), earlier.labels)
            return Run(self.config, earlier, (), self.checkpoint, trains=False), "there is no row to predict"
        config = with_data(self.config, str(shards))
        config = replace(config, data=replace(config.data, verify="quick"))
        run = prepare_scoring(config, self.checkpoint, "test", trainers, SegmentKind.PREDICT)
        self._run = replace(run, logits=logits)
        self._parts = trainers or 1
        return self._run, ""

    def record(self, run: Run, *, has_cache: bool) -> PredictionRecord:  # noqa: ARG002 - of any run the same
        """As `Purpose.record`."""
        return PredictionRecord()

    def close(self) -> None:
        """Remove the prepared rows and the logits."""
        self._held.close()

    def _conclude(self) -> None:
        """Write the predictions.

        Raises:
            FileError: the system refuses a file.
        """
        assert self._run is not None, "the run was laid out on this rank"
        assert self._run.logits is not None, "as a run that predicts"
        labels, (segment,) = self._run.manifest.labels, self._run.schedule
        self._write(ordered_logits(self._run.logits, self._parts, segment.samples, len(labels)), labels)

    def _write(self, logits: NDArray[np.float32], labels: Sequence[str]) -> None:
        assert self._own is not None, "the run was laid out on this rank"
        write_predictions(self._own, logits, labels, with_logits=self._with_logits)
        columns = ", ".join(columns_of(labels, logits=self._with_logits))
        print(printable(f"{self._output}: {counted(len(logits), 'row')} of {columns}"), flush=True)

"""The purpose of a run that scores a checkpoint. It writes into no run's folder, so many can score one at once."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.preparation.scoring import prepare_scoring
from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.run.output.folder import LOGS_NAME, check_trace
from bagpipe_hpc.run.output.stop_request import NeverStopped
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.output_errors import require_writable
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.run_log import Voice

log = logging.getLogger(__name__)


_SPEAKS_EVERY_S = 10.0


def load_named(directory: Path, names_data: bool) -> ShardManifest:
    """The manifest of a data folder.

    Args:
        directory: the folder.
        names_data: whether the user named it; otherwise it is that of the training.

    Raises:
        DataError: there is none, or it is malformed.
    """
    try:
        return load_manifest(directory)
    except DataError as error:
        raise error if names_data else DataError(f"{error} ({of_training(directory)})") from error


def of_training(directory: Path | str) -> str:
    """The remark of error messages about data that the user did not name."""
    return f"{directory} is the data.path of the training, as seen from where that was started; --data names another"


class ScoringRecord(Record):
    """Shows how far a run is, and in which ways it computes differently from the training."""

    def __init__(self) -> None:
        self._spoke_s = time.monotonic()
        self._work: LongWork | None = None

    def scored(self, batches: int, of: int) -> None:
        """Show progress on a terminal; elsewhere log it now and then."""
        self._work = self._work or LongWork("scoring", of, "batches")
        self._work.advance()
        if batches == of:
            self._work.close()
        if not self._work.is_shown and time.monotonic() - self._spoke_s > _SPEAKS_EVERY_S:
            self._spoke_s = time.monotonic()
            log.info("%d of %d batches, %.0f%%", batches, of, 100 * batches / of)

    def resumed(self, step: int, directory: Path, changes: Sequence[str] = ()) -> None:  # noqa: ARG002 - said already
        """Warn of what may change the last digits."""
        for change in changes:
            log.warning("computed with another %s", change)


class Scoring(ABC):
    """A `Purpose`, except for what becomes of the predictions, which a subclass decides.

    Args:
        config: settings of the run (`run/start/scored_settings.py`), with the data.
        checkpoint: the checkpoint to score.
        split: `train` or `test`, of that data.
        logs: folder for the logs of ranks and the resources that they used; None: nowhere.
    """

    def __init__(self, config: Config, checkpoint: Checkpoint, split: str = "test", logs: Path | None = None) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.split = split
        self.folder = logs
        self.voice = Voice.USUAL
        self.can_go_on = False
        self.conclude: Callable[[], None] | None = None

    def check(self) -> None:
        """Check that logs and timeline can be written.

        Raises:
            ConfigError: one of them cannot.
        """
        check_trace(self.config)
        if self.folder:
            require_writable("--logs", str(self.folder), self.folder)

    def stop_request(self, *, listens: bool) -> NeverStopped:  # noqa: ARG002 - none of the ranks does
        """Nothing asks it to stop early: a signal that would stop training ends this run."""
        return NeverStopped()

    def lay_out(self, trainers: int) -> tuple[Run, str]:
        """As `Purpose.lay_out`; there is always something to do.

        Raises:
            BagpipeError: data or checkpoint are damaged, or do not fit each other.
        """
        return prepare_scoring(self.config, self.checkpoint, self.split, trainers), ""

    def hold(self, lost: Callable[[str], None]) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing can be lost
        """Hold nothing: no other run could write to its files."""
        return nullcontext()

    def start(self, run: Run) -> None:  # noqa: ARG002 - it says nothing of logs
        """Make the folder of logs, if one is named.

        Raises:
            ConfigError: it cannot be made.
        """
        if self.folder:
            try:
                (self.folder / LOGS_NAME).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"--logs {self.folder}: cannot be made ({error.strerror}); name another") from error

    def settled(self, run: Run) -> None:  # noqa: B027 - a subclass may have nothing to do
        """Record nothing."""

    def close(self) -> None:  # noqa: B027 - a subclass may have nothing to do
        """Remove what the command made for itself."""

    @abstractmethod
    def record(self, run: Run, *, has_cache: bool) -> Record:
        """As `Purpose.record`; the subclass decides what it reports."""

"""The purpose of a run that trains: it goes on from a checkpoint or starts anew, and fills its output folder."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.preparation.prepare import nothing_left, prepare_run
from bagpipe_hpc.run.output.folder import (
    TENSORBOARD_NAME,
    RunSoFar,
    check_output,
    check_writable,
    hold_output,
    record_config,
    requeued,
    require_untouched,
    start_output,
)
from bagpipe_hpc.run.output.stop_request import StopRequest
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.records.record import Record, Records
from bagpipe_hpc.telemetry.records.run_record import RunRecord
from bagpipe_hpc.telemetry.records.tensorboard_record import TensorBoardRecord, require_tensorboard
from bagpipe_hpc.telemetry.run_log import Voice


class Training:
    """A `Purpose`: train as configured.

    Args:
        config: of the run.
        voice: how much of the log goes to stderr.
        comes_again: whether this is a later start of a Slurm job.
    """

    can_go_on = True
    conclude: Callable[[], None] | None = None

    def __init__(self, config: Config, voice: Voice = Voice.USUAL, *, comes_again: bool = False) -> None:
        self.config = config
        self.voice = voice
        self._comes_again = comes_again
        self.folder: Path | None = Path(config.train.output)
        self._found: RunSoFar | None = None

    def stop_request(self, *, listens: bool) -> StopRequest:
        """By a signal, or a file in the output folder."""
        return StopRequest(Path(self.config.train.output), listens=listens)

    def check(self) -> None:
        """See that the output folder and the timeline can be written.

        Raises:
            ConfigError: one cannot, or `train.tensorboard` lacks its package.
        """
        check_writable(self.config)
        if self.config.train.tensorboard:
            require_tensorboard()

    def lay_out(self, trainers: int) -> tuple[Run, str]:  # noqa: ARG002 - it does not depend on them
        """As `Purpose.lay_out`.

        Raises:
            BagpipeError: data and settings do not fit, or an earlier run is in the way.
        """
        self._found = RunSoFar.of(self.config)
        run = prepare_run(requeued(self.config) if self._comes_again else self.config)
        if what := nothing_left(run):
            return run, what
        check_output(run.config, run.start, comes_again=self._comes_again)
        return run, ""

    def hold(self, lost: Callable[[str], None]) -> AbstractContextManager[None]:
        """Keep other runs out of the output folder."""
        return hold_output(self.config, lost)

    def start(self, run: Run) -> None:
        """Start the output folder anew, unless the run goes on from one of its checkpoints."""
        if self._found is not None:
            require_untouched(run.config, self._found)
        start_output(run.config, run.start, made_again=run.evaluated_first)

    def settled(self, run: Run) -> None:
        """Record the choice, so that a reference can follow it."""
        record_config(run.config)

    def record(self, run: Run, *, has_cache: bool) -> Record:
        """Metrics and summary in the output folder, progress on the terminal; event files where they are wanted."""
        output = Path(run.config.train.output)
        each_of = run.config.train.log_trainers
        own = RunRecord(output, run.total_steps, has_cache=has_cache, each_of=each_of)
        if not run.config.train.tensorboard:
            return own
        # Of two evaluations of one step, scalars do not tell which is made again.
        again = bool(run.evaluated_first) and not run.kept_evaluations
        events = TensorBoardRecord(
            output / TENSORBOARD_NAME, run.steps_done, has_cache=has_cache, is_evaluated_again=again
        )
        return Records(own, events)

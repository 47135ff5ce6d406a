"""What a run is for. The roles carry out any schedule; a purpose says which one, and what the run leaves behind."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.run.output.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.run_log import Voice


class Purpose(Protocol):
    """What a run is for, made alike on every rank from what the command was given.

    The calls come in the order of the methods. Those that do not say otherwise are made on one rank, the oracle or the
    one of a one-rank run.

    Attributes:
        config: the settings; a run of several ranks settles in them where trainers compute, before it is laid out.
        folder: where ranks put their logs and what they have used; None: nowhere.
        voice: how much of the log goes to stderr.
        can_go_on: whether a run that was cut short leaves checkpoints from which another one goes on.
        conclude: what is left to do when all ranks are done, as long as it may take; None: nothing.
    """

    config: Config
    folder: Path | None
    voice: Voice
    can_go_on: bool
    conclude: Callable[[], None] | None

    def stop_request(self, *, listens: bool) -> StopRequest | NeverStopped:
        """How the run is asked to end early, a context manager. On every rank; `listens`: it stops the others."""

    def check(self) -> None:
        """See that what the run will leave behind can be written; makes nothing.

        Raises:
            BagpipeError: it cannot.
        """

    def lay_out(self, trainers: int) -> tuple[Run, str]:
        """Check data and checkpoint, and lay out the run.

        Args:
            trainers: that will compute it; 0 in a one-rank run.

        Returns:
            The run, and why nothing is left to do: empty, if there is something.

        Raises:
            BagpipeError: the run cannot start.
        """

    def hold(self, lost: Callable[[str], None]) -> AbstractContextManager[None]:
        """Keep others away from what the run writes; `lost` is called with the reason if that fails later."""

    def start(self, run: Run) -> None:
        """Make what the run writes to. Comes after all that could refuse it."""

    def settled(self, run: Run) -> None:
        """All ranks have agreed on what a setting that was `auto` comes to."""

    def record(self, run: Run, *, has_cache: bool) -> Record:
        """What tells of the run; on the first trainer.

        Args:
            run: the run.
            has_cache: whether rows come through a cache.
        """

"""What a policy may be told in the course of a run, to order the samples that are left. Pure data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Heard:
    """An evaluation within a run.

    Attributes:
        epoch: of the training samples before it, from 0.
        batch: batches of that epoch that were trained then, from 1.
        log_loss: of the test rows; by the first label where there are several.
    """

    epoch: int
    batch: int
    log_loss: float

    def steps(self, batches: int) -> int:
        """Training steps before it, of epochs of so many batches."""
        return self.epoch * batches + self.batch

    @property
    def place(self) -> tuple[int, int]:
        """Where it is in a run: epoch and batches."""
        return self.epoch, self.batch

"""The window's arithmetic: which group of batches each rule of the look-ahead refers to."""

from dataclasses import dataclass

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.batch_plan import NO_GROUP
from bagpipe_hpc.terminal import counted


@dataclass(frozen=True)
class Window:
    """Length of the look-ahead, and which groups its rules refer to.

    Attributes:
        lookahead: batches L that are known when a plan is made, its own included.
        group: batches C that are retired together; below L, but 1 where L is 1.
        serial: although the next batch is known, its rows are fetched only once all that this batch changes is at the
            servers, or where the next batch reads it. So it is with a window of one batch, too. C is 1 then.
    """

    lookahead: int
    group: int
    serial: bool = False

    def __post_init__(self) -> None:
        if not (1 <= self.group < self.lookahead or self.group == 1 <= self.lookahead):
            raise PlanError(
                f"a window of {counted(self.lookahead, 'batch')} in groups of {self.group}: use 1 batch or more, and "
                "groups of 1 batch or more that are shorter than the window, or 1"
            )

    @property
    def delays_nothing(self) -> bool:
        """Whether each batch has ended before rows are fetched for the next one."""
        return self.serial or self.lookahead == 1

    @property
    def plans_ahead(self) -> int:
        """How many plans the oracle is ahead of the trainers.

        A mover that has retired group c needs the plans up to c + L; two groups more keep it from waiting for them.
        """
        return self.lookahead + 2 * self.group + 1

    def group_that_retires(self, batch: int) -> int:
        """Group with which rows last used by `batch` leave the caches: the first multiple of C above it."""
        return (batch // self.group + 1) * self.group

    def group_that_leaves(self, batch: int) -> int:
        """Group with which rows leave after `batch` that it does not use: the first that starts then or later."""
        return self.group_that_retires(batch if self.delays_nothing else batch - 1)

    def group_before_prefetch(self, batch: int) -> int:
        """Group that must be retired before `batch` is fetched: the first multiple of C above batch - L, or none."""
        if self.delays_nothing:
            return batch
        return max(NO_GROUP, -((self.lookahead - 1 - batch) // self.group) * self.group)

    def latest_before_prefetch(self, batch: int) -> int:
        """The latest group that the fetches of `batch` can wait for: the last one that starts before the batch does."""
        if self.delays_nothing:
            return self.group_before_prefetch(batch)
        return max(NO_GROUP, (batch - 1) // self.group * self.group)

    def group_started_by(self, batch: int) -> int:
        """Group whose write-backs start after `batch`: updates up to batch - 1 are then in the caches."""
        if self.delays_nothing:  # the batch's own updates are in the caches, too
            return batch + 1
        return batch if batch % self.group == 0 else NO_GROUP

    def closing_group(self, batches: int) -> int:
        """Group of the rows that are still to be retired after the last of `batches` batches."""
        if self.delays_nothing or batches == 0:  # each batch has retired its own
            return NO_GROUP
        return self.group_that_retires(batches - 1)

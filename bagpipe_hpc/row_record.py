"""What travels with an embedding row: weights, optimizer state and, where rows are verified, a version. Pure data."""

from dataclasses import dataclass

from bagpipe_hpc.config import Config

STATE_COLUMNS: dict[str, tuple[str, ...]] = {"sgd": (), "rowwise_adagrad": ("sum_of_mean_squares",)}
"""For each row optimizer the float32 numbers that it keeps for a row; they start at 0."""


@dataclass(frozen=True)
class RowRecord:
    """Float32 numbers of a row in a server's window, in this order.

    Attributes:
        embedding_dim: weights D.
        state_columns: numbers of optimizer state.
        has_version: whether the step of the last update follows (`debug.verify_rows`).
    """

    embedding_dim: int
    state_columns: int
    has_version: bool

    @classmethod
    def of(cls, config: Config) -> "RowRecord":
        """The record that a configuration asks for."""
        return cls(config.model.embedding_dim, len(STATE_COLUMNS[config.optimizer.rows]), config.debug.verify_rows)

    @property
    def saved_width(self) -> int:
        """Numbers that a checkpoint holds: weights and optimizer state."""
        return self.embedding_dim + self.state_columns

    @property
    def width(self) -> int:
        """All numbers of a record."""
        return self.saved_width + int(self.has_version)

    @property
    def bytes(self) -> int:
        """Size of a record."""
        return 4 * self.width

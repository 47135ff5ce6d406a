"""What travels with an embedding row: weights, optimizer state and, where rows are verified, a version. Pure data."""

from dataclasses import dataclass

from bagpipe_hpc.config.row_state import ROW_STATE
from bagpipe_hpc.config.schema import Config


@dataclass(frozen=True)
class RowRecord:
    """Float32 numbers of a row in a server's window, in this order.

    Attributes:
        embedding_dim: weights D.
        state_widths: numbers of each part of the optimizer's state.
        has_version: whether the step of the last update follows (`debug.verify_rows`).
    """

    embedding_dim: int
    state_widths: tuple[int, ...]
    has_version: bool

    @classmethod
    def of(cls, config: Config) -> "RowRecord":
        """The record that a configuration asks for."""
        width = config.model.embedding_dim
        state = tuple(part.width(width) for part in ROW_STATE[config.optimizer.rows])
        return cls(width, state, config.debug.verify_rows)

    @property
    def state_columns(self) -> int:
        """Numbers of optimizer state."""
        return sum(self.state_widths)

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

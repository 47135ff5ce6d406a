"""What travels with an embedding row: weights, optimizer state and, where rows are verified, a version. Pure data."""

from dataclasses import dataclass, replace

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import StateColumns


@dataclass(frozen=True)
class RowRecord:
    """Float32 numbers of a row in a server's window, in this order.

    Attributes:
        embedding_dim: weights D.
        state: what the optimizer keeps.
        has_version: whether the step of the last update follows (`debug.verify_rows`).
    """

    embedding_dim: int
    state: tuple[StateColumns, ...]
    has_version: bool

    @classmethod
    def of(cls, config: Config, embedding_dim: int | None = None) -> "RowRecord":
        """The record that a configuration asks for.

        Args:
            config: names the row optimizer.
            embedding_dim: of the rows; `model.embedding_dim` if not given.

        Raises:
            SettingError: the row optimizer does not keep its contract.
        """
        state = tuple(replace(part, first=float(part.first)) for part in build_row_optimizer(config.optimizer).state)
        width = config.model.embedding_dim if embedding_dim is None else embedding_dim
        return cls(width, state, config.debug.verify_rows)

    @property
    def state_widths(self) -> tuple[int, ...]:
        """Numbers of each part of the optimizer's state."""
        return tuple(part.width(self.embedding_dim) for part in self.state)

    @property
    def first_state(self) -> tuple[float, ...]:
        """The optimizer's state of a new row: `state_columns` numbers."""
        return tuple(part.first for part in self.state for _ in range(part.width(self.embedding_dim)))

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

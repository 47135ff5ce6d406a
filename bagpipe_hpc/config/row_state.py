"""The optimizers of embedding rows, and the state that each keeps for a row. Standard library only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StatePart:
    """Float32 numbers that an optimizer keeps for a row; they start at 0.

    Attributes:
        name: what they are.
        per_weight: one for each weight of the row, or one for the whole row.
    """

    name: str
    per_weight: bool

    def width(self, embedding_dim: int) -> int:
        """How many numbers these are for a row of `embedding_dim` weights."""
        return embedding_dim if self.per_weight else 1


ROW_STATE: dict[str, tuple[StatePart, ...]] = {
    "sgd": (),
    "rowwise_adagrad": (StatePart("sum_of_mean_squares", per_weight=False),),
    "adagrad": (StatePart("sum_of_squares", per_weight=True),),
    "adam": (StatePart("first_moment", per_weight=True), StatePart("second_moment", per_weight=True)),
}
"""For each value of `optimizer.rows` its state, in the order in which it follows the weights in a record."""

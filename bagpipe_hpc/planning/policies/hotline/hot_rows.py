"""Which rows all trainers keep, derived from the look-ups of the batches so far. Pure."""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings

_ROW_BYTES = 6
"""State of a row: its count, and two flags of a byte each."""


class HotRows:
    """Counts look-ups and chooses hot rows, for a segment; two objects that see the same batches choose the same rows.

    A hot row is held by all trainers from the first batch that looks it up, until it is no longer hot.

    Args:
        total_rows: rows of all tables.
        most: most hot rows.
        settings: when they are chosen.

    Attributes:
        held: rows that all trainers hold after the batches seen so far, bool `[total_rows]`.
    """

    def __init__(self, total_rows: int, most: int, settings: HotlineSettings) -> None:
        self._most = most
        self._settings = settings
        self._counts = np.zeros(total_rows, dtype=np.float32)
        self._is_hot = np.zeros(total_rows, dtype=np.bool_)
        self.held = np.zeros(total_rows, dtype=np.bool_)
        self._seen = 0

    @staticmethod
    def state_bytes(total_rows: int) -> int:
        """Bytes that it takes."""
        return total_rows * _ROW_BYTES

    def see(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Take in what the next batch looks up.

        Returns:
            Rows that were held and are no longer hot, int64, ascending; the batch's own may be among them.
        """
        self._seen += 1
        demoted = np.empty(0, dtype=np.int64)
        beyond = self._seen - self._settings.learning_batches
        if beyond <= 0 or self._settings.refresh_batches:
            np.add.at(self._counts, rows, 1)
        if beyond == 0 or (
            beyond > 0 and self._settings.refresh_batches and beyond % self._settings.refresh_batches == 0
        ):
            self._choose()
            demoted = np.flatnonzero(self.held & ~self._is_hot)
            self.held[demoted] = False
        self.held[rows] = self._is_hot[rows]
        return demoted

    def _choose(self) -> None:
        """Make the rows with the largest counts hot; of rows with the same count, the lower ones."""
        counted = np.flatnonzero(self._counts)
        hot = counted[np.argsort(-self._counts[counted], kind="stable")[: self._most]]
        self._is_hot.fill(False)
        self._is_hot[hot] = True
        self._counts *= self._settings.decay

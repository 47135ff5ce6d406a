"""Shows how far planning is: a bar on a terminal, elsewhere a line now and then."""

import time
from collections.abc import Callable

from bagpipe_hpc.progress import LongWork

_EVERY_S = 10.0

Tell = Callable[[str], None]
"""Called with a line of text."""


class Pace(LongWork):
    """Work on a number of batches; arguments as for `LongWork`, and a function for lines where there is no terminal."""

    def __init__(self, what: str, batches: int, tell: Tell) -> None:
        super().__init__(what, batches, "batches")
        self._tell, self._spoke_s = tell, time.monotonic()

    def advance(self, done: int = 1, note: str = "") -> None:
        """As `LongWork.advance`."""
        super().advance(done, note)
        if not self.is_shown and time.monotonic() - self._spoke_s > _EVERY_S:
            self._spoke_s = time.monotonic()
            self._tell(f"{self._what}: {self._done} of {self._total} batches")

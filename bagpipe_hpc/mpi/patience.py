"""How long somebody waits for others, which is not how long the clock has gone on."""

import time

LONGEST_LOOK_S = 1.0
"""Who waits looks more often, unless it is held up itself."""


class Patience:
    """What is left of a wait's limit. It is asked again and again, and counts the time between two looks.

    A whole job may stand still: Slurm suspends it for another one (`scontrol suspend`, `PreemptMode=SUSPEND`), or its
    virtual machine is paused. When it goes on, the clock has passed the limit of every wait, and nobody was late. So
    the time between two looks counts for `LONGEST_LOOK_S` at most: what goes beyond is the waiter's own standstill.

    Args:
        limit_s: seconds to wait.

    Attributes:
        left_s: seconds that are left at the last look.
    """

    def __init__(self, limit_s: float) -> None:
        self.left_s = limit_s
        self._looked_s = time.monotonic()

    def is_over(self) -> bool:
        """Look: whether nothing is left."""
        now_s = time.monotonic()
        self.left_s -= min(now_s - self._looked_s, LONGEST_LOOK_S)
        self._looked_s = now_s
        return self.left_s < 0

"""Which way rows take between hosts where `roles.transfers` leaves it open: the faster one of those tried. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.errors import ConsistencyError

_NAMES = {"messages": "messages", "one_sided": "one-sided calls"}
_LEAST_GAIN = 0.1
"""Share by which one-sided calls must be faster to be chosen. Less may be the noise of a short measurement, and most
MPIs are good at messages."""

Trial = Mapping[str, float]
"""Seconds that a trainer took to put and get rows, by the way; infinite where other numbers came back.

One-sided calls are left out where the MPI lacks the unified memory model."""


@dataclass(frozen=True)
class TransferChoice:
    """What all ranks use.

    Attributes:
        way: one of `TRANSFER_WAYS`.
        reason: for the reader.
    """

    way: str
    reason: str

    def __str__(self) -> str:
        return f"rows between hosts travel by {_NAMES[self.way]} (roles.transfers = auto: {self.reason})"


def choose_transfers(trials: Sequence[Trial], rows: int, row_bytes: int) -> TransferChoice:
    """Choose for all ranks, from what every trainer found that has far servers.

    All trainers wait for the slowest of them in every step, so its time is what counts for each way.

    Args:
        trials: of at least one trainer.
        rows: rows that each of them put, and got.
        row_bytes: of each row.

    Raises:
        ConsistencyError: messages gave back other numbers: nothing that a run sends can be trusted.
    """
    slowest = {way: max(trial[way] for trial in trials) for way in TRANSFER_WAYS if way in trials[0]}
    if math.isinf(slowest["messages"]):
        raise ConsistencyError(
            "messages between hosts gave back other numbers than were put: use another transport of MPI, or another "
            "MPI, and try the links with bagpipe doctor"
        )
    size = f"{rows} rows of {row_bytes} bytes there and back"
    if "one_sided" not in slowest:
        return TransferChoice("messages", "this MPI lacks the unified memory model that one-sided calls need")
    if math.isinf(slowest["one_sided"]):
        return TransferChoice(
            "messages", "one-sided calls gave back other numbers than were put; use another MPI for them"
        )
    found = ", ".join(
        f"{_NAMES[way]} {seconds * 1e3:.3g} ms or {2 * rows * row_bytes / seconds / 1e6:.0f} MB/s"
        for way, seconds in slowest.items()
    )
    is_faster = slowest["one_sided"] < (1 - _LEAST_GAIN) * slowest["messages"]
    return TransferChoice("one_sided" if is_faster else "messages", f"{size}, {found}")

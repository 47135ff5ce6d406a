"""Which code computes the linear layers of a run: one choice for all trainers, since the last bits depend on it.

`kernels.linear` names it, or says `auto`: then a run that goes on takes what its checkpoint was trained with, and one
that starts takes what is clearly fastest on its trainers (`step/dense/linear_timing.py`), and torch where none is. A
model that computes its layers itself (`TakesKernels`) leaves nothing to choose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint

AUTO = "auto"
_USUAL = "torch"
_CLEARLY = 0.95
"""Of torch's time another one may take at most: a busy machine moves times by some percent from run to run, and with
the choice the last bits."""
_NAMES = {"onednn": "oneDNN", "torch": "torch"}

Offer = Mapping[str, float | None]
"""What every trainer of a run can use, by its name in `kernels.linear`, and how many seconds the dense half of a step
takes with it; None where that was not measured. All trainers make the same offer; it is empty where the model computes
its layers itself."""


@dataclass(frozen=True)
class LinearChoice:
    """What all trainers use.

    Attributes:
        implementation: `onednn` or `torch`.
        reason: for the reader.
    """

    implementation: str
    reason: str

    def __str__(self) -> str:
        return f"linear layers: {_NAMES[self.implementation]} ({self.reason})"


@dataclass(frozen=True)
class LinearWish:
    """What a run says of its linear layers before its trainers are asked.

    Attributes:
        setting: `kernels.linear`.
        precision: `model.precision`.
        recorded: what the CPUs computed with that trained the checkpoint from which the run goes on; None if there were
            none.
    """

    setting: str
    precision: str
    recorded: str | None = None

    @classmethod
    def of(cls, config: Config, start: Checkpoint | None) -> "LinearWish":
        """The wish of a run that goes on from `start`, or from nothing."""
        arithmetic = start.manifest.arithmetic if start else None
        recorded = arithmetic.linear if arithmetic and arithmetic.device == "cpu" else None
        return cls(config.kernels.linear, config.model.precision, recorded)


def must_time(wish: LinearWish, usable: Sequence[str]) -> bool:
    """Whether the choice among what all trainers can use depends on times."""
    is_open = wish.setting == AUTO and wish.recorded is None
    return is_open and len(usable) > 1 and wish.precision == "float32"


def choose_linear(wish: LinearWish, offer: Offer) -> LinearChoice:
    """Choose for all trainers from what they offer, with times if `must_time`."""
    setting, recorded = wish.setting, wish.recorded
    if not offer:
        return LinearChoice("torch", "the model computes them itself")
    if wish.precision == "bfloat16":
        unused = "" if setting in (AUTO, "torch") else f"; kernels.linear = {setting} is for float32"
        return LinearChoice("torch", f"bfloat16: model.precision{unused}")
    if setting != AUTO:
        return LinearChoice(setting, f"kernels.linear = {setting}")
    if recorded and recorded in offer:
        return LinearChoice(recorded, "kernels.linear = auto: as the checkpoint was trained")
    if len(offer) == 1:
        return LinearChoice("torch", "kernels.linear = auto: not every trainer can use oneDNN")
    seconds = {name: found for name, found in offer.items() if found is not None}
    times = ", ".join(f"{_NAMES[name]} {found * 1e3:.3g} ms" for name, found in seconds.items())
    fastest = min(seconds, key=lambda name: seconds[name])
    reason = f"kernels.linear = auto: the dense half of a step takes {times}"
    if fastest != _USUAL and seconds[fastest] > _CLEARLY * seconds[_USUAL]:
        return LinearChoice(_USUAL, f"{reason}, no clear difference")
    return LinearChoice(fastest, reason)

"""Schedules of learning rates: by what a rate is multiplied in each step. Pure; standard library only."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from bagpipe_hpc.config.doors import SettingError

DECAYS: dict[str, tuple[str, ...]] = {
    "constant": (),
    "step": ("decay_start", "decay_steps", "end_factor", "gamma"),
    "cosine": ("decay_start", "decay_steps", "end_factor"),
    "polynomial": ("decay_start", "decay_steps", "end_factor", "power"),
}
"""Each decay with the settings that it uses; `warmup_steps` goes with all of them."""


@dataclass(frozen=True)
class RateConfig:
    """A learning rate over the steps of a run: warm-up, the full rate, then a decay."""

    section: ClassVar[str] = "rate"

    warmup_steps: int = 0
    """Steps W over which the rate rises: step s has s/W of the full rate. 0: the full rate from the first step on."""
    decay: str = "constant"
    """How the rate falls: `constant` (not at all), `step` (times `gamma` after each `decay_steps` steps), `cosine`
    (half a cosine over `decay_steps` steps), `polynomial` ((1 - d/`decay_steps`)^`power` in the d-th step of the
    decay: MLPerf's). After `decay_steps` steps, the last two stay at `end_factor`."""
    decay_start: int = 0
    """Steps before the decay begins, including the warm-up; 0: it begins right after the warm-up."""
    decay_steps: int = 0
    """Steps of the decay; with `step`, between two falls. Every decay needs it: it does not follow from the length of
    the run, so that a run may be stopped and go on, or be made longer."""
    end_factor: float = 0.0
    """The least part of the full rate that the decay leaves, from 0 to 1."""
    power: float = 2.0
    """Exponent of `polynomial`; 1 is a straight line."""
    gamma: float = 0.1
    """Factor of each fall of `step`, above 0 and below 1."""

    def __post_init__(self) -> None:
        self._require(self.decay in DECAYS, "decay", f"use one of {', '.join(DECAYS)}")
        for name in ("warmup_steps", "decay_start", "decay_steps"):
            self._require(getattr(self, name) >= 0, name, "use 0 or more steps")
        used = ("warmup_steps", "decay", *DECAYS[self.decay])
        for field in fields(self):
            fits = [f'"{decay}"' for decay, names in DECAYS.items() if field.name in names]
            has_effect = field.name in used or getattr(self, field.name) == field.default
            cure = f"has no effect with decay = {self.decay!r}: leave it out, or set {self.section}.decay to"
            self._require(has_effect, field.name, f"{cure} {' or '.join(fits)}")
        if self.decay == "constant":
            return
        cure = f"{self.decay} needs the number of its steps, 1 or more; a run may be longer or shorter"
        self._require(self.decay_steps >= 1, "decay_steps", cure)
        cure = f"the decay begins behind the warm-up: use {self.warmup_steps} (warmup_steps) or more, or 0 for that"
        self._require(self.decay_start in (0, self._first_of_decay), "decay_start", cure)
        self._require(0 <= self.end_factor <= 1, "end_factor", "use a number from 0 to 1")
        self._require(0 < self.power <= 100, "power", "use a number above 0, 100 at most")
        self._require(0 < self.gamma < 1, "gamma", "use a number above 0 and below 1")

    def factor(self, step: int) -> float:
        """The part of the full rate that a step has.

        MLPerf's DLRM counts in the same way (`LRPolicyScheduler` of its reference), but stays between warm-up and decay
        at the factor of step W - 1, and at a rate of 1e-7 or more in the decay. torch's `CosineAnnealingLR` and
        `PolynomialLR` have these factors after as many calls as the step's number, `StepLR` after one less.

        Args:
            step: number of the training step, from 1, counted from the first step of the training.

        Returns:
            From 0 to 1; 1.0 itself where there is neither warm-up nor decay.
        """
        if step < self.warmup_steps:
            return step / self.warmup_steps
        done = step - self._first_of_decay
        if self.decay == "constant" or done <= 0:
            return 1.0
        if self.decay == "step":
            return max(self.end_factor, self.gamma ** ((done - 1) // self.decay_steps))
        part = min(1.0, done / self.decay_steps)
        left = (1 + math.cos(math.pi * part)) / 2 if self.decay == "cosine" else (1 - part) ** self.power
        return self.end_factor + (1 - self.end_factor) * left

    @property
    def varies(self) -> bool:
        """Whether some step has another rate than the full one."""
        return self.warmup_steps > 1 or self.decay != "constant"

    def remarks(self, total_steps: int) -> list[str]:
        """What a user may not expect of a run of so many steps, a line each."""
        found = []
        if total_steps and self.warmup_steps > total_steps:
            reached = self.factor(total_steps)
            found.append(
                f"{self.section}.warmup_steps = {self.warmup_steps}: the run has {total_steps} steps, so its rate "
                f"reaches {reached:.3g} of the full one"
            )
        elif self.decay != "constant" and self._first_of_decay >= total_steps > 0:
            found.append(
                f"{self.section}.decay = {self.decay!r}: begins behind step {self._first_of_decay}, and the run has "
                f"{total_steps} steps, so its rate does not fall"
            )
        elif self.factor(total_steps) == 0 and total_steps > (last := self._first_of_decay + self.decay_steps):
            found.append(
                f"{self.section}.decay = {self.decay!r}: the rate is 0 from step {last} on, and the run has "
                f"{total_steps} steps; set more {self.section}.decay_steps, or an end_factor above 0"
            )
        return found

    @property
    def _first_of_decay(self) -> int:
        """Steps before the decay begins."""
        return max(self.decay_start, self.warmup_steps)

    def _require(self, holds: bool, name: str, cure: str) -> None:
        if not holds:
            raise SettingError(f"{self.section}.{name}", getattr(self, name), cure)


@dataclass(frozen=True)
class RowsRateConfig(RateConfig):
    """The learning rate of the embedding rows over the steps of a run; the full one is `optimizer.rows_lr`."""

    section: ClassVar[str] = "rows_rate"


@dataclass(frozen=True)
class DenseRateConfig(RateConfig):
    """The learning rate of the dense weights over the steps of a run; the full one is `optimizer.dense_lr`."""

    section: ClassVar[str] = "dense_rate"

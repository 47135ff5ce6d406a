"""Slipstream (arXiv 2404.04270) as a policy; docs/policies.md has its rules."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.full_batches import Keep
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.policies.fae.order import hot_batches
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.fae.profile import read_profile
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policies.slipstream.settings import SlipstreamSettings
from bagpipe_hpc.planning.policies.slipstream.stale import find_threshold, left_out, movement, sample_keys
from bagpipe_hpc.planning.policy import RunFacts, Sight, TrainingRows, WatchedRows
from bagpipe_hpc.storage.policy_memory import load_memory, memory_path

log = logging.getLogger(__name__)


class SlipstreamPolicy(FaePolicy):
    """FAE, but hot samples are left out that look up only stale rows: rows that hardly moved between two snapshots."""

    settings: SlipstreamSettings

    def __init__(self, settings: SlipstreamSettings, facts: RunFacts) -> None:
        super().__init__(settings, facts)
        self._watched = None if facts.training is None else self.watched(settings, facts.training)
        self._first: NDArray[np.float32] | None = None
        self._stale = np.zeros(facts.total_rows, dtype=np.bool_)
        self._stale_in = -1  # the epoch for which rows are stale

    @classmethod
    def prepare(cls, settings: FaeSettings, training: TrainingRows) -> None:
        """As for `fae`; logs a warning where no sample will be left out.

        Raises:
            BagpipeError: as for `make_profile`.
        """
        super().prepare(settings, training)
        assert isinstance(settings, SlipstreamSettings), "they are those of this policy"
        if settings.drop_percent and cls.watched(settings, training) is None:
            batches = _hot_batches(settings, training)
            log.warning(
                "policy.first_snapshot = %d, policy.between_percent = %g: an epoch has %d hot batches, and none is "
                "behind the second snapshot, which comes behind %d of them: no sample is left out, as with "
                "policy.name = 'fae'; set smaller ones",
                settings.first_snapshot,
                settings.between_percent,
                batches.size,
                _last_between(settings, batches) + 1,
            )

    @classmethod
    def watched(cls, settings: SlipstreamSettings, training: TrainingRows) -> WatchedRows | None:
        """The hot rows, twice in an epoch; None where an epoch has too few hot batches, or nothing is to be left out.

        Raises:
            BagpipeError: as for `read_profile`.
        """
        if not settings.drop_percent:
            return None
        profile = read_profile(settings, training)
        batches = _hot_batches(settings, training)
        last = _last_between(settings, batches)
        if last >= batches.size:
            return None
        first = max(1, int(batches[settings.first_snapshot]))
        second = max(first + 1, int(batches[last]) + 1)
        return WatchedRows(profile.rows, (first, second)) if second <= batches[-1] else None

    def see(self, sight: Sight) -> dict[str, NDArray[Any]]:
        """Keep the first snapshot of an epoch; with the second, find out which rows are stale."""
        assert self._watched is not None, "it is shown what it watches"
        if sight.batch == self._watched.before[0]:
            self._first = sight.weights.copy()
            return {"first": self._first}
        assert self._first is not None, "the first snapshot of the epoch comes first, or is restored"
        if self._first.shape != sight.weights.shape:
            raise CheckpointError(
                f"policy.name = 'slipstream': the first snapshot that was kept has weights {list(self._first.shape)}, "
                f"and the hot rows have {list(sight.weights.shape)}; resume from an earlier checkpoint"
            )
        moved = movement(self._first, sight.weights)
        self._first = None
        kept = self._decide(sight, moved) if not self.settings.replay else self._replayed(sight)
        self.restore(kept)
        return kept

    def _replayed(self, sight: Sight) -> dict[str, NDArray[Any]]:
        """What another run has decided at this step.

        Raises:
            CheckpointError: its folder has no such decision.
            SettingError: the decision is for another epoch or other rows.
        """
        path = memory_path(Path(self.settings.replay), sight.step)
        kept = load_memory(path)
        if "first" in kept or self._problem(kept) or int(kept["epoch"][0]) != sight.epoch:
            cure = f"{path} is not of this epoch and these hot rows; name a run with the same data and settings"
            raise SettingError("policy.replay", self.settings.replay, cure)
        return kept

    def _decide(self, sight: Sight, moved: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Which hot rows are stale, by how far each has moved, float32 `[hot rows]`."""
        assert self._watched is not None, "it is shown what it watches"
        keys = np.concatenate([self._keys(sight.look_ups(batch), moved) for batch in self._judged(sight)])
        settings = self.settings
        threshold = find_threshold(keys, settings.drop_percent / 100, settings.drop_tolerance / 100)
        stale = self._watched.rows[moved < threshold]
        if threshold:
            log.info(
                "policy.name: epoch %d: %d of %d hot rows moved by less than %.3g: %.1f %% of %d samples are left out",
                sight.epoch,
                stale.size,
                moved.size,
                threshold,
                100 * left_out(keys, threshold),
                keys.size,
            )
        else:
            log.warning(
                "policy.name: epoch %d: no threshold leaves out %g %% of %d samples, give or take %g %%: all stay in "
                "this epoch; set another policy.drop_percent or a larger policy.drop_tolerance",
                sight.epoch,
                settings.drop_percent,
                keys.size,
                settings.drop_tolerance,
            )
        return {"stale": stale, "epoch": np.asarray([sight.epoch]), "threshold": np.asarray([threshold])}

    def restore(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Take up a first snapshot, or the stale rows of an epoch.

        Raises:
            ValueError: the arrays are neither.
        """
        if problem := self._problem(kept):
            raise ValueError(problem)
        if "first" in kept:
            self._first = kept["first"]
            return
        self._stale[:] = False
        self._stale[kept["stale"]] = True
        self._stale_in = int(kept["epoch"][0])

    def _problem(self, kept: Mapping[str, NDArray[Any]]) -> str:
        """What is wrong with arrays that should be what `see` keeps; empty if nothing is."""
        assert self._watched is not None, "it is shown what it watches"
        rows = self._watched.rows
        if (first := kept.get("first")) is not None:
            is_snapshot = first.dtype == np.float32 and first.ndim == 2 and len(first) == rows.size
            if not is_snapshot or not np.isfinite(first).all():
                return f"first must be float32 [{rows.size}, D], the weights of the hot rows, all finite"
            return ""
        if not {"stale", "epoch"} <= kept.keys():
            return "it has neither first nor stale and epoch"
        stale, epoch = kept["stale"], kept["epoch"]
        if epoch.dtype != np.int64 or epoch.shape != (1,):
            return "epoch must be int64 [1]"
        if stale.dtype != np.int64 or stale.ndim != 1 or not np.isin(stale, rows).all():
            return "stale must be int64 [n], some of the hot rows"
        return ""

    def keeping(self, segment: Segment) -> Keep | None:
        """After the second snapshot of an epoch, `keep`: leaves out samples of hot batches that look up stale rows."""
        if segment.epoch != self._stale_in or not self._stale.any():
            return None
        return self.keep

    def keep(self, rows: Bags) -> NDArray[np.bool_] | None:
        """Which samples of a hot batch stay, bool `[n]`; None for a cold batch, to which no hot sample is moved."""
        if not self._is_hot[rows.values].all():
            return None
        moved = (~self._stale[rows.values]).astype(np.float32)
        kept: NDArray[np.bool_] = sample_keys(rows, moved, self.settings.stale_look_ups) > 0
        return kept

    def _judged(self, sight: Sight) -> list[int]:
        """Some hot batches of the rest of the epoch, drawn by seed and epoch, ascending."""
        training = self.facts.training
        assert training is not None, "it trains"
        batches = _hot_batches(self.settings, training)
        left = batches[batches >= sight.batch]
        count = math.ceil(left.size * self.settings.judged_percent / 100)
        drawn = np.random.default_rng([training.seed, sight.epoch]).choice(left, count, replace=False)
        return [int(batch) for batch in np.sort(drawn)]

    def _keys(self, rows: Bags, moved: NDArray[np.float32]) -> NDArray[np.float32]:
        """The keys of a hot batch's samples, as `sample_keys` gives them."""
        assert self._watched is not None, "it is shown what it watches"
        of_look_ups = moved[np.searchsorted(self._watched.rows, rows.values)]
        return sample_keys(rows, of_look_ups, self.settings.stale_look_ups)

    def least_bytes(self, window: Any, most_batches: int) -> int:
        """As `fae`, with another byte a row and two snapshots."""
        watched, training = self._watched, self.facts.training
        snapshots = 2 * watched.rows.size * training.row_bytes if watched and training else 0
        return super().least_bytes(window, most_batches) + self.facts.total_rows + snapshots


def _last_between(settings: SlipstreamSettings, batches: NDArray[np.int64]) -> int:
    """Which of the hot batches of an epoch, from 0, is the last one before the second snapshot."""
    return settings.first_snapshot + round(settings.between_percent / 100 * batches.size)


def _hot_batches(settings: SlipstreamSettings, training: TrainingRows) -> NDArray[np.int64]:
    """Numbers of the hot batches of an epoch, int64."""
    profile = read_profile(settings, training)
    hot = profile.hot_samples
    return hot_batches(profile.sample_count - hot, hot, training.batch_size, settings.share_percent)

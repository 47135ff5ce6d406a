"""In which order a run uses its samples, and the memory that it takes to read them so."""

from dataclasses import replace
from functools import cached_property
from itertools import islice
from zlib import crc32

import numpy as np

from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.lane_order import AUTOMATIC, LaneOrder, automatic_lanes, pieces_of_lanes, usable_lanes
from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks, require_each_once
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.section_order import Section, SectionOrder
from bagpipe_hpc.planning.policy import TrainingRows
from bagpipe_hpc.planning.policy_choice import keeps_order, policy_class, takes_lanes
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.storage.shards.manifest import ShardManifest

_MOST_OPEN_BYTES = 1 << 30
"""Of an oracle's open blocks, where the data decide how many lanes there are."""
_MUCH_READ = 1.1
"""Times of what a trainer needs that it may read without a word."""
_MARKED_PIECES = 8
"""Of an order, which ranks compare."""


class SampleOrders:
    """The orders of a run's segments.

    Args:
        config: the run's settings.
        manifest: of its data.
    """

    def __init__(self, config: Config, manifest: ShardManifest) -> None:
        self._config = config
        self._manifest = manifest
        self._sound: set[tuple[SampleOrder, tuple[Section, ...], tuple[Heard, ...]]] = set()

    def of(self, segment: Segment) -> SampleOrder | LaneOrder | SectionOrder:
        """The order of a segment's samples, as the policy wants it; those of an evaluation are not shuffled.

        Raises:
            PlanError: the policy's order does not use every sample once.
        """
        policy, default = self._config.policy, self._default(segment)
        if not segment.is_training:
            return default
        training = replace(self.training, heard=segment.heard)
        with POLICIES.blaming(policy.name, "order fails"):
            order = policy_class(policy.name).order(policy.settings, default, training)
        if not isinstance(order, SampleOrder | SectionOrder):
            what = type(order).__name__
            raise PlanError(f"policy.name = {policy.name!r}: its order is a {what}; give a SampleOrder or SectionOrder")
        if order.rows != segment.samples:
            raise PlanError(
                f"policy.name = {policy.name!r}: its order has {order.rows} of {segment.samples} samples; use all"
            )
        if order == default:
            return LaneOrder(default, segment.batch_size, self.lanes) if isinstance(default, ShardBlocks) else default
        sections = order.sections if isinstance(order, SectionOrder) else ()
        known = default, sections, segment.heard  # all that decides an order, and what is seen of it
        if known not in self._sound:
            try:
                require_each_once(order)
            except PlanError as error:
                raise PlanError(f"policy.name = {policy.name!r}: {error}") from error
            self._sound.add(known)
        if isinstance(order, SectionOrder) and isinstance(default, ShardBlocks):
            return order.with_lanes(segment.batch_size, self.lanes)
        return order

    def mark(self, segment: Segment) -> int:
        """A number by which ranks see whether their policy orders a segment alike: of the first samples.

        It is 0 where the order is that of the settings, which all ranks share.

        Raises:
            PlanError: as for `of`.
        """
        order = self.of(segment)
        if keeps_order(self._config.policy.name) or isinstance(order, LaneOrder):
            return 0
        return crc32(b"".join(part.tobytes() for part in islice(order.used(), _MARKED_PIECES)))

    @cached_property
    def training(self) -> TrainingRows:
        """What a policy knows of the training rows."""
        config, manifest = self._config, self._manifest
        return TrainingRows(
            config.data.path,
            manifest.digest("train"),
            config.train.batch_size,
            config.train.seed,
            sample_look_ups=sum(replace(manifest, test=()).mean_look_ups),
            row_bytes=RowRecord.of(config).bytes,
            cache_rows=config.cache.rows,
            evaluated_every=config.train.evaluate_every_steps if config.train.evaluate and manifest.rows("test") else 0,
        )

    @cached_property
    def lanes(self) -> int:
        """From how many lanes the batches of the training are put together."""
        data, batch_size = self._config.data, self._config.train.batch_size
        if data.lanes == 1 or not data.shuffle or not takes_lanes(self._config.policy.name):
            return 1
        blocks = sum(-(-rows // data.block_rows) for rows in self._shard_rows)
        if data.lanes == AUTOMATIC:
            block_bytes = data.block_rows * _looked_up_bytes(replace(self._manifest, test=()))  # training rows alone
            return automatic_lanes(blocks, batch_size, most=int(_MOST_OPEN_BYTES / block_bytes))
        return usable_lanes(data.lanes, blocks, batch_size)

    @property
    def in_lanes(self) -> bool:
        """Whether blocks begin anew in each shard, and batches are put together from lanes, if only from one."""
        return self._config.data.lanes > 1 or self.lanes > 1

    def remark(self, trainers: int) -> str:
        """What is to be said of the lanes of a run with so many trainers; empty if nothing."""
        data, lanes = self._config.data, self.lanes
        if data.lanes == 1:
            return ""
        if not data.shuffle or not takes_lanes(self._config.policy.name):
            what = "without effect, since nothing is shuffled or the policy orders samples"
            return "" if data.lanes == AUTOMATIC else f"data.lanes = {data.lanes}: {what}"
        read = pieces_of_lanes(self._config.train.batch_size, lanes, trainers) / lanes
        shared = f"; {trainers} trainers read {read:.1f} times as much as they need" * (read > _MUCH_READ)
        if data.lanes == AUTOMATIC:  # so few data that there is one lane are soon read
            return f"batches are put together from {lanes} lanes of the data (data.lanes = 0){shared}" * (lanes > 1)
        if lanes == data.lanes:
            return f"data.lanes = {lanes}{shared}: take a multiple of the number of trainers" * bool(shared)
        return (
            f"data.lanes = {data.lanes}: {lanes} of them are used{shared}; more training rows, a larger "
            "train.batch_size or smaller data.block_rows have room for more"
        )

    def trainer_bytes(self, slices: int) -> int:
        """Memory for the blocks of one of so many slices: all but what its samples look up."""
        manifest = self._manifest
        sample_bytes: float = 4 * (manifest.dense_features + len(manifest.labels) + manifest.weighted_samples)
        if manifest.ragged_features:
            sample_bytes += 8 * len(manifest.features)
        if any(feature.weighted for feature in manifest.features):
            sample_bytes += 4 * sum(manifest.mean_look_ups)
        return self._block_bytes(sample_bytes, min(self.lanes, self.lanes // slices + 2))  # both ends are within a lane

    def oracle_bytes(self) -> int:
        """Memory for the blocks of whole batches: what their samples look up, and the samples' order."""
        return self._block_bytes(_looked_up_bytes(self._manifest), self.lanes)

    def _block_bytes(self, sample_bytes: float, blocks: int) -> int:
        """Memory for blocks that are open at once, and one more that is read."""
        return int((blocks + 1) * min(self._config.data.block_rows, sum(self._shard_rows)) * sample_bytes)

    def _default(self, segment: Segment) -> SampleOrder:
        """What the settings ask for; lanes take from its blocks, if there are any."""
        data, seed = self._config.data, self._config.train.seed
        shuffle = data.shuffle and segment.is_training
        if shuffle and self.in_lanes:
            rows = self._shard_rows
            return ShardBlocks(segment.samples, data.block_rows, seed, segment.epoch, shuffle, shard_rows=rows)
        return SampleOrder(segment.samples, data.block_rows, seed, segment.epoch, shuffle)

    @cached_property
    def _shard_rows(self) -> tuple[int, ...]:
        """Samples of each training shard."""
        return tuple(shard.rows for shard in self._manifest.shards("train"))


def _looked_up_bytes(manifest: ShardManifest) -> float:
    """What a sample of an open block takes of the oracle's memory: what it looks up, and its place in the order."""
    id_bytes, offsets = np.dtype(manifest.sparse_dtype).itemsize, 0
    if manifest.ragged_features:
        id_bytes, offsets = 8, 8 * len(manifest.features)
    return id_bytes * sum(manifest.mean_look_ups) + offsets + 8

"""Plans that were saved before a run: what they must have been made for, and their use in place of planning."""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.config.file import own_keys, to_document
from bagpipe_hpc.errors import ConfigError, PlanFileError
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange_grid import choose_grid
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.policy_choice import keeps_order, policy_class
from bagpipe_hpc.planning.sharing_choice import has_homes
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation.prepare import require_weights_alone
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.plans.manifest import MANIFEST_NAME, PlansManifest, load_manifest, segment_key
from bagpipe_hpc.storage.plans.plan_file import PLAN_AGAIN, PlanReader
from bagpipe_hpc.terminal import counted, shown

log = logging.getLogger(__name__)

_CUTS = (
    *("epochs", "max_steps", "checkpoint_every_steps", "evaluate", "evaluate_every_steps", "evaluate_samples"),
    *("keep_best", "stop_after"),
)
"""Settings of `[train]` that say where a run is cut into segments. They may differ as long as its segments do not."""


def require_savable(run: Run) -> None:
    """See that plans do not depend on what happens while the run trains.

    Raises:
        ConfigError: they do.
    """
    name, settings = run.config.policy.name, run.config.policy.settings
    if policy_class(name).watched(settings, run.sample_orders.training) is not None:
        raise ConfigError(
            f"policy.name = {name!r}: goes by the weights that rows have while the run trains, so its plans cannot be "
            "saved; plan while training (leave out --save and train.plans), or use another policy"
        )
    if policy_class(name).hears(settings):
        raise ConfigError(
            f"policy.name = {name!r}: orders samples by evaluations while the run trains, so its plans cannot be "
            "saved; plan while training (leave out --save and train.plans), or let its order be fixed"
        )


def plan_facts(run: Run, trainers: int) -> dict[str, Any]:
    """What decides the plans of a run's segments, by setting; plain values, as JSON has them."""
    config, manifest, orders = run.config, run.manifest, run.sample_orders
    sharing = run.policy(trainers).whole.facts.sharing
    grid = choose_grid(config.cache.exchange, trainers).grid if has_homes(sharing) else ()
    document = to_document(config)
    own = {key: document["policy"][key.partition(".")[2]] for key in own_keys(config, POLICIES)}
    files = {f"{key}, the file's SHA-256": file_sha256(path) for key, path in _named_files(own)}
    facts = {
        "data.path, digest of the training shards": manifest.digest("train"),
        "data.path, digest of the test shards": manifest.digest("test"),
        "data.path, rows of the tables": manifest.table_rows,
        "number of trainers": trainers,
        "train.seed": config.train.seed,
        "train.batch_size": config.train.batch_size,
        "data.shuffle": config.data.shuffle,
        "data.block_rows": config.data.block_rows,
        "data.lanes": [orders.lanes, orders.in_lanes],
        "lookahead.batches": config.lookahead.batches,
        "lookahead.group": config.lookahead.group_batches,
        "cache.rows": config.cache.rows,
        "cache.sharing": sharing,
        "cache.exchange": grid,
        "features.longest": config.features.longest,
        "features.longest_of": config.features.longest_of,
        "graph.fan_outs": config.graph.fan_outs,
        "model.embedding_dim_of, tables of each width": [group.tables.numbers for group in run.groups],
        "debug.verify_rows": config.debug.verify_rows,
        POLICIES.key: config.policy.name,
        **own,
        **files,
    }
    if not keeps_order(config.policy.name):
        facts["the samples' order, CRC-32 of the first batch"] = _first_batch(run)
    return {name: _plain(value) for name, value in facts.items()}


def cuts_of(run: Run) -> dict[str, Any]:
    """The settings that cut a run into segments, to be named where its segments are not those of saved plans."""
    return {f"train.{name}": _plain(getattr(run.config.train, name)) for name in _CUTS}


def _named_files(own: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Settings of a policy that name a file."""
    for key, value in own.items():
        if value and isinstance(value, str) and (path := Path(value)).is_file():
            yield key, path


def _first_batch(run: Run) -> int:
    """Of what the first batch of the training data looks up, in the order of the policy."""
    first = Segment(SegmentKind.TRAIN, 0, 0, 1, 0, run.manifest.rows("train"), run.config.train.batch_size, False)
    rows = next(run.batches(first))
    return crc32(rows.values.data)


def _plain(value: Any) -> Any:
    """As JSON reads it."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


class SavedPlans:
    """The plans of a run's segments, from the folder that `train.plans` names.

    Args:
        run: that is to use them; what it goes on from a checkpoint with must begin where a saved segment does.
        trainers: number T.

    Raises:
        ConfigError: the policy's plans cannot be saved, or do not go with other settings.
        PlanFileError: there are none, they are damaged, or they were made for another run.
    """

    def __init__(self, run: Run, trainers: int) -> None:
        require_savable(run)
        require_weights_alone(run.config)
        self._directory = Path(run.config.train.plans)
        self.manifest = load_manifest(self._directory)
        _require_same(self._directory / MANIFEST_NAME, self.manifest, run, trainers)
        self._saved = {segment.key: segment for segment in self.manifest.segments}
        self._first_step = run.steps_done if run.config.debug.verify_rows else 0
        self._require_segments(run)
        groups, file = len(self.manifest.slots), self._directory / self.manifest.file
        of = self.manifest
        self._reader = PlanReader(file, of.file_bytes, groups, trainers, of.largest_bytes, of.key)

    @property
    def need(self) -> CacheNeed:
        """The window of the plans, and the slots that they use: exact for the whole run, without a planner."""
        of = self.manifest
        window = Window(of.lookahead, of.group, of.serial)
        return CacheNeed(window, tuple(CacheSlots(slots.shared, slots.private) for slots in of.slots))

    def plans(self, segment: Segment, *, ends: bool = False) -> Iterator[BatchPlan]:
        """The plans of a segment; where the run `ends` there, the one of such a segment without batches.

        Raises:
            PlanFileError: they are damaged.
        """
        stretch = self.manifest.end(segment.kind.value) if ends else self._saved[segment_key(segment)].stretch
        plans = self._reader.plans(stretch)
        return (plan.without_versions_up_to(self._first_step) for plan in plans) if self._first_step else plans

    def verify(self, segments: Sequence[Segment]) -> None:
        """Read all plans of some segments.

        Raises:
            PlanFileError: they are damaged.
        """
        for segment in segments:
            for _ in chain(self.plans(segment), self.plans(segment, ends=True)):
                pass

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _require_segments(self, run: Run) -> None:
        """See that each segment was planned."""
        missing = next((segment for segment in run.schedule if segment_key(segment) not in self._saved), None)
        if missing is None:
            return
        if run.data_step:
            raise PlanFileError(
                f"{self._directory / MANIFEST_NAME}: has plans of a run from its start, and this one goes on with "
                f"later rows from step {run.steps_done}: leave out train.plans"
            )
        there = [saved for saved in self.manifest.segments if saved.first_step == missing.first_step]
        begins = " and ".join(f"{saved.kind} of {counted(saved.batches, 'batch')}" for saved in there) or "nothing"
        cuts, here = self.manifest.cuts, cuts_of(run)
        differences = _differences(cuts, here)
        if run.start and not differences:
            differences.append(f"the checkpoint to go on from is of step {run.steps_done}, within a saved segment")
        raise PlanFileError(
            f"{self._directory / MANIFEST_NAME}: segments: this run has {missing.kind.value} of {missing.batches} "
            f"batches from step {missing.first_step} on, and {begins} begins there: {'; '.join(differences)}. Set what "
            f"differs as it is there, resume from a checkpoint at which a saved segment ends; or {PLAN_AGAIN}"
        )


def _require_same(path: Path, manifest: PlansManifest, run: Run, trainers: int) -> None:
    """See that plans were made for this run.

    Raises:
        PlanFileError: they were not; the message names each difference, both values and the cure.
    """
    if differences := _differences(manifest.facts, plan_facts(run, trainers)):
        raise PlanFileError(
            f"{path}: the plans are of another run: {'; '.join(differences)}. Set what differs as it is there; or "
            f"{PLAN_AGAIN}"
        )


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Each setting that is not the same, with both values."""
    return [
        f"{name}: {shown(there.get(name))} there, {shown(here.get(name))} here"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]


def find_need(run: Run, trainers: int) -> CacheNeed:
    """The window and the cache of a run: those of saved plans where it has some, else as it measures them.

    Raises:
        BagpipeError: as by `choose_window`, or saved plans are not for this run, or are damaged.
    """
    if not run.config.train.plans:
        return choose_window(run, trainers)
    saved = SavedPlans(run, trainers)
    try:
        if run.config.data.verify == "full":
            saved.verify(run.schedule)
        need = saved.need
        log.info(
            "plans come from %s: a window of %s needs a cache of %d rows",
            run.config.train.plans,
            counted(need.window.lookahead, "batch"),
            need.total_rows,
        )
        return need
    finally:
        saved.close()

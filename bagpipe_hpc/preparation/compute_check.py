"""What can be known of a rank that computes, a trainer or the one-rank run, before it does anything."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from bagpipe_hpc.cache.formula_check import check_formula
from bagpipe_hpc.cache.row_cache import ROW_NUMBER_BYTES, require_slots
from bagpipe_hpc.cache.row_memory import trying_to_reserve
from bagpipe_hpc.cluster.core_share import require_cores
from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer
from bagpipe_hpc.models.optimizer.trial import state_numbers
from bagpipe_hpc.models.size import measure_model, weights_bytes
from bagpipe_hpc.models.sums.contract import has_horovod
from bagpipe_hpc.models.trial import try_model
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.run.evaluations import most_evaluation_bytes
from bagpipe_hpc.run.row_group import RowGroup
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.compute_setup import (
    check_gpu_memory,
    check_model_settings,
    choose_device,
    use_deterministic_algorithms,
)


def check_compute_settings(config: Config, gpu_number: int = 0, trainers: int = 1) -> torch.device:
    """See that this host can do what the settings ask for, whatever the data.

    Args:
        config: of the run.
        gpu_number: as for `choose_device`.
        trainers: number of trainers.

    Returns:
        The device that the rank will compute on.

    Raises:
        ConfigError: it cannot.
    """
    if config.train.dense_sums == "horovod" and trainers > 1 and not has_horovod():
        raise ConfigError(
            "train.dense_sums = 'horovod': Horovod is not installed here; use auto or mpi, or build it as "
            "docs/install.md says"
        )
    threads = {"train.threads": config.train.threads, "kernels.row_threads": config.kernels.row_threads}
    require_cores(threads, os.cpu_count() or 1)
    device = choose_device(config.train.device, gpu_number)
    check_model_settings(config, device)
    operations = row_operations(config.kernels.backend, device)
    for width in {config.model.embedding_dim, *config.model.embedding_dim_of.values()}:
        check_formula(config.optimizer, width, device, operations, config.rows_rate)
    return device


def check_reference_settings(config: Config) -> torch.device:
    """As `check_compute_settings`, for a run on one rank.

    Raises:
        ConfigError: as there, or the settings ask for what only several ranks can do.
    """
    if config.debug.verify_rows:
        raise ConfigError("debug.verify_rows = true: a one-rank run has no plan to check rows against; leave it out")
    if config.train.trace:
        raise ConfigError(f"train.trace = {config.train.trace!r}: a one-rank run has no roles to draw; leave it out")
    if config.train.plans:
        raise ConfigError(f"train.plans = {config.train.plans!r}: a one-rank run sends no plans; leave it out")
    return check_compute_settings(config)


def trainer_need(run: Run, trainers: int, gpu_number: int, caches: Sequence[CacheSlots] = ()) -> Need:
    """Main memory that a trainer takes; what it takes of a GPU is looked for there.

    Args:
        run: its tables, record and model decide what is held.
        trainers: number of trainers.
        gpu_number: as for `choose_device`.
        caches: slots of its row caches, of each group of tables; empty while they are not measured.

    Raises:
        CapacityError: its GPU has no room for it, or plans cannot number the slots.
    """
    for slots in caches:
        require_slots(slots.total)
    device = choose_device(run.config.train.device, gpu_number)
    need = trainer_memory(run, trainers, caches)
    if device.type == "cpu":
        return need
    noted = _noted_bytes(run)
    check_gpu_memory(device, sum(slots.total for slots in caches), need.caches_bytes - noted, need.dense_bytes)
    return replace(need, caches_bytes=noted, dense_bytes=0)


def trainer_memory(run: Run, trainers: int, caches: Sequence[CacheSlots] = ()) -> Need:
    """What a trainer takes of any memory, its GPU's or its host's; arguments as for `trainer_need`."""
    groups = zip(run.groups, caches, strict=True) if caches else ()
    cache_bytes = sum(slots.held * _slot_bytes(group) for group, slots in groups)
    return Need(
        caches_bytes=cache_bytes + _noted_bytes(run),
        dense_bytes=_dense_bytes(run, trainers, slices=trainers),
        evaluation_bytes=most_evaluation_bytes(run, trainers),
        reading_bytes=run.sample_orders.trainer_bytes(trainers),
    )


def _noted_bytes(run: Run) -> int:
    """What increments of checkpoints take: a bit for each row."""
    return run.total_rows // 8 if run.config.train.full_checkpoint_every > 1 else 0


def trying_to_reserve_slots(run: Run, gpu_number: int, caches: Sequence[CacheSlots]) -> AbstractContextManager[bool]:
    """Whether a trainer can have addresses for all slots of its caches; the body has them.

    Arguments as for `trainer_need`.
    """
    if choose_device(run.config.train.device, gpu_number).type != "cpu":
        return nullcontext(enter_result=False)
    groups = zip(run.groups, caches, strict=True)
    return trying_to_reserve(sum(slots.total * _slot_bytes(group) for group, slots in groups))


def _slot_bytes(group: RowGroup) -> int:
    return group.record.bytes + ROW_NUMBER_BYTES


def check_model(run: Run, gpu_number: int = 0) -> list[float]:
    """Try the run's model on a few samples, where the rank will compute; after its memory was found to be there.

    Returns:
        Its logits, as `try_model` does.

    Raises:
        ConfigError: it does not keep to its contract, or the dense optimizer does not take its weights.
    """
    device = choose_device(run.config.train.device, gpu_number)
    if run.config.train.deterministic and device.type != "cpu":
        use_deterministic_algorithms()
    logits = try_model(run.config.model, run.model_facts, device)
    dense_optimizer(run.config.optimizer, build_model(run.config.model, run.model_facts).parameters())
    return logits


def require_reference_memory(run: Run, device: torch.device) -> None:
    """See that one process can hold a whole run: every table in its cache, and once more while it starts or saves.

    Raises:
        CapacityError: it cannot.
    """
    for group in run.groups:
        require_slots(group.tables.total_rows)
    tables = sum(group.tables.total_rows * group.record.bytes for group in run.groups)
    dense = _dense_bytes(run, trainers=1, slices=run.config.train.reference_slices)
    evaluation = most_evaluation_bytes(run, trainers=1)
    slices, orders = run.config.train.reference_slices, run.sample_orders
    reading = slices * orders.trainer_bytes(slices) + orders.oracle_bytes()
    copies = 2
    if device.type != "cpu":
        check_gpu_memory(device, run.total_rows, tables, dense)
        copies, dense = 1, 0  # what is not copied is there
    needed = copies * tables + dense + evaluation + reading
    free = free_bytes()
    if needed > free:
        raise CapacityError(
            f"a run on one rank needs {needed / 1e9:.1f} GB: {'twice ' * (copies == 2)}the tables' {tables / 1e9:.1f} "
            f"GB, since they are copied when it starts and saves, {dense / 1e9:.1f} GB for the dense model with a step "
            f"and {evaluation / 1e9:.1f} GB for an evaluation, {reading / 1e9:.1f} GB for samples that were read; this "
            f"host has {free / 1e9:.1f} GB free: use more ranks, a smaller model.embedding_dim or another smaller "
            "model ([model]), fewer rows or data.lanes, or a smaller train.exact_auc_samples"
        )


def _dense_bytes(run: Run, trainers: int, slices: int) -> int:
    """Memory for the dense half and for what a step computes on a slice of a batch."""
    config = run.config
    size = measure_model(config.model, run.model_facts, -(-run.batch_samples // slices))
    state, train = state_numbers(config.optimizer), config.train
    of_step = size.step_bytes
    if trainers > 1 and train.share_of_late_weights:
        of_step *= 2  # gradients of all that layers compute are kept
    return of_step + weights_bytes(
        size.weights, state, trainers, deterministic=train.deterministic, sums=train.dense_sums
    )

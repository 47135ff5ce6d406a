"""What can be known of a rank before it does anything: from the settings, from the data, from the plan.

Checks are made on every rank, in this order; what some compare with is found by the oracle. An error of one rank
refuses the run on all.
"""

import os
import shutil
import socket
from collections.abc import Callable
from typing import Any

from bagpipe_hpc.cluster.core_share import require_cores
from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.config.doors import POLICIES, SettingError
from bagpipe_hpc.config.file import doors, own_keys, to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.kernels.block_file import block_files
from bagpipe_hpc.kernels.grid_hops import grid_hops
from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.rows.window import require_addressable
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.preparation.resume import verify_share
from bagpipe_hpc.rows.disk.block_file import disk_unit
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.placement import check_partition, partition_mark, require_same_partition
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted


def check_settings(config: Config, comms: Communicators, check_output: Callable[[], None]) -> None:
    """What settings and hosts alone say of this rank; trainers import torch here.

    Args:
        config: of the run.
        comms: this rank's communicators.
        check_output: sees that what the run leaves behind can be written; called on the oracle.

    Raises:
        BagpipeError: it could not run.
    """
    if config.train.reference_slices > 1:
        raise ConfigError(
            f"train.reference_slices = {config.train.reference_slices}: only a one-rank run sums over slices; "
            "leave it out"
        )
    RowRoutes.choose(comms.layout, comms.hosts, config.roles.same_host)
    build_row_optimizer(config.optimizer)
    if comms.role is Role.ORACLE:
        check_output()
        threads = {
            "kernels.planner_threads": config.kernels.planner_threads,
            "data.reader_threads": config.data.reader_threads,
        }
        require_cores(threads, os.cpu_count() or 1)
        return
    row_copies(config.kernels.backend)
    if comms.role is Role.TRAINER:
        grid_hops(config.kernels.backend)
        from bagpipe_hpc.preparation.compute_check import check_compute_settings  # noqa: PLC0415 - torch, on trainers only

        check_compute_settings(config, comms.gpu_number, comms.layout.trainers)


def facts_of_entries(config: Config) -> dict[str, Any]:
    """What the classes that doors name are like on this rank, in plain values: own settings, and the state of a row."""
    values = to_document(config)
    keys = [key for door in doors().values() for key in (door.key, *own_keys(config, door))]
    facts = {key: values[section][name] for key in keys for section, _, name in [key.partition(".")]}
    state = [f"{part.layout}, first {part.first}" for part in RowRecord.of(config).state]
    return {**facts, "state of optimizer.rows": state}


def require_same_entries(config: Config, oracle: dict[str, Any]) -> None:
    """See that this rank has found the classes that the oracle has found, as far as their settings and state tell.

    Args:
        config: of the run, as this rank has read it.
        oracle: its `facts_of_entries`.

    Raises:
        ConfigError: another host has another version of a module.
    """
    own = facts_of_entries(config)
    for key in {**oracle, **own}:
        if (here := own.get(key)) != (there := oracle.get(key)):
            raise ConfigError(
                f"{key}: {here!r} on host {socket.gethostname()}, {there!r} on the oracle's: let all hosts have the "
                "same configuration and the same modules"
            )


def check_run(run: Run, comms: Communicators) -> Need:
    """What can be known of this rank before the run is planned.

    Returns:
        The least memory that it takes: all of a server's, a trainer's without the cache, the tables' part of a planner.

    Raises:
        BagpipeError: it could not run.
    """
    for group, partition in zip(run.groups, run.partitions(comms.layout.servers), strict=True):
        check_partition(partition, run.config.tables, group.tables.tables, comms.layout.servers)
        require_addressable(row_routes(run, comms), partition)
    if not run.is_in_memory(comms.layout.servers):
        check_disk(run, comms)
    if comms.role is Role.ORACLE:
        policy = run.policy(comms.layout.trainers)
        return _oracle_need(run, policy, policy.least_bytes(policy.window(run.window), run.longest_segment))
    return memory_need(run, None, comms)


def _oracle_need(run: Run, policy: RunPolicy, planner_bytes: int) -> Need:
    """With plans that were saved it neither plans nor reads samples."""
    if run.config.train.plans:
        return Need()
    reading_bytes = run.sample_orders.oracle_bytes()
    return Need(planner_bytes=planner_bytes, reading_bytes=reading_bytes, smaller_planner=policy.smaller_state)


def check_disk(run: Run, comms: Communicators) -> None:
    """See that rows can lie on the disks of the servers' hosts, before anything is written there.

    Raises:
        CapacityError: the memory for them, or a disk, is too small.
        ConfigError: settings do not go together, or a disk does not fit.
        FileError: a folder is not there or cannot be written to.
    """
    tables, servers = run.config.tables, comms.layout.servers
    if not tables.ssd_path:
        raise ConfigError(
            f"tables.memory_gb = {tables.memory_gb}: {max(run.server_bytes(servers)) / 1e9:.3f} GB of rows on a server "
            "do not fit; set tables.ssd_path to a folder on a local disk of each server's host, or use 0"
        )
    if run.config.roles.transfers == "one_sided":
        raise ConfigError(
            f"roles.transfers = {run.config.roles.transfers!r}: rows on disk (tables.memory_gb) travel by messages "
            "alone; use roles.transfers=messages or auto"
        )
    if comms.role is not Role.SERVER:
        return
    block_files(run.config.kernels.backend)
    unit_bytes = disk_unit(tables.ssd_path, may_be_memory=run.config.debug.ssd_path_in_memory)
    layouts = run.disk_layouts(servers, comms.role_rank, unit_bytes)
    memory = run.disk_memory(servers, comms.role_rank, unit_bytes)
    for layout, memory_bytes in zip(layouts, memory, strict=True):
        layout.frames_in(memory_bytes)
    sharers = comms.servers_here
    wanted = sum(layout.file_bytes for server in sharers for layout in run.disk_layouts(servers, server, unit_bytes))
    free = shutil.disk_usage(tables.ssd_path).free
    if wanted > free:
        raise CapacityError(
            f"tables.ssd_path = {tables.ssd_path!r}: the rows of {counted(len(sharers), 'server')} on "
            f"{socket.gethostname()} take {wanted / 1e9:.3f} GB there, and {free / 1e9:.3f} GB are free; make room, or "
            "name another folder"
        )


def placement_marks(run: Run, comms: Communicators) -> list[int]:
    """By what the ranks see whether all of them place the rows in the same way: of each group of tables."""
    groups = zip(run.groups, run.partitions(comms.layout.servers), strict=True)
    return [partition_mark(partition, group.tables.tables) for group, partition in groups]


def check_placement(run: Run, marks: list[int], comms: Communicators) -> None:
    """See that this rank places the rows as the oracle does, which has found `marks`.

    Raises:
        ConfigError: it does not.
    """
    for group, partition, mark in zip(run.groups, run.partitions(comms.layout.servers), marks, strict=True):
        require_same_partition(partition, run.config.tables, group.tables.tables, mark)


def order_mark(run: Run) -> int:
    """By what ranks see whether all of them order the samples in the same way."""
    first = next((segment for segment in run.schedule if segment.is_training), None)
    return 0 if first is None else run.sample_orders.mark(first)


def check_order(run: Run, mark: int, comms: Communicators) -> None:
    """See that a trainer reads samples in the order of the oracle, which has found `mark`.

    Raises:
        SettingError: its policy gives it another one: it would train with the rows of other samples.
    """
    if comms.role is Role.TRAINER and order_mark(run) != mark:
        raise SettingError(
            POLICIES.key,
            run.config.policy.name,
            "its order() gives different ranks different orders; let it depend on nothing but its arguments: on no "
            "hash of a text, no set, and no random number that is not seeded",
        )


def check_start(run: Run, comms: Communicators) -> list[float] | None:
    """What can be known with the memory that was found.

    Trainers try the model. Of the checkpoint that the run begins with, servers read a share each, trainers the dense
    half.

    Returns:
        What `check_same_models` compares; None but on trainers.

    Raises:
        CheckpointError: it is damaged, or does not fit.
        ConfigError: the model does not keep to its contract.
    """
    if comms.role is Role.SERVER and run.read_first is not None:
        verify_share(run.read_first, comms.role_rank, comms.layout.servers)
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.preparation.compute_check import check_model  # noqa: PLC0415 - torch, on trainers only
        from bagpipe_hpc.run.start.dense_start import check_dense  # noqa: PLC0415 - as above

        logits = check_model(run, comms.gpu_number)
        check_dense(run)
        return logits
    return None


def check_same_models(run: Run, own: list[float] | None, comms: Communicators) -> None:
    """See that all trainers compute with the same model, as far as a few samples tell. Collective over: the trainers.

    Args:
        run: names the model.
        own: the logits that `check_start` has found here; None on ranks that do not train.
        comms: this rank's communicators.

    Raises:
        ConfigError: on each, if one does not.
    """
    if own is None or comms.layout.trainers == 1:
        return
    from bagpipe_hpc.models.trial import require_same_logits  # noqa: PLC0415 - torch, on trainers only

    with TimeLimit("the other trainers to say what their models give", run.config.train.timeout_s):
        of_trainers = comms.trainers.allgather(own)
    require_same_logits(run.config.model, of_trainers)


def memory_need(run: Run, need: CacheNeed | None, comms: Communicators) -> Need:
    """Main memory that this rank is about to allocate.

    Args:
        run: settings, tables and record decide what is allocated.
        need: what the planner has found out; None before.
        comms: this rank's communicators.

    Raises:
        CapacityError: a trainer's GPU has no room for its part, or plans cannot number its slots.
    """
    if comms.role is Role.SERVER and not run.is_in_memory(comms.layout.servers):
        return Need(frames_bytes=int(run.config.tables.memory_gb * 1e9))
    if comms.role is Role.SERVER:
        tables_bytes = run.server_bytes(comms.layout.servers)[comms.role_rank]
        is_alone = len(row_routes(run, comms).sharers(comms.world.Get_rank())) == 1
        return Need(tables_bytes=tables_bytes, fullest_server_bytes=tables_bytes, tables_alone=is_alone)
    if comms.role is Role.ORACLE:
        return _oracle_need(run, run.policy(comms.layout.trainers), need.planner_bytes if need else 0)
    from bagpipe_hpc.preparation.compute_check import trainer_need  # noqa: PLC0415 - torch, on trainers only

    return trainer_need(run, comms.layout.trainers, comms.gpu_number, need.groups if need else ())


def row_routes(run: Run, comms: Communicators) -> RowRoutes:
    """The ways that rows take; raises `ConfigError` where those that are asked for do not exist."""
    in_memory = run.is_in_memory(comms.layout.servers)
    return RowRoutes.choose(comms.layout, comms.hosts, run.config.roles.same_host, in_memory=in_memory)

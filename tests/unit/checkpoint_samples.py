"""Small checkpoints for tests."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bagpipe_hpc.rows.groups import table_groups
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, Tables
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic, CheckpointManifest
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter, base_of


def sample_records(table_rows: tuple[int, ...], columns: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows of all tables in order, float32 `[rows, columns]`, any bits but NaN and infinity."""
    bits = np.random.default_rng(seed).integers(0, 2**32, (sum(table_rows), columns), np.uint32)
    records = bits.view(np.float32)
    return np.where(np.isfinite(records), records, np.float32(1.5))


def sample_state(columns: int) -> tuple[StateColumns, ...]:
    """Of so many columns; one is row-wise Adagrad's."""
    return tuple(StateColumns(f"part_{k}" if k else "sum_of_mean_squares", per_weight=False) for k in range(columns))


def trained_dense(seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a small model and its optimizer after a step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return model.state_dict(), optimizer.state_dict()


def write_checkpoint(
    output: Path,
    records: NDArray[np.float32],
    table_rows: tuple[int, ...],
    *,
    servers: int = 1,
    state_columns: int = 1,
    step: int = 100,
    row_optimizer: str = "rowwise_adagrad",
    dense: tuple[dict[str, Any], dict[str, Any]] | None = None,
    base: Path | None = None,
    updated: NDArray[np.int64] | None = None,
    partition: RowPartition | None = None,
    **facts: Any,
) -> Path:
    """Write a checkpoint of these rows as so many servers would; gives its directory.

    With `base` it is an increment on that checkpoint, and holds only the rows `updated`. Rows are dealt round-robin
    unless a `partition` is given. Other `facts` replace fields of the manifest.
    """
    partition = partition or RoundRobinPartition(len(records), servers)
    embedding_dim = records.shape[1] - state_columns
    writer = CheckpointWriter(output, step)
    files = _write_rows(writer, records, embedding_dim, partition, updated)
    files.append(writer.write_dense(*(dense or trained_dense())))
    manifest = CheckpointManifest(
        **_training_at(step),
        **_names_of(table_rows),
        embedding_dim=embedding_dim,
        row_optimizer=row_optimizer,
        row_state_columns=state_columns,
        row_state=sample_state(state_columns),
        servers=partition.servers,
        base=base_of(base) if base else None,
        files=tuple(files),
    )
    return writer.commit(replace(manifest, **facts))


STATE_OF_WIDTHS = (StateColumns("sum", per_weight=False), StateColumns("moment", per_weight=True))
"""Of the rows of `write_tables`: its columns depend on their width."""


def sample_tables(rows: Sequence[int], widths: Sequence[int], seed: int = 0) -> list[NDArray[np.float32]]:
    """Records of each table with `STATE_OF_WIDTHS`, float32 `[rows, 2 * width + 1]`."""
    return [sample_records((own,), 2 * width + 1, seed + width) for own, width in zip(rows, widths, strict=True)]


def write_tables(
    output: Path,
    tables: Sequence[NDArray[np.float32]],
    *,
    placement: type[RowPartition] = RoundRobinPartition,
    servers: int = 2,
    step: int = 100,
    base: Path | None = None,
    updated: Sequence[Sequence[int]] | None = None,
    **facts: Any,
) -> Path:
    """Write a checkpoint of tables of several widths, as of `sample_tables`; gives its directory.

    The first one's width is `embedding_dim`. With `base` it is an increment, and holds only the ids `updated` of each
    table. Other `facts` replace fields of the manifest.
    """
    widths = tuple(table.shape[1] // 2 for table in tables)
    named = _names_of(tuple(map(len, tables)))
    groups = table_groups(Tables(named["table_rows"], named["table_names"]), widths)
    writer, files = CheckpointWriter(output, step), []
    for group in groups:
        records = np.concatenate([tables[number] for number in group.numbers])
        rows = None
        if updated is not None:
            ids = [np.array(updated[number], np.int64) for number in group.numbers]
            rows = np.concatenate([first + own for first, own in zip(group.tables.offsets, ids, strict=False)])
        partition = placement.place(group.tables, servers, None)
        files += _write_rows(writer, records, group.width, partition, rows, names_width=len(groups) > 1)
    files.append(writer.write_dense(*trained_dense()))
    manifest = CheckpointManifest(
        **_training_at(step),
        **named,
        table_widths=widths,
        embedding_dim=widths[0],
        row_optimizer="my:Own",
        row_state_columns=widths[0] + 1,
        row_state=STATE_OF_WIDTHS,
        servers=servers,
        base=base_of(base) if base else None,
        files=tuple(files),
    )
    return writer.commit(replace(manifest, **facts))


def _write_rows(
    writer: CheckpointWriter,
    records: NDArray[np.float32],
    width: int,
    partition: RowPartition,
    updated: NDArray[np.int64] | None,
    *,
    names_width: bool = False,
) -> list[FileInfo]:
    """Write the files of all servers, the last one first."""
    files = []
    for server in reversed(range(partition.servers)):
        rows, positions = records[partition.rows_of(server, 0, partition.rows_on(server))], None
        if updated is not None:
            positions = np.unique(partition.offset(updated[partition.owner(updated) == server]))
            rows = rows[positions]
        files.append(writer.write_rows(server, partition, rows, width, positions, names_width=names_width))
    return files


def _training_at(step: int) -> dict[str, Any]:
    """What manifests say of the training, where nothing else is asked for."""
    return {
        "step": step,
        "epoch": step // 80,
        "epoch_step": step % 80,
        "seed": 7,
        "batch_size": 32,
        "train_samples": 2560,
        "training_data": "1" * 64,
        "evaluation_data": "2" * 64,
        "placement": "round_robin",
        "arithmetic": Arithmetic(trainers=2, linear="torch", device="cpu", threads=1),
        "config": {"train": {"seed": 7}},
    }


def _names_of(table_rows: tuple[int, ...]) -> dict[str, Any]:
    return {"table_names": tuple(f"C{number}" for number in range(1, len(table_rows) + 1)), "table_rows": table_rows}

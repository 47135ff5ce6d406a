"""What a new training begins with where `train.warm_start` names a checkpoint: which of its rows, by which rule."""

import logging
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError, DataError
from bagpipe_hpc.run.data_lineage import Lineage, lineage
from bagpipe_hpc.run.features import table_widths
from bagpipe_hpc.run.output_folder import is_own_checkpoint
from bagpipe_hpc.run.table_origins import Origins, TableOrigin, WarmStart
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest

log = logging.getLogger(__name__)


def find_warm_start(config: Config, shards: ShardManifest) -> WarmStart | None:
    """The checkpoint whose weights the run begins with; None where they come from the seed.

    Its files are there with their sizes; their contents are compared later.

    Raises:
        CheckpointError: it is absent or incomplete, or its rows are none for these tables.
        ConfigError: it lies where the run is about to write.
    """
    if not config.train.warm_start:
        return None
    checkpoint = load_checkpoint(Path(config.train.warm_start))
    checkpoint.verify(quick=True)
    if is_own_checkpoint(config, checkpoint):
        raise ConfigError(
            f"train.warm_start = {config.train.warm_start!r}: lies in train.output, where this run would replace it; "
            "set another train.output, or train.resume to go on with that training"
        )
    takes = config.train.warm_start_takes
    rows = None if takes == "dense" else _origins(checkpoint, config, shards)
    log.info("warm start: %s, weights of step %d (%s)", checkpoint.directory, checkpoint.manifest.step, takes)
    return WarmStart(checkpoint, rows, takes_dense=takes != "rows")


def _origins(checkpoint: Checkpoint, config: Config, shards: ShardManifest) -> Origins:
    """Which tables begin with the rows of the checkpoint; says of the others that they do not."""
    then = checkpoint.manifest
    names = [table.name for table in shards.tables]
    shared = [name for name in names if name in then.table_names]
    if not shared:
        raise CheckpointError(
            f"{checkpoint.directory}: has rows of {_listed(then.table_names)}, and the data tables "
            f"{_listed(names)}: none in common; use another checkpoint, or set train.warm_start_takes=dense"
        )
    if new := [name for name in names if name not in shared]:
        log.info("warm start: %s are not in the checkpoint and begin with new rows", _listed(new))
    if left := [name for name in then.table_names if name not in shared]:
        log.info("warm start: %s of the checkpoint are not among the tables of the data", _listed(left))
    _require_widths(checkpoint, config, names, shared)
    earlier = _data_of_values(checkpoint, shards)
    tables = []
    for name in shared:
        number = then.table_names.index(name)
        by_value = earlier is not None and not _is_hashed_alike(checkpoint, earlier, shards, name)
        tables.append(TableOrigin(name, number, earlier if by_value else None))
    return Origins(checkpoint, tuple(tables), with_state=False)


def _require_widths(checkpoint: Checkpoint, config: Config, names: list[str], shared: list[str]) -> None:
    widths = dict(zip(names, table_widths(config.model, tuple(names)), strict=True))
    then = dict(zip(checkpoint.manifest.table_names, checkpoint.manifest.widths, strict=True))
    for name in shared:
        if widths[name] != then[name]:
            raise CheckpointError(
                f"{checkpoint.directory}: rows of table {name} have {then[name]} numbers there, and {widths[name]} in "
                "this run: set model.embedding_dim or model.embedding_dim_of as there, or train.warm_start_takes=dense"
            )


def _data_of_values(checkpoint: Checkpoint, shards: ShardManifest) -> Path | None:
    """The data that says which values the checkpoint's ids are; None where ids are the same in this run's data."""
    then = checkpoint.manifest
    if lineage(then, shards) is not Lineage.OTHER:
        return None
    path = Path(str(then.config.get("data", {}).get("path", "")))
    where = f"{checkpoint.directory}: its ids are those of other data, {path}"
    if then.vocabularies is None:
        raise CheckpointError(
            f"{where}, and it does not say which vocabulary that had; set train.warm_start_takes=dense, or begin with "
            "a checkpoint of a newer version"
        )
    try:
        earlier = load_manifest(path)
    except DataError as error:
        raise CheckpointError(
            f"{where}, whose vocabulary tells which row is which value: {error}; put it there again, or set "
            "train.warm_start_takes=dense"
        ) from error
    found = earlier.vocabularies.sha256 if earlier.vocabularies else None
    if found != then.vocabularies:
        raise CheckpointError(
            f"{where}, which has another vocabulary now ({found} instead of {then.vocabularies}); put that of the "
            "checkpoint there again, or set train.warm_start_takes=dense"
        )
    return path


def _is_hashed_alike(checkpoint: Checkpoint, earlier: Path, shards: ShardManifest, table: str) -> bool:
    """Whether a table's values were hashed to the same rows in both; refuses one that was hashed in one alone."""
    before = load_manifest(earlier)
    hashed = [table in data.hashed_tables for data in (before, shards)]
    if not any(hashed):
        return False
    rows = [next(info.rows for info in data.tables if info.name == table) for data in (before, shards)]
    if all(hashed) and rows[0] == rows[1]:
        return True
    words = [f"{'hashed to ' if is_hashed else ''}{count} rows" for is_hashed, count in zip(hashed, rows, strict=True)]
    raise CheckpointError(
        f"{checkpoint.directory}: table {table} has {words[0]} there, and {words[1]} in this run's data: which row is "
        "which value cannot be told; prepare the data with --like, or set train.warm_start_takes=dense"
    )


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")

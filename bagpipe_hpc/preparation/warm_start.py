"""What a new training begins with where `train.warm_start` names a trained model: which of its rows, by which rule."""

import logging
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError, DataError
from bagpipe_hpc.run.features import table_widths
from bagpipe_hpc.run.output.folder import is_own_checkpoint, require_kept
from bagpipe_hpc.run.start.data_lineage import Lineage, lineage
from bagpipe_hpc.run.start.table_origins import Origins, SavedTables, TableOrigin, WarmStart
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.exported import ExportedModel, is_exported, load_exported
from bagpipe_hpc.storage.shards.columns import (
    FITTED,
    OF_TABLES,
    column_words,
    differing_columns,
    unknown_columns,
    value_words,
)
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.terminal import shortened

log = logging.getLogger(__name__)


def find_warm_start(config: Config, shards: ShardManifest) -> WarmStart | None:
    """The trained model whose weights the run begins with; None where they come from the seed.

    Its files are there with their sizes; their contents are compared later.

    Raises:
        CheckpointError: it is absent or incomplete, or its rows are none for these tables.
        ConfigError: it lies where the run is about to write.
    """
    if not config.train.warm_start:
        return None
    path = Path(config.train.warm_start)
    source = load_exported(path) if is_exported(path) else load_checkpoint(path)
    source.verify(quick=True)
    if isinstance(source, Checkpoint) and is_own_checkpoint(config, source):
        raise ConfigError(
            f"train.warm_start = {config.train.warm_start!r}: lies in train.output, where this run would replace it; "
            "set another train.output, or train.resume to go on with that training"
        )
    for folder in [layer.directory for layer in source.layers()] if isinstance(source, Checkpoint) else [path]:
        require_kept(config, "train.warm_start", config.train.warm_start, folder)
    takes = config.train.warm_start_takes
    _require_columns(source, shards, takes_dense=takes != "rows")
    rows = None if takes == "dense" else _origins(source, config, shards)
    step = source.manifest.step if isinstance(source, Checkpoint) else source.step
    log.info("warm start: %s, weights of step %d (%s)", source.directory, step, takes)
    return WarmStart(source, rows, takes_dense=takes != "rows")


def _require_columns(source: Checkpoint | ExportedModel, shards: ShardManifest, *, takes_dense: bool) -> None:
    """See that dense weights multiply the columns that they were trained on; say where numbers were fitted anew.

    Raises:
        CheckpointError: labels, dense features or look-ups are others, or are made in another way.
    """
    then = source.manifest if isinstance(source, Checkpoint) else source
    if then.training_data == shards.digest("train"):
        return
    words = then.columns, column_words(shards)
    if takes_dense and (unknown := unknown_columns(*words)):
        log.warning("warm start: %s: %s", source.directory, unknown)
    differing = differing_columns(*words, pass_over=FITTED + OF_TABLES)
    if differing and takes_dense:
        raise CheckpointError(
            f"{source.directory}: its dense weights are of other columns: {shortened(differing[0])} then, "
            f"{shortened(differing[1])} now; prepare the data with the same columns, or set train.warm_start_takes=rows"
        )
    if fitted := differing or differing_columns(*words, pass_over=OF_TABLES):
        log.warning(
            "warm start: columns are not made as those that %s was trained on: %s then, %s now",
            source.directory,
            *map(shortened, fitted),
        )


def say_rows_taken(start: WarmStart, directory: Path, shards: ShardManifest) -> None:
    """Say how many rows of each table are the trained model's; those of other tables are all new.

    Args:
        start: what the run begins with.
        directory: of the run's data.
        shards: its manifest.

    Raises:
        CheckpointError: a file of the trained model is damaged.
        DataError: a file of values is missing or damaged.
    """
    if start.rows is None:
        log.info("warm start: all rows are new")
        return
    then = start.source.manifest if isinstance(start.source, Checkpoint) else start.source
    before = dict(zip(then.table_names, then.table_rows, strict=True))
    taken = dict.fromkeys((table.name for table in shards.tables), 0)
    for origin in start.rows.tables:
        taken[origin.table] = start.rows.rows_taken(origin.table, before[origin.table], (directory, shards))
    told = ", ".join(f"{table.name} {taken[table.name]:,} of {table.rows:,}" for table in shards.tables)
    found = sum(taken.values())
    new = sum(shards.table_rows) - found
    log.info("warm start: %s rows are trained ones, the other %s begin anew: %s", f"{found:,}", f"{new:,}", told)


def _origins(source: Checkpoint | ExportedModel, config: Config, shards: ShardManifest) -> Origins:
    """Which tables begin with trained rows; says of the others that they do not."""
    then = source.manifest if isinstance(source, Checkpoint) else source
    names = [table.name for table in shards.tables]
    shared = [name for name in names if name in then.table_names]
    if not shared:
        raise CheckpointError(
            f"{source.directory}: has rows of {_listed(then.table_names)}, and the data tables {_listed(names)}: none "
            "in common; use another one, or set train.warm_start_takes=dense"
        )
    if new := [name for name in names if name not in shared]:
        log.info("warm start: %s are not in the checkpoint and begin with new rows", _listed(new))
    if left := [name for name in then.table_names if name not in shared]:
        log.info("warm start: %s of the checkpoint are not among the tables of the data", _listed(left))
    _require_widths(source, config, names, shared)
    rows = SavedTables(source, with_state=False) if isinstance(source, Checkpoint) else source
    if (data := lineage(then, shards)) is not Lineage.OTHER:
        return Origins(rows, tuple(map(TableOrigin, shared)), has_grown=data is Lineage.GROWN)
    values: Path | ExportedModel
    if isinstance(source, ExportedModel):
        values = source
        before = dict(zip(source.table_names, source.table_rows, strict=True)), source.hashed_tables
        made_of = source.hashed_from
    else:
        values = _data_of_values(source)
        earlier = load_manifest(values)
        before = {table.name: table.rows for table in earlier.tables}, earlier.hashed_tables
        made_of = {name: value_words(earlier, name) for name in earlier.hashed_tables}
    for name in shared:
        if name in made_of and name in shards.hashed_tables:
            _require_same_hash(source.directory, made_of[name], value_words(shards, name), name)
    origins = (
        TableOrigin(name, None if _is_hashed_alike(source.directory, *before, shards, name) else values)
        for name in shared
    )
    return Origins(rows, tuple(origins))


def _require_widths(source: Checkpoint | ExportedModel, config: Config, names: list[str], shared: list[str]) -> None:
    widths = dict(zip(names, table_widths(config.model, tuple(names)), strict=True))
    if isinstance(source, Checkpoint):
        then = dict(zip(source.manifest.table_names, source.manifest.widths, strict=True))
    else:
        then = dict(zip(source.table_names, source.table_widths, strict=True))
    for name in shared:
        if widths[name] != then[name]:
            raise CheckpointError(
                f"{source.directory}: rows of table {name} have {then[name]} numbers there, and {widths[name]} in "
                "this run: set model.embedding_dim or model.embedding_dim_of as there, or train.warm_start_takes=dense"
            )


def _data_of_values(checkpoint: Checkpoint) -> Path:
    """The data that says which values the checkpoint's ids are."""
    then = checkpoint.manifest
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


def _is_hashed_alike(
    directory: Path, rows_before: dict[str, int], hashed_before: tuple[str, ...], shards: ShardManifest, table: str
) -> bool:
    """Whether a table's values were hashed to the same rows in both; refuses one that was hashed in one alone."""
    hashed = [table in names for names in (hashed_before, shards.hashed_tables)]
    if not any(hashed):
        return False
    rows = [rows_before[table], next(info.rows for info in shards.tables if info.name == table)]
    if all(hashed) and rows[0] == rows[1]:
        return True
    words = [f"{'hashed to ' if is_hashed else ''}{count} rows" for is_hashed, count in zip(hashed, rows, strict=True)]
    raise CheckpointError(
        f"{directory}: table {table} has {words[0]} there, and {words[1]} in this run's data: which row is which value "
        "cannot be told; prepare the data with --like, or set train.warm_start_takes=dense"
    )


def _require_same_hash(directory: Path, before: frozenset[str], after: frozenset[str], table: str) -> None:
    """See that what is hashed to the ids of a table is made of the same values, where both are known."""
    if before and after and before != after:
        raise CheckpointError(
            f"{directory}: table {table} was hashed from {shortened(', '.join(sorted(before)))} there, and from "
            f"{shortened(', '.join(sorted(after)))} in this run's data: the same value has another row; prepare the "
            "data with --like, or set train.warm_start_takes=dense"
        )


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")

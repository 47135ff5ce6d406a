"""What is exported: a checkpoint, and what its data says of features, tables and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bagpipe_hpc.config.file import config_of
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, DataError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.run.features import read_limits
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE
from bagpipe_hpc.storage.shards.check import check_vocabularies
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest

_MISFITS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""What torch raises about states that are not those of its module."""


@dataclass(frozen=True)
class ExportSource:
    """A checkpoint beside the data that it was trained on.

    Attributes:
        checkpoint: the trained model.
        config: the settings of the run that wrote it.
        directory: the shard directory.
        shards: its manifest; of the directory nothing but this and the vocabularies is needed.
        facts: what the model was told of its inputs.
    """

    checkpoint: Checkpoint
    config: Config
    directory: Path
    shards: ShardManifest
    facts: ModelFacts

    @property
    def most_ids(self) -> tuple[int, ...]:
        """Most ids of a sample that are used, for each feature, the last ones; 0 for all."""
        return read_limits(self.config.features, self.shards.features)

    @property
    def widths(self) -> Mapping[str, int]:
        """Width of the rows of each table."""
        manifest = self.checkpoint.manifest
        return dict(zip(manifest.table_names, manifest.widths, strict=True))

    def model(self, kernels: ModelKernels) -> nn.Module:
        """The dense half with its trained weights, for evaluations; they take no gradients.

        Raises:
            ConfigError: the model cannot be made.
            CheckpointError: the dense half is damaged, or of another model.
        """
        model = build_model(self.config.model, self.facts, kernels)
        state, _ = self.checkpoint.read_dense()
        try:
            model.load_state_dict(state)
        except _MISFITS as error:
            raise CheckpointError(
                f"{self.checkpoint.directory}: its dense half does not fit model.name = {self.config.model.name!r} "
                f"({error}); use another checkpoint, or the code that the model had when it was trained"
            ) from error
        return model.eval().requires_grad_(False)


def open_source(path: Path, data: Path | None) -> ExportSource:
    """Open a checkpoint and the data that it was trained on, and see that they belong together.

    Args:
        path: the checkpoint's folder, or a run's output folder for its newest one.
        data: the shard directory; None for the one that the checkpoint names.

    Raises:
        CheckpointError: there is no complete checkpoint.
        ConfigError: its settings are none of this program.
        DataError: the data is absent, damaged, or not what the checkpoint was trained on.
    """
    checkpoint = load_checkpoint(path)
    config = _config(checkpoint)
    directory = data or Path(config.data.path)
    try:
        shards = load_manifest(directory)
    except DataError as error:
        if data is None:
            raise DataError(f"{error}; or name the data that the model was trained on with --data") from None
        raise
    _require_same_data(checkpoint, directory, shards)
    check_vocabularies(directory, shards, "full")
    run = Run(config, shards, ())
    if run.table_widths != checkpoint.manifest.widths:
        raise CheckpointError(
            f"{checkpoint.directory / MANIFEST_FILE}: table_widths are {list(checkpoint.manifest.widths)}, and its own "
            f"settings say {list(run.table_widths)}; use another checkpoint"
        )
    return ExportSource(checkpoint, config, directory, shards, run.model_facts)


def _config(checkpoint: Checkpoint) -> Config:
    """The settings that a checkpoint records."""
    sections: dict[str, dict[str, Any]] = checkpoint.manifest.config
    given = {f"{section}.{name}": value for section, settings in sections.items() for name, value in settings.items()}
    return config_of(given, f"{checkpoint.directory / MANIFEST_FILE}: config")


def _require_same_data(checkpoint: Checkpoint, directory: Path, shards: ShardManifest) -> None:
    """See that the ids of a shard directory are the numbers of the checkpoint's rows.

    Raises:
        DataError: they are not.
    """
    manifest = checkpoint.manifest
    tables = dict(zip(manifest.table_names, manifest.table_rows, strict=True))
    own = {table.name: table.rows for table in shards.tables}
    cure = "name the data that the model was trained on with --data"
    if list(own.items()) != list(tables.items()):
        differs = next(name for name in [*tables, *own] if tables.get(name) != own.get(name) or list(own) != [*tables])
        raise DataError(
            f"{directory}: is not the data of {checkpoint.directory}: table {differs} has "
            f"{own.get(differs, 'no')} rows there and {tables.get(differs, 'no')} here; {cure}"
        )
    what, here, there = "training shards", shards.digest("train"), manifest.training_data
    if manifest.vocabularies is not None:
        own_file = shards.vocabularies
        what, here, there = "vocabularies", own_file.sha256 if own_file else "none", manifest.vocabularies
    if here != there:
        raise DataError(
            f"{directory}: is not the data of {checkpoint.directory}: the digest of its {what} is {here}, and the "
            f"checkpoint says {there}; {cure}"
        )

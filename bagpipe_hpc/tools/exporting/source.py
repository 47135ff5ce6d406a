"""What is exported: a checkpoint, and what its data says about features, tables and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError, DataError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.preparation.scoring import require_same_ids
from bagpipe_hpc.run.features import read_limits
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.scored_settings import scoring_config
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE
from bagpipe_hpc.storage.shards.check import check_vocabularies
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest

_MISFITS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""What torch raises when a state does not fit its module."""


@dataclass(frozen=True)
class ExportSource:
    """A checkpoint beside the data that it was trained on.

    Attributes:
        checkpoint: the trained model.
        config: the settings of the run that wrote it.
        directory: the shard directory.
        shards: its manifest; this and the vocabularies are all that is needed of the directory.
        facts: what the model was told of its inputs.
    """

    checkpoint: Checkpoint
    config: Config
    directory: Path
    shards: ShardManifest
    facts: ModelFacts

    @property
    def most_ids(self) -> tuple[int, ...]:
        """For each feature, how many ids of a sample are used at most, the last ones; 0 for all."""
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
            CheckpointError: the dense half is damaged, or belongs to another model.
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


def open_source(checkpoint: Checkpoint, data: Path | None) -> ExportSource:
    """Open the data that a checkpoint was trained on, and check that the two belong together.

    Args:
        checkpoint: the trained model.
        data: the shard directory; None for the one that the checkpoint names.

    Raises:
        CheckpointError: its settings are not those of this program, or it was trained with other ids than the data has.
        DataError: the data is absent or damaged.
        ConfigError: settings and data do not fit each other.
    """
    config = scoring_config(checkpoint)
    if data is None and not config.data.path:
        raise ConfigError(f"{checkpoint.directory}: does not say on what it was trained; name that data with --data")
    directory = data or Path(config.data.path)
    try:
        shards = load_manifest(directory)
    except DataError as error:
        if data is None:
            raise DataError(f"{error}; or name the data that the model was trained on with --data") from None
        raise
    if shards.graph is not None:
        raise ConfigError(
            f"{directory}: holds a graph, whose nodes' neighbours are drawn in training; a folder for a service has no "
            "graph to draw from: score nodes with `bagpipe evaluate`"
        )
    _require_same_data(checkpoint, shards, directory)
    check_vocabularies(directory, shards, "full")
    run = Run(config, shards, ())
    if run.table_widths != checkpoint.manifest.widths:
        raise CheckpointError(
            f"{checkpoint.directory / MANIFEST_FILE}: table_widths are {list(checkpoint.manifest.widths)}, and its own "
            f"settings say {list(run.table_widths)}; use another checkpoint"
        )
    return ExportSource(checkpoint, config, directory, shards, run.model_facts)


def _require_same_data(checkpoint: Checkpoint, shards: ShardManifest, directory: Path) -> None:
    """Check that the ids of a shard directory mean the checkpoint's rows.

    A checkpoint of an older version does not say which vocabularies it had: then the training rows must be the same.

    Raises:
        CheckpointError: they are not.
    """
    require_same_ids(checkpoint, shards, directory)
    then, now = checkpoint.manifest.training_data, shards.digest("train")
    if checkpoint.manifest.vocabularies is None and then != now:
        raise CheckpointError(
            f"{checkpoint.directory}: does not say which vocabularies it was trained with, and {directory} has other "
            f"training rows (digest {now:.12} instead of {then:.12}), so an id may mean another value; name the data "
            "that it was trained on with --data"
        )

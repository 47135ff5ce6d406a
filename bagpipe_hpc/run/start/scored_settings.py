"""The settings of a run that scores a checkpoint: those that decide its predictions are the checkpoint's. Pure.

What neither list below names stays at its default, and is refused as an override: a scoring run has no use for it, or
would be of another model with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bagpipe_hpc.config.file import config_of, setting_types
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE

KEPT = (
    *("data.path", "data.block_rows", "data.verify"),
    *("model.", "features.", "graph.", "lookahead.", "cache.", "policy.", "kernels."),
    *(f"train.{name}" for name in ("batch_size", "seed", "deterministic", "timeout_s")),
    *(f"train.{name}" for name in ("exact_auc_samples", "auc_group")),
)
"""Settings, and sections, that are as in the run that wrote the checkpoint."""

FREE = (
    *("data.verify", "model.precision", "tables.placement", "debug.verify_rows"),
    *("tables.memory_gb", "tables.ssd_path", "tables.read_ahead", "debug.ssd_path_in_memory"),
    *("lookahead.", "cache.", "policy.", "kernels.", "roles."),
    *(f"train.{name}" for name in ("device", "threads", "deterministic", "timeout_s", "trace", "preflight")),
    *(f"train.{name}" for name in ("exact_auc_samples", "auc_group")),
)
"""What overrides may change: how predictions are computed, on what, and how they are measured. So may a placement's own
settings.

With other threads, kernels, another device or precision, the last digits may be others.
"""

_UPDATES_NOTHING = {
    "optimizer.rows": "sgd",
    "optimizer.dense": "SGD",
    "model.frozen": [],
    "train.dense_sums": "mpi",  # no gradient is summed, and Horovod may not be installed
}
"""Rows come without the states of optimizers, and take the less memory."""


def scoring_config(checkpoint: Checkpoint, overrides: Sequence[str] = ()) -> Config:
    """The settings with which a checkpoint is scored.

    Args:
        checkpoint: says with which it was trained.
        overrides: `section.field=value`, of `FREE`.

    Raises:
        CheckpointError: what it says is no configuration.
        ConfigError: an override is wrong, or would change the model.
    """
    given = _recorded(checkpoint)
    source = str(checkpoint.directory / MANIFEST_FILE)
    try:
        recorded = config_of(given, source)
    except ConfigError as error:
        raise CheckpointError(f"{error}; use another checkpoint, or the version that wrote this one") from error
    types = setting_types({"policy.name": recorded.policy.name, "model.name": recorded.model.name})
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in types and not _is_of(key, FREE):
            raise ConfigError(f"override {text!r}: {_why_refused(key)}; settings that may change: {_listed(FREE)}")
    return config_of(given, source, overrides)


def _recorded(checkpoint: Checkpoint) -> dict[str, Any]:
    """The settings of `KEPT` as the checkpoint's run had them, and how it computed what they left open.

    What was computed on GPUs is scored on CPUs where there are none.
    """
    recorded = (
        (f"{section}.{name}", value)
        for section, settings in checkpoint.manifest.config.items()
        for name, value in settings.items()
    )
    kept = {key: value for key, value in recorded if _is_of(key, KEPT)}
    then = checkpoint.manifest.arithmetic
    device = "cpu" if then.device == "cpu" else "auto"
    return {**kept, **_UPDATES_NOTHING, "train.threads": then.threads, "train.device": device}


def with_data(config: Config, path: str) -> Config:
    """The same settings, of other data."""
    return replace(config, data=replace(config.data, path=path))


def _is_of(key: str, names: Sequence[str]) -> bool:
    return any(key == name or (name[-1] == "." and key.startswith(name)) for name in names)


def _why_refused(key: str) -> str:
    section = key.partition(".")[0]
    if key == "data.path":
        return "--data names the data"
    if section in ("optimizer", "rows_rate", "dense_rate", "train") and not _is_of(key, KEPT):
        return f"{key} is for training, and nothing is trained"
    return f"{key} is the checkpoint's: with another value it would be another model"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted({f"{name}*" if name[-1] == "." else name for name in names}))

"""What whole jobs are measured on: a configuration of `configs/`, and generated clicks that fit it."""

from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME
from bagpipe_hpc.tools.conditions import REPOSITORY
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

_TEST_FRACTION = 0.01
_SPARE = 1.02
"""Rows beyond the steps', so that the training split has enough after the test rows are taken off."""


@dataclass(frozen=True)
class Workload:
    """A configuration and the tables of its clicks.

    Attributes:
        name: also the name of its file in `configs/`.
        ids_at_most: as for `generate_clicks`.
        min_count: rarer ids share a row.
    """

    name: str
    ids_at_most: int | None
    min_count: int

    @property
    def config_file(self) -> Path:
        """Its settings."""
        return REPOSITORY / "configs" / f"{self.name}.toml"

    def config(self, overrides: list[str]) -> Config:
        """Its settings with some replaced, each `section.field=value`."""
        return load_config(self.config_file, overrides)

    def shards(self, folder: Path, steps: int, batch_size: int) -> Path:
        """Shards with the samples for so many steps, made below `folder` unless an earlier call has made them."""
        rows = int(steps * batch_size * _SPARE / (1 - _TEST_FRACTION))
        shards = folder / f"{self.name}-{rows}"
        if not (shards / MANIFEST_NAME).exists():
            clicks = folder / f"{self.name}-{rows}.tsv"
            generate_clicks(rows, clicks, ids_at_most=self.ids_at_most)
            prepare_clicks(
                [str(clicks)],
                shards,
                PrepareSettings(min_count=self.min_count, test_fraction=_TEST_FRACTION),
                _no_progress,
            )
            clicks.unlink()
        return shards


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("quickstart", ids_at_most=None, min_count=2),
        Workload("embedding_bound", ids_at_most=1_000_000, min_count=1),
    )
}
"""By name: the first run of the README, bound by dense compute on CPUs, and one that moves rows."""


def _no_progress(_: str) -> None:
    pass

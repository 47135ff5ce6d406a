"""One run, and three that differ in a setting."""

from pathlib import Path

import pytest

from bagpipe_hpc.config.schema import Config, TrainConfig
from tests.unit.tools.run_report.sample_runs import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    settings = [Config(train=TrainConfig(batch_size=size, output=str(size))) for size in (64, 128, 256)]
    return [write_run(tmp_path / f"run{number}", config=one) for number, one in enumerate(settings)]

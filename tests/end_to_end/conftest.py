"""A tiny set of prepared clicks, and a configuration that exercises every rule in a few seconds."""

from pathlib import Path

import pytest

from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.killed_runs import RANKS, command
from tests.end_to_end.test_equality import LINEAR
from tests.fork_server import forked
from tests.ranks import run_ranks

CONFIG = (
    """
[data]
path = "{shards}"
block_rows = 256
[model]
embedding_dim = 8
bottom_mlp = [16]
top_mlp = [16]
[optimizer]
rows_lr = 0.05
dense = "Adam"
[train]
batch_size = 70  # not a multiple of 3 trainers; the last of 27 batches has one sample, so most slices are empty
epochs = 2
log_every_steps = 7
timeout_s = 60.0
"""
    + f'[kernels]\nlinear = "{LINEAR}"\n'
)


def prepare_tiny_clicks(folder: Path) -> Path:
    """1,821 training and 202 test rows in several shards, in `folder/shards`."""
    generate_clicks(2023, folder / "clicks.tsv", seed=3)
    settings = PrepareSettings(rows_per_shard=700)
    prepare_clicks([str(folder / "clicks.tsv")], folder / "shards", settings, lambda _: None)
    return folder / "shards"


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `prepare_tiny_clicks`."""
    return prepare_tiny_clicks(tmp_path_factory.mktemp("clicks"))


@pytest.fixture(scope="session")
def config_path(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of all runs here; what differs comes as overrides."""
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG.format(shards=shards))
    return path


@pytest.fixture(scope="session")
def short_config(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with half as many steps: an epoch has 14 batches, the last one of one sample, too."""
    path = tmp_path_factory.mktemp("short") / "short.toml"
    path.write_text(config_path.read_text().replace("batch_size = 70", "batch_size = 140"))
    return path


@pytest.fixture(scope="session")
def wide_config(short_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short one with a model that takes rows of several widths."""
    path = tmp_path_factory.mktemp("wide") / "wide.toml"
    text = short_config.read_text().replace("bottom_mlp = [16]\ntop_mlp", 'name = "wide_deep"\ndeep_mlp')
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def whole_run(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the run of `killed_runs.command` when nothing befalls it."""
    output = tmp_path_factory.mktemp("whole") / "run"
    finished = run_ranks(RANKS, *forked(command(config_path, output)))
    assert finished.returncode == 0, finished.stderr
    return output

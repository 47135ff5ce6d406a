"""A trained model on prepared clicks, made once."""

from pathlib import Path

import pytest

from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.unit.tools.exporting.trained_models import train_small


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, `shards` and the raw `visits.csv`; nobody changes it."""
    folder = tmp_path_factory.mktemp("trained")
    visits = folder / "visits.csv"
    generate_clicks(400, visits, kind="sequences")
    prepare_clicks([str(visits)], folder / "shards", PrepareSettings(source_format="sequences"), print)
    settings = ["model.name=wide_deep", "model.deep_mlp=[8]", "model.embedding_dim=4", "kernels.linear=torch"]
    more = ["model.embedding_dim_of={ item = 6 }", "features.longest_of={ history = 9 }", "train.batch_size=120"]
    train_small(folder, folder / "shards", [*settings, *more])
    return folder

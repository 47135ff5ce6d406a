"""The tiny set of clicks and its configuration, in a folder that emulated hosts can be given."""

from pathlib import Path

import pytest

from tests.end_to_end.conftest import CONFIG, prepare_tiny_clicks


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all hosts see, with `shards` and `tiny.toml`."""
    folder = tmp_path_factory.mktemp("shared")
    prepare_tiny_clicks(folder)
    (folder / "tiny.toml").write_text(CONFIG.format(shards=folder / "shards"))
    return folder

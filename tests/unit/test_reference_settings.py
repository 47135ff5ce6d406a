"""`make reference` takes what the run settled, and of what it is given all but what was left to the run."""

from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from scripts.reference_settings import reference_settings

RECORDED = ["kernels.linear=onednn", "train.device=cpu"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run's, whose model has a setting `device` of its own."""
    path = tmp_path / "config.toml"
    path.write_text('[model]\ndevice = "gpu"\n[train]\noutput = "x"\ndevice = "cpu"\n[kernels]\nlinear = "onednn"\n')
    return path


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ([], RECORDED),
        (["train.threads=2", "model.top_mlp=[64, 16]"], ["train.threads=2", "model.top_mlp=[64, 16]", *RECORDED]),
        (["train.device=auto", 'kernels.linear="auto"'], RECORDED),
        (["train.device = cuda"], ["train.device = cuda", "kernels.linear=onednn"]),
        (["train.output=train.device"], ["train.output=train.device", *RECORDED]),
    ],
    ids=["nothing", "others", "auto", "one of them", "a value that looks like one"],
)
def test_what_is_printed(given: list[str], printed: list[str], config: Path) -> None:
    assert list(reference_settings(config, given)) == printed


def test_the_settings_can_be_given_to_a_run() -> None:
    config = load_config(Path("configs/quickstart.toml"), RECORDED)
    assert (config.kernels.linear, config.train.device) == ("onednn", "cpu")

"""The output folder is started with the resolved settings, and an earlier run in it is not lost by accident."""

from pathlib import Path

import pytest

from bagpipe_hpc.config import Config, TrainConfig
from bagpipe_hpc.config_file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.roles.output_folder import CONFIG_NAME, LOGS_NAME, check_output, start_output


def in_output(output: Path, *, overwrite: bool = False) -> Config:
    return Config(train=TrainConfig(output=str(output), overwrite=overwrite))


def test_the_output_folder_gets_the_resolved_settings(tmp_path: Path) -> None:
    config = in_output(tmp_path / "new" / "run")
    start_output(config)
    assert load_config(tmp_path / "new" / "run" / CONFIG_NAME) == config
    assert (tmp_path / "new" / "run" / LOGS_NAME).is_dir()


@pytest.mark.parametrize(
    "content", ["config.toml", "metrics.jsonl", "summary.json", "resources.json", "logs", "checkpoints"]
)
def test_an_earlier_run_is_left_alone(tmp_path: Path, content: str) -> None:
    earlier = tmp_path / content
    earlier.mkdir() if "." not in content else earlier.write_text("earlier", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"holds an earlier run \({content}\): .*train\.overwrite=true"):
        check_output(in_output(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [content]


def test_an_earlier_run_is_replaced_where_that_is_wanted(tmp_path: Path) -> None:
    """What is not of a run stays."""
    (tmp_path / "checkpoints" / "step-5").mkdir(parents=True)
    for name in ("metrics.jsonl", "notes.txt"):
        (tmp_path / name).write_text("earlier", encoding="utf-8")
    check_output(in_output(tmp_path, overwrite=True))
    start_output(in_output(tmp_path, overwrite=True))
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", CONFIG_NAME, LOGS_NAME}


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    check_output(in_output(tmp_path))
    start_output(in_output(tmp_path))
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"train\.output = '.*file/run' cannot be written"):
        start_output(in_output(tmp_path / "file" / "run"))

"""The output folder of a run: what lies in it, and how it is started without losing an earlier run by accident."""

import shutil
from pathlib import Path

from bagpipe_hpc.config import Config
from bagpipe_hpc.config_file import to_toml
from bagpipe_hpc.errors import ConfigError

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.jsonl"
SUMMARY_NAME = "summary.json"
RESOURCES_NAME = "resources.json"
LOGS_NAME = "logs"
_RUN_CONTENT = (CONFIG_NAME, METRICS_NAME, SUMMARY_NAME, RESOURCES_NAME, LOGS_NAME, "checkpoints")


def check_output(config: Config) -> None:
    """See that no earlier run is in the way.

    Raises:
        ConfigError: the output folder holds one, and may not be overwritten.
    """
    earlier = _earlier_run(config)
    if earlier and not config.train.overwrite:
        raise ConfigError(
            f"train.output = {config.train.output!r} holds an earlier run ({earlier[0].name}): "
            "choose another folder, or set train.overwrite=true to replace it"
        )


def start_output(config: Config) -> None:
    """Make the output folder, without an earlier run, and put the resolved configuration there.

    Comes after all that could refuse the run, so that a refused one destroys nothing.

    Raises:
        ConfigError: the folder cannot be written.
    """
    output = Path(config.train.output)
    try:
        for path in _earlier_run(config):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        (output / LOGS_NAME).mkdir(parents=True, exist_ok=True)
        (output / CONFIG_NAME).write_text(to_toml(config), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"train.output = {config.train.output!r} cannot be written: {error}") from error


def _earlier_run(config: Config) -> list[Path]:
    output = Path(config.train.output)
    return [output / name for name in _RUN_CONTENT if (output / name).exists()]

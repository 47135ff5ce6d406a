"""Where log lines go: a file a rank; those of oracle and first trainer, and all warnings, also to the terminal."""

import logging
import sys
from pathlib import Path

from bagpipe_hpc.errors import ConfigError

_PACKAGE = "bagpipe_hpc"
_FILE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_terminal(name: str, *, everything: bool) -> None:
    """Show warnings, or everything, on the terminal.

    Args:
        name: the rank's name, put before warnings.
        everything: whether this rank speaks for the run.
    """
    logger = logging.getLogger(_PACKAGE)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    if everything:
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter(f"[{name}] %(message)s"))
    logger.addHandler(handler)


def log_to_file(path: Path) -> None:
    """Append all log lines to a file from now on.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error}); put train.output on a file system that all ranks share"
        ) from error
    handler.setFormatter(logging.Formatter(_FILE_FORMAT))
    logging.getLogger(_PACKAGE).addHandler(handler)

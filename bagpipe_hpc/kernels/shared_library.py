"""Loads the native libraries that setup.py builds from `csrc/`.

Calls through `ctypes.CDLL` release the GIL, so a kernel never holds up the rank's other thread.
"""

import ctypes
from functools import cache
from pathlib import Path

from bagpipe_hpc.errors import ConfigError

_FOLDER = Path(__file__).parent


def is_built(name: str) -> bool:
    """Whether setup.py has built library `name`, such as `planner`."""
    return _path(name).exists()


@cache
def load(name: str) -> ctypes.CDLL:
    """The library `name`, loaded once a process.

    Raises:
        ConfigError: it was not built, or does not load on this machine.
    """
    path = _path(name)
    if not path.exists():
        raise ConfigError(
            f"kernels.backend = 'native': {path.name} was not built; run `make setup` where g++ (for _cuda.so: nvcc) "
            "is on PATH, or use kernels.backend=reference"
        )
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigError(f"kernels.backend = 'native': {path} does not load: {error}; build it again here") from error


def _path(name: str) -> Path:
    return _FOLDER / f"_{name}.so"

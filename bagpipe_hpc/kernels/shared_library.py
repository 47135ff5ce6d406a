"""Loads the native libraries that setup.py builds from `csrc/`.

Calls through `ctypes.CDLL` release the GIL, so a kernel never holds up the rank's other thread.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import ConfigError

_FOLDER = Path(__file__).parent


def is_built(name: str) -> bool:
    """Whether setup.py has built library `name`, such as `planner`."""
    return _path(name).exists()


_BUILD_AGAIN = "build it again: pip install --no-build-isolation --no-deps -e ."


class _Library(ctypes.CDLL):
    """A library that was built before `csrc/` changed says so, where one of its functions is asked for."""

    def __getitem__(self, name: Any) -> Any:
        try:
            return super().__getitem__(name)
        except AttributeError as error:
            told = f"{self._name} is older than the program: it has no function {name!r}; {_BUILD_AGAIN}"
            raise ConfigError(told) from error


@cache
def load(name: str) -> ctypes.CDLL:
    """The library `name`, loaded once a process. Asking it for a function that it lacks raises `ConfigError`.

    Raises:
        ConfigError: it was not built, is older than its source, or does not load on this machine.
    """
    path = _path(name)
    if not path.exists():
        raise ConfigError(
            f"kernels.backend = 'native': {path.name} was not built; run `make setup` where g++ (for _cuda.so: nvcc) "
            "is on PATH, or use kernels.backend=reference"
        )
    _require_up_to_date(path, name)
    try:
        return _Library(str(path))
    except OSError as error:
        raise ConfigError(f"kernels.backend = 'native': {path} does not load: {error}; {_BUILD_AGAIN}") from error


def _require_up_to_date(path: Path, name: str) -> None:
    """Check that a checkout's library is not older than what it is built from: its functions may take other arguments.

    Raises:
        ConfigError: it is.
    """
    built = path.stat().st_mtime
    sources = _FOLDER / "csrc"
    for pattern in (f"{name}.cpp", f"{name}*.cu", "**/*.h", "**/*.inc", "**/*.cuh"):
        for source in sources.glob(pattern):
            if source.stat().st_mtime > built:
                raise ConfigError(f"{path} is older than {source.relative_to(_FOLDER)}; {_BUILD_AGAIN}")


def _path(name: str) -> Path:
    return _FOLDER / f"_{name}.so"

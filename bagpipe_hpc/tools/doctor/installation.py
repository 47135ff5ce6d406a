"""What an installation lacks, and the command that gets it. Imports none of that: `bagpipe doctor` starts here."""

import importlib
import importlib.metadata
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.cluster.rank_facts import RankFacts
from bagpipe_hpc.kernels import shared_library

HOROVOD_CURE = "Set train.dense_sums=auto or mpi, or build it: scripts/build_horovod.sh of a checkout (docs/install.md)"
_DISTRIBUTION = "bagpipe_hpc"
_CHECKOUT = Path(__file__).resolve().parents[3]
_LAUNCHERS = ("mpirun", "mpiexec", "srun")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        where: host or hosts.
        what: what is wrong there.
        cure: what to do about it.
        is_fatal: whether a run would fail; otherwise it would be slow or hard to read.
    """

    where: str
    what: str
    cure: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{'FAILED' if self.is_fatal else 'warning'}  {self.where}: {self.what}. {self.cure}"


def find_missing() -> list[Finding]:
    """What runs need and this host lacks; starts nothing."""
    absent = [requirement for requirement in _requirements() if not _is_installed(requirement)]
    found = [*_packages(absent)]
    if not any(requirement.startswith("mpi4py") for requirement in absent):
        found += _mpi()
    return [*found, *_optional()]


def _packages(absent: list[str]) -> Iterator[Finding]:
    host = socket.gethostname()
    for requirement in absent:
        yield Finding(host, f"{_name(requirement)} is not installed", _install(requirement))


def _mpi() -> Iterator[Finding]:
    """Findings about MPI: whether mpi4py finds a library, and whether there is a launcher."""
    host, cure = socket.gethostname(), "Load the site's MPI (module load ...), or run: " + _pip("mpich")
    try:
        importlib.import_module("bagpipe_hpc.mpi.start.running")
    except (ImportError, RuntimeError) as error:
        yield Finding(host, f"mpi4py finds no MPI ({str(error).splitlines()[0]})", cure)
        return
    beside = Path(sys.executable).parent
    if not any(shutil.which(name) or (beside / name).exists() for name in _LAUNCHERS):
        what = f"there is no {', '.join(_LAUNCHERS[:-1])} or {_LAUNCHERS[-1]} on PATH: only one rank can be started"
        yield Finding(host, what, cure, is_fatal=False)


def _optional() -> Iterator[Finding]:
    host = socket.gethostname()
    if not _is_installed("horovod"):
        what = "horovod is not installed: two trainers or more cannot use train.dense_sums=horovod, the default"
        yield Finding(host, what, HOROVOD_CURE, is_fatal=False)
    if RankFacts.here().installed_gpus and not shared_library.is_built("cuda"):
        what = "the host has GPUs, and the kernels for them are not built"
        if shutil.which("nvcc"):
            cure = _build()
        else:
            cure = "Load a CUDA toolkit (module load cuda), so that nvcc is on PATH, and then: " + _build()
        yield Finding(host, what, cure, is_fatal=False)
    if not shared_library.is_built("planner"):
        compiler = "" if shutil.which("g++") else "Install a compiler (Debian, Ubuntu: apt install g++), and then: "
        what = "native code is not built: NumPy and torch do its work, slowly"
        yield Finding(host, what, compiler + _build(), is_fatal=False)


def _requirements() -> list[str]:
    """The packages that every run needs, as requirements for pip."""
    try:
        declared = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # it runs from a source folder
        return ["h5py", "mpi4py", "numpy", "pyarrow", "rich", "torch"]
    return [requirement for requirement in declared if "extra ==" not in requirement]


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _is_installed(requirement: str) -> bool:
    try:
        importlib.metadata.version(_name(requirement))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _install(requirement: str) -> str:
    return "Run: make setup" if _is_checkout() else "Run: " + _pip(f"'{requirement}'")


def _build() -> str:
    if _is_checkout():
        return "pip install --no-build-isolation --no-deps -e ."
    return _pip(f"--force-reinstall --no-deps --no-binary {_DISTRIBUTION} {_DISTRIBUTION}")


def _pip(what: str) -> str:
    return f"{sys.executable} -m pip install {what}"


def _is_checkout() -> bool:
    return (_CHECKOUT / "scripts" / "setup_environment.sh").is_file()

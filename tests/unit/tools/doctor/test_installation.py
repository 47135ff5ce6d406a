"""What is missing is named with the command that gets it, whatever is missing."""

import importlib.metadata
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.tools.doctor import installation

ROOT = Path(__file__).parents[4]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages of these names are not installed."""
    names: set[str] = set()
    version = importlib.metadata.version

    def look_up(name: str) -> str:
        if name in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", look_up)
    return names


def test_here_nothing_is_missing() -> None:
    assert not [finding for finding in installation.find_missing() if finding.is_fatal]


@pytest.mark.parametrize("name", ["torch", "numpy", "h5py", "pyarrow"])
def test_a_package_is_named_with_its_command(
    name: str, absent: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent.add(name)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert f"{name} is not installed. Run: make setup\n" in said
    assert said.endswith("not healthy\n")
    monkeypatch.setattr(installation, "_is_checkout", lambda: False)
    assert main(["doctor"]) == 1
    assert f"{name} is not installed. Run: {sys.executable} -m pip install '{name}>=" in capsys.readouterr().out


def test_what_runs_can_do_without_is_a_warning(absent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    absent.add("horovod")
    monkeypatch.setattr(installation.shared_library, "is_built", lambda _: False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(installation, "_LAUNCHERS", ("mpirun-gone", "srun-gone"))
    found = installation.find_missing()
    assert not any(finding.is_fatal for finding in found)
    said = "\n".join(map(str, found))
    assert "there is no mpirun-gone or srun-gone on PATH" in said
    assert "Set train.dense_sums=auto or mpi, or build it: scripts/build_horovod.sh" in said
    assert "Install a compiler (Debian, Ubuntu: apt install g++), and then: pip install" in said


def without(module: str) -> str:
    """A program that runs a command in an interpreter that cannot import a module."""
    return (
        f"import sys; sys.modules[{module!r}] = None; from bagpipe_hpc.cli.commands import main; "
        "sys.exit(main(sys.argv[1:]))"
    )


def test_the_doctor_comes_without_an_mpi() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", without("mpi4py.MPI"), "doctor"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.returncode == 1, ended.stderr
    assert ": mpi4py finds no MPI (" in ended.stdout
    assert "Load the site's MPI (module load ...), or run: " in ended.stdout
    assert ended.stderr == ""


def test_a_command_without_a_package_says_so() -> None:
    cure = "`bagpipe doctor` says how to get what is missing"
    told = f"bagpipe: error: h5py is not installed on {socket.gethostname()}; {cure}\n"
    ended = subprocess.run(
        [sys.executable, "-c", without("h5py"), "compare", "a", "b"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (ended.returncode, ended.stderr) == (2, told)

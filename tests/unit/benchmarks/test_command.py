"""`python -m benchmarks`: what it starts with, and how it ends."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bagpipe_hpc.tools.report import Report
from benchmarks.command import BENCHMARKS, main
from tests.ranks import ROOT


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_is_found_and_gets_its_own_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[argparse.Namespace] = []
    module = importlib.import_module(f"benchmarks.{BENCHMARKS[name].module}")
    monkeypatch.setattr(module, "run", lambda arguments: given.append(arguments) or Report(name))
    benchmark = BENCHMARKS[name]
    assert main([name, *["--quick"] * benchmark.has_look]) == 0
    own = argparse.ArgumentParser()
    benchmark.add_arguments(own)
    assert vars(own.parse_args([])).items() <= vars(given[0]).items()
    assert ("quick" in given[0], "runs" in given[0]) == (benchmark.has_look, benchmark.repeats)
    assert getattr(given[0], "runs", 2) == 2


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_does_nothing_is_not_offered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark has --runs and --quick where its code asks for them."""
    module = importlib.import_module(f"benchmarks.{BENCHMARKS[name].module}")
    text = Path(str(module.__file__)).read_text()
    assert BENCHMARKS[name].repeats == ("arguments.runs" in text)
    assert BENCHMARKS[name].has_look == ("arguments.quick" in text)
    if not BENCHMARKS[name].repeats:
        with pytest.raises(SystemExit):
            main([name, "--runs", "3"])
        assert "unrecognized arguments: --runs" in capsys.readouterr().err


def test_help_lists_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    listed = capsys.readouterr().out.split()
    assert ended.value.code == 0
    assert set(BENCHMARKS) <= set(listed)


def test_help_comes_without_a_heavy_package() -> None:
    program = """
import sys
from benchmarks.command import main
try:
    main(["step", "--help"])
finally:
    print({"torch", "mpi4py", "numpy", "h5py", "pyarrow", "psutil"} & set(sys.modules), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "set()\n")
    assert "usage: python -m benchmarks step" in ended.stdout


def test_an_error_ends_with_its_code_and_the_programs_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result that could not be kept is refused before anything is measured."""
    started: list[argparse.Namespace] = []
    module = importlib.import_module(f"benchmarks.{BENCHMARKS['memory'].module}")
    monkeypatch.setattr(module, "run", started.append)
    assert main(["memory", f"--save={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith(f"python -m benchmarks: error: {tmp_path}: ")
    assert started == []

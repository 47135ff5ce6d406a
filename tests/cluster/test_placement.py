"""Roles go where GPUs and memory are, and a run whose ranks were placed equals the reference."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.cluster.emulation import require_emulation, run_on_hosts

RunRanks = Callable[..., CompletedProcess[str]]

GPUS_ON_HOST2 = """
case $(hostname) in host2) export CUDA_VISIBLE_DEVICES=0,1 ;; *) export CUDA_VISIBLE_DEVICES= ;; esac
exec "$0" "$@"
"""
"""No GPU is there, so the trainers compute on CPUs; the environment of a rank is all that placement goes by."""


def test_trainers_go_to_the_gpus(
    shared: Path, run_ranks: RunRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are on the second host; the launcher's first rank is a server, its last one next to the oracle."""
    require_emulation()
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    command = (
        sys.executable,
        "-m",
        "bagpipe_hpc",
        "train",
        shared / "tiny.toml",
        "train.max_steps=6",
        "train.evaluate=false",
    )
    placed, reference = shared / "placed", tmp_path / "reference"
    wrapped = ("bash", "-c", GPUS_ON_HOST2, *command)
    ended = run_on_hosts("1,2,2", *wrapped, f"train.output={placed}", share=shared, timeout_s=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {"host1: server 0", "host2: trainers 0-1", "host3: oracle, server 1"} <= set(ended.stderr.splitlines())
    resources = json.loads((placed / "resources.json").read_text())["ranks"]
    assert [(rank["role"], rank["host"]) for rank in resources] == [
        ("oracle", "host3"),
        ("server", "host1"),
        ("server", "host3"),
        ("trainer", "host2"),
        ("trainer", "host2"),
    ]
    finished = run_ranks(1, *command, f"train.output={reference}", "train.reference_slices=2")
    assert finished.returncode == 0, finished.stderr
    assert compare(reference, placed).largest() == 0.0


def test_a_refusal_is_printed_once_wherever_the_oracle_is(shared: Path) -> None:
    """The oracle finds the fault; it is not the launcher's first rank."""
    require_emulation()
    output = shared / "earlier"
    output.mkdir()
    (output / "metrics.jsonl").write_text("precious\n")
    command = (sys.executable, "-m", "bagpipe_hpc", "train", shared / "tiny.toml", f"train.output={output}")
    ended = run_on_hosts("2,1", *command, share=shared, timeout_s=60)
    assert ended.returncode == 2, ended.stderr
    assert {"host1: server 0, trainer 0", "host2: oracle"} <= set(ended.stderr.splitlines())
    assert ended.stderr.count("train.overwrite=true") == 1

"""Files with single bytes, datasets, attributes and arrays changed: what reads them says so and takes little memory."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import forked_rank
from tests.ranks import rank_environment

COUNT, SEED = 50 * int(os.environ.get("FUZZ_TIMES", "1")), os.environ.get("FUZZ_SEED", "1")
FILES = [
    *("counts.npz", "plan.npz", "plans/plans.bin", "visits/hot.h5", "visits/vocabularies.h5", "visits/waiting.h5"),
    *("visits/train-00000.h5", "clicks/train-00000.h5", "graph/graph.h5", "slip/policy/step-00000010.h5"),
    *("run/checkpoints/step-00000014/rows-00000-of-00001.h5", "run/checkpoints/step-00000014/dense.h5"),
]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_damage_is_named_by_what_reads_the_file(file: str, sound: Path, tmp_path: Path) -> None:
    here = shutil.copytree(sound, tmp_path / "here")
    command = [*forked_rank("tests.fuzz.readers"), str(here / file), str(COUNT), SEED]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=here, env=rank_environment(), timeout=800
    )
    assert ended.returncode == 0, ended.stderr
    *faults, tried = ended.stdout.splitlines()
    assert not faults
    assert tried.startswith("tried ")

"""What tests of several files start from."""

from pathlib import Path

import pytest

from tests.unit.preparation.resumed_runs import write_run


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """With the checkpoints of steps 100 and 200 by two servers."""
    for step in (100, 200):
        write_run(tmp_path, step)
    return tmp_path

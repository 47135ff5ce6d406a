"""What tests of several files start from."""

from pathlib import Path

import pytest

from tests.unit.resumed_runs import write_two_checkpoints


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """With two checkpoints."""
    write_two_checkpoints(tmp_path)
    return tmp_path

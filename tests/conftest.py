"""Fixtures and rules for all tests."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests import ranks


@pytest.fixture
def run_ranks() -> Callable[..., CompletedProcess[str]]:
    """`run_ranks(count, *command, timeout_s=120, env=None, cwd=None)`: see `tests.ranks.run_ranks`."""
    return ranks.run_ranks


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where there is no CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")

"""Mistakes in calling `bagpipe_hpc.train` are said where it is called."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.api import train
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.start import running


def with_yield(session: Any) -> Iterator[None]:
    yield from session


async def with_async(session: Any) -> None:
    """Trains nothing."""


@pytest.mark.parametrize("loop", [None, with_yield, with_async])
def test_a_loop_is_a_function_that_runs_when_it_is_called(loop: Any) -> None:
    """`train(loop(...), ...)` gives it None, which trained by the cross-entropy of clicks."""
    with pytest.raises(TypeError, match=r"^bagpipe_hpc\.train: loop = .*: give it a plain function, uncalled and with"):
        train(loop, "run.toml")


def test_a_second_run_in_a_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MPI", SimpleNamespace(Is_finalized=lambda: True))
    with (
        pytest.raises(ConfigError, match=r"MPI starts once in a process, .* start a program for each$"),
        running.mpi_running(1, 1),
    ):
        pass

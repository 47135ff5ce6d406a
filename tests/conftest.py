"""Fixtures and rules for all tests, and a record of what each of them took."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests import extending, ranks
from tests.deadline import Deadline
from tests.durations import Durations, ProcessorTime
from tests.fork_server import share_server


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A run in this process logs to the test's terminal; the next test has another, and pytest listens again.

    A fixture of a module that runs something in this process comes before those of its tests, so nothing can be put
    back as it was found.
    """
    forget_log()
    yield
    forget_log()


def forget_log() -> None:
    """Let the package's logger be as no run has touched it."""
    log = logging.getLogger("bagpipe_hpc")
    for handler in log.handlers[:]:
        log.removeHandler(handler)
        handler.close()
    log.setLevel(logging.NOTSET)
    log.propagate = True


@pytest.fixture
def run_ranks() -> Callable[..., CompletedProcess[str]]:
    """`run_ranks(count, *command, timeout_s=120, env=None, cwd=None)`: see `tests.ranks.run_ranks`."""
    return ranks.run_ranks


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Callable[[str], extending.Example]]:
    """`example("Row optimizer")`: the code of that part of docs/extending.md, which this process can import."""
    with ExitStack() as stack:

        def write(heading: str) -> extending.Example:
            folder = tmp_path / f"example of {heading}"
            folder.mkdir()
            written = extending.write_example(heading, folder)
            stack.enter_context(written.importable())
            return written

        yield write


def pytest_configure(config: pytest.Config) -> None:
    """Where `TEST_DURATIONS` names a file, add what every test took to it: `.ci/run` shows the longest of all.

    Workers share one fork server. Ranks that a test starts know of no deadline: they end together.
    """
    path = os.environ.get("TEST_DURATIONS")
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist, whose reports reach the process that started it
    is_rank = config.getoption("--with-mpi", default=False)
    if deadline := Deadline.of(config):
        config.pluginmanager.register(deadline)
    if path and not is_rank:
        config.pluginmanager.register(ProcessorTime())
        if not is_worker:
            config.pluginmanager.register(Durations(Path(path)))
    if getattr(config.option, "numprocesses", None) and not is_worker:
        share_server()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where there is no CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")

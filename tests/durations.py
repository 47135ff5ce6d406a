"""A record of what each test took: seconds by the clock, and of processors, which a machine's load changes little."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import forks_processor_s

_PROCESSOR = "processor_s"


class ProcessorTime:
    """Notes, in the process that runs a test, what it and its children took; ranks are forks of a fork server."""

    def __init__(self) -> None:
        self._before_s = _processor_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now_s = _processor_s()
        report.user_properties.append((_PROCESSOR, now_s - self._before_s))
        self._before_s = now_s
        return report


class Durations:
    """Adds a line for each test that has ended to a file: `SECONDS PROCESSOR_SECONDS TEST`, set-up and end included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: dict[str, tuple[float, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds, processor_s = self._taken.pop(report.nodeid, (0.0, 0.0))
        seconds += report.duration
        processor_s += dict(report.user_properties).get(_PROCESSOR, 0.0)
        if report.when != "teardown":
            self._taken[report.nodeid] = seconds, processor_s
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{seconds:8.2f} {processor_s:8.2f} {report.nodeid}\n")


def _processor_s() -> float:
    """Seconds that this process, its children and its forked ranks that have ended have taken."""
    return sum(os.times()[:4]) + forks_processor_s()

"""A record of what each test took: seconds by the clock, and of processors, which a machine's load changes little."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import servers_processor_s

_PROCESSOR = "processor_s"


class ProcessorTime:
    """Notes, in the process that runs a test, what it and its children took; ranks are forks of its fork server."""

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
    """Adds a line for each test, `SECONDS PROCESSOR_SECONDS TEST`, set-up and end included, when the run ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)
        self._processor_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        self._processor_s[report.nodeid] += dict(report.user_properties).get(_PROCESSOR, 0.0)

    def pytest_sessionfinish(self) -> None:
        lines = [f"{seconds:8.2f} {self._processor_s[test]:8.2f} {test}\n" for test, seconds in self._seconds.items()]
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(lines)


def _processor_s() -> float:
    """Seconds that this process, its children that have ended, and its fork server with its ranks have taken."""
    return sum(os.times()[:4]) + servers_processor_s()

"""What a run of tests does not reach in its time is skipped, and counted as such, so that the run can still say so.

`TEST_DEADLINE` is that time, in whole seconds since 1970. Such a run begins with another file each time: on a slow
machine no test is always the last.
"""

import os
import time
from itertools import groupby
from typing import Any

import pytest

VARIABLE = "TEST_DEADLINE"
REASON = "no time is left: this machine is slow, or others use it"


class Deadline:
    """Skips tests that have not begun by then, and takes files in turn from another one on.

    Args:
        at_s: seconds since 1970.
    """

    def __init__(self, at_s: int) -> None:
        self._at_s = at_s

    @classmethod
    def of(cls, config: pytest.Config) -> "Deadline | None":
        """That of this run, which its workers share, but no pytest that a test starts; None where there is none."""
        worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        value = os.environ.pop(VARIABLE, "") if worker is None else worker.get(VARIABLE, "")
        return cls(int(value)) if value else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist."""
        node.workerinput[VARIABLE] = str(self._at_s)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Begin with another file; all workers with the same one."""
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        first = self._at_s % max(len(files), 1)
        items[:] = [item for file in files[first:] + files[:first] for item in file]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip what comes too late, before its fixtures."""
        if time.time() > self._at_s:
            pytest.skip(REASON)

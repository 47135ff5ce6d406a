"""Runs the tests of this folder on real MPI ranks, each on the number of ranks that its `mpi` mark names.

`pytest tests/mpi` collects the tests, groups them by `min_size` and starts mpirun once for each number of ranks; a
group is one item of the outer run. Options such as -k and node ids choose tests as usual. The ranks run pytest with
pytest-mpi's --with-mpi; after each phase of a test they agree on its outcome, so that a test which fails on one rank
fails on all of them, and none waits for the others for good.
"""

import array
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fork_server import forked_rank
from tests.ranks import GRACE_S, rank_environment, require_launcher, run_ranks

if TYPE_CHECKING:
    from mpi4py import MPI

FOLDER = Path(__file__).parent
TEST_TIMEOUT_S = 120
GROUP_TIMEOUT_S = 900
ABORT_AFTER_S = 15
"""How long a rank whose test failed waits for the others, which may hang in the operation that it left."""
SHOWN_LINES = 80

OUTCOMES = {"passed": 0, "skipped": 1, "failed": 2}
SUMMARIES = pytest.StashKey[list[str]]()


@pytest.fixture
def comm() -> Iterator["MPI.Intracomm"]:
    """All ranks, with no messages but those of the test."""
    from mpi4py import MPI

    own = MPI.Intracomm(MPI.COMM_WORLD.Dup())
    yield own
    own.Free()


def rank_count(item: pytest.Item) -> int:
    """The number of ranks that a test wants."""
    marker = item.get_closest_marker("mpi")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid}: tests in tests/mpi need @pytest.mark.mpi(min_size=N)")
    return int(marker.kwargs.get("min_size", 2))


def is_rank(config: pytest.Config) -> bool:
    """Whether this pytest is itself one of the ranks."""
    return bool(config.getoption("--with-mpi"))


def pytest_configure(config: pytest.Config) -> None:
    if is_rank(config):
        config.pluginmanager.register(Agreement(), "bagpipe-agreement")
    else:
        # Collecting imports the test modules; the collecting process is no rank and stays out of MPI.
        import mpi4py

        mpi4py.rc.initialize = False
        config.stash[SUMMARIES] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if FOLDER in item.path.parents]
    if is_rank(config):
        from mpi4py import MPI

        size = MPI.COMM_WORLD.Get_size()
        others = [item for item in here if rank_count(item) != size]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
        return
    groups: dict[int, list[pytest.Item]] = defaultdict(list)
    for item in here:
        groups[rank_count(item)].append(item)
    others = [item for item in items if item not in here]
    launched: list[pytest.Item] = []
    for count, group in sorted(groups.items()):
        folder = group[0].getparent(pytest.Dir)
        launched.append(LaunchedTests.from_parent(folder, name=f"on {count} ranks", count=count, tests=group))
    place = items.index(here[0]) if here else 0
    items[:] = others[:place] + launched + others[place:]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if summaries := config.stash.get(SUMMARIES, []):
        terminalreporter.section("tests under mpirun")
        for line in summaries:
            terminalreporter.line(line)


class LaunchedTests(pytest.Item):
    """All chosen tests for one number of ranks, run by one mpirun."""

    def __init__(self, *, count: int, tests: list[pytest.Item], **node: object) -> None:
        super().__init__(**node)
        self.count = count
        self.tests = tests
        self.add_marker(pytest.mark.timeout(GROUP_TIMEOUT_S + GRACE_S + 20))

    def runtest(self) -> None:
        require_launcher()
        with tempfile.TemporaryDirectory(prefix="bagpipe-ranks-") as logs:
            arguments = ["--with-mpi", "-v", "--color=no", f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=thread"]
            if self.config.inipath:
                arguments.append(f"--config-file={self.config.inipath}")
            arguments += [f"--rootdir={self.config.rootpath}", *(test.nodeid for test in self.tests)]
            ended = run_ranks(
                self.count,
                *(*forked_rank("tests.launched_pytest"), logs, *arguments),
                timeout_s=GROUP_TIMEOUT_S,
                env=rank_environment(),
                cwd=self.config.rootpath,
            )
            last_line = (ended.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
            self.config.stash[SUMMARIES].append(f"{self.nodeid}: {last_line}")
            if ended.returncode != 0:
                raise RanksFailedError(self._account(ended.returncode, ended.stdout, ended.stderr, Path(logs)))

    def _account(self, status: int, stdout: str, stderr: str, logs: Path) -> str:
        """What happened, rank by rank, rank 0 last and longest."""
        parts = [(log.stem, log.read_text(errors="replace")) for log in sorted(logs.glob("rank-*.log"))]
        parts += [("stderr of rank 0 and of mpirun", stderr), ("rank 0", stdout)]
        texts = [f"mpirun with {self.count} ranks ended with status {status}"]
        for name, text in parts:
            if text.strip():
                texts.append(f"---- {name} ----\n" + "\n".join(text.rstrip().splitlines()[-SHOWN_LINES:]))
        return "\n".join(texts)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> object:
        if isinstance(excinfo.value, RanksFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"tests/mpi on {self.count} ranks ({len(self.tests)} tests)"


class RanksFailedError(Exception):
    """The tests of a `LaunchedTests` failed; the message holds what the ranks wrote."""


class Agreement:
    """Gives every phase of a test the same outcome on all ranks. Talks on a communicator of its own."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD.Dup()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item):
        report = yield
        rank = self.comm.Get_rank()
        if report.failed:
            # Written at once: this rank may be aborted before pytest shows its failures.
            print(
                f"\nrank {rank}: {item.nodeid} failed in {report.when}\n{report.longreprtext}",
                file=sys.__stderr__,
                flush=True,
            )
        codes = array.array("i", [0] * self.comm.Get_size())
        codes[rank] = OUTCOMES[report.outcome]
        all_codes = array.array("i", codes)
        request = self.comm.Iallreduce(codes, all_codes)
        deadline = time.monotonic() + ABORT_AFTER_S
        while not request.Test():
            time.sleep(0.001)
            if report.failed and time.monotonic() > deadline:
                print(
                    f"rank {rank}: the others do not arrive at the end of {item.nodeid}",
                    file=sys.__stderr__,
                    flush=True,
                )
                self.comm.Abort(1)
        if len(set(all_codes)) > 1:
            failed = [other for other, code in enumerate(all_codes) if code == OUTCOMES["failed"]]
            if not report.failed:
                report.outcome = "failed"
                report.longrepr = (
                    f"failed on rank {', '.join(map(str, failed))} of {len(codes)}; its log tells why"
                    if failed
                    else f"skipped on some ranks only: outcomes by rank {list(all_codes)}, {OUTCOMES}"
                )
        return report

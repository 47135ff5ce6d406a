"""Free memory is what the host has or what the control groups leave, whichever is less."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bagpipe_hpc.cluster.host_memory import free_bytes

GIB = 1 << 30
V1 = "sys/fs/cgroup/memory"
V2 = "sys/fs/cgroup"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with 64 GiB free."""
    write(
        tmp_path / "proc/meminfo",
        f"MemTotal:  99999999 kB\nMemFree: 1 kB\nMemAvailable:   {64 << 20} kB\nHugePages_Free: 0\n",
    )
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_group(folder: Path, limit: str, used: int, cache: int, version: int) -> None:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    stat = "total_inactive_file" if version == 1 else "inactive_file"
    write(folder / names[0], f"{limit}\n")
    write(folder / names[1], f"{used}\n")
    write(folder / "memory.stat", f"anon {used}\n{stat} {cache}\n")


def test_a_host_without_groups(root: Path) -> None:
    assert free_bytes(root) == 64 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_group_counts(root: Path, version: int) -> None:
    """A task without a limit in a job with one; the cache of files can be had back."""
    mount, line = (V1, "4:memory:") if version == 1 else (V2, "0::")
    write(root / "proc/self/cgroup", f"5:cpuset:/\n{line}/slurm/job_7/task_0\n")
    add_group(root / mount / "slurm/job_7/task_0", "9223372036854771712" if version == 1 else "max", GIB, 0, version)
    add_group(root / mount / "slurm/job_7", str(8 * GIB), 5 * GIB, 2 * GIB, version)
    add_group(root / mount / "slurm", str(32 * GIB), 5 * GIB, 0, version)
    assert free_bytes(root) == 5 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_is_at_the_mount(root: Path, version: int) -> None:
    """Its path is the host's, which it does not see."""
    mount, line = (V1, "4:memory:") if version == 1 else (V2, "0::")
    write(root / "proc/self/cgroup", f"{line}/docker/1f/not/here\n")
    add_group(root / mount, str(4 * GIB), GIB, 0, version)
    assert free_bytes(root) == 3 * GIB


def test_a_groups_name_may_have_any_bytes(root: Path) -> None:
    write(root / "proc/self/cgroup", "")
    (root / "proc/self/cgroup").write_bytes(b"0::/slurm/\xff\n")
    add_group(root / V2 / "slurm" / os.fsdecode(b"\xff"), str(4 * GIB), GIB, 0, 2)
    assert free_bytes(root) == 3 * GIB


def test_a_group_that_is_full_leaves_nothing(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/\n")
    add_group(root / V2, str(GIB), GIB + 4096, 0, 2)
    assert free_bytes(root) == 0


def test_a_limit_above_what_the_host_has_does_not_help(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/\n")
    add_group(root / V2, str(512 * GIB), 0, 0, 2)
    assert free_bytes(root) == 64 * GIB


def test_this_host() -> None:
    assert 0 < free_bytes() <= psutil.virtual_memory().total


def test_a_limit_of_the_address_space_counts() -> None:
    program = (
        "import resource; from bagpipe_hpc.cluster.host_memory import free_bytes\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); print(free_bytes())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 1 << 29 < int(ended.stdout) < 1 << 30

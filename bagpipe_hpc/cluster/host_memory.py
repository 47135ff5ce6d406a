"""Memory that a process can still get on its host: what is free, and what limits around it leave.

A batch system or a container runtime limits memory by control groups, which `/proc/meminfo` knows nothing of: a rank
that outgrows one is killed while the host has plenty. Some limit the address space of each process instead
(`ulimit -v`), and refuse what is beyond it.
"""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_SHARED_MEMORY = Path("/dev/shm")
_UNLIMITED_BYTES = 1 << 62
"""Version 1 writes the largest number of whole pages where there is no limit."""
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def free_bytes(root: Path = _ROOT) -> int:
    """The memory that this process and others of its control groups can still get.

    Args:
        root: where `proc` and `sys` are.
    """
    return max(0, min([_available_bytes(root), *_left_by_groups(root), *_left_of_address_space(root)]))


def free_shared_bytes() -> int:
    """What is free where MPI libraries place windows that ranks share; a rank that outgrows it dies of SIGBUS."""
    return shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else free_bytes()


def _available_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        name, value, *_ = line.split()
        if name == "MemAvailable:":
            return int(value) * 1024
    raise OSError(f"{root / 'proc/meminfo'}: has no line MemAvailable; Linux 3.14 or newer is needed")


def _left_of_address_space(root: Path) -> Iterator[int]:
    """What the limit of this process leaves, if it has one."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes != resource.RLIM_INFINITY:
        pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[0])
        yield limit_bytes - pages * resource.getpagesize()


def _left_by_groups(root: Path) -> Iterator[int]:
    """What the limit of each control group around this process leaves."""
    try:
        # A group's name may have any bytes.
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:  # a kernel without control groups
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/memory", _VERSION_1
        elif not controllers:
            mount, files = root / "sys/fs/cgroup", _VERSION_2
        else:
            continue
        # In a container the path may be the host's, which is not to be seen here: the mount is the container's group.
        group = mount / path.strip("/")
        for folder in [group, *group.parents]:
            left = _left(folder, *files)
            if left is not None:
                yield left
            if folder == mount:
                break


def _left(group: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    """What a group's limit leaves; None where it has no limit."""
    try:
        limit = (group / limit_name).read_text(encoding="ascii").strip()
        usage = int((group / usage_name).read_text(encoding="ascii"))
        entries = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if limit == "max" or int(limit) > _UNLIMITED_BYTES:
        return None
    # Cached pages of files count as used, but go as soon as somebody wants the memory.
    cache = sum(int(entry.split()[1]) for entry in entries if entry.split()[0] == cache_name)
    return int(limit) - usage + cache

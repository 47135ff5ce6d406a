"""Whether Linux shares a host's cores between sessions, and so between the ranks that a launcher starts as one each."""

from pathlib import Path

_ROOT = Path("/")


def are_sessions_grouped(root: Path = _ROOT) -> bool:
    """Whether each session's threads are one group to Linux's scheduler (autogroup, sched(7)).

    They are where `kernel.sched_autogroup_enabled` is set, unless a CPU control group has taken their place.

    Args:
        root: where `proc` and `sys` are.
    """
    return _read(root / "proc/sys/kernel/sched_autogroup_enabled").strip() == "1" and not _has_cpu_group(root)


def _has_cpu_group(root: Path) -> bool:
    """Whether this process is in a CPU control group below the first one, as far as can be seen from here."""
    paths: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    if "cpu" in paths:  # version 1
        return paths["cpu"] != "/"
    passed_on = _read(root / "sys/fs/cgroup/cgroup.subtree_control").split()
    return "cpu" in passed_on and paths.get("", "/") != "/"


def _read(file: Path) -> str:
    """A file's text; empty where this kernel has no such file, or does not show it."""
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")  # a group's name may have any bytes
    except OSError:
        return ""

"""What Linux says of this process's memory."""

from pathlib import Path


def asked_bytes(first: int, size: int) -> int:
    """How many of the bytes from an address on lie in mappings with the flag `hg` (proc_pid_smaps(5))."""
    asked = begin = end = 0
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name = line.split()[0]
        if "-" in name:
            begin, end = (int(address, 16) for address in name.split("-"))
        elif name == "VmFlags:" and "hg" in line.split():
            asked += max(0, min(end, first + size) - max(begin, first))
    return asked

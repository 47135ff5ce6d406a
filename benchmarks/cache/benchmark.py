"""`python -m benchmarks cache`: speed of the row operations beside that of a plain copy of as many bytes.

Copy and operation take turns; a fraction is the median of the runs' quotients, so that other load, which slows both,
matters little.
"""

import argparse
import statistics
from dataclasses import asdict, dataclass

import torch

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.row_operations import RowOperations, row_operations
from bagpipe_hpc.tools.conditions import cores
from bagpipe_hpc.tools.report import Report, median
from benchmarks.cache.copy_speed import PlainCopy, seconds
from benchmarks.cache.workload import CacheWorkload, Operation

_TABLE_BYTES, _QUICK_TABLE_BYTES = 400 << 20, 128 << 20
_WARM_UP = 3
"""Results find memory from earlier calls only after a few: glibc places a freed block's successor elsewhere."""
_WIDTHS, _QUICK_WIDTHS = (16, 48, 64, 128, 256), (48, 128)


@dataclass(frozen=True)
class Way:
    """Who carries the operations out."""

    device: torch.device
    backend: str
    threads: int

    @property
    def name(self) -> str:
        """For the heading of a table."""
        if self.device.type == "cuda":
            return f"{torch.cuda.get_device_name(self.device)}, {self.backend}"
        return f"CPU, {self.backend}, {self.threads} thread{'s' if self.threads > 1 else ''}"


@dataclass(frozen=True)
class Measured:
    """Speed of one operation.

    Attributes:
        gb_per_s: bytes read and written per second, 1e9 a GB; median.
        fraction_of_copy: of a plain copy's speed in the same runs; median.
    """

    device: str
    backend: str
    threads: int
    embedding_dim: int
    operation: str
    size: str
    rows: int
    moved_bytes: int
    gb_per_s: float
    fraction_of_copy: float


def run(arguments: argparse.Namespace) -> Report:
    """Measure all operations of every backend, thread count and width.

    Args:
        arguments: `quick`, `runs`; `widths`, `threads` and `devices`, or None for the usual ones.

    Raises:
        ConfigError: torch sees no GPU, and one was asked for.
    """
    if "cuda" in (arguments.devices or ()) and not torch.cuda.is_available():
        raise ConfigError("--devices cuda: torch sees no GPU here; leave it out")
    keep_all_freed_memory()  # as a rank does; else every result faults in new pages
    widths = arguments.widths or (_QUICK_WIDTHS if arguments.quick else _WIDTHS)
    threads = arguments.threads or ([1] if arguments.quick else sorted({1, min(2, cores())}))
    table_bytes = _QUICK_TABLE_BYTES if arguments.quick else _TABLE_BYTES
    measured: dict[Way, list[Measured]] = {}
    for device in map(torch.device, arguments.devices or _devices()):
        for width in widths:
            workload = CacheWorkload(width, table_bytes, device)
            for way in _ways(device, threads):
                found = _measure(way, width, workload.operations(), arguments.runs)
                measured.setdefault(way, []).extend(found)
    report = Report("cache")
    for way, found in measured.items():
        _add_table(report, way, found)
    report.figures = {"results": [asdict(one) for found in measured.values() for one in found]}
    return report


def _devices() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def _ways(device: torch.device, threads: list[int]) -> list[Way]:
    """The backends that this machine has for a device."""
    is_cpu = device.type == "cpu"
    backends = ["reference"]
    if shared_library.is_built(native.LIBRARY if is_cpu else "cuda"):
        backends.insert(0, "native")
    return [Way(device, backend, count) for backend in backends for count in (threads if is_cpu else [1])]


def _measure(way: Way, width: int, calls: list[Operation], runs: int) -> list[Measured]:
    torch.set_num_threads(way.threads)
    operations = row_operations(way.backend, way.device, way.threads)
    copy = PlainCopy(way.device, way.threads)
    found = []
    for call in calls:
        for _ in range(_WARM_UP):
            call.run(operations)
        copy.gb_per_s(call.moved_bytes)
        pairs = [(copy.gb_per_s(call.moved_bytes), _gb_per_s(way, operations, call)) for _ in range(runs)]
        found.append(
            Measured(
                way.device.type,
                way.backend,
                way.threads,
                width,
                call.name,
                call.size,
                call.rows,
                call.moved_bytes,
                median([speed for _, speed in pairs]),
                float(f"{statistics.median(speed / copied for copied, speed in pairs):.3g}"),
            )
        )
    return found


def _gb_per_s(way: Way, operations: RowOperations, call: Operation) -> float:
    return call.moved_bytes / seconds(way.device, lambda: call.run(operations)) / 1e9


def _add_table(report: Report, way: Way, found: list[Measured]) -> None:
    """A row an operation, a column a width."""
    widths = list(dict.fromkeys(one.embedding_dim for one in found))
    cells = {(one.operation, one.size, one.embedding_dim): one for one in found}
    rows = []
    for name, size in dict.fromkeys((one.operation, one.size) for one in found):
        line = [cells[name, size, width] for width in widths]
        rows.append([f"{name}, {size}", *(f"{one.gb_per_s:.1f} ({one.fraction_of_copy:.2f})" for one in line)])
    report.table(f"{way.name}: GB/s (fraction of a copy)", ["operation", *(f"D = {width}" for width in widths)], rows)

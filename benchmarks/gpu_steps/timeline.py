"""Reads a timeline of torch's profiler: how long a GPU was busy, and with what."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

KINDS = {
    "looks for NaN": ("note_rows", "note_tensors"),
    "products": ("gemm", "gemv", "cutlass", "cublas", "splitk", "xmma"),
    "row operations": ("bagpipe",),
    "sorting of look-ups": ("sort", "radix", "scan", "histogram", "unique", "onesweep"),
}
"""Kinds of kernels, by parts of their names in lower case; what has none of these is of the kind `rest`."""
COPIES = {"HtoD": "copies to the GPU", "DtoH": "copies from the GPU", "DtoD": "copies within the GPU"}
REST = "rest"


class GpuWork(NamedTuple):
    """A kernel or a copy.

    Attributes:
        kind: of `KINDS`, `COPIES` or `REST`.
        stream: that it was in.
        begin_us: since any moment.
        end_us: likewise.
    """

    kind: str
    stream: int
    begin_us: float
    end_us: float


def gpu_work(timeline: Mapping[str, Any]) -> list[GpuWork]:
    """All work of the GPU in a timeline in Chrome's trace format."""
    found = []
    for event in timeline["traceEvents"]:
        category = event.get("cat", "")
        if event.get("ph") != "X" or category not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        kind = kind_of(event["name"], is_kernel=category == "kernel")
        found.append(GpuWork(kind, event["args"].get("stream", 0), event["ts"], event["ts"] + event["dur"]))
    return found


def kind_of(name: str, *, is_kernel: bool) -> str:
    """The kind of a kernel, or of a copy, by its name."""
    if not is_kernel:
        return next((kind for part, kind in COPIES.items() if part in name), REST)
    lower = name.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), REST)


def busy_us(work: Iterable[GpuWork]) -> float:
    """How long some of it was under way: what overlaps counts once."""
    total, until = 0.0, float("-inf")
    for one in sorted(work, key=lambda one: one.begin_us):
        total += max(0.0, one.end_us - max(one.begin_us, until))
        until = max(until, one.end_us)
    return total


def by_kind(work: Iterable[GpuWork]) -> dict[str, float]:
    """Microseconds of each kind."""
    sums: defaultdict[str, float] = defaultdict(float)
    for one in work:
        sums[one.kind] += one.end_us - one.begin_us
    return dict(sums)

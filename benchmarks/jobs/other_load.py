"""How busy others keep the machine: measured beside a job, and waited out before one."""

import resource
import time
from types import TracebackType

import psutil

_QUIET_SHARE = 0.15
_QUIET_SECONDS = 3


class OtherLoad:
    """Measures, over its body, the share of the cores that neither this process nor its ended children used.

    Attributes:
        share: from 0 to 1, known after the body.
    """

    def __enter__(self) -> "OtherLoad":
        self.share = 0.0
        self._busy_s, self._own_s, self._start_s = _busy_s(), _own_s(), time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        busy_s = _busy_s() - self._busy_s - (_own_s() - self._own_s)
        self.share = max(0.0, busy_s / (time.monotonic() - self._start_s) / (psutil.cpu_count() or 1))


def wait_for_quiet(limit_s: float) -> bool:
    """Wait until the cores have been almost idle for three seconds, at most `limit_s`; false if they never were."""
    deadline = time.monotonic() + limit_s
    quiet = 0
    while quiet < _QUIET_SECONDS and time.monotonic() < deadline:
        quiet = quiet + 1 if psutil.cpu_percent(interval=1.0) < _QUIET_SHARE * 100 else 0
    return quiet >= _QUIET_SECONDS


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)

"""A process may open as many files as the system allows it, whatever its shell has set."""

import resource

from bagpipe_hpc.cluster.open_files import allow_open_files


def test_the_own_limit_is_raised_and_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(before[1], 1 << 16) if before[1] != resource.RLIM_INFINITY else 1 << 16
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

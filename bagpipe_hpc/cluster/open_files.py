"""How many files a process may have open at once."""

import resource
from contextlib import suppress

_WANTED = 1 << 16


def allow_open_files() -> None:
    """Raise this process's own limit to what the system allows it, up to 65,536; shells mostly set it to 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Which implementation of an operation runs: native code where it was built, else its NumPy or torch twin."""

import logging
from functools import cache

from bagpipe_hpc.kernels import shared_library

log = logging.getLogger(__name__)


@cache
def use_native(backend: str, library: str) -> bool:
    """Decide for one library, once a process, and say so in the log.

    Args:
        backend: `kernels.backend`.
        library: a library of `shared_library`, such as `planner`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if backend == "reference" or (backend == "auto" and not shared_library.is_built(library)):
        log.info("%s: reference implementation (kernels.backend = %s)", library, backend)
        return False
    shared_library.load(library)
    log.info("%s: native implementation (kernels.backend = %s)", library, backend)
    return True

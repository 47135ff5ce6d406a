"""Train recommendation models whose embedding tables are too large for one trainer, over MPI.

The method is BagPipe's (SOSP 2023): an oracle rank reads the data ahead and tells the trainers which embedding
rows to fetch, keep, reduce and write back, so that remote rows cost nothing on the critical path and the result
is that of plain synchronous training. `docs/architecture.md` describes the design.
"""

import importlib

__version__ = "0.1.0"
__all__ = ["train"]


def __getattr__(name: str) -> object:
    """What programs in Python start, found when it is asked for: every module imports this one first."""
    if name in __all__:
        return getattr(importlib.import_module("bagpipe_hpc.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""How often the interpreter looks through all that it has imported for objects that only refer to each other."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FULL_EVERY = 1000
"""Collections of the middle generation before a full one. CPython's ten make it go through everything five times while
torch and what its optimizers need are imported: a quarter of the processor time of these imports. From Python 3.14 on
it is ignored: collections are incremental there."""


@contextmanager
def rare_full_collections() -> Iterator[None]:
    """Let full collections be rare in the body; those of young objects, which free what steps leave, are as before."""
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], _FULL_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*before)

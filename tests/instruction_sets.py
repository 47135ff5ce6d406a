"""Native code that has a form for each instruction set: tests take them all (csrc/instruction_sets.inc)."""

from collections.abc import Iterator

from bagpipe_hpc.kernels import shared_library

_BEST = 99
"""Beyond the last."""


def each_instruction_set(library: str) -> Iterator[int]:
    """The numbers of those that this processor has, each in use until the next one; at last the best is again."""
    use = shared_library.load(library).use_instruction_set
    try:
        for number in range(use(_BEST)):
            use(number)
            yield number
    finally:
        use(_BEST)

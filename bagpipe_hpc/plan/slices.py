"""How a batch, or anything else with rows, is cut into contiguous slices, one a trainer. Pure."""


def slice_bounds(samples: int, slices: int) -> list[int]:
    """Cut `samples` into contiguous slices whose sizes differ by at most one, larger ones first.

    Returns:
        `slices + 1` ascending bounds; slice r is samples `bounds[r]` up to `bounds[r + 1]`.
    """
    small, larger = divmod(samples, slices)
    return [r * small + min(r, larger) for r in range(slices + 1)]

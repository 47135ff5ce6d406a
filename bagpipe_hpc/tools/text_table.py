"""Aligned plain text for a terminal."""

from collections.abc import Sequence

from bagpipe_hpc.terminal import printable

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Lines of a table with left-aligned columns.

    Args:
        rows: rows of the same number of texts, the headings first if there are any.
        right: numbers of the columns that are right-aligned, as numbers should be.
    """
    rows = [[printable(text, is_layout_kept=False) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def size_text(size_bytes: int) -> str:
    """A size in the largest unit of which there is at least one, such as `1.5 GiB`."""
    unit = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size_bytes} bytes" if unit == 0 else f"{size_bytes / 1024**unit:.1f} {_UNITS[unit]}"


def flattened(settings: object, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of `section.field` and value."""
    if isinstance(settings, dict) and settings:
        return [
            row for key, value in settings.items() for row in flattened(value, f"{prefix}.{key}" if prefix else key)
        ]
    return [(prefix, repr(settings))]

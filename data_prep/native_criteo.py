"""Criteo's click format read by native code; a block with anything unusual is left to `criteo`, the definition."""

import numpy as np
import pyarrow as pa

from bagpipe_hpc.kernels import click_text
from data_prep import criteo
from data_prep.criteo import BadLine, log_of_count, rows_of_columns
from data_prep.text_blocks import count_lines

_LOG_OF_COUNT = log_of_count(np.arange(1 << 16))
"""Nearly all counts are below; the table, 256 KiB, stays in a core's cache."""


def parse_block(text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
    """As `criteo.parse_block`."""
    columns = click_text.read_clicks(text, count_lines(text), _LOG_OF_COUNT)
    if columns is None:
        return criteo.parse_block(text)
    columns.dense.reshape(-1)[columns.large_places] = log_of_count(columns.large_counts)
    rows = len(columns.label)
    values = [
        pa.Array.from_buffers(
            pa.uint32(), rows, [pa.py_buffer(present) if missing else None, pa.py_buffer(table)], int(missing)
        )
        for table, present, missing in zip(columns.values, columns.present, columns.missing, strict=True)
    ]
    return rows_of_columns(pa.array(columns.label), columns.dense, values), []

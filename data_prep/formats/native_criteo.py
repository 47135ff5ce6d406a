"""Criteo's click format read by native code; a block with anything unusual is left to the definition."""

import numpy as np
import pyarrow as pa

from bagpipe_hpc.kernels.text import click_text
from data_prep.formats.delimited import BadLine, dense_column, log_of_count
from data_prep.formats.source_format import BlockParser
from data_prep.inputs.text_blocks import count_lines

_LOG_OF_COUNT = log_of_count(np.arange(1 << 16))
"""Logarithms of counts below 65,536, as nearly all counts are; these 256 KiB stay in a core's cache."""


class NativeCriteo:
    """Reads blocks of plain rows natively.

    Args:
        schema: schema of the parsed rows.
        definition: reads all other blocks.
    """

    def __init__(self, schema: pa.Schema, definition: BlockParser) -> None:
        self._schema = schema
        self._definition = definition

    def parse_block(self, text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        """As `SourceFormat.parse_block`."""
        columns = click_text.read_clicks(text, count_lines(text), _LOG_OF_COUNT)
        if columns is None:
            return self._definition(text)
        columns.dense.reshape(-1)[columns.large_places] = log_of_count(columns.large_counts)
        rows = len(columns.label)
        values = [
            pa.Array.from_buffers(
                pa.uint32(), rows, [pa.py_buffer(present) if missing else None, pa.py_buffer(table)], int(missing)
            )
            for table, present, missing in zip(columns.values, columns.present, columns.missing, strict=True)
        ]
        batch = [pa.array(columns.label), dense_column(columns.dense), *values]
        return pa.RecordBatch.from_arrays(batch, schema=self._schema), []

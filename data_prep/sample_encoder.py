"""From parsed rows to samples: values become ids, columns become the arrays of a shard.

Shapes: `n` rows, `N` dense features, `F` features with one id a row, `K` labels, `V` ids of a ragged one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.storage.shards.samples import RaggedColumn, Samples
from data_prep.backend import IdMaps
from data_prep.formats.layout import RowLayout
from data_prep.formats.source_format import Refine
from data_prep.formats.value_lists import list_values
from data_prep.vocabularies.vocabulary import Ids


class SampleEncoder:
    """Makes samples of parsed rows, from any thread.

    Args:
        layout: layout of the source format.
        id_maps: gives values their ids; tables go by their numbers in the layout.
        sparse_dtype: type of the ids (`storage.shards.entries.id_dtype`).
        refine: makes final rows of parsed ones; None where parsed rows are final.
    """

    def __init__(self, layout: RowLayout, id_maps: IdMaps, sparse_dtype: str, refine: Refine | None = None) -> None:
        self._refine = refine
        self._layout = layout
        self._id_maps = id_maps
        self._sparse_dtype = sparse_dtype
        numbers = {column: number for number, table in enumerate(layout.tables) for column in table.columns}
        self._tables = [numbers[column.name] for column in layout.sparse]
        self._list_tables = [numbers[column.name] for column in layout.lists]

    def encode(self, batches: Sequence[pa.RecordBatch]) -> Samples:
        """The `n` samples of parsed rows.

        Args:
            batches: one or more, of the schema of the source format (`SourceFormat.schema`), in order.
        """
        if self._refine is not None:
            batches = [self._refine(batch) for batch in batches]
        layout = self._layout
        rows, labels = sum(map(len, batches)), len(layout.labels)
        dense = np.empty((rows, len(layout.dense)), dtype=np.float32)
        sparse: Ids = np.empty((rows, len(layout.sparse)), dtype=self._sparse_dtype)
        label = np.empty(rows if labels == 1 else (rows, labels), dtype=np.uint8)
        weight = np.empty(rows, dtype=np.float32) if layout.weight else None
        others = {name: np.empty(rows, dtype=np.int64) for name in layout.others}
        at = 0
        for batch in batches:
            part = slice(at, at + len(batch))
            label[part] = _matrix(batch.column("label")) if labels > 1 else batch.column("label").to_numpy()
            if layout.dense:
                dense[part] = _matrix(batch.column("dense"))
            if weight is not None:
                weight[part] = batch.column("weight").to_numpy()
            if layout.sparse:
                columns = [batch.column(column.name) for column in layout.sparse]
                self._id_maps.write_ids(columns, self._tables, sparse[part])
            for name, numbers in others.items():
                numbers[part] = batch.column(name).to_numpy()
            at = part.stop
        ragged = {
            column.name: self._ragged([batch.column(column.name) for batch in batches], table)
            for column, table in zip(layout.lists, self._list_tables, strict=True)
        }
        return Samples(dense, sparse, label, ragged, weight, others)

    def _ragged(self, chunks: Sequence[pa.ListArray], table: int) -> RaggedColumn:
        """The ids of a column of lists."""
        lengths = np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in chunks]).astype(np.int64)
        ids: Ids = np.empty((int(lengths.sum()), 1), dtype=self._sparse_dtype)
        weights: list[NDArray[np.float32]] = []
        at = 0
        for chunk in chunks:
            flat, values = chunk.flatten(), list_values(chunk)
            self._id_maps.write_ids([values], [table], ids[at : at + len(values)])
            at += len(values)
            if pa.types.is_struct(flat.type):
                weights.append(flat.field("weight").to_numpy())
        return RaggedColumn(lengths, ids.reshape(-1), np.concatenate(weights) if weights else None)


def _matrix(column: pa.FixedSizeListArray) -> NDArray[Any]:
    """The lists of a column as rows."""
    matrix: NDArray[Any] = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return matrix

"""A vocabulary that is read piece by piece is the one that is read as a whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.vocabularies import pieces as vocabulary_pieces
from bagpipe_hpc.storage.vocabularies.pieces import open_vocabulary
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary, write_vocabularies

NUMBERS = np.array([70, 3, 9, 5, 1, 44, 8], dtype=np.uint32)
TEXTS = np.array(["b", "größe", "", "a,b"], dtype=object)


def write(folder: Path, values: Any, buckets: int, free: list[int]) -> tuple[ShardManifest, TableVocabulary]:
    """Vocabularies of one table, and the manifest that belongs to them."""
    vocabulary = TableVocabulary(values, buckets, np.array(free, dtype=np.int64))
    info = write_vocabularies(folder, {"C1": vocabulary}, buckets)
    tables = (TableInfo("C1", vocabulary.rows),)
    return ShardManifest(1, "drawn", 0, tables, train=(), test=(), vocabularies=info), vocabulary


@pytest.mark.parametrize("values", [NUMBERS, NUMBERS.astype(np.int64) - 20, TEXTS])
@pytest.mark.parametrize("buckets", [0, 4])
@pytest.mark.parametrize("free", [[], [0], [1, 2, 5]])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_pieces_are_the_whole(
    values: Any, buckets: int, free: list[int], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary_pieces, "PIECE_VALUES", most)
    manifest, whole = write(tmp_path, values, buckets, [1 + buckets + row for row in free])
    with open_vocabulary(tmp_path, manifest, "C1") as pieces:
        assert (pieces.count, pieces.rows, pieces.unseen_buckets) == (len(values), whole.rows, buckets)
        assert pieces.is_text == (values.dtype == np.object_)
        found = [(list(pieces.values(*piece)), pieces.ids(*piece).tolist()) for piece in pieces.pieces()]
        assert [value for part, _ in found for value in part] == list(whole.values)
        assert [row for _, part in found for row in part] == whole.ids.tolist()
        for row in range(whole.rows + 1):
            assert pieces.number_of(row) == np.count_nonzero(whole.ids < row)


def test_hashed_tables_have_none(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path, NUMBERS, 0, [])
    hashed = ShardManifest(1, "drawn", 0, manifest.tables, (), (), hashed_tables=("C1",))
    with pytest.raises(DataError, match="table C1 were hashed"), open_vocabulary(tmp_path, hashed, "C1"):
        pass


def test_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path, NUMBERS, 0, [])
    other = ShardManifest(1, "drawn", 0, (TableInfo("C1", 9),), (), (), vocabularies=manifest.vocabularies)
    with pytest.raises(DataError, match="C1 has 7 values instead of 8"), open_vocabulary(tmp_path, other, "C1"):
        pass


def test_a_table_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path, NUMBERS, 0, [])
    other = ShardManifest(1, "drawn", 0, (TableInfo("C2", 8),), (), (), vocabularies=manifest.vocabularies)
    with pytest.raises(DataError, match="holds no values of table C2"), open_vocabulary(tmp_path, other, "C2"):
        pass

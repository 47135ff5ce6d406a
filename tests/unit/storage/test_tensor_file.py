"""Files of tensors are those that the safetensors library reads."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from bagpipe_hpc.storage.tensor_file import METADATA, StreamedTensor, write_tensors

TABLE = np.arange(35, dtype=np.float32).reshape(7, 5)
IDS = np.array([3, -1, 1 << 60], dtype=np.int64)


def streamed(name: str = "C1", pieces: int = 3) -> StreamedTensor:
    """`TABLE` in so many pieces, columns of a wider array as a checkpoint's records are."""
    wide = np.concatenate((TABLE, TABLE), axis=1)
    return StreamedTensor(name, "F32", TABLE.shape, lambda: (part[:, :5] for part in np.array_split(wide, pieces)))


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tables.safetensors"
    texts = StreamedTensor("größe, 1", "I64", IDS.shape, lambda: [IDS])
    empty = StreamedTensor("none", "F32", (0, 5), list)
    scalar = StreamedTensor("scalar", "U8", (), lambda: [np.array([7], np.uint8)])
    info = write_tensors(path, [streamed(), texts, empty, scalar], {"format": "pt"})
    found = load_file(path)
    assert found.keys() == {"C1", "größe, 1", "none", "scalar"}
    assert found["C1"].tobytes() == TABLE.tobytes()
    assert found["C1"].shape == TABLE.shape
    assert found["größe, 1"].tolist() == IDS.tolist()
    assert found["none"].shape == (0, 5)
    assert found["scalar"].shape == ()
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}
    content = path.read_bytes()
    assert info.bytes == len(content)
    assert info.sha256 == hashlib.sha256(content).hexdigest()


def test_numbers_begin_at_a_multiple_of_eight_bytes(tmp_path: Path) -> None:
    for length in range(1, 9):
        path = tmp_path / f"{length}.safetensors"
        write_tensors(path, [streamed("x" * length)], {})
        assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0


def test_pieces_do_not_change_the_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{pieces}.safetensors" for pieces in (1, 2, 7)]
    digests = {write_tensors(path, [streamed(pieces=int(path.stem))], {}).sha256 for path in files}
    assert len(digests) == 1


@pytest.mark.parametrize("rows", [6, 8])
def test_a_tensor_of_another_size_is_refused(rows: int, tmp_path: Path) -> None:
    wrong = StreamedTensor("C1", "F32", (rows, 5), lambda: [TABLE])
    with pytest.raises(ValueError, match=f"tensor C1: 140 bytes came, and its shape says {20 * rows}"):
        write_tensors(tmp_path / "tables", [wrong], {})


@pytest.mark.parametrize("name", ["C1", METADATA])
def test_a_name_that_is_taken_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which is taken"):
        write_tensors(tmp_path / "tables", [streamed(), streamed(name)], {})


def test_an_earlier_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_tensors(path, [streamed()], {})
    assert path.read_text() == "mine"


def test_the_header_is_json_without_blanks_but_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    write_tensors(path, [streamed()], {"format": "pt"})
    content = path.read_bytes()
    header = content[8 : 8 + int.from_bytes(content[:8], "little")].decode()
    assert json.loads(header)["C1"] == {"dtype": "F32", "shape": [7, 5], "data_offsets": [0, 140]}
    assert " " not in header.rstrip(" ")

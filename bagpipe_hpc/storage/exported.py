"""Reads the folder that `bagpipe export` wrote, for a training that begins with its weights.

Its files are described in docs/serving.md. A folder is read as if a stranger had written it: every size is compared
with the file before memory is allocated for it.

Shapes: n rows of a piece, D the width of a table, V values.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError, FileError, read_small
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo, is_file_name
from bagpipe_hpc.storage.tensor_file import TensorPlace, tensor_places
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST_FILE, SCHEMA_FILE, DENSE_FILE = "manifest.json", "schema.json", "dense.safetensors"
FORMAT, VERSION = "bagpipe-export", 1
_MOST_BYTES = 64 << 20
"""Upper limit for a JSON file that holds no values of a vocabulary."""
_PIECE_ROWS = 1 << 16
_PIECE_NUMBERS = 1 << 22
_FLOATS = {
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F32": ("<u4", 0x7F800000),
    "F64": ("<u8", 0x7FF0000000000000),
}
"""Kinds of floating-point numbers: the integer type of their bits, and a mask of the exponent's bits, which are all set
in a number that is not finite."""
_CURE = "export the model again"


class TrainedTable(NamedTuple):
    """A table that is open for reading.

    Attributes:
        rows: number of its ids.
        piece_rows: how many to read at a time.
        read: gives the ids `first` up to `last`, float32 `[n, D]` or, with an optimizer's state, `[n, D + k]`.
    """

    rows: int
    piece_rows: int
    read: Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class ExportedModel:
    """A folder of an exported model, whose two JSON files were read and checked.

    Attributes:
        directory: the folder.
        step: of the checkpoint that was exported.
        training_data: digest of the training shards of that checkpoint.
        vocabularies: digest of the shards' vocabularies; None where it is not recorded.
        columns: what the shards' columns are, as `column_words` says; empty where that is not recorded.
        table_names: the tables.
        table_rows: rows of each.
        table_widths: numbers of a row of each.
        hashed_tables: those whose values are hashed.
        hashed_from: how the values of a hashed table are made, as `value_words` says, where that is recorded.
        files: all files but the manifest.
    """

    directory: Path
    step: int
    training_data: str
    vocabularies: str | None
    columns: tuple[str, ...]
    table_names: tuple[str, ...]
    table_rows: tuple[int, ...]
    table_widths: tuple[int, ...]
    hashed_tables: tuple[str, ...]
    hashed_from: Mapping[str, frozenset[str]]
    files: tuple[FileInfo, ...]
    _of_tables: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _places: dict[str, dict[str, TensorPlace]] = field(default_factory=dict, repr=False, compare=False)

    def verify_file(self, info: FileInfo, quick: bool = False) -> None:
        """Check one file's size and, unless `quick`, its contents.

        Raises:
            CheckpointError: it is absent or differs.
        """
        path = self.directory / info.file
        try:
            size = path.stat().st_size if path.is_file() else None
            digest = info.sha256 if quick or size != info.bytes else file_sha256(path)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
        if (size, digest) != (info.bytes, info.sha256):
            what = "is absent" if size is None else f"has {size} bytes instead of {info.bytes}" if quick else "differs"
            raise CheckpointError(f"{path}: {what}, by the manifest beside it; {_CURE}")

    def verify(self, quick: bool = False) -> None:
        """Check all files; arguments and errors as for `verify_file`."""
        for info in self.files:
            self.verify_file(info, quick)

    def require_finite(self, info: FileInfo) -> None:
        """Look at every number of one file; files without tensors pass.

        Raises:
            CheckpointError: one is NaN or infinite, or the file is damaged; the message names what it belongs to.
        """
        path = self.directory / info.file
        if path.suffix != ".safetensors":
            return
        for name, place in tensor_places(path).items():
            if place.kind not in _FLOATS:
                continue
            bits, exponent = _FLOATS[place.kind]
            numbers = _raw(path, place).view(bits)
            for first in range(0, len(numbers), _PIECE_NUMBERS):
                piece = numbers[first : first + _PIECE_NUMBERS]
                is_finite = piece & exponent != exponent
                if not is_finite.all():
                    row = (first + int(np.argmin(is_finite))) // max(1, math.prod(place.shape[1:]))
                    what = f"dense weight {name}" if info.file == DENSE_FILE else f"table {name}, row {row}"
                    cure = "the model had diverged; export a checkpoint from before that"
                    raise CheckpointError(f"{path}: {what} holds NaN or infinity: {cure}")

    @contextmanager
    def open_table(self, table: str) -> Iterator[TrainedTable]:
        """Open the rows of a table, without optimizer state, for reading.

        Raises:
            CheckpointError: its file is absent or damaged, or is one of Parquet.
        """
        rows = self._rows(table)
        yield TrainedTable(len(rows), _PIECE_ROWS, lambda first, last: np.array(rows[first:last], np.float32))

    def vocabulary(self, table: str) -> TableVocabulary:
        """Which value of a table that is not hashed has which id.

        Raises:
            CheckpointError: the file is absent or damaged, or that of the table is, which has a row for each id.
        """
        about, rows = self._of_tables[table], len(self._rows(table))
        try:
            name, kind, buckets = _file_name(about["vocabulary"]), str(about["values"]), int(about["buckets"])
            size = {info.file: info.bytes for info in self.files}[name]
            if not 0 <= buckets < rows:
                raise ValueError(f"{buckets} buckets of {rows} rows")
        except (KeyError, TypeError, ValueError) as error:
            path = self.directory / SCHEMA_FILE
            raise CheckpointError(f"{path}: the vocabulary of {table} is damaged: {error!r}; {_CURE}") from error
        path = self.directory / name
        if kind == "texts":
            texts = _read_json(path, size)
            values, numbers = np.array(list(texts), object), list(texts.values())
            if not all(type(number) is int and 0 <= number < rows for number in numbers):
                raise CheckpointError(f"{path}: the ids of {table} are not all numbers below {rows}; {_CURE}")
            ids = np.array(numbers, np.int64)
        else:
            values = np.array(self._tensor(name, f"{table}.values", "I64", None))
            ids = np.array(self._tensor(name, f"{table}.ids", "I64", values.shape))
        own = np.arange(1 + buckets, rows, dtype=np.int64)
        if not np.isin(ids, own).all() or (np.diff(ids) <= 0).any():
            raise CheckpointError(f"{path}: the ids of {table} are not ascending ones of its {rows} rows; {_CURE}")
        return TableVocabulary(values, buckets, np.setdiff1d(own, ids))

    def read_dense(self) -> "tuple[dict[str, Tensor], dict[str, Any]]":
        """The dense weights by name, and an empty dict in place of an optimizer's state, which is not exported.

        Raises:
            CheckpointError: the file is absent or damaged.
        """
        import torch  # noqa: PLC0415 - servers read tables without it

        path = self.directory / DENSE_FILE
        kinds = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16}
        kinds |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
        kinds |= {"BOOL": torch.bool}
        state = {}
        for name, place in tensor_places(path).items():
            raw = torch.from_numpy(np.array(_raw(path, place)))
            state[name] = raw.view(kinds[place.kind]).reshape(place.shape)
        return state, {}

    outline_dense = read_dense
    """The dense half is small: there is no need to leave its numbers out."""

    def _rows(self, table: str) -> NDArray[np.float32]:
        """The rows of a table, float32 `[rows, D]`, mapped from its file, after a check that they are there."""
        number = self.table_names.index(table)
        name = str(self._of_tables[table]["file"])
        if name.endswith(".parquet"):
            raise CheckpointError(
                f"{self.directory / name}: training cannot begin with tables in Parquet; export the model with "
                "--tables safetensors, or begin with its checkpoint"
            )
        return self._tensor(name, table, "F32", (self.table_rows[number], self.table_widths[number]))

    def _tensor(self, file: str, name: str, kind: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
        """A tensor of numbers, mapped from the file, after a check of its kind and shape.

        The header of a file is read once: where it lists thousands of tensors, that takes longer than to read a tensor.
        """
        path = self.directory / file
        if file not in self._places:
            self._places[file] = tensor_places(path)
        place = self._places[file].get(name)
        if place is None or place.kind != kind or (shape is not None and place.shape != tuple(shape)):
            raise CheckpointError(f"{path}: has no tensor {name} of {kind} {shape or ''}; {_CURE}")
        numbers: NDArray[Any] = _raw(path, place).view({"F32": "<f4", "I64": "<i8"}[kind])
        return numbers.reshape(place.shape)


def is_exported(directory: Path) -> bool:
    """Whether a folder claims to be one that `bagpipe export` wrote; its files may still be damaged."""
    path = directory / MANIFEST_FILE
    try:
        return path.is_file() and _read_json(path).get("format") == FORMAT
    except CheckpointError:
        return False


def load_exported(directory: Path) -> ExportedModel:
    """Read what the folder of an exported model says of itself.

    Raises:
        CheckpointError: a file is absent or malformed.
    """
    about, schema = _read_json(directory / MANIFEST_FILE), _read_json(directory / SCHEMA_FILE)
    if (about.get("format"), about.get("version")) != (FORMAT, VERSION):
        raise CheckpointError(
            f"{directory / MANIFEST_FILE}: is {about.get('format')!r:.40} version {about.get('version')!r:.20} instead "
            f"of {FORMAT} version {VERSION}; {_CURE}"
        )
    try:
        checkpoint, tables = about["checkpoint"], schema["tables"]
        return ExportedModel(
            directory,
            int(checkpoint["step"]),
            str(checkpoint["training_data"]),
            checkpoint["vocabularies"],
            _texts(checkpoint.get("columns", [])),
            tuple(str(table["name"]) for table in tables),
            tuple(int(table["rows"]) for table in tables),
            tuple(int(table["width"]) for table in tables),
            tuple(str(table["name"]) for table in tables if table["values"] == "hashed"),
            {str(name): frozenset(_texts(words)) for name, words in checkpoint.get("hashed_from", {}).items()},
            tuple(
                FileInfo(_file_name(file["file"]), int(file["bytes"]), str(file["sha256"])) for file in about["files"]
            ),
            {str(table["name"]): _with_file_names(table) for table in tables},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{directory}: manifest.json or schema.json is damaged: {error!r}; {_CURE}") from error


def _file_name(name: object) -> str:
    """The name of a file of the folder.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(name, str) or not is_file_name(name):
        raise ValueError(f"{name!r:.80} where the name of a file of the folder must stand")
    return name


def _texts(words: object) -> tuple[str, ...]:
    """A list of texts.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{words!r:.80} where a list of texts must stand")
    return tuple(words)


def _with_file_names(table: dict[str, Any]) -> dict[str, Any]:
    """The entry of a table in the schema, after a check of the names of its files.

    Raises:
        ValueError: a name is none of a file of the folder.
    """
    for name in (table["file"], table["vocabulary"]):
        if name is not None:
            _file_name(name)
    return table


def _read_json(path: Path, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
    try:
        document = json.loads(read_small(path, most_bytes))
    except FileError as error:
        raise CheckpointError(str(error)) from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); {_CURE}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is no JSON ({error}); {_CURE}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: holds no object; {_CURE}")
    return document


def _raw(path: Path, place: TensorPlace) -> NDArray[np.uint8]:
    """The bytes of a tensor, mapped from the file, uint8 `[bytes]`."""
    if place.bytes == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", place.first, (place.bytes,))

"""A file of predictions: a row for each raw row, as CSV, TSV or Parquet by its name."""

import csv
import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError, FileError, refused
from bagpipe_hpc.evaluation.click_evaluation import predictions
from bagpipe_hpc.storage.scratch_folder import ScratchFolder

SUFFIXES = (".csv", ".tsv", ".parquet")
_AT_ONCE = 1 << 18
"""Rows that are written at a time."""


def check_predictions_file(path: Path) -> None:
    """Check that a file can be written and does not exist.

    Raises:
        ConfigError: its name does not end in a known format.
        FileError: it exists, or its folder is absent or cannot be written to.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--output {path}: use a name that ends in {', '.join(SUFFIXES)}, which says the format")
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(error, path) from error
    else:
        raise FileError(f"{path}: is there already; name another file, or remove that one")
    if not path.parent.is_dir():
        raise FileError(f"{path}: {path.parent} is no folder; make it, or name another")


def columns_of(labels: Sequence[str], *, logits: bool) -> list[str]:
    """Names of the columns: of the probabilities, then of the logits where they are asked for.

    Args:
        labels: names of the labels; where there is one, columns do not name it.
        logits: whether there are columns of logits.
    """
    kinds = ("probability", "logit") if logits else ("probability",)
    return [kind if len(labels) == 1 else f"{kind}_{label}" for kind in kinds for label in labels]


def write_predictions(
    scratch: ScratchFolder, logits: NDArray[np.float32], labels: Sequence[str], *, with_logits: bool
) -> None:
    """Write a file, a piece of the rows at a time; it appears whole or not at all.

    A probability is the float64 sigmoid of the float32 logit, written so that reading gives the same number.

    Args:
        scratch: a folder whose `output` has passed `check_predictions_file`.
        logits: float32 `[rows, labels]`, in the order of the rows; there may be none.
        labels: their names.
        with_logits: write them as well.

    Raises:
        FileError: the system refuses the file, or another one has appeared there meanwhile.
    """
    names = columns_of(labels, logits=with_logits)
    kinds = [pa.float64()] * len(labels) + [pa.float32()] * (len(names) - len(labels))
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    path, made = scratch.output, scratch.path / "predictions"
    try:
        with ExitStack() as stack:
            file = stack.enter_context(pa.OSFile(str(made), "wb"))
            writer = stack.enter_context(_writer(path.suffix, file, schema))
            for first in range(0, len(logits), _AT_ONCE):
                piece = np.asarray(logits[first : first + _AT_ONCE])
                columns: list[NDArray[Any]] = [predictions(piece[:, number]) for number in range(len(labels))]
                columns += [piece[:, number] for number in range(len(names) - len(labels))]
                writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=schema))
        check_predictions_file(path)
        scratch.publish(made)
    except OSError as error:
        raise refused(error, path) from error


def _writer(suffix: str, file: pa.NativeFile, schema: pa.Schema) -> pa_csv.CSVWriter | pa_parquet.ParquetWriter:
    if suffix == ".parquet":
        return pa_parquet.ParquetWriter(file, schema)
    separator = "," if suffix == ".csv" else "\t"
    header = io.StringIO()
    csv.writer(header, delimiter=separator, lineterminator="\n").writerow(schema.names)  # Arrow quotes every name
    file.write(header.getvalue().encode())
    return pa_csv.CSVWriter(file, schema, write_options=pa_csv.WriteOptions(include_header=False, delimiter=separator))

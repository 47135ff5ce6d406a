"""`bagpipe export`: a trained model as a folder that a service with torch alone can use."""

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc import __version__
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.layers.interaction import torch_interaction
from bagpipe_hpc.models.layers.linear import check_implementation, torch_linear
from bagpipe_hpc.step.compute_setup import model_kernels
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import DENSE_FILE as SAVED_DENSE_FILE
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE as SAVED_MANIFEST_FILE
from bagpipe_hpc.storage.exported import DENSE_FILE, FORMAT, MANIFEST_FILE, SCHEMA_FILE, VERSION
from bagpipe_hpc.storage.shards.columns import value_words
from bagpipe_hpc.storage.tensor_file import StreamedTensor, write_tensors
from bagpipe_hpc.tools.exporting import onnx
from bagpipe_hpc.tools.exporting.folder import new_folder, require_new, require_room
from bagpipe_hpc.tools.exporting.program import (
    ServedModel,
    largest_difference,
    program_kernels,
    require_used,
    write_down,
)
from bagpipe_hpc.tools.exporting.readme import readme
from bagpipe_hpc.tools.exporting.schema import schema_of
from bagpipe_hpc.tools.exporting.source import ExportSource, open_source
from bagpipe_hpc.tools.exporting.tables import (
    ExportedTable,
    require_names,
    tables_of,
    write_parquet,
    write_safetensors,
    write_text,
)
from bagpipe_hpc.tools.exporting.vocabularies import ExportedValues, write_vocabularies

TABLE_FORMATS = ("safetensors", "parquet")
PROGRAM_FILE, ONNX_FILE = "model.pt2", "model.onnx"
_SERVED = Path(__file__).parent / "served"
_PARQUET_LINES = {
    "import json, pathlib, safetensors.torch as saved, torch\n": "import json, pathlib, pyarrow.parquet, torch\n",
    '{k: t for f in {t["file"] for t in schema["tables"]} for k, t in saved.load_file(folder / f).items()}': (
        '{t["name"]: read(t) for t in schema["tables"]}'
    ),
    "tables = ": """def read(table):
    weights = pyarrow.parquet.read_table(folder / table["file"], columns=["weights"])["weights"]
    return torch.tensor(weights.combine_chunks().flatten().to_numpy().reshape(-1, table["width"]))


tables = """,
    "torch, numpy and safetensors, and": "torch and pyarrow, and",
}
_DENSE_COPIES = 3
"""Copies of the dense half in the folder: as tensors, in the program, and one to spare for what belongs to them."""
_KINDS = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


@dataclass(frozen=True)
class ExportSettings:
    """How a model is exported; each field is an argument of `bagpipe export`."""

    checkpoint: Checkpoint
    """The trained model."""
    output: Path
    """The folder to make."""
    data: Path | None = None
    """Folder of the shards that the model was trained on; None for the one that the checkpoint names."""
    tables: str = "safetensors"
    """Format of the tables: `safetensors` or `parquet`."""
    linear: str = ""
    """What multiplies matrices in the program: `onednn`, `torch`, or empty for what the model was trained with."""
    onnx: bool | None = None
    """Whether to write the program as ONNX too; None: if onnxscript is installed."""
    most_file_bytes: int = 5_000_000_000
    """Most bytes of a file that several tables share."""

    def __post_init__(self) -> None:
        if self.tables not in TABLE_FORMATS:
            raise ConfigError(f"--tables {self.tables}: use one of {', '.join(TABLE_FORMATS)}")


def export_checkpoint(settings: ExportSettings, say: Callable[[str], None]) -> None:
    """Write the folder of a model, as one process; memory does not grow with the tables.

    Args:
        settings: what to export, and where to.
        say: called with a line for each thing that was done.

    Raises:
        BagpipeError: the model cannot be exported; then nothing is left of the folder.
    """
    require_new(settings.output)
    if settings.onnx:
        onnx.require_installed()
    source = open_source(settings.checkpoint, settings.data)
    require_used(settings.linear, source.config.model)
    say(f"{source.checkpoint.directory}: step {source.checkpoint.manifest.step}, {source.config.model.name}; checking")
    source.checkpoint.verify()
    tables = tables_of(source.checkpoint)
    if settings.tables == "safetensors":
        require_names(tables)
    readers = [ExportedValues(source.directory, source.shards, table.name) for table in tables]
    require_room(settings.output, _estimated_bytes(source, tables))
    linear = settings.linear or source.checkpoint.manifest.arithmetic.linear
    check_implementation(linear, torch.device("cpu"))
    program, difference = _program(source, linear)
    translated = _onnx(source, settings.onnx, say)
    with new_folder(settings.output) as folder:
        written = [_write_bytes(folder / PROGRAM_FILE, program), _write_dense(folder / DENSE_FILE, source)]
        if translated:
            written.append(_write_bytes(folder / ONNX_FILE, translated))
        say("writing the tables")
        if settings.tables == "parquet":
            files, of_tables = write_parquet(folder, source.checkpoint, tables, readers)
        else:
            files, of_tables = write_safetensors(folder, source.checkpoint, tables, settings.most_file_bytes)
        vocabularies, of_values = write_vocabularies(folder, readers)
        schema = schema_of(source, tables, files, vocabularies, readers)
        written += [*of_tables, *of_values, write_text(folder / SCHEMA_FILE, _json(schema))]
        written += _copy_served(folder, settings.tables)
        about = _about(source, linear, difference)
        written.append(write_text(folder / "README.md", readme(source, schema, about)))
        write_text(folder / MANIFEST_FILE, _json(about | {"files": [asdict(info) for info in written]}))
    total = sum(info.bytes for info in written)
    say(f"{settings.output}: {len(written) + 1} files, {total / 1e6:.1f} MB; README.md says how to use them")


def _program(source: ExportSource, linear: str) -> tuple[bytes, float]:
    """The program as a file's contents, and how far its logits are from the trainer's on drawn samples."""
    config, facts, features = source.config, source.facts, source.shards.features
    device = source.checkpoint.manifest.arithmetic.device
    traced = ServedModel(source.model(program_kernels(config.model, linear, device)), facts, features)
    program = write_down(traced, config.model.name, facts, features)
    recorded = source.checkpoint.manifest.arithmetic.linear
    trained = ServedModel(source.model(model_kernels(config, torch.device("cpu"), recorded)), facts, features)
    difference = largest_difference(program, trained, facts, features)
    if math.isinf(difference):
        raise ConfigError(
            f"model.name = {config.model.name!r}: as a program it gives logits that are no numbers where the trained "
            "one gives numbers; write its layers without special cases for some samples"
        )
    content = io.BytesIO()
    torch.export.save(program, content)
    return content.getvalue(), difference


def _onnx(source: ExportSource, wanted: bool | None, say: Callable[[str], None]) -> bytes | None:
    """The program as ONNX, which does not define the order of its sums of products; None where it is not wanted."""
    if wanted is False:
        return None
    if wanted is None and not onnx.is_installed():
        say(f"no {ONNX_FILE}: onnxscript is not installed ({onnx.INSTALL})")
        return None
    config, facts, features = source.config, source.facts, source.shards.features
    try:
        traced = ServedModel(source.model(ModelKernels(torch_linear, torch_interaction)), facts, features)
        return onnx.onnx_bytes(write_down(traced, config.model.name, facts, features))
    except ConfigError as error:
        if wanted:
            raise
        say(f"no {ONNX_FILE}: {error}")
        return None


def _estimated_bytes(source: ExportSource, tables: Sequence[ExportedTable]) -> int:
    dense = next(info.bytes for info in source.checkpoint.manifest.files if info.file == SAVED_DENSE_FILE)
    vocabularies = source.shards.vocabularies
    values = 4 * vocabularies.bytes if vocabularies else 0
    return sum(table.bytes for table in tables) + _DENSE_COPIES * dense + values


def _write_dense(path: Path, source: ExportSource) -> FileInfo:
    state, _ = source.checkpoint.read_dense()
    return write_tensors(path, [_tensor(name, tensor) for name, tensor in state.items()], {"format": "pt"})


def _tensor(name: str, tensor: Tensor) -> StreamedTensor:
    numbers = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return StreamedTensor(name, _KINDS[tensor.dtype], tuple(tensor.shape), lambda: [numbers])


def _about(source: ExportSource, linear: str, difference: float) -> dict[str, Any]:
    """What the manifest says about the model itself."""
    checkpoint = source.checkpoint.manifest
    vocabularies = source.shards.vocabularies
    return {
        "format": FORMAT,
        "version": VERSION,
        "bagpipe_hpc": __version__,
        "torch": torch.__version__,
        "checkpoint": {
            "step": checkpoint.step,
            "manifest_sha256": file_sha256(source.checkpoint.directory / SAVED_MANIFEST_FILE),
            "training_data": checkpoint.training_data,
            "vocabularies": vocabularies.sha256 if vocabularies else None,
            "columns": checkpoint.columns,
            "hashed_from": {table: sorted(value_words(source.shards, table)) for table in source.shards.hashed_tables},
        },
        "model": checkpoint.config.get("model", {}),
        "arithmetic": asdict(checkpoint.arithmetic),
        "batch_size": checkpoint.batch_size,
        "program": {"linear": linear, "largest_difference": difference},
    }


def _copy_served(folder: Path, tables: str) -> list[FileInfo]:
    """Copy the code that a service runs; where tables are Parquet, with the lines replaced that read them."""
    written = []
    for source in sorted(_SERVED.glob("*.py")):
        text = source.read_text(encoding="utf-8")
        if tables == "parquet":
            for line, other in _PARQUET_LINES.items():
                text = text.replace(line, other)
        written.append(write_text(folder / source.name, text))
    return written


def _write_bytes(path: Path, content: bytes) -> FileInfo:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return FileInfo(path.name, len(content), hashlib.sha256(content).hexdigest())


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

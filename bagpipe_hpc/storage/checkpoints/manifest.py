"""What `manifest.json` of a checkpoint says, checked field by field on the way in and out. Standard library only."""

import json
import re
import reprlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bagpipe_hpc.errors import CheckpointError, FileError, read_small

MANIFEST_FILE = "manifest.json"
DENSE_FILE = "dense.h5"
FORMAT = "bagpipe-checkpoint"
VERSION = 5
BEFORE_PLACEMENTS = 4
"""A version that is read still: rows were dealt round-robin, and files did not say which rows they hold."""
_PLACEMENT_BEFORE = "round_robin"

_LARGEST_INT = 2**63 - 1
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Object = TypeVar("_Object", "FileInfo", "Base", "Arithmetic")

LINEAR_LAYERS = ("onednn", "torch")
DEVICES = ("cpu", "cuda")
_MOST_BYTES = 64 << 20
"""Of a manifest, far more than one has: it lists a file a server."""


def row_file_name(server: int, servers: int) -> str:
    """Name of the file that holds the rows of one server."""
    return f"rows-{server:05d}-of-{servers:05d}.h5"


@dataclass(frozen=True)
class FileInfo:
    """A file of a checkpoint as it was written.

    Attributes:
        file: name inside the checkpoint's directory.
        bytes: its size.
        sha256: digest of its contents, 64 hex digits.
    """

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        _require(isinstance(self.file, str), "files.file", self.file, "must be a file name")
        _require_integer("files.bytes", self.bytes, 1)
        _require_digest("files.sha256", self.sha256)


@dataclass(frozen=True)
class Base:
    """The checkpoint that an increment builds on; it lies in the same folder.

    Attributes:
        step: its step.
        manifest_sha256: digest of its manifest, 64 hex digits: another of that step does not do.
    """

    step: int
    manifest_sha256: str

    def __post_init__(self) -> None:
        _require_integer("base.step", self.step, 0)
        _require_digest("base.manifest_sha256", self.manifest_sha256)


@dataclass(frozen=True)
class Arithmetic:
    """On what the last bits of sums and products depended, as the run resolved it; a resumed run may differ in it.

    Attributes:
        trainers: among whom batches were divided; slices in a one-rank run.
        linear: what multiplied the matrices of linear layers: `onednn` or `torch`.
        device: where: `cpu` or `cuda`.
        threads: of a trainer's linear layers.
    """

    trainers: int
    linear: str
    device: str
    threads: int

    def __post_init__(self) -> None:
        for name in ("trainers", "threads"):
            _require_integer(f"arithmetic.{name}", getattr(self, name), 1)
        for name, known in (("linear", LINEAR_LAYERS), ("device", DEVICES)):
            value = getattr(self, name)
            _require(value in known, f"arithmetic.{name}", value, f"must be one of {', '.join(known)}")


@dataclass(frozen=True)
class CheckpointManifest:
    """What a checkpoint holds and where training stood; the JSON file has these fields under the same names.

    Raises:
        CheckpointError: a field has a type or a value that it cannot have.
    """

    step: int
    """Steps trained so far, over all epochs."""
    epoch: int
    """Epoch of the next batch to train, from 0."""
    epoch_step: int
    """Number of the next batch within its epoch, from 0."""
    seed: int
    """Seed of the first weights and of the sample order."""
    batch_size: int
    """Samples of a global batch, `train.batch_size` of the configuration."""
    train_samples: int
    """Samples of an epoch."""
    training_data: str
    """Digest of the training shards in their order (`ShardManifest.digest`), 64 hex digits."""
    evaluation_data: str
    """Digest of the test shards, 64 hex digits."""
    table_names: tuple[str, ...]
    """Name of each embedding table, such as `C1`."""
    table_rows: tuple[int, ...]
    """Rows of each embedding table; global row numbers run through the tables in this order."""
    embedding_dim: int
    """Width D of an embedding row."""
    row_optimizer: str
    """Optimizer of the embedding rows, `optimizer.rows` of the configuration."""
    row_state_columns: int
    """Float32 values of optimizer state that follow the D weights of a row."""
    servers: int
    """Servers that wrote the rows, a file each."""
    placement: str
    """What placed the rows on them, `tables.placement` of the configuration; each file says which rows it holds."""
    base: Base | None
    """The checkpoint before, where the row files hold only rows that were updated since; None if they hold all rows."""
    files: tuple[FileInfo, ...]
    """One row file for each server and the dense file, in any order."""
    arithmetic: Arithmetic
    """On what the last bits of results depended."""
    config: dict[str, Any]
    """The resolved configuration of the run: sections of settings. A resumed run is compared with it."""
    version: int = VERSION
    """Of the format."""

    def __post_init__(self) -> None:
        for name in ("step", "epoch", "epoch_step", "seed", "row_state_columns"):
            _require_integer(name, getattr(self, name), 0)
        for name in ("embedding_dim", "servers", "batch_size", "train_samples"):
            _require_integer(name, getattr(self, name), 1)
        is_list = isinstance(self.table_rows, tuple) and len(self.table_rows) > 0
        _require(is_list, "table_rows", self.table_rows, "must list the rows of at least one table")
        for table, rows in enumerate(self.table_rows):
            _require_integer(f"table_rows[{table}]", rows, 1)
        names = self.table_names
        are_names = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        _require(are_names and len(names) == len(self.table_rows), "table_names", names, "must name each of table_rows")
        _require(self.total_rows <= _LARGEST_INT, "table_rows", self.table_rows, "must add up to a 64-bit number")
        for name in ("row_optimizer", "placement"):
            value = getattr(self, name)
            _require(isinstance(value, str) and value != "", name, value, "must be a name")
        sections = isinstance(self.config, dict) and all(isinstance(part, dict) for part in self.config.values())
        _require(sections, "config", self.config, "must be an object of sections")
        self._check_place()
        earlier = self.base is None or (isinstance(self.base, Base) and self.base.step < self.step)
        _require(earlier, "base", self.base, f"must be null or a checkpoint before step {self.step}")
        self._check_files()

    def _check_place(self) -> None:
        """The step, the epoch and the batch in it must be one place in the data."""
        for name in ("training_data", "evaluation_data"):
            _require_digest(name, getattr(self, name))
        epoch, epoch_step = divmod(self.step, -(-self.train_samples // self.batch_size))
        for name, must in (("epoch", epoch), ("epoch_step", epoch_step)):
            value = getattr(self, name)
            _require(value == must, name, value, f"must be {must}, by step, train_samples and batch_size")

    def _check_files(self) -> None:
        """The names must be exactly the expected ones, so that none can lead out of the checkpoint's directory."""
        # Counted first: a false number of servers must not make this build an endless list of names.
        count_fits = isinstance(self.files, tuple) and len(self.files) == self.servers + 1
        _require(count_fits, "files", self.files, f"must list {self.servers + 1} files, one a server and {DENSE_FILE}")
        listed = [info.file for info in self.files]
        missing = {*(row_file_name(server, self.servers) for server in range(self.servers)), DENSE_FILE} - set(listed)
        _require(not missing, "files", sorted(listed), f"must list {min(missing, default='')}")

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return sum(self.table_rows)

    @property
    def record_columns(self) -> int:
        """Float32 values of a row with its optimizer state."""
        return self.embedding_dim + self.row_state_columns

    @property
    def total_bytes(self) -> int:
        """Size of all files but the manifest."""
        return sum(info.bytes for info in self.files)

    def to_json(self) -> str:
        """The text of the file; reading it gives back an equal manifest where `config` is plain JSON."""
        document = {"format": FORMAT, "version": self.version, **asdict(self)}
        return json.dumps(document, indent=2, allow_nan=False) + "\n"


def load_checkpoint_manifest(path: Path) -> CheckpointManifest:
    """Read a manifest and check it, as far as that goes without the files that it lists.

    Raises:
        CheckpointError: it is absent or malformed; the message names the file, the field and the value.
    """
    try:
        document = json.loads(read_small(path, _MOST_BYTES), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except FileError as error:
        raise CheckpointError(str(error)) from None
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: is absent, so this is no complete checkpoint; name a directory such as "
            "OUTPUT/checkpoints/step-00000100"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise CheckpointError(f"{path}: is not a manifest in JSON ({error}); use another checkpoint") from None
    try:
        return _manifest_of(document)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}; use another checkpoint, or the version that wrote this one") from None


def _manifest_of(document: object) -> CheckpointManifest:
    if not isinstance(document, dict):
        raise CheckpointError(f"holds {reprlib.repr(document)}: must be an object of fields")
    for key, known in (("format", (FORMAT,)), ("version", (VERSION, BEFORE_PLACEMENTS))):
        value = document.get(key)
        fits = type(value) is type(known[0]) and value in known
        _require(fits, key, value, f"must be {' or '.join(map(repr, known))}")
    if document["version"] == BEFORE_PLACEMENTS:
        value = document.get("placement")
        _require(value == _PLACEMENT_BEFORE, "placement", value, f"must be {_PLACEMENT_BEFORE!r}")
    names = {field.name for field in fields(CheckpointManifest)}
    values = {key: value for key, value in document.items() if key != "format"}
    for key in sorted(names ^ values.keys()):
        _require(key in values, key, None, "is missing")
        _require(key in names, key, values[key], "is no field of a manifest")
    for key in ("table_names", "table_rows", "files"):
        _require(isinstance(values[key], list), key, values[key], "must be a list")
    for key in ("table_names", "table_rows"):
        values[key] = tuple(values[key])
    values["files"] = tuple(_object_of(FileInfo, "files", entry) for entry in values["files"])
    if values["base"] is not None:
        values["base"] = _object_of(Base, "base", values["base"])
    values["arithmetic"] = _object_of(Arithmetic, "arithmetic", values["arithmetic"])
    return CheckpointManifest(**values)


def _object_of(kind: type[_Object], name: str, entry: object) -> _Object:
    keys = {field.name for field in fields(kind)}
    if not isinstance(entry, dict) or entry.keys() != keys:
        raise CheckpointError(f"{name} holds {reprlib.repr(entry)}: must be an object of {', '.join(sorted(keys))}")
    return kind(**entry)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError(f"a field appears twice among {reprlib.repr([key for key, _ in pairs])}")
    return document


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _require_integer(name: str, value: object, least: int) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST_INT
    _require(fits, name, value, f"must be a whole number from {least} to 2**63 - 1")


def _require_digest(name: str, value: object) -> None:
    is_digest = isinstance(value, str) and _SHA256.fullmatch(value) is not None
    _require(is_digest, name, value, "must be 64 lower-case hex digits")


def _require(holds: bool, name: str, value: object, must: str) -> None:
    if not holds:
        raise CheckpointError(f"{name} = {reprlib.repr(value)}: {must}")

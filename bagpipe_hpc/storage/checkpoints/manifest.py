"""What `manifest.json` of a checkpoint says, checked field by field."""

import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from bagpipe_hpc.config.float32 import is_float32
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.evaluation.standing import Standing
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.rows.groups import TableGroup, table_groups
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.storage.checked_json import (
    OPTIONAL,
    Count,
    FieldError,
    FileInfo,
    Must,
    Positive,
    Sha256,
    load_json,
)

MANIFEST_FILE = "manifest.json"
DENSE_FILE = "dense.h5"
FORMAT = "bagpipe-checkpoint"
VERSION = 7

LINEAR_LAYERS = ("onednn", "torch")
DEVICES = ("cpu", "cuda")
_MOST_BYTES = 64 << 20
"""Upper limit of a manifest's size, far above any real one: a manifest lists a file a server."""
_CURE = "use another checkpoint, or the version that wrote this one"

_Name = Annotated[str, Must(bool, "a name")]
_Linear = Annotated[str, Must(LINEAR_LAYERS.__contains__, f"one of {', '.join(LINEAR_LAYERS)}")]
_Device = Annotated[str, Must(DEVICES.__contains__, f"one of {', '.join(DEVICES)}")]
_Sections = Annotated[dict[str, Any], Must(lambda value: all(map(_is_object, value.values())), "an object of sections")]
_Format = Annotated[str, Must(FORMAT.__eq__, repr(FORMAT))]
_Version = Annotated[int, Must(VERSION.__eq__, str(VERSION))]


def row_file_name(server: int, servers: int, width: int | None = None) -> str:
    """Name of the file that holds the rows of one server.

    Args:
        server: the server.
        servers: number of servers.
        width: of the file's rows, where tables have several; None where all have one.
    """
    return f"rows-{'' if width is None else f'width-{width}-'}{server:05d}-of-{servers:05d}.h5"


@dataclass(frozen=True)
class Base:
    """The checkpoint that an increment builds on; it lies in the same folder.

    Attributes:
        step: its step.
        manifest_sha256: digest of its manifest, 64 hex digits: another checkpoint of that step is not accepted.
    """

    step: Count
    manifest_sha256: Sha256


@dataclass(frozen=True)
class Arithmetic:
    """On what the last bits of sums and products depended, as the run resolved it; a resumed run may differ in it.

    Attributes:
        trainers: among whom batches were divided; slices in a one-rank run.
        linear: what multiplied the matrices of linear layers: `onednn` or `torch`.
        device: where: `cpu` or `cuda`.
        threads: of a trainer's linear layers.
    """

    trainers: Positive
    linear: _Linear
    device: _Device
    threads: Positive


@dataclass(frozen=True, kw_only=True)
class CheckpointManifest:
    """What a checkpoint holds and where training stood; the JSON file has these fields under the same names.

    Raises:
        FieldError: a field has a value that does not fit the other fields.
    """

    format: _Format = FORMAT
    """What the file is."""
    version: _Version = VERSION
    """Version of the format."""
    step: Count
    """Steps trained so far, over all epochs."""
    epoch: Count
    """Epoch of the next batch to train, from 0."""
    epoch_step: Count
    """Number of the next batch within its epoch, from 0."""
    seed: Count
    """Seed of the first weights and of the sample order."""
    batch_size: Positive
    """Samples of a global batch, `train.batch_size` of the configuration."""
    train_samples: Positive
    """Samples of an epoch."""
    data_step: Count = field(default=0, metadata=OPTIONAL)
    """Steps that were trained on earlier rows; epochs of these rows, and their steps, count from there."""
    training_data: Sha256
    """Digest of the training shards in their order (`ShardManifest.digest`), 64 hex digits."""
    evaluation_data: Sha256
    """Digest of the test shards, 64 hex digits."""
    vocabularies: Sha256 | None = field(default=None, metadata=OPTIONAL)
    """Digest of the file that says which value of the data has which id; None where that is not recorded."""
    columns: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    """What labels, dense features and look-ups of a sample are (`storage/shards/columns.py`); older ones lack it."""
    table_names: tuple[str, ...]
    """Name of each embedding table, such as `C1`."""
    table_rows: tuple[Positive, ...]
    """Rows of each embedding table; row numbers run through the tables of one width in this order."""
    table_widths: tuple[Positive, ...] | None = field(default=None, metadata=OPTIONAL)
    """Width of the rows of each table; None: all are `embedding_dim` wide."""
    embedding_dim: Positive
    """Width D of an embedding row, `model.embedding_dim` of the configuration."""
    row_optimizer: _Name
    """Optimizer of the embedding rows, `optimizer.rows` of the configuration."""
    row_state_columns: Count
    """Float32 values of optimizer state that follow the weights of a row of width `embedding_dim`."""
    row_state: tuple[StateColumns, ...]
    """The parts of that state, in order."""
    servers: Positive
    """Servers that wrote the rows, a file each."""
    placement: _Name
    """What placed the rows on the servers, `tables.placement` of the configuration; each file lists its rows."""
    base: Base | None
    """The checkpoint before, where the row files hold only rows that were updated since; None if they hold all rows."""
    files: tuple[FileInfo, ...]
    """One row file for each server and width, and the dense file, in any order."""
    arithmetic: Arithmetic
    """On what the last bits of results depended."""
    config: _Sections
    """The resolved configuration of the run: sections of settings. A resumed run is compared with it."""
    standing: Standing | None = field(default=None, metadata=OPTIONAL)
    """By the evaluations before this step: which was the best, and for how long none was better; None before any."""
    heard: tuple[Heard, ...] = field(default=(), metadata=OPTIONAL)
    """Evaluations of these rows, before this step, by which the policy orders samples; in their order."""

    def __post_init__(self) -> None:
        _require(len(self.table_rows) > 0, "table_rows", self.table_rows, "the rows of at least one table")
        named = len(self.table_names) == len(self.table_rows)
        _require(named, "table_names", self.table_names, "a name for each of table_rows")
        _require(self.total_rows < 1 << 63, "table_rows", self.table_rows, "numbers that add up to one of 64 bits")
        self._check_widths()
        self._check_state()
        _require(self.data_step <= self.step, "data_step", self.data_step, f"at most step, {self.step}")
        epoch, epoch_step = divmod(self.step - self.data_step, -(-self.train_samples // self.batch_size))
        for name, value, must in (("epoch", self.epoch, epoch), ("epoch_step", self.epoch_step, epoch_step)):
            _require(value == must, name, value, f"{must}, by step, data_step, train_samples and batch_size")
        earlier = self.base is None or self.base.step < self.step
        _require(earlier, "base", self.base, f"null or a checkpoint before step {self.step}")
        standing = self.standing
        is_sound = standing is None or (
            0 <= standing.best_step < self.step and math.isfinite(standing.best) and math.isfinite(standing.to_beat)
        )
        _require(is_sound, "standing", standing, "null or one of evaluations before the step, with finite values")
        self._check_heard()
        self._check_files()

    def _check_heard(self) -> None:
        """Evaluations must lie in epochs of these rows, in ascending order, before the step."""
        places, batches = [one.place for one in self.heard], -(-self.train_samples // self.batch_size)
        lie_there = all(epoch >= 0 and 1 <= batch <= batches for epoch, batch in places)
        steps = [*(one.steps(batches) for one in self.heard), self.step - self.data_step]
        in_order = all(one < other for one, other in pairwise(steps))
        _require(lie_there and in_order, "heard", places, "evaluations before the step, in their order")
        are_numbers = all(math.isfinite(one.log_loss) for one in self.heard)
        _require(are_numbers, "heard", self.heard, "evaluations with finite losses")

    def _check_widths(self) -> None:
        widths = self.table_widths
        each = widths is None or len(widths) == len(self.table_rows)
        _require(each, "table_widths", widths, "null or a width for each of table_rows")

    def _check_state(self) -> None:
        """The parts of the state must have different names, and add up to its columns."""
        parts = self.row_state
        names = [part.name for part in parts]
        _require(all(names) and len({*names}) == len(names), "row_state", parts, "parts with different names")
        _require(all(is_float32(part.first) for part in parts), "row_state", parts, "parts that begin with a float32")
        columns = self.state_columns(self.embedding_dim)
        _require(
            columns == self.row_state_columns, "row_state_columns", self.row_state_columns, f"{columns}, by row_state"
        )

    def _check_files(self) -> None:
        """The names must be exactly the expected ones, so that none can lead out of the checkpoint's directory."""
        # Counted first: a false number of servers must not make this build an endless list of names.
        listed = [info.file for info in self.files]
        count = self.servers * len(self.groups) + 1
        each = "server" if len(self.groups) == 1 else "server and width"
        _require(len(listed) == count, "files", listed, f"{count} files, one a {each} and {DENSE_FILE}")
        missing = {*self.row_files(), DENSE_FILE} - set(listed)
        _require(not missing, "files", sorted(listed), f"a list with {min(missing, default='')}")

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return sum(self.table_rows)

    @property
    def row_state_layout(self) -> list[str]:
        """Names of the state's parts and what they are for: what two checkpoints of the same optimizer share."""
        return [part.layout for part in self.row_state]

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of the rows of each table."""
        return self.table_widths or (self.embedding_dim,) * len(self.table_rows)

    @cached_property
    def groups(self) -> tuple[TableGroup, ...]:
        """The tables of each width: row files and row numbers are of one of these."""
        return table_groups(Tables(self.table_rows, self.table_names), self.widths)

    def state_columns(self, width: int) -> int:
        """Float32 values of optimizer state that follow the weights of a row of that width."""
        return sum(part.width(width) for part in self.row_state)

    def record_columns(self, width: int) -> int:
        """Float32 values of a row of that width with its optimizer state."""
        return width + self.state_columns(width)

    def row_file(self, server: int, group: TableGroup) -> str:
        """Name of the file with a server's rows of the tables of one width."""
        return row_file_name(server, self.servers, group.width if len(self.groups) > 1 else None)

    def row_files(self) -> dict[str, tuple[int, TableGroup]]:
        """All row files: whose rows each holds, by its name."""
        return {
            self.row_file(server, group): (server, group) for group in self.groups for server in range(self.servers)
        }

    @property
    def total_bytes(self) -> int:
        """Size of all files but the manifest."""
        return sum(info.bytes for info in self.files)

    def to_json(self) -> str:
        """The text of the file; reading it gives back an equal manifest where `config` is plain JSON."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"


def load_checkpoint_manifest(path: Path) -> CheckpointManifest:
    """Read a manifest and check it, as far as that goes without the files that it lists.

    Raises:
        CheckpointError: it is absent or malformed; the message names the file, the field and the value.
    """
    try:
        return load_json(CheckpointManifest, path, _MOST_BYTES, CheckpointError, _CURE)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: is absent, so this is no complete checkpoint; name a directory such as "
            "OUTPUT/checkpoints/step-00000100"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _require(holds: bool, field: str, value: object, what: str) -> None:
    if not holds:
        raise FieldError(field, f"is {value!r:.80} instead of {what}")

"""What a folder of plans holds: `plans.json`, which is written last, so that its presence means complete."""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

from bagpipe_hpc import __version__
from bagpipe_hpc.errors import PlanFileError, refused
from bagpipe_hpc.plan.batch_plan import SharedPlan, TrainerPlan
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.checked_json import Count, FieldError, FileName, Must, Positive, Sha256, load_json
from bagpipe_hpc.storage.plans.plan_file import PLAN_AGAIN, Stretch

SCHEMA_VERSION = 1
MANIFEST_NAME = "plans.json"
PLANS_NAME = "plans.bin"
_MOST_BYTES = 256 << 20
SegmentKey = tuple[str, int, int, int, int, int, int]
KINDS = ("train", "evaluate")
Kind = Annotated[str, Must(lambda value: value in KINDS, f"one of {', '.join(KINDS)}")]


@dataclass(frozen=True)
class SavedSlots:
    """Slots of the cache of a group of tables, as `CacheSlots`."""

    shared: Count
    private: Count


@dataclass(frozen=True)
class SavedSegment:
    """A segment of the run, as `Segment`, and where its plans lie."""

    kind: Kind
    epoch: Count
    first_batch: Count
    batches: Count
    first_step: Count
    samples: Count
    batch_size: Positive
    first_byte: Count
    bytes: Positive

    @classmethod
    def of(cls, segment: Segment, stretch: Stretch) -> "SavedSegment":
        """What is written of a segment."""
        return cls(*segment_key(segment), stretch.first, stretch.bytes)

    @property
    def key(self) -> SegmentKey:
        """As `segment_key`."""
        return self.kind, self.epoch, self.first_batch, self.batches, self.first_step, self.samples, self.batch_size

    @property
    def stretch(self) -> Stretch:
        """Where its plans lie."""
        return Stretch(self.first_byte, self.bytes, self.batches + 1)


@dataclass(frozen=True)
class SavedEnd:
    """Where the closing plan of a segment without batches lies: a run that is asked to stop ends with it."""

    kind: Kind
    first_byte: Count
    bytes: Positive

    @property
    def stretch(self) -> Stretch:
        """Where it lies."""
        return Stretch(self.first_byte, self.bytes, 1)


def segment_key(one: Segment) -> SegmentKey:
    """The fields of a segment that its plans depend on."""
    return one.kind.value, one.epoch, one.first_batch, one.batches, one.first_step, one.samples, one.batch_size


@dataclass(frozen=True)
class PlansManifest:
    """Everything that is known of saved plans.

    Attributes:
        schema_version: of this format.
        version: of the package that planned.
        layout: digest of what the records of plans consist of and of the byte order, as `record_layout`.
        facts: what the plans were made for, by setting; see `preparation.saved_plans`.
        cuts: settings by which the run was cut into segments.
        trainers: number T.
        lookahead: batches of the window.
        group: batches that are retired together.
        serial: whether the window is serial, as `Window.serial`.
        slots: of the cache of each group of tables.
        file: name of the file of plans.
        file_bytes: its size.
        largest_bytes: of a plan.
        ends: of each kind of segment.
        segments: of the run, in order.
        digest: SHA-256 of all else.
    """

    schema_version: Annotated[int, Must(lambda value: value == SCHEMA_VERSION, f"{SCHEMA_VERSION}")]
    version: str
    layout: str
    facts: dict[str, Any]
    cuts: dict[str, Any]
    trainers: Positive
    lookahead: Positive
    group: Positive
    serial: bool
    slots: tuple[SavedSlots, ...]
    file: FileName
    file_bytes: Positive
    largest_bytes: Positive
    ends: tuple[SavedEnd, ...]
    segments: tuple[SavedSegment, ...]
    digest: Sha256

    def __post_init__(self) -> None:
        if not self.slots:
            raise FieldError("slots", "is empty")
        if tuple(end.kind for end in self.ends) != KINDS:
            raise FieldError("ends", f"are not one of each kind, {', '.join(KINDS)}")
        stretches = {f"segments[{number}]": one.stretch for number, one in enumerate(self.segments)}
        stretches |= {f"ends[{number}]": one.stretch for number, one in enumerate(self.ends)}
        for field, stretch in stretches.items():
            if stretch.first + stretch.bytes > self.file_bytes:
                raise FieldError(f"{field}.bytes", f"goes beyond file_bytes = {self.file_bytes}")

    @property
    def key(self) -> int:
        """Key of the file of plans, as `plans_key`."""
        return plans_key(self.facts, self.cuts)

    def end(self, kind: str) -> Stretch:
        """Where the closing plan of a segment of this kind lies that has no batches."""
        return self.ends[KINDS.index(kind)].stretch


def plans_key(facts: dict[str, Any], cuts: dict[str, Any]) -> int:
    """CRC-32 of what plans were made for: tells whether a file of plans and a manifest belong together."""
    return crc32(json.dumps([facts, cuts], sort_keys=True).encode())


def record_layout() -> str:
    """Digest of what plans' records consist of in this version, and of this machine's byte order: 16 hex digits."""
    parts: list[str] = [sys.byteorder]
    for kind in (SharedPlan, TrainerPlan):
        arrays = {**kind.ARRAYS, **kind.OPTIONAL}
        parts.append(" ".join(f"{name}:{arrays[name].str}" if name in arrays else name for name in _fields(kind)))
    return hashlib.sha256("; ".join(parts).encode()).hexdigest()[:16]


def _fields(kind: type[SharedPlan] | type[TrainerPlan]) -> list[str]:
    return list(kind.__dataclass_fields__)


def save_manifest(directory: Path, **given: Any) -> PlansManifest:
    """Write the manifest; arguments are its fields other than schema_version, version, layout and digest."""
    values = {"schema_version": SCHEMA_VERSION, "version": __version__, "layout": record_layout(), **given}
    plain = PlansManifest(**values, digest="0" * 64)
    manifest = PlansManifest(**values, digest=_digest(plain))
    with atomic_write(directory / MANIFEST_NAME) as partial:
        partial.write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
    return manifest


def load_manifest(directory: Path) -> PlansManifest:
    """Read the manifest.

    Raises:
        PlanFileError: it is missing or damaged, or of another version of the package.
    """
    path = directory / MANIFEST_NAME
    try:
        manifest = load_json(PlansManifest, path, _MOST_BYTES, PlanFileError, PLAN_AGAIN)
    except FileNotFoundError:
        raise PlanFileError(
            f"train.plans = {str(directory)!r}: has no {MANIFEST_NAME}, so it holds no plans, or saving them was cut "
            f"short; {PLAN_AGAIN}"
        ) from None
    except OSError as error:
        raise refused(error, path) from error
    if _digest(manifest) != manifest.digest:
        raise PlanFileError(f"{path}: digest: is not that of the other fields: the file is damaged; {PLAN_AGAIN}")
    here = (__version__, record_layout())
    if (manifest.version, manifest.layout) != here:
        raise PlanFileError(
            f"{path}: version, layout: the plans are of version {manifest.version} ({manifest.layout}), and this is "
            f"{here[0]} ({here[1]}); {PLAN_AGAIN}"
        )
    return manifest


def _digest(manifest: PlansManifest) -> str:
    values = asdict(manifest)
    del values["digest"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

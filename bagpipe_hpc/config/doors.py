"""Doors: what others may add to the program, by a short name or as `package.module:Class`. Standard library only.

A door is chosen by one setting. What it names, an *entry*, is a class that keeps the door's contract. It may have
settings of its own: a frozen dataclass with typed fields and defaults, whose `__post_init__` raises `SettingError` for
a value that it cannot have. They stand in TOML beside the setting that chooses. docs/extending.md has examples.

A section of the configuration holds them in a field with `metadata={DOOR: ...}` and calls `fill_settings`.
"""

import dataclasses
import importlib
import pickle
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import BagpipeError, ConfigError, met_limit


class SettingError(ConfigError):
    """A setting has a value that it cannot have.

    Attributes:
        key: the setting: `section.field`, or the field of an entry's own settings.
        value: what it has.
        cure: what it may have.
    """

    def __init__(self, key: str, value: object, cure: str) -> None:
        """Say what is wrong with the value and how to cure it."""
        super().__init__(f"{key} = {value!r}: {cure}")
        self.key, self.value, self.cure = key, value, cure


class EntryError(SettingError):
    """What a door names cannot be used on this host; on another host it may be."""


DOOR = "door"
"""Key of a field's metadata: the door whose entry's own settings the field holds."""


@dataclass(frozen=True)
class NoSettings:
    """An entry without settings of its own."""


@dataclass(frozen=True)
class Entry:
    """What a short name stands for; both are written `package.module:Class`, and imported when they are asked for.

    Attributes:
        implementation: the class that keeps the door's contract.
        settings: the class of its own settings, in a module that is quick to import: every command that reads a
            configuration imports it.
    """

    implementation: str
    settings: str = f"{__name__}:NoSettings"


@dataclass(frozen=True)
class Door:
    """One kind of thing that others may add.

    Attributes:
        key: the setting that chooses, such as `model.name`.
        prefix: begins the keys of an entry's own settings, such as `model.`.
        entries: those with a short name.
    """

    key: str
    prefix: str
    entries: Mapping[str, Entry]

    def implementation(self, name: str) -> Any:
        """The class that a short name or `package.module:Class` stands for.

        Raises:
            SettingError: there is none.
        """
        if name in self.entries:
            return self._load(name, self.entries[name].implementation)
        return self._load(name, name)

    def settings_class(self, name: str) -> type[Any]:
        """The dataclass of an entry's own settings: that of a short name, or the attribute `Settings` of a class.

        Raises:
            SettingError: there is no such entry, or its `Settings` are no frozen dataclass whose fields have defaults.
        """
        if name in self.entries:
            found = self._load(name, self.entries[name].settings)
        else:
            found = getattr(self._load(name, name), "Settings", NoSettings)
        is_dataclass = isinstance(found, type) and dataclasses.is_dataclass(found)
        if not (is_dataclass and found.__dataclass_params__.frozen):
            raise SettingError(self.key, name, "its Settings must be a frozen dataclass, or be left out")
        for field in dataclasses.fields(found):
            if field.default is field.default_factory is dataclasses.MISSING:
                raise SettingError(self.key, name, f"its Settings must give {field.name} a default")
        try:
            pickle.dumps(found)
        except (pickle.PicklingError, AttributeError):
            where = f"{found.__module__}.{found.__qualname__}"
            cure = f"its Settings call themselves {where}, and are not found there; write them as a class in its module"
            raise SettingError(self.key, name, cure) from None
        return found

    @contextmanager
    def blaming(self, name: str, what: str, library: str = "") -> Iterator[None]:
        """Turn what the code of an entry raises in the body into an error that names the setting and the line.

        Args:
            name: of the entry.
            what: what goes wrong then, in words.
            library: folder of a package that the entry calls; the line that is named is none of its lines.

        Raises:
            EntryError: for whatever the code raises, but for a `BagpipeError`, which passes.
            CapacityError: the code met a limit of this process.
        """
        try:
            yield
        except BagpipeError:
            raise
        except Exception as error:
            if limit := met_limit(error):
                raise limit from error
            raise EntryError(self.key, name, f"{what}: {_told(error, library)}") from error

    def _load(self, name: str, path: str) -> type[Any]:
        """The class that `package.module:Class` names; `name` is what the setting says."""
        module_name, colon, attribute = path.partition(":")
        if not (colon and all(module_name.split(".")) and attribute):
            raise SettingError(self.key, name, f"use {self._choices()}")
        if "" not in sys.path:  # `python -m` has it there, the command `bagpipe` has not
            sys.path.append("")
        try:
            with self.blaming(name, f"importing {module_name} fails"):
                found: Any = importlib.import_module(module_name)
                for part in attribute.split("."):
                    found = getattr(found, part, None)
        except EntryError as error:
            missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
            if missing is None:
                raise
            cure = f"there is no module {missing}; set PYTHONPATH to its folder, or use {self._choices()}"
            if not f"{module_name}.".startswith(f"{missing}."):
                cure = f"{module_name} imports {missing}, which is not installed"
            raise EntryError(self.key, name, cure) from error
        except SystemExit as error:
            raise EntryError(self.key, name, f"importing {module_name} ends the program ({error})") from error
        if found is None:
            where = _place_of(module_name)
            raise EntryError(self.key, name, f"{module_name}{where} has no {attribute}; use {self._choices()}")
        if not isinstance(found, type):
            where = _place_of(module_name)
            raise EntryError(self.key, name, f"{attribute} of {module_name}{where} is no class; use {self._choices()}")
        return found

    def _choices(self) -> str:
        return f"one of {', '.join(self.entries)}, or package.module:Class"


def _place_of(module_name: str) -> str:
    """Where a module was found, in brackets: a module of the same name may hide the one that is meant."""
    file = getattr(sys.modules[module_name], "__file__", None)
    return f" ({file})" if file else ""


def _told(error: BaseException, library: str) -> str:
    """What was raised, and where in the code of the entry; the folder of a library is not its code."""
    if isinstance(error, SyntaxError):  # says itself where
        return f"{type(error).__name__}: {error}"
    others = ("<", str(Path(__file__).parent), *([library] if library else []))
    files = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places = [f" ({Path(name).name}, line {line})" for name, line in files if not name.startswith(others)]
    where = places[-1] if places else ""
    return f"{type(error).__name__}: {error}{where}"


def door_of(field: "dataclasses.Field[Any]") -> Door | None:
    """The door whose entry's settings a field holds; None for an ordinary setting."""
    return field.metadata.get(DOOR)


def fill_settings(section: Any) -> None:
    """Give a section, in its `__post_init__`, the defaults of entries whose settings were left out.

    Raises:
        SettingError: the door has no such entry.
        TypeError: the settings are another entry's.
    """
    for field in dataclasses.fields(section):
        if (door := door_of(field)) is None:
            continue
        kind = door.settings_class(getattr(section, door.key.partition(".")[2]))
        settings = getattr(section, field.name)
        if settings is None:
            object.__setattr__(section, field.name, kind())  # the section is frozen
        elif not isinstance(settings, kind):
            raise TypeError(f"{door.prefix}*: {settings!r} are no {kind.__name__}")


MODELS = Door(
    "model.name",
    "model.",
    {
        name: Entry(f"bagpipe_hpc.models.published.{name}:{kind}", f"bagpipe_hpc.config.models:{kind}Settings")
        for name, kind in {
            "dlrm": "DLRM",
            "dlrm_dcnv2": "DLRMDCNv2",
            "wide_deep": "WideDeep",
            "deepfm": "DeepFM",
            "dcn": "DCN",
            "dcn_v2": "DCNv2",
            "din": "DIN",
            "graphsage": "GraphSAGE",
        }.items()
    },
)

ROW_OPTIMIZERS = Door(
    "optimizer.rows",
    "optimizer.rows_",
    {
        name: Entry(f"bagpipe_hpc.rows.optimizers.{path}", f"bagpipe_hpc.rows.optimizers.{path}.Settings")
        for name, path in {
            "sgd": "sgd:SGD",
            "momentum": "sgd:Momentum",
            "rowwise_adagrad": "adagrad:RowwiseAdagrad",
            "adagrad": "adagrad:Adagrad",
            "adam": "adam:Adam",
            "rowwise_adam": "adam:RowwiseAdam",
            "ftrl": "ftrl:FTRL",
        }.items()
    },
)

POLICIES = Door(
    "policy.name",
    "policy.",
    {
        "bagpipe": Entry("bagpipe_hpc.planning.lookahead.policy:LookaheadPolicy"),
        "hotline": Entry(
            "bagpipe_hpc.planning.policies.hotline.policy:Hotline",
            "bagpipe_hpc.planning.policies.hotline.settings:HotlineSettings",
        ),
        "none": Entry("bagpipe_hpc.planning.policies.none:NoCache"),
        "pinned": Entry(
            "bagpipe_hpc.planning.policies.pinned.policy:PinnedPolicy",
            "bagpipe_hpc.planning.policies.pinned.settings:PinnedSettings",
        ),
        "scratchpipe": Entry(
            "bagpipe_hpc.planning.policies.scratchpipe:ScratchPipe",
            "bagpipe_hpc.planning.policies.scratchpipe_settings:ScratchPipeSettings",
        ),
        "herald": Entry(
            "bagpipe_hpc.planning.policies.herald.policy:HeraldPolicy",
            "bagpipe_hpc.planning.policies.herald.settings:HeraldSettings",
        ),
        "het": Entry(
            "bagpipe_hpc.planning.policies.het.policy:HetPolicy",
            "bagpipe_hpc.planning.policies.het.settings:HetSettings",
        ),
        "fae": Entry(
            "bagpipe_hpc.planning.policies.fae.policy:FaePolicy",
            "bagpipe_hpc.planning.policies.fae.settings:FaeSettings",
        ),
        "slipstream": Entry(
            "bagpipe_hpc.planning.policies.slipstream.policy:SlipstreamPolicy",
            "bagpipe_hpc.planning.policies.slipstream.settings:SlipstreamSettings",
        ),
    },
)

PLACEMENTS = Door(
    "tables.placement",
    "tables.",
    {
        "round_robin": Entry("bagpipe_hpc.rows.partition:RoundRobinPartition"),
        "contiguous": Entry("bagpipe_hpc.rows.ranges:ContiguousPartition"),
        "by_table": Entry("bagpipe_hpc.rows.ranges:TablePartition"),
        **{
            name: Entry(f"bagpipe_hpc.rows.placements.{path}", f"bagpipe_hpc.rows.placements.settings:{settings}")
            for name, (path, settings) in {
                "random": ("assignment:RandomTables", "RandomSettings"),
                "greedy_size": ("greedy:GreedySize", "AssignmentSettings"),
                "greedy_dim": ("greedy:GreedyDimension", "AssignmentSettings"),
                "greedy_lookup": ("greedy:GreedyLookup", "StatisticsSettings"),
                "greedy_size_lookup": ("greedy:GreedySizeLookup", "StatisticsSettings"),
                "recshard": ("recshard.placement:RecShard", "RecShardSettings"),
                "flexshard": ("flexshard.placement:FlexShard", "FlexShardSettings"),
            }.items()
        },
        **{
            name: Entry(
                f"bagpipe_hpc.tools.sharding.placement:{kind}", "bagpipe_hpc.rows.placements.settings:LearnedSettings"
            )
            for name, kind in {"autoshard": "AutoShard", "dreamshard": "DreamShard"}.items()
        },
    },
)

DENSE_SUMS = Door(
    "train.dense_sums",
    "train.dense_sums_",
    {
        "horovod": Entry("bagpipe_hpc.models.sums.horovod_sums:HorovodSums"),
        "mpi": Entry("bagpipe_hpc.models.sums.mpi_sums:MpiSums"),
        "grid": Entry("bagpipe_hpc.models.sums.mpi_sums:GridSums"),
    },
)
"""The entries are `models.sums.contract.DenseSums`; their setting takes these names and `auto` alone."""

SOURCE_FORMATS = Door(
    "--format",
    "--format-option ",
    {
        "criteo": Entry("data_prep.formats.criteo:Criteo"),
        "criteo_buckets": Entry(
            "data_prep.formats.criteo:CriteoBuckets", "data_prep.formats.criteo:CriteoBuckets.Settings"
        ),
        "criteo_terabyte": Entry(
            "data_prep.formats.criteo:CriteoTerabyte", "data_prep.formats.criteo:CriteoTerabyte.Settings"
        ),
        "sequences": Entry("data_prep.formats.sequences:Sequences"),
    },
)
"""The entries are `data_prep.formats.source_format.SourceFormat`; `bagpipe prepare` chooses, not a configuration."""

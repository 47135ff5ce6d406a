"""What is compared: a policy or a placement, with settings; and the cells in which it is tried."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError


@dataclass(frozen=True)
class Contender:
    """A policy or placement, with settings that go with it.

    Attributes:
        label: the argument as it was given; its name in tables.
        overrides: `policy.name=NAME`, or the setting that chooses it, and the further settings.
    """

    label: str
    overrides: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, key: str = "policy.name", option: str = "--policies") -> "Contender":
        """Read it from one argument, `NAME section.field=value ...`.

        Args:
            text: the argument.
            key: the setting that NAME is the value of.
            option: the option that the argument belongs to, for messages.

        Raises:
            ConfigError: there is no name, or it is followed by something else than settings.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"{option} {text!r}: {error}; write NAME section.field=value ...") from None
        if not words or "=" in words[0]:
            raise ConfigError(f"{option} {text!r}: names nothing first; write NAME section.field=value ...")
        for word in words[1:]:
            if "=" not in word:
                raise ConfigError(
                    f"{option} {text!r}: {word!r} is no section.field=value; quote each name with its settings as one "
                    "argument"
                )
        return cls(" ".join(words), (f"{key}={words[0]}", *words[1:]))

    def settings(self, common: Sequence[str], *more: str) -> list[str]:
        """All settings of its run: its own override the common ones.

        Args:
            common: `section.field=value`, for all contenders.
            more: settings that override both.
        """
        return list({text.partition("=")[0]: text for text in (*common, *self.overrides, *more)}.values())

    @property
    def folder(self) -> str:
        """The label as a folder's name."""
        return re.sub(r"[^A-Za-z0-9._=-]+", "_", self.label)


@dataclass(frozen=True)
class Cell:
    """One contender under one set of conditions.

    Attributes:
        contender: the policy.
        trainers: number of trainers T.
        cache_percent: slots of a trainer's cache, in percent of the tables' rows; 0 for as many as the policy wants.
    """

    contender: Contender
    trainers: int
    cache_percent: float

    def __str__(self) -> str:
        cache = f"cache {self.cache_percent:g} %" if self.cache_percent else "any cache"
        return f"{self.contender.label}, T = {self.trainers}, {cache}"

    def overrides(self, common: Sequence[str], total_rows: int, *more: str) -> list[str]:
        """All settings of its run: the policy's own override those for all policies.

        Args:
            common: `section.field=value`, for all policies.
            total_rows: rows of all tables.
            more: settings that override both.
        """
        slots = max(1, round(self.cache_percent / 100 * total_rows)) if self.cache_percent else 0
        return self.contender.settings(common, f"cache.rows={slots}", *more)

    def config(self, path: Path, common: Sequence[str], total_rows: int) -> Config:
        """The configuration of a run of this cell.

        Raises:
            ConfigError: the settings do not go together.
        """
        return load_config(path, self.overrides(common, total_rows))

    def folder(self, seed: int) -> str:
        """The name of its run's folder in the comparison's folder."""
        return f"{self.contender.folder}/trainers={self.trainers},cache={self.cache_percent:g},seed={seed}"


def distinct(contenders: Sequence[Contender], option: str = "--policies") -> Sequence[Contender]:
    """Return the contenders, all of which must differ.

    Raises:
        ConfigError: two are the same.
    """
    folders = [contender.folder for contender in contenders]
    if twice := sorted({folder for folder in folders if folders.count(folder) > 1}):
        raise ConfigError(f"{option}: {twice[0]!r} comes twice; name each with its settings once")
    return contenders


def cells(contenders: Sequence[Contender], trainers: Sequence[int], cache_percents: Sequence[float]) -> list[Cell]:
    """Every combination; those with the same conditions are neighbours.

    Raises:
        ConfigError: two contenders are the same, or one sets the size of its cache.
    """
    for contender in contenders:
        if given := next((one for one in contender.overrides if one.startswith("cache.rows=")), None):
            raise ConfigError(f"--policies {contender.label!r}: {given}: all have caches as large; use --cache PERCENT")
    return [
        Cell(contender, number, percent)
        for number in trainers
        for percent in cache_percents
        for contender in distinct(contenders)
    ]


def refusals(found: Sequence[tuple[str, str, str]]) -> list[str]:
    """What is refused, and why: only one line for a contender that is refused for the same reason in all its cells.

    Args:
        found: for each cell the contender's label, the cell in words, and why it is refused; empty where it is not.
    """
    lines = []
    for label in dict.fromkeys(label for label, _, _ in found):
        cells_of = [(cell, why) for name, cell, why in found if name == label]
        if len(cells_of) > 1 and len({why for _, why in cells_of}) == 1:
            cells_of = [(label, cells_of[0][1])]
        lines += [f"{where}: refused: {why}" for where, why in cells_of if why]
    return lines

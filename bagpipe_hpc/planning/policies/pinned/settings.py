"""The own settings of `pinned`. Standard library only: every command that reads settings does."""

from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class PinnedSettings:
    """The look-ahead rule with rows that stay."""

    plan: str = ""
    """File of the plan that says which rows are pinned, written by `bagpipe place CONFIG --servers S`."""

    @property
    def plan_path(self) -> Path:
        """The file.

        Raises:
            SettingError: none is named.
        """
        if not self.plan:
            raise SettingError("policy.plan", "", "name the file that `bagpipe place CONFIG --servers S` writes")
        return Path(self.plan)

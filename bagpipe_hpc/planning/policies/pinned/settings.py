"""The settings of `pinned`. Standard library only: every command that reads settings imports this."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PinnedSettings:
    """The look-ahead rule with rows that stay."""

    plan: str = ""
    """File of the plan that says which rows are pinned, written by `bagpipe place CONFIG --servers S`."""

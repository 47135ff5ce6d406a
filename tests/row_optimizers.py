"""Row optimizers as tests make them."""

from typing import Any

from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer

BUILT_IN = tuple(ROW_OPTIMIZERS.entries)


def optimizer_config(name: str, **settings: Any) -> OptimizerConfig:
    """The configuration of an optimizer with some settings of its own."""
    return OptimizerConfig(rows=name, row_settings=ROW_OPTIMIZERS.settings_class(name)(**settings))


def row_optimizer(name: str, **settings: Any) -> RowOptimizer:
    return build_row_optimizer(optimizer_config(name, **settings))

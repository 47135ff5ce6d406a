"""The settings of a run: a section of the TOML file each, declared in `config.sections` (rates in `config.rates`).

Sections are frozen dataclasses, each field documented below it. `config.file.load_config` fills them from TOML and
command-line overrides, `config.reference` makes `docs/configuration.md` from them. Standard library only, so that a
mistake in a configuration is reported at once.
"""

from dataclasses import dataclass, field

from bagpipe_hpc.config.rates import DenseRateConfig, RowsRateConfig
from bagpipe_hpc.config.sections.data import DataConfig, FeaturesConfig, GraphConfig
from bagpipe_hpc.config.sections.execution import DebugConfig, KernelsConfig, RolesConfig
from bagpipe_hpc.config.sections.model import ModelConfig
from bagpipe_hpc.config.sections.optimizer import OptimizerConfig
from bagpipe_hpc.config.sections.rows import CacheConfig, LookaheadConfig, PolicyConfig, TablesConfig
from bagpipe_hpc.config.sections.train import TrainConfig

__all__ = [
    "CacheConfig",
    "Config",
    "DataConfig",
    "DebugConfig",
    "DenseRateConfig",
    "FeaturesConfig",
    "GraphConfig",
    "KernelsConfig",
    "LookaheadConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PolicyConfig",
    "RolesConfig",
    "RowsRateConfig",
    "TablesConfig",
    "TrainConfig",
]


@dataclass(frozen=True)
class Config:
    """All settings of a run; a section of the TOML file each."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    rows_rate: RowsRateConfig = field(default_factory=RowsRateConfig)
    dense_rate: DenseRateConfig = field(default_factory=DenseRateConfig)
    lookahead: LookaheadConfig = field(default_factory=LookaheadConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    tables: TablesConfig = field(default_factory=TablesConfig)
    roles: RolesConfig = field(default_factory=RolesConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    kernels: KernelsConfig = field(default_factory=KernelsConfig)
    debug: DebugConfig = field(default_factory=DebugConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)

    @property
    def initial_bound(self) -> float:
        """Bound of the first weights of rows: `tables.initial_bound`, or the model's own; 0: one for each table."""
        bound: float = self.tables.initial_bound or getattr(self.model.settings, "initial_bound", 0.0)
        return bound

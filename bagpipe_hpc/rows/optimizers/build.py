"""Makes the row optimizer that a configuration names, and checks what it says of its state."""

from collections.abc import Sequence

from bagpipe_hpc.config.doors import ROW_OPTIMIZERS, SettingError
from bagpipe_hpc.config.float32 import is_float32
from bagpipe_hpc.config.rates import RowsRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer, StateColumns


def build_row_optimizer(config: OptimizerConfig, rates: RowsRateConfig | None = None) -> RowOptimizer:
    """The optimizer that `optimizer.rows` names.

    Args:
        config: names it, and has its settings.
        rates: its learning rate over the steps of the run; not needed where only its state is asked for.

    Raises:
        SettingError: it does not keep the contract, or does not go with the decay of rows.
    """
    kind = ROW_OPTIMIZERS.implementation(config.rows)
    if not (isinstance(kind, type) and issubclass(kind, RowOptimizer)):
        raise _broken(config, "must be a subclass of bagpipe_hpc.rows.optimizers.contract.RowOptimizer")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise _broken(config, f"must define {', '.join(missing)}")
    if kind.makes_weights_of_state and config.rows_weight_decay and config.rows_weight_decay_mode == "decoupled":
        cure = f"{config.rows} computes weights from its state, so that their own decay would be lost; use l2"
        raise SettingError("optimizer.rows_weight_decay_mode", config.rows_weight_decay_mode, cure)
    with ROW_OPTIMIZERS.blaming(config.rows, "cannot be made"):
        optimizer: RowOptimizer = kind(config.row_settings)
        _check_state(config, optimizer.state)
        if rates is not None:
            optimizer.rates = rates
    return optimizer


def _check_state(config: OptimizerConfig, state: object) -> None:
    """Check that a state is a sequence of differently named columns."""
    if not isinstance(state, Sequence) or not all(isinstance(part, StateColumns) for part in state):
        raise _broken(config, f"its state = {state!r:.100}: must be a tuple of StateColumns")
    for part in state:
        if not (isinstance(part.name, str) and part.name.isidentifier()):
            raise _broken(config, f"its state has the name {part.name!r}: use letters, digits and underscores")
        if not isinstance(part.per_weight, bool):
            raise _broken(config, f"its state {part.name} has per_weight = {part.per_weight!r}: use True or False")
        is_number = isinstance(part.first, int | float) and not isinstance(part.first, bool)
        if not (is_number and is_float32(part.first)):
            cure = f"its state {part.name} has first = {part.first!r}: use a number that float32 can hold"
            raise _broken(config, cure)
    names = [part.name for part in state]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise _broken(config, f"its state has the name {repeated[0]} twice: use different names")


def _broken(config: OptimizerConfig, cure: str) -> SettingError:
    return SettingError(ROW_OPTIMIZERS.key, config.rows, cure)

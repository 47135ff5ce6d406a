"""What a run says of settings that have no effect because of other settings. Pure; standard library only."""

from collections.abc import Iterator

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sections.train import LATE


def unused_settings(config: Config) -> Iterator[str]:
    """What settings ask for and a run does not do, since another one says otherwise: a line each.

    What depends on the length of the run is in `plan.schedule.without_effect`.
    """
    train, optimizer, lookahead, tables = config.train, config.optimizer, config.lookahead, config.tables
    if train.warm_start_takes != "all" and not train.warm_start:
        yield f"train.warm_start_takes = {train.warm_start_takes!r}: train.warm_start names nothing to take it from"
    if train.stop_min_delta and not train.stop_after:
        yield f"train.stop_min_delta = {train.stop_min_delta:g}: it is for train.stop_after, which is 0"
    if train.late_share < 1 and train.weight_gradients != LATE:
        yield f"train.late_share = {train.late_share:g}: it is for train.weight_gradients = '{LATE}'"
    if not train.late_share and train.weight_gradients == LATE:
        yield f"train.weight_gradients = '{LATE}': train.late_share = 0 leaves no gradients to be late"
    if optimizer.rows_weight_decay_mode != "l2" and not optimizer.rows_weight_decay:
        yield (
            f"optimizer.rows_weight_decay_mode = {optimizer.rows_weight_decay_mode!r}: "
            "optimizer.rows_weight_decay = 0, so rows do not decay"
        )
    if lookahead.batches == 1 and lookahead.group > 1:
        yield f"lookahead.group = {lookahead.group}: with lookahead.batches = 1 each batch is a group"
    if tables.ssd_path and not tables.memory_gb:
        yield f"tables.ssd_path = {tables.ssd_path!r}: tables.memory_gb = 0, so all rows are in memory"

"""What ranks say of themselves before a run is compared."""

import pytest

from bagpipe_hpc.config.schema import Config, OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.rank_check import facts_of_entries, require_same_entries
from bagpipe_hpc.rows.optimizers.sgd import SGD


def test_a_host_with_another_version_of_a_module_is_refused() -> None:
    """Its trainers would update rows in another way, or take one number of a row for another."""
    config = Config(optimizer=OptimizerConfig("sgd", SGD.Settings(0.5)))
    oracle = facts_of_entries(config)
    require_same_entries(config, oracle)
    for key, value in {"optimizer.rows_lr": 0.25, "optimizer.rows_decay": 1, "state of optimizer.rows": "x"}.items():
        with pytest.raises(ConfigError, match=rf"{key}: .* on host .*, .*{value}.* on the oracle's: let all hosts"):
            require_same_entries(config, {**oracle, key: value})
    del oracle["optimizer.rows_lr"]
    with pytest.raises(ConfigError, match=r"optimizer\.rows_lr: 0.5 on host .*, None on the oracle's"):
        require_same_entries(config, oracle)

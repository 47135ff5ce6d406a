from bagpipe_hpc.bench.memory import formula_bytes
from bagpipe_hpc.config import Config, ModelConfig, OptimizerConfig, TrainConfig


def test_formulas_by_hand():
    config = Config(
        model=ModelConfig(embedding_dim=10),
        optimizer=OptimizerConfig(rows="rowwise_adagrad"),
        train=TrainConfig(batch_size=7),
    )
    summary = {"planner_bytes": 123, "cache_bytes": 1000}
    assert formula_bytes(config, (4, 5), summary) == {
        "oracle": 123,
        "server": 5 * (10 + 1) * 4,  # 9 rows on two servers
        "trainer": 1000 + 3 * (4 * 2 * 10 * 4),  # 4 of 7 samples, 2 tables
    }

from dataclasses import replace

from bagpipe_hpc.config.schema import CacheConfig, Config, ModelConfig, OptimizerConfig, TrainConfig
from benchmarks.memory import formula_bytes


def test_formulas_by_hand():
    config = Config(
        model=ModelConfig(embedding_dim=10),
        optimizer=OptimizerConfig(rows="rowwise_adagrad"),
        train=TrainConfig(batch_size=7),
    )
    rows = {"reduced_now": 3, "reduced_later": 2, "private": 4, "rows_fetched": 6, "rows_written_back": 5}
    rows |= {"copied": 7, "sent_home": 8, "relayed": 0}
    summary = {"planner_bytes": 123, "cache_bytes": 1000, "lookahead_batches": 9, "group_batches": 2}
    summary["trainers"] = [rows, rows]
    own = 4 * (4 * 2 + 4) + 12 * 11  # positions of 4 of 7 samples in 2 tables, private slots, rows that move
    plans = 9 + 2 * 2 + 1
    assert formula_bytes(config, (4, 5), summary) == {
        "oracle": 123 + plans * (4 * 5 + 2 * own),
        "server": 5 * (10 + 1) * 4,  # 9 rows on two servers
        "trainer": 1000 + 3 * (4 * 2 * 10 * 4) + plans * (4 * 5 + own) + 2 * 11 * (10 + 1) * 4,
    }
    own += 4 * (3 * 5 + 2 * 7 + 8)  # of 5 rows that are summed here, 7 copies in and out, 8 gradients
    of_home = formula_bytes(replace(config, cache=CacheConfig(sharing="home")), (4, 5), summary)
    assert of_home["oracle"] == 123 + plans * 2 * own
    assert of_home["trainer"] == (
        1000 + 3 * (4 * 2 * 10 * 4) + plans * own + 2 * 11 * (10 + 1) * 4 + 2 * 4 * 10 * (5 + 8 + 2 * 7)
    )

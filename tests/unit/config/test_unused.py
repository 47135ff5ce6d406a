"""A run says which of its settings others leave without effect."""

from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.unused import unused_settings

EXAMPLES = Path(__file__).parents[3] / "configs"
QUICKSTART = EXAMPLES / "quickstart.toml"


@pytest.mark.parametrize(
    ("overrides", "key", "because"),
    [
        (["train.warm_start_takes=rows"], "train.warm_start_takes", "train.warm_start names nothing"),
        (["train.stop_min_delta=0.01"], "train.stop_min_delta", "train.stop_after, which is 0"),
        (["train.late_share=0.5"], "train.late_share", "train.weight_gradients = 'late'"),
        (["train.late_share=0"], "train.late_share", "train.weight_gradients = 'late'"),
        (["train.late_share=0", "train.weight_gradients=late"], "train.weight_gradients", "late_share = 0 leaves no"),
        (["optimizer.rows_weight_decay_mode=decoupled"], "optimizer.rows_weight_decay_mode", "rows do not decay"),
        (["lookahead.batches=1", "lookahead.group=2"], "lookahead.group", "each batch is a group"),
        (["tables.ssd_path=/scratch"], "tables.ssd_path", "all rows are in memory"),
    ],
)
def test_a_setting_without_effect_is_named_with_the_reason(overrides: list[str], key: str, because: str) -> None:
    (told,) = unused_settings(load_config(QUICKSTART, overrides))
    assert told.startswith(f"{key} = ")
    assert because in told


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.warm_start=output/a", "train.warm_start_takes=rows"],
        ["train.stop_after=2", "train.stop_min_delta=0.01"],
        ["train.weight_gradients=late", "train.late_share=0.5"],
        ["optimizer.rows_weight_decay=0.01", "optimizer.rows_weight_decay_mode=decoupled"],
        ["lookahead.batches=1", "lookahead.group=1"],
        ["tables.ssd_path=/scratch", "tables.memory_gb=2"],
    ],
)
def test_nothing_is_said_of_settings_that_go_together(overrides: list[str]) -> None:
    assert not list(unused_settings(load_config(QUICKSTART, overrides)))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_have_none(path: Path) -> None:
    assert not list(unused_settings(load_config(path, [])))

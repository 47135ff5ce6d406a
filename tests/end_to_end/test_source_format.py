"""What a format from outside the package prepares is trained on like any other rows."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.test_equality import LINEAR
from tests.extending import Example
from tests.fork_server import forked

CONFIG = """
[model]
embedding_dim = 4
bottom_mlp = [8]
top_mlp = [8]
[train]
batch_size = 50
timeout_s = 60.0
"""


@pytest.mark.slow
def test_the_example_of_the_page_is_trained_on(
    example: Callable[[str], Example], run_ranks: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    example("Source format")
    rng = random.Random(1)
    rows = (
        f"{rng.randrange(2)};{rng.random()};{rng.randrange(99)};;{rng.randrange(40)};item {rng.randrange(9)};DE\n"
        for _ in range(250)
    )
    (tmp_path / "clicks.csv").write_text("bought;price;visits;time;user;item;country\n" + "".join(rows))
    settings = PrepareSettings("shop_clicks:ShopClicks", ("separator=;",), min_count=1)
    prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "shards", settings, lambda _: None)
    (tmp_path / "run.toml").write_text(CONFIG + f'[kernels]\nlinear = "{LINEAR}"\n')
    overrides = (f"data.path={tmp_path / 'shards'}", f"train.output={tmp_path / 'run'}")
    finished = run_ranks(3, *forked(["bagpipe", "train", tmp_path / "run.toml", *overrides]))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (evaluation,) = (event for event in events if event["event"] == "evaluation")
    assert evaluation["step"] == 5
    assert math.isfinite(evaluation["log_loss"])

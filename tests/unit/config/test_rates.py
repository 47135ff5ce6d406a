"""A learning rate's part in each step: a formula for each decay, and settings that mean nothing are refused."""

import math
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config, to_toml
from bagpipe_hpc.config.rates import DECAYS, DenseRateConfig, RowsRateConfig
from bagpipe_hpc.errors import ConfigError

Rates = RowsRateConfig


def factors(steps: int, **settings: object) -> list[float]:
    rates = Rates(**settings)  # type: ignore[arg-type]
    return [rates.factor(step) for step in range(1, steps + 1)]


def test_without_a_schedule_every_step_has_the_full_rate() -> None:
    assert factors(3) == [1.0] * 3
    assert not Rates().varies
    assert not Rates(warmup_steps=1).varies
    assert factors(2, warmup_steps=1) == [1.0] * 2


def test_the_warm_up_ends_with_the_full_rate() -> None:
    assert factors(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_steps_fall_after_each_so_many() -> None:
    falling = [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.1**2, 0.1**2]
    assert factors(8, decay="step", decay_steps=3) == pytest.approx(falling)
    assert factors(9, decay="step", decay_steps=3, warmup_steps=1) == pytest.approx([1.0, *falling])
    assert factors(8, decay="step", decay_steps=1, gamma=0.5, end_factor=0.2)[-1] == 0.2


def test_a_cosine_falls_slowly_at_both_ends() -> None:
    found = factors(7, decay="cosine", decay_start=2, decay_steps=4, end_factor=0.2)
    parts = [(1 + math.cos(math.pi * part)) / 2 for part in (0.25, 0.5, 0.75)]
    assert found == pytest.approx([1.0, 1.0, *(0.2 + 0.8 * part for part in parts), 0.2, 0.2])


@pytest.mark.parametrize("decay", ["cosine", "polynomial"])
def test_the_end_is_the_end_factor_itself(decay: str) -> None:
    found = Rates(decay=decay, decay_steps=7, end_factor=0.125, warmup_steps=3)
    assert [found.factor(step) for step in (10, 11, 10**12)] == [0.125] * 3


class MLPerf:
    """`LRPolicyScheduler` of MLPerf's DLRM (facebookresearch/dlrm, dlrm_s_pytorch.py), for a rate of 1."""

    def __init__(self, warmup: int, start: int, steps: int) -> None:
        self.warmup, self.start, self.steps = warmup, start, steps
        self.last = 1.0

    def factor(self, step: int) -> float:
        if step < self.warmup:
            self.last = 1.0 - (self.warmup - step) / self.warmup
        elif self.start <= step < self.start + self.steps:
            self.last = ((self.steps - (step - self.start)) / self.steps) ** 2
        elif step < self.start:
            return 1.0  # theirs stays at the last of the warm-up, (warmup - 1) / warmup
        return self.last


def test_polynomial_decay_is_mlperfs() -> None:
    rates, theirs = Rates(warmup_steps=27, decay="polynomial", decay_start=49, decay_steps=28), MLPerf(27, 49, 28)
    for step in range(1, 77):
        assert rates.factor(step) == pytest.approx(theirs.factor(step), abs=1e-15)
    assert rates.factor(77) == rates.factor(100) == 0.0


def test_both_halves_have_rates_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[rows_rate]\nwarmup_steps = 5\n[dense_rate]\ndecay = "cosine"\ndecay_steps = 9\n')
    config = load_config(path)
    assert config.rows_rate == RowsRateConfig(warmup_steps=5)
    assert config.dense_rate == DenseRateConfig(decay="cosine", decay_steps=9)
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "again.toml") == config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decay": "linear"}, r"decay = 'linear': use one of constant, step, cosine, polynomial"),
        ({"warmup_steps": -1}, r"warmup_steps = -1: use 0 or more steps"),
        ({"decay": "cosine"}, r"decay_steps = 0: cosine needs the number of its steps"),
        ({"decay_steps": 5}, r"decay_steps = 5: has no effect with decay = 'constant': .*\"step\" or \"cosine\""),
        ({"decay_start": 5}, r"decay_start = 5: has no effect with decay = 'constant'"),
        ({"decay": "cosine", "decay_steps": 5, "power": 1.0}, r"power = 1.0: .* rows_rate.decay to \"polynomial\"$"),
        ({"decay": "polynomial", "decay_steps": 5, "gamma": 0.5}, r"gamma = 0.5: .* rows_rate.decay to \"step\"$"),
        (
            {"decay": "cosine", "decay_steps": 5, "decay_start": 3, "warmup_steps": 4},
            r"decay_start = 3: the decay begins behind the warm-up: use 4 \(warmup_steps\) or more",
        ),
        ({"decay": "cosine", "decay_steps": 5, "end_factor": 1.5}, r"end_factor = 1.5: use a number from 0 to 1"),
        ({"decay": "polynomial", "decay_steps": 5, "power": 0.0}, r"power = 0.0: use a number above 0"),
        ({"decay": "step", "decay_steps": 5, "gamma": 1.0}, r"gamma = 1.0: use a number above 0 and below 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^rows_rate\.{said}"):
        Rates(**settings)  # type: ignore[arg-type]


def test_a_wrong_value_in_a_file_is_named_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[dense_rate]\ndecay = "cosine"\n')
    with pytest.raises(ConfigError, match=r"run\.toml: dense_rate\.decay_steps = 0: cosine needs"):
        load_config(path)


@pytest.mark.parametrize(
    ("settings", "steps", "said"),
    [
        ({"warmup_steps": 40}, 20, "reaches 0.5 of the full one"),
        ({"decay": "cosine", "decay_steps": 5, "decay_start": 20}, 20, "so its rate does not fall"),
        ({"decay": "cosine", "decay_steps": 5, "warmup_steps": 4}, 20, "the rate is 0 from step 9 on"),
        ({"decay": "cosine", "decay_steps": 16, "warmup_steps": 4}, 20, ""),
        ({"decay": "polynomial", "decay_steps": 5, "end_factor": 0.1}, 20, ""),
        ({"decay": "step", "decay_steps": 5}, 20, ""),
        ({}, 20, ""),
    ],
)
def test_what_a_run_of_this_length_makes_of_it_is_said(settings: dict[str, object], steps: int, said: str) -> None:
    found = Rates(**settings).remarks(steps)  # type: ignore[arg-type]
    assert len(found) == bool(said)
    assert said in "".join(found)


def test_every_decay_has_a_test() -> None:
    assert set(DECAYS) == {"constant", "step", "cosine", "polynomial"}

"""What models learn is compared in turn, and who does not take part is said."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from benchmarks import learning, quality
from benchmarks.learning import RUN_SETTINGS, over_seeds, score_cells
from benchmarks.quality import CONTENDERS, MODELS, SETTINGS, Contender
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.unit.benchmarks.test_search import text_of


def shards_of(folder: Path, test_fraction: float) -> Path:
    prepare_clicks(
        [str(text_of(folder / "clicks", 50))],
        folder / "shards",
        PrepareSettings(test_fraction=test_fraction),
        lambda _: None,
    )
    return folder / "shards"


def arguments(shards: Path, contenders: list[str]) -> Namespace:
    models = ["dlrm", "deepfm"]
    return Namespace(shards=shards, models=models, contenders=contenders, seeds=2, settings=["a=1"], quick=False)


def test_contenders_train_in_turn_and_a_missing_package_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, str, str]] = []

    def train(overrides: Sequence[str], program: str) -> dict[str, float]:
        trained.append((overrides[0], overrides[1], program))
        assert overrides[-1] == "a=1"
        return {"auc": 0.7, "log_loss": 0.5}

    monkeypatch.setattr(quality, "train", train)
    absent = Contender("torch-rechub", "rechub.py", ("deepfm",), "no_such_package")
    alike = Contender("other", "other.py", ("deepfm",))
    monkeypatch.setattr(quality, "CONTENDERS", {"bagpipe": CONTENDERS["bagpipe"], "other": alike, "rechub": absent})
    report = quality.run(arguments(shards_of(tmp_path, 0.2), ["bagpipe", "other", "rechub"]))
    assert "left out: torch-rechub: no_such_package is not installed" in capsys.readouterr().out
    assert report.figures["left_out"] == ["rechub"]
    expected = [("dlrm", seed, "") for seed in "12"]
    expected += [("deepfm", seed, program) for seed in "12" for program in ("", "other.py")]
    assert trained == [(f"model.name={model}", f"train.seed={seed}", program) for model, seed, program in expected]
    named = [(one["model"], one["contender"]) for one in report.figures["results"]]
    assert named == [("dlrm", "bagpipe"), ("deepfm", "bagpipe"), ("deepfm", "other")]


@pytest.mark.parametrize("model", MODELS)
def test_the_settings_of_all_runs_can_be_trained_with(tmp_path: Path, model: str) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    config = load_config(empty, [f"model.name={model}", *MODELS[model], *SETTINGS, *RUN_SETTINGS])
    assert (config.model.name, config.train.threads, config.train.device) == (model, 1, "cpu")


def test_shards_without_test_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no test rows; prepare it with --test-fraction"):
        quality.run(arguments(shards_of(tmp_path, 0.0), ["bagpipe"]))


def test_scores_over_seeds() -> None:
    runs = [{"auc": auc, "log_loss": 0.5} for auc in (0.7, 0.72, 0.74)]
    figures = over_seeds(runs)
    assert figures == pytest.approx({"auc": 0.72, "auc_spread": 0.02, "log_loss": 0.5, "log_loss_spread": 0.0})
    assert score_cells(figures) == ["0.7200 ± 0.0200", "0.5000 ± 0.0000"]


def test_one_seed_has_no_spread() -> None:
    figures = over_seeds([{"auc": 0.7, "log_loss": 0.5}])
    assert (figures["auc_spread"], figures["log_loss_spread"]) == (None, None)
    assert score_cells(figures) == ["0.7000", "0.5000"]


def test_a_run_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_TIMEOUT_S", 0.0)  # a program is started, and nobody waits for it
    with pytest.raises(ConfigError, match=r"bagpipe_hpc train .*: has not ended after 0 s"):
        learning.train([])

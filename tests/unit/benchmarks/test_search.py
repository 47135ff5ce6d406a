"""A search tests tails of the training rows alone, each by a model of the rows before it."""

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from benchmarks import search
from benchmarks.learning import RUN_SETTINGS
from benchmarks.search import TRIES, Clicks, Try, read_tries, with_steps

SHARED = '[shared]\nsettings = ["train.batch_size=10"]\n'


def text_of(path: Path, rows: int) -> Path:
    """Clicks whose only integer counts the rows."""
    path.write_text("".join(f"1\t{row}{12 * chr(9)}" + 26 * "\ta" + "\n" for row in range(rows)))
    return path


def numbers_of(shards: Path, split: str) -> list[float]:
    with ClickShards(shards, load_manifest(shards), split) as read:
        return sorted(read.read_dense(0, read.rows)[:, 0].tolist())


@pytest.mark.parametrize(("fifths", "train"), [(5, 80), (4, 60)])
def test_each_tail_follows_the_rows_that_its_model_has(tmp_path: Path, fifths: int, train: int) -> None:
    """Of 130 rows the first 100 are training rows."""
    clicks = Clicks(text_of(tmp_path / "clicks", 130), 100, tmp_path)
    shards = clicks.shards(Try("plain"), fifths)
    expected = [math.log(1 + row) for row in range(train + 20)]
    assert numbers_of(shards, "train") == pytest.approx(expected[:train], rel=1e-6)
    assert numbers_of(shards, "test") == pytest.approx(expected[train:], rel=1e-6)
    assert clicks.shards(Try("others", ("train.batch_size=7",)), fifths) == shards
    manifest = load_manifest(clicks.shards(Try("buckets", format="criteo_buckets", min_count=3), fifths))
    assert (len(manifest.tables), manifest.rows("test")) == (39, 20)


def test_steps_are_those_of_the_epoch(tmp_path: Path) -> None:
    shards = Clicks(text_of(tmp_path / "clicks", 101), 0, tmp_path).shards(Try("plain"), 5)
    settings = ("train.batch_size=20", "dense_rate.decay=cosine", "dense_rate.decay_steps={steps}")
    assert with_steps(settings, shards) == [*settings[:2], "dense_rate.decay_steps=5"]  # of 81 rows
    assert with_steps(settings[:1], shards) == ["train.batch_size=20"]


def test_tries_share_settings_and_have_their_own(tmp_path: Path) -> None:
    path = tmp_path / "tries.toml"
    path.write_text(
        SHARED + '[[tries]]\nname = "plain"\n'
        '[[tries]]\nname = "other"\nformat = "criteo_buckets"\nformat_options = ["dense=false"]\nmin_count = 5\n'
        'settings = ["train.batch_size=20"]\n'
    )
    batch = ("train.batch_size=10", "train.batch_size=20")
    assert read_tries(path) == [Try("plain", batch[:1]), Try("other", batch, "criteo_buckets", ("dense=false",), 5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHARED, "KeyError"),
        ("tries = 5", "TypeError"),
        ("[[tries]]\n", "TypeError"),
        ('[[tries]]\nname = "a"\nseeds = 5', "unexpected keyword argument 'seeds'"),
        ('[[tries]]\nname = "a"\n[[tries]]\nname = "a"', "a: unknown, or there twice"),
        ('[[tries]]\nname = "a"\n[more]', "more: unknown, or there twice"),
        ("tries = [", "TOMLDecodeError"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tries.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="tries") as raised:
        read_tries(path)
    assert said in str(raised.value)


def test_the_committed_tries_can_be_trained_with(tmp_path: Path) -> None:
    clicks = Clicks(text_of(tmp_path / "clicks", 100), 0, tmp_path)
    empty = tmp_path / "empty.toml"
    empty.touch()
    for one in read_tries(TRIES):
        load_config(empty, [*with_steps(one.settings, clicks.shards(one, 5)), *RUN_SETTINGS])


def test_the_table_has_both_tails_of_the_tries_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries.toml"
    tries.write_text("".join(f'[[tries]]\nname = "{name}"\n' for name in "abc"))
    trained: list[tuple[int, str]] = []

    def train(overrides: Sequence[str]) -> dict[str, float]:
        manifest = load_manifest(Path(overrides[0].removeprefix("data.path=")))
        trained.append((manifest.rows("train"), overrides[-1]))
        return {"auc": manifest.rows("train") / 100, "log_loss": 0.5}

    monkeypatch.setattr(search, "train", train)
    clicks = text_of(tmp_path / "clicks", 100)
    report = search.run(Namespace(clicks=clicks, rows=0, tries=tries, only=["a", "c"], seeds=2, quick=False))
    quick = search.run(Namespace(clicks=clicks, rows=0, tries=tries, only=None, seeds=2, quick=True))
    assert [one["name"] for one in quick.figures["results"]] == ["a", "a", "b", "b"]
    assert trained[8:] == [(80, "train.seed=1"), (60, "train.seed=1")] * 2
    with pytest.raises(ConfigError, match="--only 'd': is no try; use some of 'a', 'b', 'c'"):
        search.run(Namespace(clicks=clicks, rows=0, tries=tries, only=["a", "d"], seeds=2, quick=False))
    assert trained[:8] == [(rows, f"train.seed={seed}") for rows in (80, 60) for seed in (1, 2)] * 2
    assert [(one["name"], one["tail"], one["auc"]) for one in report.figures["results"]] == [
        (name, tail, auc) for name in "ac" for tail, auc in (("last fifth", 0.8), ("fifth before", 0.6))
    ]

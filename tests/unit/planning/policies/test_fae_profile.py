"""The profile of hot rows is what slow sets find; a damaged file and a second one in its place are refused."""

import errno
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import CapacityError, ConfigError, DataError
from bagpipe_hpc.planning.policies.fae import profile
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.fae.profile import (
    ProfileSettings,
    budget_of,
    find_hot_rows,
    hottest,
    make_profile,
    profile_path,
)
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policies.slipstream.policy import SlipstreamPolicy
from bagpipe_hpc.planning.policies.slipstream.settings import SlipstreamSettings
from bagpipe_hpc.planning.policy import TrainingRows
from bagpipe_hpc.storage.shards import counting
from bagpipe_hpc.storage.shards.hot_rows import HotRows, load_hot_rows
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from tests.ragged_shards import write_ragged

SAMPLES = 150


def rows_of_samples(directory: Path, manifest: ShardManifest) -> list[set[int]]:
    """The global rows of each training sample, look-up by look-up."""
    firsts = np.cumsum([0, *manifest.table_rows]).tolist()
    with ClickShards(directory, manifest, "train") as shards:
        bags = shards.read_look_ups(0, shards.rows)
    found: list[set[int]] = [set() for _ in range(bags.samples)]
    for sample, column, id_ in zip(bags.sample_of_value, bags.columns, bags.values, strict=True):
        found[sample].add(firsts[manifest.feature_tables[column]] + int(id_))
    return found


def hot_samples(found: HotRows) -> list[bool]:
    return found.are_hot(0, found.sample_count).tolist()


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ShardManifest]:
    """Bags of any size, empty ones among them, and a reader that reads few samples at once."""
    monkeypatch.setattr(profile, "_READ_SAMPLES", 24)
    manifest = write_ragged(tmp_path, samples=SAMPLES, test_samples=0)
    save_manifest(tmp_path, manifest)
    return tmp_path, manifest


def test_tables_beyond_this_hosts_memory_are_refused(
    shards: tuple[Path, ShardManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, manifest = shards
    monkeypatch.setattr(counting, "free_bytes", lambda: 18 * sum(manifest.table_rows) - 1)
    with pytest.raises(CapacityError, match=r"18 bytes a row.* use a host with more memory"):
        find_hot_rows(directory, manifest, ProfileSettings(7, 100.0))


@pytest.mark.parametrize("budget", [1, 7, 40])
def test_hot_samples_are_those_of_a_test_by_sets(shards: tuple[Path, ShardManifest], budget: int) -> None:
    directory, manifest = shards
    found = find_hot_rows(directory, manifest, ProfileSettings(budget, 100.0))
    with ClickShards(directory, manifest, "train") as reader:
        bags = reader.read_look_ups(0, SAMPLES)
    firsts = np.cumsum([0, *manifest.table_rows])[list(manifest.feature_tables)]
    counts = Counter((bags.values + firsts[bags.columns]).tolist())
    ranked = sorted(range(found.total_rows), key=lambda row: (-counts[row], row))
    assert found.rows.tolist() == sorted(ranked[:budget])
    hot = set(ranked[:budget])
    assert hot_samples(found) == [rows <= hot for rows in rows_of_samples(directory, manifest)]
    assert found.hot_samples == sum(hot_samples(found))
    assert (found.training_data, found.sample_count) == (manifest.digest("train"), SAMPLES)


def test_without_a_budget_samples_without_look_ups_alone_are_hot(shards: tuple[Path, ShardManifest]) -> None:
    found = find_hot_rows(*shards, ProfileSettings(0))
    assert found.rows.size == 0
    assert hot_samples(found) == [not rows for rows in rows_of_samples(*shards)]


def test_with_a_budget_without_an_end_everything_is_hot(shards: tuple[Path, ShardManifest]) -> None:
    found = find_hot_rows(*shards, ProfileSettings(10**12))
    assert found.rows.tolist() == list(range(found.total_rows))
    assert all(hot_samples(found))


def test_the_samples_that_count_are_drawn_by_the_seed(shards: tuple[Path, ShardManifest]) -> None:
    found = [find_hot_rows(*shards, ProfileSettings(9, percent, seed)) for percent, seed in ((30, 1), (30, 1), (30, 2))]
    assert found[0].rows.tolist() == found[1].rows.tolist()
    assert found[0].rows.tolist() != found[2].rows.tolist()


@pytest.mark.parametrize("budget", range(8))
def test_of_equal_counts_the_first_rows_are_hot(budget: int) -> None:
    counts = np.asarray([1, 5, 3, 3, 0, 3])
    ranked = [1, 2, 3, 5, 0, 4]
    assert hottest(counts, budget).tolist() == sorted(ranked[:budget])


def training_of(directory: Path, manifest: ShardManifest) -> TrainingRows:
    return TrainingRows(
        str(directory), manifest.digest("train"), batch_size=8, seed=3, sample_look_ups=4.1, row_bytes=20
    )


def test_a_profile_is_made_once_and_read_back(
    shards: tuple[Path, ShardManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, settings = training_of(*shards), FaeSettings(hot_rows=9, sample_percent=50.0)
    found = make_profile(settings, training)
    path = shards[0] / "hot_rows-9-50-3.h5"
    assert profile_path(settings, training) == path
    monkeypatch.setattr(profile, "find_hot_rows", lambda *_: pytest.fail("it is there"))
    for read in (make_profile(settings, training), load_hot_rows(path)):
        for name in vars(found):
            np.testing.assert_array_equal(getattr(read, name), getattr(found, name))
        assert read.are_hot(3, 21).tolist() == hot_samples(found)[3:21]


@pytest.mark.parametrize(
    ("policy", "settings"), [(FaePolicy, FaeSettings(hot_rows=9)), (SlipstreamPolicy, SlipstreamSettings(hot_rows=9))]
)
def test_a_run_makes_the_profile_before_it_reads_it(
    shards: tuple[Path, ShardManifest], policy: type[FaePolicy], settings: FaeSettings
) -> None:
    training = training_of(*shards)
    policy.prepare(settings, training)
    assert load_hot_rows(profile_path(settings, training)).budget_rows == 9


def test_without_training_rows_there_is_nothing_to_profile(tmp_path: Path) -> None:
    manifest = write_ragged(tmp_path, samples=0)
    with pytest.raises(ConfigError, match="has no training rows to profile"):
        find_hot_rows(tmp_path, manifest, ProfileSettings(9))


def test_a_profile_for_which_the_disk_has_no_room_is_refused(
    shards: tuple[Path, ShardManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(HotRows, "save", full)
    with pytest.raises(SettingError, match=r"policy\.profile = '': .*hot_rows-9-5-3\.h5 cannot be written: .*No space"):
        make_profile(FaeSettings(hot_rows=9), training_of(*shards))


@pytest.mark.parametrize(("name", "told"), [("/none/mine.h5", "'/none/mine.h5'"), ("a\0b", r"'a\x00b'")])
def test_a_profile_that_cannot_be_written_is_refused(
    name: str, told: str, shards: tuple[Path, ShardManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is counted."""
    monkeypatch.setattr(profile, "find_hot_rows", lambda *_: pytest.fail("it has nowhere to go"))
    refused = rf"policy\.profile = {re.escape(told)}: .* cannot be written; name a file elsewhere, by"
    with pytest.raises(SettingError, match=refused):
        make_profile(FaeSettings(profile=name, hot_rows=9), training_of(*shards))


@pytest.mark.parametrize("lacking", [os.W_OK, os.X_OK])
def test_a_folder_without_the_right_to_write_is_refused_before_rows_are_counted(
    lacking: int, shards: tuple[Path, ShardManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _, wanted: not wanted & lacking)
    monkeypatch.setattr(profile, "find_hot_rows", lambda *_: pytest.fail("it has nowhere to go"))
    with pytest.raises(SettingError, match="cannot be written; name a file elsewhere"):
        make_profile(FaeSettings(hot_rows=9), training_of(*shards))


def test_the_budget_is_what_the_cache_has_room_for(shards: tuple[Path, ShardManifest]) -> None:
    """A batch of 8 samples has 33 look-ups at most."""
    training = training_of(*shards)
    assert budget_of(FaeSettings(hot_rows=9), training) == 9
    for cache_rows, budget in ((0, (256 << 20) // 20), (20, 10), (66, 33), (100, 67)):
        assert budget_of(FaeSettings(), replace(training, cache_rows=cache_rows)) == budget


def test_the_command_makes_what_a_run_looks_for(
    shards: tuple[Path, ShardManifest], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = shards
    config = directory / "config.toml"
    config.write_text(f'[data]\npath = "{directory}"\n', encoding="utf-8")
    fae = ["profile", str(config), "policy.name=fae", "policy.hot_rows=12"]
    for _ in range(2):
        assert main(fae) == 0
        assert f"{directory / 'hot_rows-12-5-1.h5'}: 12 of " in capsys.readouterr().out
    assert main(fae[:2]) == 2
    assert "has no hot rows to profile; use policy.name=fae" in capsys.readouterr().err
    assert main([*fae, "data.path="]) == 2
    assert "data.path is empty" in capsys.readouterr().err


def broken_files(path: Path) -> dict[str, Path]:
    """Files that are no profile, by what is wrong with them."""

    def changed(name: str, change) -> Path:  # type: ignore[no-untyped-def]
        other = path.with_name(f"{name}.h5")
        other.write_bytes(path.read_bytes())
        with h5py.File(other, "r+") as file:
            change(file)
        return other

    def replaced(dataset: str, values: np.ndarray, **options: object):  # type: ignore[no-untyped-def]
        def change(file: h5py.File) -> None:
            del file[dataset]
            file.create_dataset(dataset, data=values, **options)

        return change

    text = path.with_name("text.h5")
    text.write_text("no HDF5", encoding="utf-8")
    return {
        "cannot be read": text,
        "format = ": changed("format", lambda file: file.attrs.modify("format", 9)),
        r"format = array\(\[1, 1\]\)": changed("formats", lambda file: file.attrs.create("format", [1, 1])),
        "training_data = None": changed("data", lambda file: file.attrs.__delitem__("training_data")),
        r"training_data = np.int64\(3\)": changed("number", lambda file: file.attrs.create("training_data", 3)),
        "seed = None": changed("seed", lambda file: file.attrs.__delitem__("seed")),
        "do not ascend": changed("ascend", replaced("rows", np.asarray([3, 2]))),
        "ascend from 0 to below": changed("beyond", replaced("rows", np.asarray([1 << 40]))),
        "not stored": changed("kind", replaced("rows", np.zeros(3, dtype=np.int32))),
        "are not stored in it": changed("packed", replaced("samples", np.zeros(19, np.uint8), compression="gzip")),
        "bytes of bits": changed("short", replaced("samples", np.zeros(3, dtype=np.uint8))),
        "samples are hot": changed("bits", replaced("samples", np.full(19, 255, dtype=np.uint8))),
    }


def test_a_damaged_profile_is_refused(shards: tuple[Path, ShardManifest]) -> None:
    settings, training = FaeSettings(hot_rows=9), training_of(*shards)
    make_profile(settings, training)
    path = profile_path(settings, training)
    for what, broken in broken_files(path).items():
        with pytest.raises(DataError, match=what):
            load_hot_rows(broken)

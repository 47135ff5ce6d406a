"""Descriptions name what is there, say what is damaged, and refuse what is neither shards nor a checkpoint."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.errors import BagpipeError, CheckpointError, DataError
from bagpipe_hpc.evaluation.standing import Standing
from bagpipe_hpc.storage.checkpoints.best import Best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import FeatureInfo, InputInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest, save_manifest
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from bagpipe_hpc.storage.vocabularies.vocabulary import VOCABULARIES_NAME, TableUse, write_vocabularies
from bagpipe_hpc.tools.inspection.describe import describe
from bagpipe_hpc.tools.text_table import aligned, flattened, size_text
from tests.ragged_shards import FEATURES, draw_samples, write_ragged
from tests.unit.checkpoint_samples import sample_records, sample_tables, write_checkpoint, write_tables

TABLES = (5, 3)


def facts(text: str) -> dict[str, str]:
    """Lines of two columns or more: the first and the rest."""
    return {
        name: " ".join(rest.split()) for name, _, rest in (line.strip().partition("  ") for line in text.splitlines())
    }


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    directory = tmp_path / "shards"
    directory.mkdir()

    def shard(name: str, rows: int) -> object:
        dense, sparse = np.zeros((rows, 4), np.float32), np.zeros((rows, 2), np.int32)
        return write_shard(
            directory / name, rows, [Samples(dense, sparse, (np.arange(rows) % 4 == 0).astype(np.uint8))]
        )

    manifest = ShardManifest(
        schema_version=1,
        source_format="criteo",
        dense_features=4,
        tables=(TableInfo("C1", 5), TableInfo("C2", 300)),
        train=(shard("train-00000.h5", 100), shard("train-00001.h5", 20)),  # type: ignore[arg-type]
        test=(shard("test-00000.h5", 8),),  # type: ignore[arg-type]
        inputs=(InputInfo("day_0.gz", 10, 0),),
        settings={"min_count": 2, "hash": {"seed": 3}},
        skipped_rows=tuple(f"day_0.gz:{line}: \x1b[31m3 columns" for line in range(12)),
    )
    save_manifest(directory, manifest)
    return directory


def test_features_labels_and_weights_are_described(tmp_path: Path) -> None:
    features = (*FEATURES, FeatureInfo("never", "item", ragged=True, longest=0))
    write_ragged(tmp_path, samples=70, features=features, labels=("click", "buy"), weighted_samples=True)
    whole = draw_samples(1, 90, features=features, labels=2, weighted_samples=True)
    found = facts(describe(tmp_path).text)
    click, buy = whole.label.mean(axis=0)
    assert found["label rate"] == f"{click:.6f} click, {buy:.6f} buy"
    assert found["weights of samples"] == "one each"
    assert found["feature"] == "table ids a row at most weights of ids"
    assert found["history"] == f"item {len(whole.ragged['history'].values) / 90:.2f} 6 none"
    assert found["genres"] == f"genre {len(whole.ragged['genres'].values) / 90:.2f} 4 one each"
    assert found["never"] == "item 0.00 0 none"
    assert found["item"] == "item 1 1 none"


def test_shards_are_described(shards: Path) -> None:
    text = describe(shards).text
    found = facts(text)
    assert found["source format"] == "criteo"
    assert (found["train rows"], found["test rows"]) == ("120", "8")
    assert found["label rate"] == "0.250000"
    assert found["embedding tables"] == "2 of 305 rows"
    assert found["files"].startswith("present")
    assert found["vocabularies"].startswith("none")
    assert found["counts of ids"] == "none"
    assert found["hash.seed"] == "3"
    assert facts(text)["C2"] == "300"
    assert "train-00001.h5" in text
    assert r"day_0.gz:9: \x1b[31m3 columns" in text
    assert text.endswith("and 2 more, in manifest.json")
    assert facts(describe(shards, verify=True).text)["files"] == "as written"


def test_it_says_which_tables_have_counts_of_ids(shards: Path) -> None:
    manifest = load_manifest(shards)
    uses = [(table.name, TableUse(np.zeros(table.rows, dtype=np.int64))) for table in manifest.tables]
    for kept, text in ((uses, "all tables"), (uses[:1], "1 of 2 tables"), ([], "none")):
        save_manifest(shards, replace(manifest, vocabularies=write_vocabularies(shards, {}, 0, kept)))
        assert facts(describe(shards).text)["counts of ids"] == text
    (shards / VOCABULARIES_NAME).unlink()
    assert facts(describe(shards).text)["counts of ids"] == "cannot be read"


def test_damaged_shards_are_described_as_such(shards: Path) -> None:
    assert describe(shards, verify=True).faults == ()
    (shards / "train-00001.h5").unlink()
    (shards / "test-00000.h5").write_bytes((shards / "test-00000.h5").read_bytes()[:-1])
    found = describe(shards)
    assert "train-00001.h5" in facts(found.text)["files"]
    assert facts(found.text)["files"].startswith("damaged or absent: 2: ")
    assert [fault.partition(": ")[0] for fault in found.faults] == [
        str(shards / name) for name in ("train-00001.h5", "test-00000.h5")
    ]


def test_a_checkpoint_is_described(tmp_path: Path) -> None:
    records = np.zeros((8, 5), np.float32)
    records[5:, :4] = 3
    records[6, 1] = -5
    records[7, 0] = np.nan
    path = write_checkpoint(tmp_path, records, TABLES, servers=2)
    text = describe(path).text
    found = facts(text)
    assert found["step"] == "100"
    assert found["next batch"] == "20 of epoch 1, both from 0"
    assert found["embedding tables"] == "2 of 8 rows, 4 wide"
    assert found["row optimizer"] == "rowwise_adagrad, sum_of_mean_squares (one a row)"
    assert found["files"] == "none of 3 damaged or absent (sizes only checked)"
    assert found["train.seed"] == "7"
    assert found["trainers"] == "2 of 1 thread, linear layers by torch on cpu"
    assert text.count("size as written") == 3
    assert (found["0.weight"], found["2.bias"]) == ("[4, 3]", "[1]")
    assert found["training rows"] == f"2560, digest {'1' * 64}"
    assert found["vocabularies"] == "not recorded"

    verified = describe(path, verify=True).text
    assert facts(verified)["files"] == "none of 3 damaged or absent (contents checked)"
    tables = [line.split() for line in verified.splitlines() if line.split()[:1] in (["C1"], ["C2"])]
    mean_square = (10 * 9 + 25) / 11
    assert tables == [["C1", "5", "0", "0", "0"], ["C2", "3", f"{mean_square**0.5:.6g}", "5", "1"]]


def test_earlier_rows_and_the_vocabulary_are_described(tmp_path: Path) -> None:
    facts_of_it = {"data_step": 60, "epoch": 0, "epoch_step": 40, "vocabularies": "a" * 64}
    found = facts(describe(write_checkpoint(tmp_path, np.zeros((8, 5), np.float32), TABLES, **facts_of_it)).text)
    assert found["training rows"] == f"2560, digest {'1' * 64}, since step 60"
    assert found["vocabularies"] == f"digest {'a' * 64}"


def test_a_checkpoint_of_several_widths_is_described(tmp_path: Path) -> None:
    tables = [np.zeros_like(table) for table in sample_tables((5, 3, 7), (4, 2, 4))]
    tables[1][2, 1], tables[1][2, 2] = -5, 99  # the second is state
    tables[2][6, 3], tables[2][0, 0] = 7, np.nan
    path = write_tables(tmp_path, tables)
    text = describe(path).text
    assert facts(text)["embedding tables"] == "3 of 15 rows, 2 to 4 wide"
    assert facts(text)["files"] == "none of 5 damaged or absent (sizes only checked)"
    widths = [line.split() for line in text.splitlines() if line.split()[:1] in (["table"], ["C1"], ["C2"], ["C3"])]
    assert widths == [["table", "rows", "width"], ["C1", "5", "4"], ["C2", "3", "2"], ["C3", "7", "4"]]
    verified = [line.split() for line in describe(path, verify=True).text.splitlines()]
    (first,) = (line for line in verified if line[:1] == ["C1"])
    (second,) = (line for line in verified if line[:1] == ["C2"])
    (third,) = (line for line in verified if line[:1] == ["C3"])
    assert first == ["C1", "5", "4", "0", "0", "0"]
    assert second == ["C2", "3", "2", f"{(25 / 6) ** 0.5:.6g}", "5", "0"]
    assert third == ["C3", "7", "4", f"{(49 / 27) ** 0.5:.6g}", "7", "1"]


def test_the_width_of_all_tables_may_be_another_than_the_model_s(tmp_path: Path) -> None:
    path = write_tables(tmp_path, sample_tables((5, 3), (4, 4)), embedding_dim=8, row_state_columns=9)
    text = describe(path, verify=True).text
    assert facts(text)["embedding tables"] == "2 of 8 rows, 4 wide"
    assert not any(line.split()[2:3] == ["width"] for line in text.splitlines())


def test_a_damaged_checkpoint_is_described_as_such(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, servers=2)
    contents = bytearray((path / "rows-00001-of-00002.h5").read_bytes())
    contents[-1] ^= 1
    (path / "rows-00001-of-00002.h5").write_bytes(contents)
    assert facts(describe(path).text)["files"].startswith("none of 3")
    assert describe(path).faults == ()
    found = describe(path, verify=True)
    assert facts(found.text)["files"].startswith("1 of 3 damaged")
    assert [fault.partition(": ")[0] for fault in found.faults] == [str(path / "rows-00001-of-00002.h5")]
    (path / "dense.h5").unlink()
    assert "is absent" in describe(path).text
    assert len(describe(path, verify=True).faults) == 2


def test_an_increment_is_described_with_what_it_builds_on(tmp_path: Path) -> None:
    records = sample_records(TABLES, 5)
    full = write_checkpoint(tmp_path, records, TABLES, step=10)
    path = write_checkpoint(tmp_path, records, TABLES, step=20, base=full, updated=np.array([3]))
    text = describe(path, verify=True).text
    assert "those updated since step 10; the others are in the checkpoints before" in text
    assert "none of 3 damaged or absent (contents checked)" in text
    assert "step-00000010/rows-00000-of-00001.h5" in text
    shutil.rmtree(full)
    found = describe(path, verify=True)
    assert len(found.faults) == 1
    text = found.text
    assert "1 of 1 damaged or absent" in text
    assert "step-00000010, which is absent" in text


def test_an_output_folder_shows_its_newest_checkpoint(tmp_path: Path) -> None:
    for step in (7, 20):
        write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=step)
    (tmp_path / "checkpoints" / "step-00000030.partial").mkdir()
    text = describe(tmp_path).text
    assert "complete checkpoints of steps 7, 20; the newest:" in text
    assert facts(text)["step"] == "20"
    assert facts(text)["evaluations before"] == "none"
    write_best(tmp_path / "checkpoints", Best(7, "auc", 0.75, 100))
    best = "complete checkpoints of steps 7, 20; the best is that of step 7 (auc 0.75000 on 100 test rows); the newest:"
    assert best in describe(tmp_path).text


def test_a_checkpoint_says_which_evaluation_before_it_was_the_best(tmp_path: Path) -> None:
    standing = Standing("log_loss", 9, 40, 0.5, 0.5, 2)
    directory = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, standing=standing)
    told = "the best after step 40, log_loss 0.50000; 2 since the last that was better by train.stop_min_delta"
    assert facts(describe(directory).text)["evaluations before"] == told


def test_what_is_neither_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(BagpipeError, match="name a folder that bagpipe prepare has written, a run's output folder"):
            describe(path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        describe(tmp_path)
    (tmp_path / "step-00000003").mkdir()
    with pytest.raises(CheckpointError, match="is absent"):
        describe(tmp_path / "step-00000003")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "preparation.json").touch()
    with pytest.raises(DataError, match="not finished"):
        describe(tmp_path / "shards")


def test_an_exported_model_is_not_taken_for_damaged_shards(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "bagpipe-export", "version": 1}', encoding="utf-8")
    with pytest.raises(BagpipeError, match=r"is an exported model, which its README\.md describes"):
        describe(tmp_path)


def test_hostile_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES)
    manifest = replace(
        load_checkpoint(path).manifest, row_optimizer="sgd\x1b[2J\nstep  9", config={"a\x07": {"b": "\x1b"}}
    )
    (path / "manifest.json").write_text(manifest.to_json())
    text = describe(path).text
    assert r"sgd\x1b[2J\nstep  9" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_text_helpers() -> None:
    assert aligned([("a", "10"), ("long", "5")], right=(1,)) == ["a     10", "long   5"]
    sizes = [size_text(size) for size in (0, 1023, 1024, 1536 << 20, 1 << 70)]
    assert sizes == ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 GiB", "1048576.0 PiB"]
    assert flattened({"a": {"b": 1, "c": {}}, "d": [2]}) == [("a.b", "1"), ("a.c", "{}"), ("d", "[2]")]

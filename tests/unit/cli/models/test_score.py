"""`bagpipe evaluate` and `predict` refuse what is wrong with one message, exit code 2, and nothing left behind."""

import gzip
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc import launch
from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.mpi.start import running
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

CONFIG = """
[model]
embedding_dim = 4
bottom_mlp = [6]
top_mlp = [6]
[train]
batch_size = 50
[kernels]
linear = "torch"
"""


@dataclass(frozen=True)
class Place:
    """A folder with `run`, which was trained on `data`, and `rows.tsv`, raw rows."""

    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def checkpoint(self) -> Path:
        return load_checkpoint(self.run).directory

    def rows(self, change: Callable[[list[str]], list[str]]) -> Path:
        """A file with other rows."""
        path = self.folder / "changed.tsv"
        lines = (self.folder / "rows.tsv").read_text().splitlines()
        path.write_text("\n".join(change(lines)) + "\n")
        return path

    def with_field(self, row: int, field: int, text: str) -> Path:
        """A file in which a field of a row, both from 1, has another text."""

        def change(lines: list[str]) -> list[str]:
            fields = lines[row - 1].split("\t")
            fields[field - 1] = text
            lines[row - 1] = "\t".join(fields)
            return lines

        return self.rows(change)

    def edit(self, path: Path, change: Callable[[Any], None]) -> None:
        """Change a file of JSON."""
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))


@contextmanager
def without_logs() -> Iterator[None]:
    """What commands log to in the body is closed behind it."""
    logger = logging.getLogger("bagpipe_hpc")
    handlers, level, propagates = logger.handlers[:], logger.level, logger.propagate
    yield
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:], logger.level, logger.propagate = handlers, level, propagates


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As one process, without MPI, which could be started once in this one; and without its logs afterwards."""
    monkeypatch.setattr(running, "mpi_running", lambda *_: nullcontext())
    monkeypatch.setattr(launch, "world_size", lambda: 1)
    with without_logs():
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    generate_clicks(260, folder / "clicks.tsv", seed=3)
    prepare_clicks([str(folder / "clicks.tsv")], folder / "data", PrepareSettings(test_fraction=0.2), lambda _: None)
    lines = (folder / "clicks.tsv").read_text().splitlines()
    (folder / "rows.tsv").write_text("\n".join(lines[-40:]) + "\n")
    (folder / "run.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as monkeypatch, without_logs():
        monkeypatch.setattr(running, "mpi_running", lambda *_: nullcontext())
        monkeypatch.setattr(launch, "world_size", lambda: 1)
        given = [f"data.path={folder / 'data'}", f"train.output={folder / 'run'}"]
        assert main(["train", str(folder / "run.toml"), *given]) == 0
    return folder


@pytest.fixture
def place(original: Path, tmp_path: Path) -> Place:
    """A copy, so that tests may break it; the checkpoint names the data of the original."""
    folder = tmp_path / "place"
    shutil.copytree(original, folder)
    return Place(folder)


def tree(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def require_refused(place: Place, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(place.folder)
    capsys.readouterr()
    try:
        code = main(arguments)
    except SystemExit as usage_error:
        code = int(usage_error.code or 0)
    said = capsys.readouterr()
    assert code == 2, said
    errors = [line for line in said.err.splitlines() if "error: " in line]
    assert len(errors) == 1, said.err
    assert re.search(reason, errors[0]), errors[0]
    assert "Traceback" not in said.err
    assert said.out == ""
    assert tree(place.folder) == before


def damage(path: Path) -> None:
    """Another byte in the midst of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def other_data(place: Place) -> Path:
    """Data with tables of other sizes."""
    generate_clicks(260, place.folder / "other.tsv", seed=4)
    prepare_clicks([str(place.folder / "other.tsv")], place.folder / "other", PrepareSettings(), lambda _: None)
    return place.folder / "other"


def other_vocabulary(place: Place, **fields: Any) -> Path:
    """Data whose tables have the same sizes, and other values."""
    damage(place.data / "vocabularies.h5")
    place.edit(place.data / "manifest.json", lambda manifest: manifest["vocabularies"].update(sha256="0" * 64))
    place.edit(place.data / "manifest.json", lambda manifest: manifest.update(fields))
    return place.data


def no_checkpoint(place: Place) -> Path:
    shutil.rmtree(place.run / "checkpoints")
    (place.run / "checkpoints").mkdir()
    return place.run


def best(place: Place, text: str) -> Path:
    (place.run / "checkpoints" / "best.json").write_text(text)
    return place.run


def edited_manifest(place: Place, change: Callable[[Any], None]) -> Path:
    place.edit(place.checkpoint / "manifest.json", change)
    return place.run


def broken(place: Place, name: str, how: Callable[[Path], None]) -> Path:
    how(place.checkpoint / name)
    return place.run


def written(path: Path, text: str = "text") -> Path:
    path.write_text(text)
    return path


EVALUATE: dict[str, tuple[Callable[[Place], list[Any]], str]] = {
    "no such checkpoint": (lambda p: [p.folder / "absent"], "absent: is absent; name a checkpoint"),
    "a file": (lambda p: [p.folder / "rows.tsv"], r"rows\.tsv"),
    "a folder without one": (lambda p: [p.data.parent], r"manifest\.json: is absent"),
    "shards": (lambda p: [p.data], r"manifest\.json: format"),
    "a run before its first one": (lambda p: [no_checkpoint(p)], "holds no complete checkpoint"),
    "no best one": (lambda p: [p.run, "--best"], r"best\.json: is absent.*train\.keep_best=true"),
    "a best one that is gone": (
        lambda p: [best(p, '{"step": 77, "measure": "auc", "value": 0.5, "samples": 9}'), "--best"],
        r"step-00000077.manifest\.json: is absent",
    ),
    "a best one that is none": (lambda p: [best(p, "{"), "--best"], r"best\.json"),
    "a manifest that is no JSON": (
        lambda p: [written(p.checkpoint / "manifest.json", "{").parent],
        r"manifest\.json: is no JSON",
    ),
    "another version": (lambda p: [edited_manifest(p, lambda m: m.update(version=99))], "version is 99"),
    "settings that are none": (
        lambda p: [edited_manifest(p, lambda m: m["config"]["model"].update(top_mlp="wide"))],
        r"manifest\.json: model\.top_mlp = 'wide'",
    ),
    "another model": (
        lambda p: [edited_manifest(p, lambda m: m["config"]["model"].update(top_mlp=[3]))],
        r"its dense half does not fit.*instead of",
    ),
    "no dense half": (lambda p: [broken(p, "dense.h5", Path.unlink)], r"dense\.h5: is absent"),
    "a row file that was cut": (lambda p: [broken(p, "rows-00000-of-00001.h5", cut)], r"rows-.* has \d+ bytes"),
    "a damaged row file": (lambda p: [broken(p, "rows-00000-of-00001.h5", damage)], r"rows-.* its SHA-256 is"),
    "another model by an override": (lambda p: [p.run, "model.embedding_dim=8"], "is the checkpoint's"),
    "a setting of training": (lambda p: [p.run, "train.epochs=2"], "is for training"),
    "a mistyped setting": (lambda p: [p.run, "kernels.liner=torch"], r"did you mean kernels\.linear"),
    "a setting without a value": (lambda p: [p.run, "kernels.linear"], "has no value"),
    "a value that is none": (lambda p: [p.run, "kernels.linear=fast"], "use one of"),
    "more threads than cores": (lambda p: [p.run, "train.threads=1024"], r"train\.threads = 1024"),
    "no such feature": (lambda p: [p.run, "train.auc_group=C99"], "names no feature"),
    "a timeline of one process": (lambda p: [p.run, "train.trace=there"], "has no roles to draw"),
    "no such data": (lambda p: [p.run, "--data", p.folder / "absent"], r"absent: no manifest\.json"),
    "data that is not prepared": (lambda p: [p.run, "--data", p.run], r"run: no manifest\.json"),
    "data with other tables": (lambda p: [p.run, "--data", other_data(p)], r"with other ids.*rows of table C\d+ then"),
    "data with another vocabulary": (
        lambda p: [p.run, "--data", other_vocabulary(p), "data.verify=quick"],
        "with other ids.*vocabularies .* then, 000000000000 now",
    ),
    "data of which a shard is damaged": (
        lambda p: [p.run, "--data", damage(p.data / "test-00000.h5") or p.data],
        r"test-00000\.h5: its SHA-256",
    ),
    "data without such rows": (
        lambda p: [p.run, "--data", later(p), "--split", "train"],
        r"has no train rows.*--split test",
    ),
    "no such split": (lambda p: [p.run, "--split", "later"], "invalid choice"),
    "a damaged checkpoint, and a result to be saved": (
        lambda p: [broken(p, "dense.h5", damage), "--save", p.folder / "found.jsonl"],
        r"dense\.h5: its SHA-256",
    ),
    "a result that cannot be saved": (lambda p: [p.run, "--save", p.data], r"data: Is a directory"),
    "logs that cannot be written": (
        lambda p: [p.run, "--logs", p.folder / "rows.tsv"],
        r"--logs.*rows\.tsv' cannot be written",
    ),
}
"""What is wrong, the arguments, and what the message says."""


def later(place: Place) -> Path:
    """Rows that were prepared like the data, all of them for tests."""
    settings = PrepareSettings(like=place.data)
    prepare_clicks([str(place.folder / "rows.tsv")], place.folder / "later", settings, lambda _: None)
    return place.folder / "later"


@pytest.mark.parametrize("what", EVALUATE)
def test_an_evaluation_is_refused(what: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    make, reason = EVALUATE[what]
    require_refused(place, ["evaluate", *map(str, make(place))], reason, capsys)


def predicting(place: Place, source: Path | str = "", output: str = "found.csv", *more: Any) -> list[Any]:
    return [place.run, "--input", source or place.folder / "rows.tsv", "--output", place.folder / output, *more]


def old_data(place: Place) -> Path:
    """Data that does not say how it was prepared."""
    place.edit(place.data / "manifest.json", lambda manifest: manifest.update(settings={}))
    return place.data


def zipped(place: Place, end: int | None) -> Path:
    """The rows in gzip, without the last bytes."""
    path = place.folder / "rows.tsv.gz"
    path.write_bytes(gzip.compress((place.folder / "rows.tsv").read_bytes())[:end])
    return path


def closed(place: Place) -> str:
    """A file in a folder that is a file."""
    return str(place.folder / "rows.tsv" / "found.csv")


PREDICT: dict[str, tuple[Callable[[Place], list[Any]], str]] = {
    "no such checkpoint": (
        lambda p: [p.folder / "absent", *predicting(p)[1:]],
        "absent: is absent; name a checkpoint",
    ),
    "an output that is there": (lambda p: predicting(p, "", written(p.folder / "found.csv").name), "is there already"),
    "an output without a format": (lambda p: predicting(p, "", "found"), r"ends in \.csv, \.tsv, \.parquet"),
    "an output of another format": (lambda p: predicting(p, "", "found.json"), "which says the format"),
    "an output in no folder": (lambda p: predicting(p, "", "absent/found.csv"), "is no folder"),
    "an output in a file": (lambda p: predicting(p, "", closed(p)), "Not a directory"),
    "no such input": (lambda p: predicting(p, p.folder / "absent.tsv"), r"absent\.tsv: no such input file"),
    "a pattern that matches nothing": (lambda p: predicting(p, f"{p.folder}/day_*"), "no such input file"),
    "a folder as input": (lambda p: predicting(p, p.data), "data"),
    "a pipe as input": (lambda p: predicting(p, "-"), "inputs are files"),
    "an empty input": (lambda p: predicting(p, written(p.folder / "empty.tsv", "")), r"empty\.tsv"),
    "an input that is named twice": (
        lambda p: predicting(p, "", "found.csv", "--input", p.folder / "rows.tsv"),
        "named twice",
    ),
    "an archive": (lambda p: predicting(p, written(p.folder / "rows.zip", "PK\x03\x04")), "a zip archive"),
    "a gzip file that was cut": (lambda p: predicting(p, zipped(p, -9)), r"rows\.tsv\.gz"),
    "rows of another format": (
        lambda p: predicting(p, written(p.folder / "rows.csv", "a,b\n1,2\n")),
        r"rows\.csv: the first row has 1",
    ),
    "a row with a field too many": (
        lambda p: predicting(p, p.rows(lambda lines: [*lines[:6], f"{lines[6]}\t1", *lines[7:]])),
        r"changed\.tsv:7: ",
    ),
    "a row that was cut": (
        lambda p: predicting(p, p.rows(lambda lines: [*lines[:3], lines[3][:30], *lines[4:]])),
        r"changed\.tsv:4: ",
    ),
    "a number that is none": (lambda p: predicting(p, p.with_field(12, 3, "many")), r"changed\.tsv:12: .*many"),
    "a category that is none": (lambda p: predicting(p, p.with_field(40, 20, "zebra")), r"changed\.tsv:40: .*zebra"),
    "no such data": (lambda p: predicting(p, "", "found.csv", "--data", p.folder / "absent"), r"no manifest\.json"),
    "data with other tables": (
        lambda p: predicting(p, "", "found.csv", "--data", other_data(p)),
        r"with other ids.*rows of table C\d+ then",
    ),
    "data with another vocabulary": (
        lambda p: predicting(p, "", "found.csv", "--data", other_vocabulary(p)),
        "with other ids.*vocabularies .* then, 000000000000 now",
    ),
    "data without its vocabularies": (
        lambda p: predicting(p, "", "found.csv", "--data", (p.data / "vocabularies.h5").unlink() or p.data),
        r"vocabularies\.h5: the file of vocabularies is missing",
    ),
    "data with damaged vocabularies": (
        lambda p: predicting(p, "", "found.csv", "--data", damage(p.data / "vocabularies.h5") or p.data),
        r"vocabularies\.h5: its SHA-256",
    ),
    "data that does not say how it was prepared": (
        lambda p: predicting(p, "", "found.csv", "--data", old_data(p)),
        "does not say how the rows were prepared",
    ),
    "another model by an override": (lambda p: predicting(p, "", "found.csv", "train.seed=2"), "is the checkpoint's"),
    "a damaged checkpoint": (
        lambda p: [broken(p, "rows-00000-of-00001.h5", damage), *predicting(p)[1:]],
        "its SHA-256",
    ),
    "no input": (lambda p: [p.run, "--output", p.folder / "found.csv"], "required: --input"),
}


@pytest.mark.parametrize("what", PREDICT)
def test_a_prediction_is_refused(what: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    make, reason = PREDICT[what]
    require_refused(place, ["predict", *map(str, make(place))], reason, capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (closed := place.folder / "closed").mkdir(mode=0o500)
    require_refused(place, ["predict", *map(str, predicting(place, "", "closed/found.csv"))], str(closed), capsys)


def test_what_may_change_the_last_digits_is_said(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    save = place.folder / "found.jsonl"
    place.edit(place.checkpoint / "manifest.json", lambda manifest: manifest["arithmetic"].update(linear="onednn"))
    assert main(["evaluate", str(place.run), "--save", str(save)]) == 0
    said = capsys.readouterr()
    change = "library for linear layers (kernels.linear): onednn -> torch (results differ in the last bits)"
    assert f"computed with another {change}" in said.err
    assert json.loads(save.read_text())["changes"] == [change]
    assert said.out.splitlines()[-1] == save.read_text().strip()


def test_predictions_do_without_shards(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The vocabularies and the manifest of the data are enough; values that it has not seen are no matter."""
    for shard in place.data.glob("t*.h5"):
        shard.unlink()
    new = place.with_field(2, 20, "0badcafe")
    arguments = [*predicting(place, new, "found.tsv"), "--data", place.data, "--logits"]
    assert main(["predict", *map(str, arguments)]) == 0
    assert capsys.readouterr().out == f"{place.folder / 'found.tsv'}: 40 rows of probability, logit\n"
    header, *rows = (place.folder / "found.tsv").read_text().splitlines()
    assert header == "probability\tlogit"
    assert len(rows) == 40
    assert not list(place.folder.glob(".*"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_no_rows_have_no_predictions(suffix: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    found, blank = place.folder / f"found{suffix}", written(place.folder / "blank.tsv", "\n\n")
    assert main(["predict", *map(str, predicting(place, blank, found.name, "--logits"))]) == 0
    said = capsys.readouterr()
    assert said.out == f"{found}: 0 rows of probability, logit\n"
    assert "there is no row to predict" in said.err
    if suffix == ".parquet":
        table = pa_parquet.read_table(found)
        assert (table.num_rows, table.column_names) == (0, ["probability", "logit"])
    else:
        assert found.read_text() == f"probability{',' if suffix == '.csv' else chr(9)}logit\n"
    assert not list(place.folder.glob(".*"))


def test_what_a_killed_prediction_left_is_removed(place: Place) -> None:
    (left := place.folder / ".found.csv.0123abcd.partial").mkdir()
    dead = {"host": "elsewhere", "process": 7, "started": 7, "job": "", "restarts": 0}
    lock = written(left / "run.lock", json.dumps(dead))
    assert main(["predict", *map(str, predicting(place))]) == 0
    assert left.exists()
    os.utime(lock, (1, 1))
    (place.folder / "found.csv").unlink()
    assert main(["predict", *map(str, predicting(place))]) == 0
    assert not list(place.folder.glob(".*"))


def test_files_come_one_after_the_other(place: Place) -> None:
    """Empty lines are no rows, as in every preparation."""
    lines = (place.folder / "rows.tsv").read_text().splitlines()
    parts = [
        written(place.folder / name, "\n".join(part) + "\n") for name, part in (("b", lines[:7]), ("a", lines[7:]))
    ]
    parts[0].write_text("\n" + parts[0].read_text() + "\n")
    assert main(["predict", *map(str, predicting(place))]) == 0
    assert main(["predict", *map(str, predicting(place, parts[0], "parts.csv", "--input", parts[1]))]) == 0
    assert (place.folder / "parts.csv").read_bytes() == (place.folder / "found.csv").read_bytes()


def test_without_data_the_rows_must_be_those_of_the_training(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another folder of that name, seen from elsewhere, may hold other rows of the same ids."""
    document = json.loads((place.checkpoint / "manifest.json").read_text())
    document["config"]["data"]["path"] = "data"
    (place.checkpoint / "manifest.json").write_text(json.dumps(document))
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    cure = "as seen from where that was started; --data names another"
    require_refused(place, ["evaluate", str(place.run)], rf"no manifest\.json here.*{cure}", capsys)
    require_refused(place, ["predict", *map(str, predicting(place))], rf"no manifest\.json here.*{cure}", capsys)
    later = PrepareSettings(like=place.data)
    prepare_clicks([str(place.folder / "rows.tsv")], elsewhere / "data", later, lambda _: None)
    require_refused(place, ["evaluate", str(place.run)], rf"data: holds other test rows than those.*{cure}", capsys)
    assert main(["evaluate", str(place.run), "--data", "data"]) == 0
    monkeypatch.chdir(place.folder)
    assert main(["evaluate", str(place.run)]) == 0

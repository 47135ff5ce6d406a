"""What can be wrong with files and arguments: one clear line each, and nothing is left behind."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.cli.commands import main

SCHEMA = """
[columns]
click = { kind = "label" }
price = { kind = "numeric" }
item = { kind = "categorical" }
tags = { kind = "multi_hot", values = "integer" }
"""
ROWS = b"click,price,item,tags\n0,1.5,a,1|2\n1,,b,\n0,2,a,3\n"

Spoil = Callable[[Path], object]


def text(content: bytes) -> Spoil:
    return lambda folder: (folder / "clicks").write_bytes(content)


def schema(content: str) -> Spoil:
    return lambda folder: (folder / "my.toml").write_text(content)


def parquet(**columns: pa.Array) -> Spoil:
    good = {"click": [0, 1], "price": [1.0, 2.0], "item": ["a", "b"], "tags": [[1], [2]]}
    return lambda folder: pa_parquet.write_table(pa.table(good | columns), folder / "clicks")


PREPARE: dict[str, tuple[Spoil, str]] = {
    "no schema file": (lambda folder: (folder / "my.toml").unlink(), "my.toml: cannot be read"),
    "a folder as schema": (lambda folder: ((folder / "my.toml").unlink(), (folder / "my.toml").mkdir()), "my.toml: "),
    "binary as schema": (lambda folder: (folder / "my.toml").write_bytes(b"\xff\xfe\0"), "my.toml: is not TOML"),
    "an endless schema": (schema("x = 1\n" * 300_000), "my.toml: has more than 1024 KiB"),
    "a deep schema": (schema("x = " + "[" * 100_000), "my.toml: is not TOML"),
    "an empty schema": (schema(""), "none is a label"),
    "a column in no kind": (schema(SCHEMA.replace("numeric", "number")), "columns.price: kind = 'number'"),
    "a name with a slash": (schema(SCHEMA + '"a/b" = { kind = "categorical" }'), "columns.a/b.name = 'a/b'"),
    "a taken name": (schema(SCHEMA + 'dense = { kind = "categorical" }'), "columns.dense.name = 'dense'"),
    "a huge table": (schema(SCHEMA.replace('"categorical"', f'"categorical", hash_rows = {1 << 63}')), "hash_rows = "),
    "infinity": (
        schema(SCHEMA.replace('"numeric"', '"numeric", clip = [0, inf]')),
        "clip = .*use a list of two",
    ),
    "no such column": (text(ROWS.replace(b"price", b"prise")), "clicks:1: no column named 'price'.*mean 'prise'"),
    "a column twice": (text(ROWS.replace(b"item,", b"price,", 1)), "clicks:1: two columns named 'price'"),
    "another separator": (text(ROWS.replace(b",", b";")), "clicks:1: no column named 'click'"),
    "too few fields": (text(ROWS + b"1,2\n"), "clicks:5: 2 comma-separated fields instead of 4"),
    "a bad list": (text(ROWS + b"1,2,a,1||2\n"), "clicks:5: tags is '1..2', which holds an empty value"),
    "an open quote": (text(ROWS + b'1,2,"a,1\n'), "clicks:5: a quote stands inside a field"),
    "no UTF-8": (text(ROWS + b"1,2,\xff,1\n"), "clicks:5: item is .*which is no UTF-8 text"),
    "a cut gzip": (text(gzip.compress(ROWS * 3000)[:200]), "clicks: cannot be read"),
    "an absurd number": (text(ROWS + b"1,1e99,a,1\n"), "clicks:5: price is '1e99', which is too large for float32"),
    "no Parquet": (text(b"PAR1" + bytes(50)), "clicks: cannot be read as Parquet"),
    "a Parquet column of another type": (parquet(price=pa.array([[1.0], [2.0]])), "column price holds list"),
    "a Parquet label that is none": (parquet(click=pa.array([0, 7])), "clicks:2: click is '7' instead of 0 or 1"),
    "a Parquet number that is not finite": (parquet(price=pa.array([1.0, float("inf")])), "clicks:2: price is 'inf'"),
    "a Parquet list with a hole": (parquet(tags=pa.array([[1], [2, None]])), "clicks:2: tags is .*holds None, and no"),
    "a Parquet list of words": (
        parquet(tags=pa.array([["1"], ["7", "x"]])),
        "clicks:2: tags is .*holds 'x', which",
    ),
    "a Parquet list of fractions": (
        parquet(tags=pa.array([[1.0], [7.0, 2.5]])),
        "clicks:2: .*holds '2.5', which",
    ),
    "a Parquet list with weights": (
        parquet(tags=pa.array([[{"value": 1, "weight": 0.5}], []])),
        "column tags holds list.* which have weights instead of lists of integers or text; correct columns.tags",
    ),
    "a Parquet list of lists": (parquet(tags=pa.array([[[1]], []])), "column tags holds list.*instead of lists of"),
    "a Parquet list without weights": (
        lambda folder: (schema(SCHEMA.replace('"integer"', '"integer", weights = ":"'))(folder), parquet()(folder)),
        "column tags holds list.*instead of lists of structs of value and weight; correct columns.tags",
    ),
    "Parquet without a column": (
        lambda folder: pa_parquet.write_table(pa.table({"click": [1]}), folder / "clicks"),
        "no column named 'price'",
    ),
}


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """What a command says that ends with an error."""
    assert main(arguments) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bagpipe: error: ")]
    assert len(said) == 1
    return said[0]


@pytest.mark.parametrize("what", PREPARE)
def test_prepare_refuses_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    (tmp_path / "my.toml").write_text(SCHEMA)
    (tmp_path / "clicks").write_bytes(ROWS)
    spoil, problem = PREPARE[what]
    spoil(tmp_path)
    output = tmp_path / "out"
    arguments = ["prepare", "--schema", str(tmp_path / "my.toml"), "--input", str(tmp_path / "clicks")]
    said = refused(capsys, [*arguments, "--output", str(output)])
    assert re.search(problem, said), said
    assert not (output / "manifest.json").exists()
    assert not list(output.glob("*.h5"))


GENERATE: dict[str, tuple[list[str], str]] = {
    "no schema": (["--schema", "{0}/none.toml"], "none.toml: cannot be read"),
    "a wrong schema": (["--schema", "{0}/wrong.toml"], "wrong.toml: columns.click: kind = 'labl'"),
    "another ending": (["--output", "{0}/out.xz"], "output = "),
    "a file that is there": (["--output", "{0}/my.toml"], "is there already"),
    "a folder": (["--output", "{0}"], "is a folder"),
    "a file in a file": (["--output", "{0}/my.toml/out.csv"], "cannot be written"),
}


@pytest.mark.parametrize("what", GENERATE)
def test_generate_refuses_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    (tmp_path / "my.toml").write_text(SCHEMA)
    (tmp_path / "wrong.toml").write_text(SCHEMA.replace('"label"', '"labl"'))
    before = sorted(tmp_path.iterdir())
    given, problem = GENERATE[what]
    arguments = {"--rows": "10", "--output": f"{tmp_path}/out.csv", "--schema": f"{tmp_path}/my.toml"}
    arguments |= {given[0]: given[1].format(tmp_path)}
    said = refused(capsys, ["generate", *(part for pair in arguments.items() for part in pair)])
    assert problem in said
    assert sorted(tmp_path.iterdir()) == before


_OF_SCHEMAS = list(PREPARE)[: list(PREPARE).index("no such column")]
"""What is wrong with the schema alone."""


@pytest.mark.parametrize("what", _OF_SCHEMAS)
def test_generate_refuses_wrong_schemas_as_prepare_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    (tmp_path / "my.toml").write_text(SCHEMA)
    spoil, problem = PREPARE[what]
    spoil(tmp_path)
    output = tmp_path / "out.csv"
    said = refused(capsys, ["generate", "--rows", "9", "--output", str(output), "--schema", str(tmp_path / "my.toml")])
    assert re.search(problem, said), said
    assert not output.exists()


WRONG = ("--rows 0", "--rows x", "--seed -1", "--zipf nan", "--ids-at-most 0", "--kind criteo")


@pytest.mark.parametrize("wrong", WRONG)
def test_generate_refuses_wrong_arguments_with_its_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    more = wrong.split()
    (tmp_path / "my.toml").write_text(SCHEMA)
    with pytest.raises(SystemExit):
        main(["generate", "--rows", "10", "--output", f"{tmp_path}/out.csv", "--schema", f"{tmp_path}/my.toml", *more])
    assert more[0] in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.toml"]

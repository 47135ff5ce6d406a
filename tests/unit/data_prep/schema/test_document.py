"""A schema is read from TOML with an error that names file, column, key, value and cure, and is written back."""

import tomllib
from pathlib import Path

import pytest

from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import ConfigError
from data_prep.formats.fields import problem
from data_prep.schema.columns import CategoricalColumn, LabelColumn, NumericColumn
from data_prep.schema.document import READY, column_toml, load_schema, schema_of, to_document
from data_prep.schema.rows import field_of

GOOD = '[columns]\nclick = { kind = "label" }\nitem = { kind = "categorical" }\n'
MORE = GOOD + 'price = { kind = "numeric" }\nat = { kind = "timestamp" }\n'

BAD = {
    "no TOML": ("[columns\n", "is not TOML: .*; a column is written NAME = "),
    "no section": (GOOD + "[files]\nheader = true\n", "files: no such section; did you mean file?"),
    "a section as a value": ("columns = 3\n", r"columns = 3: is a section; write \[columns\]"),
    "a column as a value": ('[columns]\nclick = "label"\n', "columns.click = 'label': write it as "),
    "no kind": ("[columns]\nclick = { log = true }\n", "columns.click: has no kind; give it one of label, numeric"),
    "a kind that is none": (
        '[columns]\nclick = { kind = "labl" }\n',
        "columns.click: kind = 'labl': did you mean label?",
    ),
    "a key that is none": (
        GOOD + 'price = { kind = "numeric", standardize = true }\n',
        "columns.price: standardize = True: no such key; did you mean standardise?",
    ),
    "a key of another kind": (
        GOOD + 'p = { kind = "numeric", longest = 3 }\n',
        "columns.p: longest = 3: no such key; ",
    ),
    "a type that is none": (GOOD + 'p = { kind = "numeric", log = 1 }\n', "columns.p: log = 1: use true or false"),
    "a range upside down": (
        GOOD + 'p = { kind = "numeric", clip = [3, 1] }\n',
        r"columns.p: clip = \[3.0, 1.0\]: give the smaller number first",
    ),
    "a range beyond float32": (
        GOOD + 'p = { kind = "numeric", clip = [1e39, 1e40] }\n',
        r"columns.p: clip = \[1e\+39, 1e\+40\]: use bounds between which float32 has numbers, below 3.4e\+38",
    ),
    "a filling beyond float32": (
        GOOD + 'p = { kind = "numeric", missing = 1e300, standardise = true }\n',
        r"columns.p: missing = 1e\+300: use a number that float32 holds, below 3.4e\+38, as the field does",
    ),
    "a fraction for an integer": (
        GOOD + 'p = { kind = "numeric", integer = true, missing = 2.5 }\n',
        "columns.p: missing = 2.5: use a whole number of 64 bits, or leave integer out",
    ),
    "a filling beyond 64 bits": (
        GOOD + 'p = { kind = "numeric", integer = true, missing = 1e300 }\n',
        r"columns.p: missing = 1e\+300: use a whole number of 64 bits",
    ),
    "two fillings": (
        GOOD + 'p = { kind = "numeric", missing = 0, fill = "mean" }\n',
        "columns.p: fill = 'mean': leave it out, or missing: a number is filled in one way",
    ),
    "two shapes": (
        GOOD + 'p = { kind = "numeric", root = true, log = true }\n',
        "columns.p: root = True: leave it out, or log: a number is reshaped in one way",
    ),
    "two scales": (
        GOOD + 'p = { kind = "numeric", standardise = true, scale = "robust" }\n',
        "columns.p: scale = 'robust': leave it out, or standardise: a number is scaled in one way",
    ),
    "a scale that is none": (
        GOOD + 'p = { kind = "numeric", scale = "max" }\n',
        "columns.p: scale = 'max': use one of min_max, robust",
    ),
    "a filling that is none": (
        GOOD + 'p = { kind = "numeric", fill = "mode" }\n',
        "columns.p: fill = 'mode': use one of mean, median",
    ),
    "a word that means a missing label": (
        '[file]\nmissing = ["NULL", "yes"]\n' + GOOD.replace('"label"', '"label", positive = ["y", "yes"]'),
        "columns.click.positive = 'yes': is in file.missing, so that such labels are missing; leave it out of one",
    ),
    "a transform of what is missing": (
        GOOD + 'p = { kind = "numeric", is_missing = true, missing = 0 }\n',
        "columns.p: missing = 0.0: leave it out, or is_missing, which is 0 or 1",
    ),
    "intervals that do not ascend": (
        GOOD + 'p = { kind = "categorical", values = "decimal", bucketise = [1, 1] }\n',
        r"columns.p: bucketise = \[1.0, 1.0\]: give ascending numbers",
    ),
    "decimal numbers without intervals": (
        GOOD + 'p = { kind = "categorical", values = "decimal" }\n',
        "columns.p.values = 'decimal': give it bucketise or quantiles as well, or make it numeric",
    ),
    "no label": ('[columns]\nitem = { kind = "categorical" }\n', "columns = 'item': none is a label; give one"),
    "no table": ('[columns]\nclick = { kind = "label" }\n', "columns = 'click': none has a table; give one"),
    "two weights": (
        GOOD + 'a = { kind = "sample_weight" }\nb = { kind = "sample_weight" }\n',
        "columns.b.kind = 'sample_weight': a has it already; a row has one at most",
    ),
    "a table of two rules": (
        GOOD + 'p = { kind = "categorical", table = "item", min_count = 3 }\n',
        "columns.p.min_count = 3: columns.item shares the table and has min_count = None; give both the same",
    ),
    "a table of two kinds": (
        GOOD + 'p = { kind = "categorical", table = "item", values = "integer" }\n',
        "columns.p.values = 'integer': columns.item shares the table item, whose values are text",
    ),
    "two rules": (
        GOOD + 'p = { kind = "categorical", min_count = 3, hash_rows = 9 }\n',
        "columns.p: hash_rows = 9: leave it out, or min_count: a table has one rule",
    ),
    "a cross of nothing": (
        GOOD + '[derived]\nx = { kind = "categorical", cross = ["item", "itm"] }\n',
        "derived.x.cross = 'itm': no such column; did you mean item?",
    ),
    "a cross of intervals": (
        GOOD
        + 'size = { kind = "categorical", values = "decimal", quantiles = 4 }\n'
        + '[derived]\nx = { kind = "categorical", cross = ["item", "size"] }\n',
        "derived.x.cross = 'size': is no categorical column with texts, integers or hexadecimal values",
    ),
    "a cross of a part": (
        GOOD
        + 'time = { kind = "timestamp" }\n[derived]\nhour = { kind = "categorical", from = "time", part = "hour" }\n'
        + 'x = { kind = "categorical", cross = ["item", "hour"] }\n',
        "derived.x.cross = 'hour': no such column",
    ),
    "a cross of a number": (
        MORE + '[derived]\nx = { kind = "categorical", cross = ["item", "price"] }\n',
        "derived.x.cross = 'price': is no categorical column",
    ),
    "a part of a number": (
        MORE + '[derived]\nx = { kind = "categorical", from = "price", part = "hour" }\n',
        "derived.x.from = 'price': is no timestamp",
    ),
    "a part that is none": (
        MORE + '[derived]\nx = { kind = "categorical", from = "at", part = "minute" }\n',
        "derived.x: part = 'minute': use one of hour, weekday, day, month",
    ),
    "a derived column in the wrong section": (
        MORE + 'x = { kind = "categorical", from = "price" }\n',
        r"columns.x.from = 'price': move the column to \[derived\]",
    ),
    "a separator that is none": ("[file]\nseparator = '::'\n" + GOOD, "file: separator = '::': use tab, comma, "),
    "a separator of lists between fields": (
        GOOD + 'tags = { kind = "multi_hot", separator = "," }\n',
        "columns.tags.separator = ',': use one character",
    ),
    "a filling that does not fit": (
        GOOD + 'p = { kind = "categorical", values = "integer", missing = "none" }\n',
        "columns.p.missing = 'none': use a text that the field could hold: its values are integer",
    ),
    "a time that is written in no way": (
        GOOD + 'at = { kind = "timestamp", format = "YYYY" }\n',
        "columns.at: format = 'YYYY': use seconds, milliseconds, or a pattern",
    ),
    "a time whose zone has a name": (
        GOOD + 'at = { kind = "timestamp", format = "%Y-%m-%d %Z" }\n',
        "columns.at: format = '%Y-%m-%d %Z': a zone's name does not tell the time",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_named_with_its_place_and_a_cure(tmp_path: Path, what: str) -> None:
    text, problem = BAD[what]
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")) as error:
        load_schema(str(tmp_path / "my.toml"))
    assert str(error.value).count("\n") == 0
    assert str(error.value).startswith(f"{tmp_path}/my.toml: ")


def test_a_file_that_is_not_there_is_named_with_the_ready_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read .*; ready schemas are .*criteo"):
        load_schema(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("name", sorted(path.stem for path in READY.glob("*.toml")))
def test_ready_schemas_are_read_by_their_short_names_and_written_back(name: str) -> None:
    schema = load_schema(name)
    assert schema_of(to_document(schema), "again") == schema
    written = tomllib.loads((READY / f"{name}.toml").read_text())
    for section, column in schema.placed():
        assert tomllib.loads(column_toml(column)) == {column.name: written[section][column.name]}


@pytest.mark.parametrize("number", [3664189229106636800.0, 1e16, 2.0**53, 2.0**53 - 1, -1e20, 1e30, 7.0, 0.1])
@pytest.mark.parametrize("key", ["at_least", "clip", "bucketise", "missing"])
def test_large_numbers_are_read_as_they_were_written(tmp_path: Path, key: str, number: float) -> None:
    """Whole ones beyond 53 bits with an exponent: as integers they are refused."""
    columns = {
        "at_least": LabelColumn(name="x", at_least=number),
        "clip": NumericColumn(name="x", clip=(-abs(number), abs(number))),
        "missing": NumericColumn(name="x", missing=number),
        "bucketise": CategoricalColumn(name="x", values="decimal", bucketise=(number,)),
    }
    (tmp_path / "my.toml").write_text(f"{GOOD}{column_toml(columns[key])}\n")
    assert columns[key] in load_schema(str(tmp_path / "my.toml")).columns


GOOD_FILLINGS = {
    "integer": ["0", "-0", "007", "-9223372036854775808", "9223372036854775807", "0" * 90 + "7"],
    "hex": ["0", "fF", "0000001f", "ffffffff"],
    "decimal": ["0", "-0", "+.5", "5.", "1e38", "-3.4028235e38"],
    "text": ["-0", " ", "ä"],
}
BAD_FILLINGS = {
    "integer": ["", "1_0", " 5", "5\n", "+5", "2.5", "٣", "9223372036854775808", "9" * 5000],
    "hex": ["", "-0", "1_0", " 5", "0x1f", "000000001", "٣"],
    "decimal": ["", "1_0", " 5", "nan", "inf", ".", "1e39", "٣"],
    "text": ["", "a\0b"],
}


def with_filling(values: str, text: str) -> str:
    more = ", bucketise = [1]" if values == "decimal" else ""
    return GOOD + f'p = {{ kind = "categorical", values = "{values}", missing = {toml_value(text)}{more} }}\n'


@pytest.mark.parametrize(("values", "text"), [(kind, text) for kind in BAD_FILLINGS for text in BAD_FILLINGS[kind]])
def test_a_filling_that_no_field_could_hold_is_refused(tmp_path: Path, values: str, text: str) -> None:
    (tmp_path / "my.toml").write_text(with_filling(values, text))
    with pytest.raises(ConfigError, match=f"columns.p.missing = .*: its values are {values}$"):
        load_schema(str(tmp_path / "my.toml"))


@pytest.mark.parametrize(("values", "text"), [(kind, text) for kind in GOOD_FILLINGS for text in GOOD_FILLINGS[kind]])
def test_a_filling_is_written_as_fields_are(tmp_path: Path, values: str, text: str) -> None:
    """And so that a field may be."""
    (tmp_path / "my.toml").write_text(with_filling(values, text))
    schema = load_schema(str(tmp_path / "my.toml"))
    [field] = [field_of(column) for column in schema.columns if column.name == "p"]
    assert problem(field, text.encode()) is None


@pytest.mark.parametrize(("values", "text"), [(kind, text) for kind in BAD_FILLINGS for text in BAD_FILLINGS[kind][1:]])
def test_what_is_refused_no_field_may_hold(values: str, text: str) -> None:
    """A zero byte is refused for the whole line."""
    if "\0" not in text:
        column = CategoricalColumn(name="p", values=values, bucketise=(1.0,) if values == "decimal" else ())
        assert problem(field_of(column), text.encode()) is not None

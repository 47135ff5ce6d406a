"""A layout says all of a text, and refuses columns that no text could be read with."""

import re

import pytest

from bagpipe_hpc.errors import ConfigError
from data_prep.formats.columns import Column, Dense, Label, Sparse, SparseList, TableLimits, Unused, Values, Weight
from data_prep.formats.criteo import LAYOUT
from data_prep.formats.layout import Table, TextLayout

LABEL, ITEM = Label("bought"), Sparse("item")


@pytest.mark.parametrize(
    ("columns", "separator", "problem"),
    [
        ((ITEM,), ",", "no column is a label; give at least one"),
        ((LABEL, Weight("a"), Weight("b"), ITEM), ",", "a and b are weights of samples; give one at most"),
        ((LABEL, Weight("w"), Sparse("weight")), ",", "a table is named 'weight'"),
        ((LABEL, SparseList("dense", table="item")), ",", "a sparse column is named 'dense'"),
        ((LABEL, SparseList("items", table="label")), ",", "a table is named 'label'"),
        ((LABEL, SparseList("a/b", table="item")), ",", "a sparse column is named 'a/b'"),
        ((LABEL, ITEM, SparseList("seen", separator=",")), ",", "seen: separator = ','; use one character"),
        ((LABEL, ITEM, SparseList("seen", weights="1")), ",", "seen: weights = '1'; use one character"),
        ((LABEL, ITEM, SparseList("seen", weights="|")), ",", "seen: weights = '|', which stands between values"),
        (
            (LABEL, ITEM, SparseList("seen", Values.INTEGER, table="item")),
            ",",
            "item and seen share table item; give them equal values",
        ),
        (
            (LABEL, Sparse("a", limits=TableLimits(hash_rows=9)), Sparse("b", table="a")),
            ",",
            "a and b share table a; give it equal limits",
        ),
        (
            (LABEL, *(Sparse(name, limits=TableLimits(hash_rows=1 << 62)) for name in "ab")),
            ",",
            "hash_rows of all tables add up to 9223372036854775808; use fewer than 2 ** 63",
        ),
        ((LABEL, Dense("price")), ",", "no column is sparse"),
        ((LABEL, ITEM, Dense("item")), ",", "two columns are named 'item'"),
        ((LABEL, ITEM, Dense("price", bucketed=True)), ",", "price is bucketed without log; buckets are of integers"),
        ((LABEL, Sparse("")), ",", "a column is named ''"),
        ((LABEL, ITEM, Unused("a\nb")), ",", r"a column is named 'a\nb'"),
        ((LABEL, Sparse("label")), ",", "a table is named 'label'"),
        ((LABEL, Sparse("dense")), ",", "a table is named 'dense'"),
        ((LABEL, Sparse("user/country")), ",", "a table is named 'user/country'"),
        ((LABEL, Sparse("..")), ",", "a table is named '..'"),
        *(((LABEL, ITEM), wrong, f"the separator is {wrong!r}") for wrong in ("", "::", "\n", '"', "1", "e", "-", "é")),
    ],
)
def test_what_no_text_has_is_refused(columns: tuple[Column, ...], separator: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^source format: {re.escape(problem)}"):
        TextLayout(columns, separator)


def test_columns_by_their_part() -> None:
    layout = TextLayout((Unused("time"), Dense("price"), LABEL, ITEM, Sparse("user", Values.INTEGER)), ",")
    assert layout.names == ("time", "price", "bought", "item", "user")
    assert (layout.labels, layout.weight, layout.is_plain) == (("bought",), None, True)
    assert layout.dense == (Dense("price"),)
    assert [table.name for table in layout.tables] == ["item", "user"]


def test_a_bucketed_column_is_dense_and_categorical() -> None:
    visits = Dense("visits", log=True, bucketed=True)
    layout = TextLayout((LABEL, visits, ITEM), ",")
    assert layout.dense == (visits,)
    assert layout.sparse == (Sparse("visits", Values.BUCKET), ITEM)
    assert [table.name for table in layout.tables] == ["visits", "item"]


def test_columns_that_share_a_table() -> None:
    seen, user = SparseList("seen", table="item"), Sparse("user", Values.INTEGER)
    columns = (LABEL, Label("paid"), Weight("weight"), seen, user, ITEM)
    layout = TextLayout(columns, ",")
    assert (layout.labels, layout.weight, layout.is_plain) == (("bought", "paid"), "weight", False)
    assert (layout.features, layout.sparse, layout.lists) == ((seen, user, ITEM), (user, ITEM), (seen,))
    assert layout.tables == (
        Table("item", Values.TEXT, ("seen", "item")),
        Table("user", Values.INTEGER, ("user",)),
    )
    assert not TextLayout((LABEL, Sparse("a", table="b"))).is_plain


@pytest.mark.parametrize(
    ("dense", "rule"),
    [
        ((), "none"),
        ((Dense("a"),), "x; 0 missing"),
        ((Dense("a", log=True),), "log(1 + max(x, 0)); 0 missing"),
        (
            (Dense("a"), Dense("b", log=True), Dense("c", log=True)),
            "log(1 + max(x, 0)) of b, c; x of others; 0 missing",
        ),
    ],
)
def test_the_rule_of_dense_features(dense: tuple[Dense, ...], rule: str) -> None:
    assert TextLayout((LABEL, *dense, ITEM)).dense_rule == rule


def test_every_part_of_a_layout_is_in_its_words() -> None:
    layouts = [
        TextLayout((LABEL, Dense("a"), ITEM)),
        TextLayout((LABEL, Dense("a", log=True), ITEM)),
        TextLayout((LABEL, Unused("a"), ITEM)),
        TextLayout((Dense("a"), LABEL, ITEM)),
        TextLayout((LABEL, Dense("a"), Sparse("item", Values.HEX))),
        TextLayout((LABEL, Dense("a"), ITEM), ","),
        TextLayout((LABEL, Dense("a"), ITEM), header=True),
        TextLayout((LABEL, Dense("a"), ITEM), quoted=True),
        TextLayout((LABEL, Dense("a"), Sparse("item", table="items"))),
        TextLayout((LABEL, Weight("a"), ITEM)),
        TextLayout((LABEL, Dense("a"), SparseList("item"))),
        TextLayout((LABEL, Dense("a"), SparseList("item", separator=";"))),
        TextLayout((LABEL, Dense("a"), SparseList("item", weights=":"))),
    ]
    assert len({layout.words() for layout in layouts}) == len(layouts)


@pytest.mark.parametrize(
    ("line", "quoted", "is_header"),
    [
        ("bought,item", False, True),
        ("bought,item", True, True),
        ('"bought","item"', True, True),
        ('"bought","item"', False, False),
        ("item,bought", False, False),
        ("bought,item,user", False, False),
        ("bought", True, False),
        ("", True, False),
        (" bought,item", False, False),
    ],
)
def test_a_header_names_the_columns_in_order(line: str, quoted: bool, is_header: bool) -> None:
    assert TextLayout((LABEL, ITEM), ",", header=True, quoted=quoted).is_header(line) == is_header


def test_criteo_is_what_its_rows_have() -> None:
    assert (len(LAYOUT.names), len(LAYOUT.dense)) == (40, 13)
    assert [table.name for table in LAYOUT.tables] == [f"C{number}" for number in range(1, 27)]
    assert (LAYOUT.separator, LAYOUT.header, LAYOUT.quoted) == ("\t", False, False)

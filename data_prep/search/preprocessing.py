"""`bagpipe search-preprocessing`: finds transforms of the dense columns of files, and writes them as a schema."""

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.terminal import printable
from data_prep.schema.columns import NumericColumn
from data_prep.schema.document import Schema
from data_prep.schema.writing import schema_toml
from data_prep.search.clusters import LearnedClusters
from data_prep.search.descriptors import describe_columns
from data_prep.search.features import ColumnFeatures
from data_prep.search.pipelines import PIPELINES, indicator_of
from data_prep.search.sampled_rows import SampledRows
from data_prep.search.search import Choice, SearchSettings, Try, best_of, search
from data_prep.search.small_model import score_features


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        schema: the schema with what was found; the given one where nothing scored better.
        given_score: score of the given schema; more is better.
        columns: names of the columns that were searched, `[C]`.
        left_out: names of the columns whose training rows are all equal.
        clusters: most groups of columns, no more than columns.
        tried: everything that was tried, in order.
    """

    schema: Schema
    given_score: float
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    clusters: int
    tried: tuple[Try, ...]

    @property
    def best(self) -> Try:
        """The try that scored best."""
        return best_of(self.tried)

    @property
    def is_better(self) -> bool:
        """Whether the best is better than the given schema."""
        return self.best.score > self.given_score


def search_preprocessing(
    schema: Schema,
    rows: SampledRows,
    settings: SearchSettings,
    *,
    score: str = "log_loss",
) -> Found:
    """Search for groups of the dense columns of a schema, and a chain for each group.

    Args:
        schema: the schema; a chain replaces the transforms of its numeric columns, and all else stays.
        rows: sampled rows of its columns.
        settings: how much is tried.
        score: what is compared, `log_loss` or `auc`.

    Raises:
        ConfigError: a column has a name that the search needs.
        DataError: no column is left to be searched.
    """
    schema_without = _without_indicators(schema)
    features = ColumnFeatures(rows)
    if not features.columns:
        raise DataError("no numeric column has training rows that differ: there is nothing to search")
    fixed = [column for column in schema_without.derived if isinstance(column, NumericColumn)]

    def score_columns(columns: Sequence[NumericColumn]) -> float:
        return score_features(features.matrix(columns), rows.labels, rows.train, score)

    def score_choice(choice: Choice) -> float:
        return score_columns([*features.described(choice), *fixed])

    given = [column for column in schema.outputs if isinstance(column, NumericColumn)]
    given_score = score_columns(given)
    clusters = min(settings.clusters, len(features.columns))
    proposing = LearnedClusters(describe_columns(features, rows), clusters, settings.seed)
    tried = search(features.valid, features.has_missing, score_choice, proposing, settings)
    names = tuple(column.name for column in features.columns)
    left_out = tuple(column.name for column in features.left_out)
    found = Found(schema, given_score, names, left_out, clusters, tuple(tried))
    if not found.is_better:
        return found
    return replace(found, schema=_with(schema_without, features.described(found.best.choice)))


def report(found: Found, score: str) -> list[str]:
    """Lines that tell the user what was found."""
    best, fitted = found.best, sum(one.is_fit for one in found.tried)
    lines = [
        f"as given: {shown_score(found.given_score, score)}",
        f"found:    {shown_score(best.score, score)}, in episode {best.episode + 1}; {fitted} models were fitted for "
        f"{len(found.tried)} draws",
    ]
    lines += [f"  {chain}: {', '.join(names)}" for chain, names in _groups(found)]
    if found.left_out:
        lines.append(f"left as they are, since all training rows are alike: {', '.join(found.left_out)}")
    if not found.is_better:
        lines.append("nothing was better than the schema as it was given; it is written as it was")
    return lines


def write_found(found: Found, score: str, inputs: Sequence[str], output: Path) -> None:
    """Write the schema that was found, with a comment about the chain beside each column."""
    notes = {name: chain for chain, names in _groups(found) for name in names} if found.is_better else {}
    command = shlex.join(["bagpipe", "prepare", "--schema", output.name, "--input", *inputs, "--output", "shards"])
    heading = [
        f"Found by bagpipe search-preprocessing: validation {shown_score(found.best.score, score)},",
        f"{shown_score(found.given_score, score)} with the schema that was given.",
        f"Then: {printable(command, is_layout_kept=False)}",
    ]
    _write(output, schema_toml(found.schema, heading, notes))


def write_tried(found: Found, score: str, output: Path) -> None:
    """Write everything that was tried as CSV: a line each, with the cluster and the chain of each column."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["try", "episode", score, "fitted", *found.columns])
    for number, one in enumerate(found.tried, start=1):
        chains = [f"{group}: {PIPELINES[chain]}" for group, chain in zip(one.assignment, one.choice, strict=True)]
        writer.writerow([number, one.episode + 1, repr(_plain(one.score, score)), int(one.is_fit), *chains])
    _write(output, stream.getvalue())


def shown_score(value: float, score: str) -> str:
    """A score in words."""
    return f"{score.replace('_', ' ').replace('auc', 'AUC')} {_plain(value, score):.5f}"


def _plain(value: float, score: str) -> float:
    """A score as its name means it: a log loss without the minus sign."""
    return -value if score == "log_loss" else value


def _groups(found: Found) -> list[tuple[str, list[str]]]:
    """The chains of the best try, and the columns of each."""
    groups: dict[str, list[str]] = {}
    for name, chain in zip(found.columns, found.best.choice, strict=True):
        groups.setdefault(str(PIPELINES[chain]), []).append(name)
    return list(groups.items())


def _without_indicators(schema: Schema) -> Schema:
    """A schema without the indicators that an earlier search added, so that their names are free."""
    numeric = [column for column in schema.columns if isinstance(column, NumericColumn)]
    ours = {indicator.name: indicator for indicator in map(indicator_of, numeric)}
    for section, column in schema.placed():
        if column.name in ours and column != ours[column.name]:
            raise ConfigError(
                f"{section}.{column.name}: the search may need this name to say where {ours[column.name].source} is "
                "missing; give the column another one"
            )
    return replace(schema, derived=tuple(column for column in schema.derived if column.name not in ours))


def _with(schema: Schema, described: Sequence[NumericColumn]) -> Schema:
    """A schema with these numeric columns in place of its own, and with further derived ones."""
    new = {column.name: column for column in described if column.source is None}
    added = tuple(column for column in described if column.source is not None)
    columns = tuple(new.get(column.name, column) for column in schema.columns)
    return replace(schema, columns=columns, derived=(*schema.derived, *added))


def _write(output: Path, text: str) -> None:
    with atomic_write(output) as partial:
        partial.write_text(text, encoding="utf-8")

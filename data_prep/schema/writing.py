"""A schema as TOML."""

from collections.abc import Mapping, Sequence

from bagpipe_hpc.config.values import toml_value
from data_prep.schema.document import Schema, column_toml, to_document


def schema_toml(schema: Schema, heading: Sequence[str], notes: Mapping[str, str]) -> str:
    """The text of a file that `load_schema` reads as the same schema.

    Args:
        schema: the schema.
        heading: lines of a comment above it.
        notes: comments beside columns, by their names.
    """
    lines = [f"# {line}" for line in heading]
    if rules := to_document(schema)["file"]:
        lines += ["", "[file]", *(f"{key} = {toml_value(value)}" for key, value in rules.items())]
    section = None
    for placed, column in schema.placed():
        if placed != section:
            section = placed
            lines += ["", f"[{section}]"]
        note = notes.get(column.name)
        lines.append(column_toml(column) + (f"  # {note}" if note else ""))
    return "\n".join(lines) + "\n"

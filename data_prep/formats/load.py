"""The source format that a command or a manifest names."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bagpipe_hpc.config.doors import SOURCE_FORMATS
from bagpipe_hpc.config.file import settings_of_options
from bagpipe_hpc.errors import ConfigError
from data_prep.formats.source_format import SourceFormat
from data_prep.schema.document import schema_of
from data_prep.schema.format import SchemaFormat

SCHEMA = "schema"
"""The name of the format of all schemas."""


def load_format(
    name: str, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None
) -> tuple[SourceFormat, dict[str, Any]]:
    """The source format of a name, and its own settings.

    Args:
        name: a short name, or `package.module:Class`; `SCHEMA` where there is a schema.
        options: its own settings that differ from their defaults, each as `key=value` with a TOML value.
        schema: a schema as plain values (`data_prep.schema.document.to_document`); None without one.

    Returns:
        The format, and all of its own settings by name.

    Raises:
        ConfigError: there is no such format or setting, or the setting cannot have this value.
    """
    if (name == SCHEMA) != (schema is not None):
        cure = "name the schema with --schema FILE.toml" if schema is None else "leave it out: --schema is given"
        raise ConfigError(f"--format = {name!r}: {cure}")
    if schema is not None:
        if options:
            raise ConfigError(f"--format-option {options[0]!r}: a schema has no settings; leave it out")
        return SchemaFormat(schema_of(schema, "the recorded schema")), {}
    kind = SOURCE_FORMATS.implementation(name)
    if not (isinstance(kind, type) and issubclass(kind, SourceFormat)):
        raise ConfigError(f"--format = {name!r}: is no subclass of {SourceFormat.__module__}.{SourceFormat.__name__}")
    settings = settings_of_options(SOURCE_FORMATS, name, options)
    with SOURCE_FORMATS.blaming(name, "its describe() fails"):
        return kind(settings), asdict(settings)

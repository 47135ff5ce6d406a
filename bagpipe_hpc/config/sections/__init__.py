"""The sections of a configuration, one dataclass each; `config.schema` puts them together."""

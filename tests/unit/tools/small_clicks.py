"""Prepared clicks that are few, for commands that count what a run would do."""

from pathlib import Path

from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings


def small_config(folder: Path, rows: int = 1000) -> Path:
    """A configuration file in a new folder, and the shards that it names."""
    clicks, shards = folder / "clicks.tsv", folder / "shards"
    generate_clicks(rows, clicks)
    prepare_clicks([str(clicks)], shards, PrepareSettings(min_count=1), lambda _: None)
    path = folder / "run.toml"
    path.write_text(f"[data]\npath = '{shards}'\n")
    return path

"""What docs/plan.md shows is what its command prints."""

import re
import subprocess
from pathlib import Path

import pytest

from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.fork_server import forked
from tests.ranks import ROOT, rank_environment

_EXAMPLE = re.compile(r"^```\nbagpipe (.+?)\n```\n\n```text\n(.*?)\nMB of each rank", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_plan_that_is_shown_is_the_one_that_is_made(tmp_path: Path) -> None:
    """With the shards of `make train`. What the ranks hold, shown behind it, depends on the host's cores."""
    generate_clicks(200_000, tmp_path / "clicks.tsv")
    shards = tmp_path / "build" / "quickstart" / "shards"
    prepare_clicks([str(tmp_path / "clicks.tsv")], shards, PrepareSettings(), lambda _: None)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    example = _EXAMPLE.search((ROOT / "docs" / "plan.md").read_text(encoding="utf-8"))
    assert example
    command, shown = example.groups()
    ended = subprocess.run(
        forked(["bagpipe", *command.split()]),
        cwd=tmp_path,
        env=rank_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(shown)

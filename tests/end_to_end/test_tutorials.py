"""Whoever follows a tutorial gets to its end: its files are written and its commands run, in their order."""

from pathlib import Path

import pytest

from tests.ranks import ROOT, require_launcher
from tests.tutorials import PAGES, follow, forking_path, script_of, shown_by

ON_A_CLUSTER = "tutorial-cluster"
"""Followed by `tests/cluster/test_slurm.py`."""
SHOWS_COUNTS = {"tutorial-model": 0, "tutorial-policies": 1}
"""Pages that show nothing but what is counted, alike on every machine, and so many last columns of times."""


@pytest.mark.parametrize(
    "page",
    [
        page if page == "tutorial-data" else pytest.param(page, marks=pytest.mark.slow)
        for page in PAGES
        if page != ON_A_CLUSTER
    ],
)
def test_a_tutorial_can_be_followed(page: str, tmp_path: Path) -> None:
    require_launcher()
    (tmp_path / "reader").mkdir()
    followed = follow(page, tmp_path / "reader", 600, forking_path(tmp_path / "bin"))
    assert followed.returncode == 0, followed.stdout + followed.stderr
    if page in SHOWS_COUNTS:
        times = SHOWS_COUNTS[page]
        printed = [line.split() for line in followed.stdout.splitlines()]
        counts = [words[: len(words) - times] for words in printed]
        shown = [line.split() for line in shown_by(ROOT / "docs" / f"{page}.md")]
        assert shown
        assert [words for words in shown if words[: len(words) - times] not in counts] == []


def test_what_a_page_shows_is_a_script(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# T\n\n```toml title="a.toml"\nx = "$y"\n```\n\n```bash\ncat a.toml\n```\n\n```text\nno\n```\n')
    assert script_of(page) == ("set -euxo pipefail\ncat >a.toml <<'END OF FILE'\nx = \"$y\"\nEND OF FILE\ncat a.toml")

"""`make docs` ends with an error where a page leads nowhere or would need the network; tried on a site of two pages."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ranks import rank_environment

ROOT = Path(__file__).parents[3]


def build(folder: Path, page: str, nav: tuple[str, ...] = ("README.md", "page.md")) -> subprocess.CompletedProcess[str]:
    """Build a site with the project's settings."""
    shutil.copytree(ROOT / "scripts" / "docs", folder / "scripts" / "docs")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    places = "".join(f"  - {name}\n" for name in nav)
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav:\n{places}", encoding="utf-8")
    (folder / "docs" / "README.md").write_text("# A title\n\n[page.md](page.md)\n", encoding="utf-8")
    (folder / "docs" / "page.md").write_text(f"# A page\n\n{page}\n", encoding="utf-8")
    (folder / "notes").mkdir()
    (folder / "notes" / "note.md").write_text("# A note\n\n[back](../docs/page.md)\n", encoding="utf-8")
    return subprocess.run(
        ["bash", "scripts/docs/build.sh"],
        cwd=folder,
        env=rank_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_site_holds_what_its_pages_link_to(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    built = build(tmp_path, "[note](../notes/note.md#a-note) [far](https://arxiv.org/abs/2202.12429)")
    assert built.returncode == 0, built.stderr
    site = tmp_path / "build" / "site"
    assert "repository/notes/note.html#a-note" in (site / "page.html").read_text(encoding="utf-8")
    assert "../../page.html" in (site / "repository" / "notes" / "note.html").read_text(encoding="utf-8")
    assert ">A page</a>" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("[gone](gone.md)", "gone.md"),
        pytest.param("[heading](README.md#another)", "#another", marks=pytest.mark.slow),
        pytest.param("![far](https://example.org/far.png)", "come from the network", marks=pytest.mark.slow),
    ],
    ids=["page", "heading", "network"],
)
def test_what_leads_nowhere_is_an_error(page: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    built = build(tmp_path, page)
    assert built.returncode == 1
    assert said in built.stdout + built.stderr


@pytest.mark.slow
def test_a_page_without_a_place_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    built = build(tmp_path, "Lost.", nav=("README.md",))
    assert built.returncode == 1
    assert "page.md" in built.stderr

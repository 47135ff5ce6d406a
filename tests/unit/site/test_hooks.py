"""What the hooks of `mkdocs.yml` make of pages: links that stay in the site, commands and messages from the code."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of `scripts/docs` by their names."""
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "docs"))
    names = ("error_messages", "reference_pages", "repository_links")
    yield {name: __import__(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def test_messages_are_read_from_the_source(hooks: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "bagpipe_hpc").mkdir()
    (tmp_path / "bagpipe_hpc" / "errors.py").write_text('class DiskError(Exception):\n    """A disk is wrong."""\n')
    (tmp_path / "bagpipe_hpc" / "disk.py").write_text(
        "raise DiskError(f'{path}: is ' 'full; make ' + f'{size} of room')\nraise ValueError('not for a user')\n"
        "raise DiskError(text)\nraise DiskError(f'{path}: {text}')\n"
    )
    found = list(hooks["error_messages"].messages(tmp_path))
    assert [(message.error, message.text, message.file) for message in found] == [
        ("DiskError", "…: is full; make … of room", "bagpipe_hpc/disk.py")
    ]


def test_the_page_of_errors_has_what_a_user_met(hooks: dict[str, ModuleType]) -> None:
    text = hooks["reference_pages"].all_messages()
    assert "### `ConfigError`" in text
    assert "\n* train.output = …" in text


def test_the_page_of_commands_has_each_with_its_arguments(hooks: dict[str, ModuleType]) -> None:
    text = hooks["reference_pages"].commands()
    assert "## `bagpipe train`" in text
    assert "| `--tolerance X` | largest difference allowed (default: 0) |" in text
    assert "## `bagpipe bench`" not in text  # only says where benchmarks are


def test_files_of_the_repository_have_places_in_the_site(hooks: dict[str, ModuleType]) -> None:
    links = hooks["repository_links"]
    page = ROOT / "docs" / "roles.md"
    for link, place in {
        "window.md#the-rule": "window.md",
        "../README.md": "README.md",
        "../benchmarks/README.md": "repository/benchmarks/README.md",
        "../bagpipe_hpc/roles/oracle.py": "repository/bagpipe_hpc/roles/oracle.py.txt",
    }.items():
        assert links.place_in_site(links.target_of(page, link)).as_posix() == place
    assert links.target_of(page, "#the-roles") is None
    assert links.target_of(page, "https://mpi4py.readthedocs.io") is None


def test_what_linked_pages_link_to_comes_along(hooks: dict[str, ModuleType]) -> None:
    """Figures link to a note, and that to its results."""
    found = hooks["repository_links"].linked_files()
    assert ROOT / "benchmarks" / "notes" / "2026-11-21-fast.md" in found
    assert ROOT / "benchmarks" / "results" / "2026-11-21-step.jsonl" in found
    assert ROOT / "README.md" not in found


def test_a_page_goes_by_its_title(hooks: dict[str, ModuleType]) -> None:
    words_of = hooks["repository_links"].words_of
    assert words_of("faults.md", ROOT / "docs" / "faults.md") == "When something fails"
    assert words_of("what to do", ROOT / "docs" / "faults.md") == "what to do"

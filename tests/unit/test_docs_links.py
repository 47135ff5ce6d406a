"""What the documentation points to exists: links, their headings, files in backticks, targets of make, tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
NAMED_FILE = re.compile(r"(?:bagpipe_hpc|data_prep|tests|configs|slurm|scripts|benchmarks|docs)/[\w./-]*")
NAMED_TEST = re.compile(r"(?:[\w/.-]+::)?(test_\w+)(?:\[(.*)\])?")


def text_without_code_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub writes them into addresses."""
    headings = re.findall(r"^#+ (.+)$", text_without_code_blocks(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in LINK.findall(text_without_code_blocks(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (heading and heading not in anchors(path)):
            broken.append(target)
    return broken


def missing_files(page: Path) -> list[str]:
    """Paths in backticks that begin with a folder of the repository."""
    codes = CODE.findall(text_without_code_blocks(page))
    named = [code.split("::")[0] for code in codes if NAMED_FILE.fullmatch(code.split("::")[0])]
    return [name for name in named if not (ROOT / name).exists()]


def unknown_targets(page: Path) -> list[str]:
    """Targets of make that a page tells to run, in backticks or at the start of a line of a code block."""
    rules = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    told = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [target for target in told if target not in rules]


def unknown_tests(page: Path) -> list[str]:
    """Tests in backticks that no file of `tests/` defines."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = [
        match[1] for code in CODE.findall(page.read_text(encoding="utf-8")) if (match := NAMED_TEST.fullmatch(code))
    ]
    return [name for name in named if f"def {name}(" not in sources]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert broken_links(page) == []
    assert missing_files(page) == []
    assert unknown_targets(page) == []
    assert unknown_tests(page) == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = set(LINK.findall(index.read_text(encoding="utf-8")))
    pages = {path.name for path in index.parent.glob("*.md")}
    assert pages - listed == {"README.md"}
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    in_the_site = set(re.findall(r"^ +- (?:.+: )?(\S+\.md)$", site, flags=re.MULTILINE))
    assert pages == in_the_site, "give the page its place in nav of mkdocs.yml"


def test_every_note_of_a_benchmark_is_listed() -> None:
    index = ROOT / "benchmarks" / "README.md"
    listed = set(LINK.findall(index.read_text(encoding="utf-8")))
    assert {f"notes/{path.name}" for path in (index.parent / "notes").glob("*.md")} - listed == set()


def test_the_readme_is_read_in_minutes() -> None:
    """What does not fit has its place in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_no_page_names_a_place_outside_the_repository() -> None:
    """Absolute paths of one machine and neighbours of the checkout have no place in the project's documentation."""
    outside = re.compile(r"\.\./shared|/work/|/root/|/home/\w")
    assert [page.name for page in PAGES if outside.search(page.read_text(encoding="utf-8"))] == []


def test_the_mutants_of_the_exactness_page_are_those_of_the_tests() -> None:
    """Each test id in the tables of docs/exactness.md is a mutant's, and none is left out."""
    text = (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\|.*\| `\[(.+?)\]` \|$", text, flags=re.MULTILINE))
    import mpi4py

    mpi4py.rc.initialize = False  # the mutants of a run patch what talks through MPI
    from tests.end_to_end.breakages import MICRO_BATCH_MUTANTS, MUTANTS
    from tests.end_to_end.home_mutants import HOME_MUTANTS
    from tests.end_to_end.late_mutants import LATE_MUTANTS
    from tests.mpi.rows import test_exchange as exchange
    from tests.unit.plan import test_full_batches as full_batches
    from tests.unit.plan import test_neighbours as neighbours
    from tests.unit.planning.homes import test_choice as choice
    from tests.unit.planning.lookahead import home_mutants as home_rules
    from tests.unit.planning.lookahead import test_rules as rules
    from tests.unit.storage.plans import test_plan_file as plan_file

    broken = [*rules.MUTANTS, *rules.RAGGED_MUTANTS, *rules.SHARED_TABLE_MUTANTS, *home_rules.MUTANTS]
    broken += [*exchange.MUTANTS, *neighbours.MUTANTS, *plan_file.MUTANTS, *full_batches.MUTANTS, *choice.MUTANTS]
    assert listed == {
        *MUTANTS,
        *HOME_MUTANTS,
        *MICRO_BATCH_MUTANTS,
        *LATE_MUTANTS,
        *(mutant.__name__ for mutant in broken),
    }


def test_a_page_that_names_what_is_not_there_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n[good](#a-title) [bad](#another) [gone](gone.md) `docs/gone.md` `make nothing` `test_of_nothing`\n"
    )
    assert broken_links(page) == ["#another", "gone.md"]
    assert missing_files(page) == ["docs/gone.md"]
    assert unknown_targets(page) == ["nothing"]
    assert unknown_tests(page) == ["test_of_nothing"]

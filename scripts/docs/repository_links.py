"""A hook of MkDocs: adds what pages link to outside `docs/` to the site, so that no link leads out of it.

Pages of the repository, such as notes of benchmarks, become pages; other files are copied as plain text, which browsers
show. Both are below `repository/` in the site. Links to folders become plain words.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def without_code(text: str) -> str:
    """The page without its fenced code blocks, in which nothing is a link."""
    return FENCED.sub("", text)


def target_of(page: Path, link: str) -> Path | None:
    """The file or folder of the repository that a link points to; None for an address or a heading of the same page."""
    name = link.partition("#")[0]
    if not name or re.match(r"[a-z]+:", name):
        return None
    return Path(os.path.normpath(page.parent / name))


def place_in_site(path: Path) -> Path:
    """The path of a repository's file among the sources of the site."""
    if path == ROOT / "README.md":
        return Path("README.md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    inside = Path("repository") / path.relative_to(ROOT)
    return inside if path.suffix in (".md", ".svg") else inside.with_name(f"{inside.name}.txt")


def origin_of(page: Page) -> Path:
    """The file of the repository that a page was made of."""
    source = Path(page.file.src_uri)
    return ROOT / source.relative_to("repository") if source.parts[0] == "repository" else DOCS / source


def words_of(link: str, path: Path) -> str:
    """The words of a link; in the site, a file name of a page is replaced by the page's title."""
    if link != path.name or path.suffix != ".md":
        return link
    title = path.read_text(encoding="utf-8").partition("\n")[0]
    return title.removeprefix("# ")


def linked_files() -> set[Path]:
    """Files outside `docs/` that its pages link to, or that such files link to in turn."""
    found: set[Path] = set()
    waiting = sorted(DOCS.glob("*.md"))
    while waiting:
        page = waiting.pop()
        for _, _, link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
            path = target_of(page, link)
            if path is None or path in found or path.is_relative_to(DOCS) or not path.is_file():
                continue
            if path != ROOT / "README.md":
                found.add(path)
                if path.suffix == ".md":
                    waiting.append(path)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files to those of the site."""
    for path in sorted(linked_files()):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            text = NOT_SEARCHED + text
        inclusion = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place_in_site(path).as_posix(), content=text, inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn links between files of the repository into links between pages of the site."""
    origin = origin_of(page)
    here = Path(page.file.src_uri).parent

    def in_site(link: re.Match[str]) -> str:
        path = target_of(origin, link[3])
        if path is None:
            return link[0]
        if path.is_dir():
            return link[2]
        heading = link[3].partition("#")[1] + link[3].partition("#")[2]
        address = Path(os.path.relpath(place_in_site(path), here)).as_posix()
        return f"{link[1]}[{words_of(link[2], path)}]({address}{heading})"

    parts = re.split(f"({FENCED.pattern})", markdown, flags=FENCED.flags)
    return "".join(part if number % 2 else LINK.sub(in_site, part) for number, part in enumerate(parts))

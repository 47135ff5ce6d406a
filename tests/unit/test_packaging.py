"""Recipes, citation and version say what pyproject.toml says."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import bagpipe_hpc

ROOT = Path(__file__).parents[2]
SPACK = ROOT / "packaging/spack/packages/bagpipe_hpc/package.py"
[EASYBUILD] = (ROOT / "packaging/easybuild").glob("*.eb")
HAS = {"Python-bundle-PyPI": "rich", "SciPy-bundle": "numpy", "Arrow": "pyarrow", "PyTorch": "torch"}
"""What modules of EasyBuild are known by to pip."""
BUNDLES = ("numpy", "rich")
"""In modules that have versions of their own."""


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def needs() -> dict[str, str]:
    """The least version of each package that runs need, and of Python."""
    pairs = [requirement.split(">=") for requirement in project()["dependencies"]]
    return {**dict(pairs), "python": project()["requires-python"].removeprefix(">=")}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def test_the_spack_recipe_needs_what_the_package_needs() -> None:
    [recipe] = [node for node in ast.parse(SPACK.read_text()).body if isinstance(node, ast.ClassDef)]
    calls = [node.value for node in recipe.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    of_name = {name: [call for call in calls if ast.unparse(call.func) == name] for name in ("version", "depends_on")}
    assert [ast.literal_eval(call.args[0]) for call in of_name["version"]] == [bagpipe_hpc.__version__]
    found = {}
    for call in of_name["depends_on"]:
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        match = re.match(r"(?:py-)?([\w-]+)@([\d.]+):", ast.literal_eval(call.args[0]))
        if match and "run" in keywords["type"] and "when" not in keywords:
            found[match[1]] = match[2]
    assert found == needs()
    horovod = [text for call in of_name["depends_on"] if "horovod" in (text := ast.literal_eval(call.args[0]))]
    assert horovod[0].split()[0] == f"py-{project()['optional-dependencies']['horovod'][0].replace('==', '@')}"


def test_what_the_set_up_installs_takes_the_oldest_python() -> None:
    """Debian 12 has Python 3.11.2: what needs a later one is not found there, whatever the other versions are."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "scripts/constraints.txt").read_text(), re.MULTILINE))
    installed = {found.metadata["Name"].lower(): found.metadata for found in importlib.metadata.distributions()}
    known = {name for name, version in pins.items() if name in installed and installed[name]["Version"] == version}
    assert {"numpy", "pytest"} <= known
    oldest, wanted = f"{needs()['python']}.0", {name: installed[name].get("Requires-Python", "") for name in known}
    assert {name: python for name, python in wanted.items() if oldest not in SpecifierSet(python)} == {}


def test_the_easybuild_recipe_has_what_the_package_needs() -> None:
    given = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(EASYBUILD.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    toolchain = given["toolchain"]
    assert EASYBUILD.name == f"{given['name']}-{given['version']}-{toolchain['name']}-{toolchain['version']}.eb"
    assert (given["name"], given["version"]) == (project()["name"], bagpipe_hpc.__version__)
    modules = [*given["dependencies"], *given.get("exts_list", [])]
    found = {HAS.get(name, name.lower()): version for name, version, *_ in modules}
    assert found.keys() == needs().keys()
    for name, least in needs().items():
        assert name in BUNDLES or numbers(found[name]) >= numbers(least), name


def test_the_citation_names_the_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["title"], cited["version"]) == (project()["name"], bagpipe_hpc.__version__)
    assert cited["license"] == project()["license"]


def test_the_container_names_the_version() -> None:
    assert f"\n    version {bagpipe_hpc.__version__}\n" in (ROOT / "slurm/apptainer.def").read_text()


def test_the_changelog_has_the_version() -> None:
    assert f"## [{bagpipe_hpc.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", ["CITATION.cff", "CONTRIBUTING.md", "scripts/build_horovod.sh"])
def test_what_the_source_archive_has_is_there(name: str) -> None:
    assert name in (ROOT / "MANIFEST.in").read_text().split()
    assert (ROOT / name).is_file()

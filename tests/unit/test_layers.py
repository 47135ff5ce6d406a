"""Imports point down only, siblings ignore each other, and each outside world has one door (docs/architecture.md)."""

import ast
import graphlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LAYERS: dict[str, float] = {
    # 0: settings and errors; the standard library only
    "errors": 0, "exit_codes": 0, "terminal": 0, "config": 0,
    # 0.5: progress bars, which rich draws
    "progress": 0.5,
    # 1: pure data
    "rows": 1, "cluster": 1, "plan": 1, "evaluation": 1,
    # 2: the doors to MPI, to HDF5 and to native code
    "mpi": 2, "storage": 2, "kernels": 2,
    # 3: pure decisions; rows on a device; dense models and their reduction; what a run says of itself
    "planning": 3, "cache": 3, "models": 3,
    # 3.5: what a run says of itself
    "telemetry": 3.5,
    # 4 to 6: what a run is, its step, and what stands before and between steps
    "run": 4, "step": 5, "preparation": 6, "checkpointing": 6,
    # 7: the main loops
    "roles": 7, "simulation": 7,
    # 8 to 9: what a user starts
    "tools": 8, "launch": 9, "cli": 10, "__main__": 11, "api": 11,
}  # fmt: skip
"""The layer of each module and package directly below bagpipe_hpc. A new one gets its place here first."""

DATA_PREP_LAYER = 2.5
"""data_prep may use layers 0 to 2; only what a user starts may use data_prep."""

BENCHMARKS_LAYER = 12
"""The benchmarks of a checkout, which are no part of the package, use anything; nothing uses them."""

LOWEST_STARTED = 8
"""The lowest layer of what a user starts."""

ONLY_IMPORTERS = {
    "mpi4py": "bagpipe_hpc/mpi/",
    "h5py": "bagpipe_hpc/storage/",
    "horovod": "bagpipe_hpc/models/sums/horovod_sums.py",
    "rich": "bagpipe_hpc/progress.py",
    "tensorboard": "bagpipe_hpc/telemetry/records/tensorboard_record.py",
}
"""The only folder or file that may import each of these."""

KNOW_THE_RUN = {"bagpipe_hpc.step": ("compute", "slice_reader")}
"""Rooms above `run` most of whose modules take settings of their own, and the modules that are given the whole run."""


@dataclass(frozen=True)
class Import:
    """One import statement: `target` is the dotted name of a module, as far as this tree or its top name tells."""

    path: Path
    line: int
    target: str


def find_faults(root: Path) -> list[str]:
    """All broken rules in the packages below `root`, as `file:line: what is wrong`."""
    files = {
        _module_name(path, root): path
        for package in ("bagpipe_hpc", "data_prep", "benchmarks")
        for path in (root / package).rglob("*.py")
    }
    faults: list[str] = []
    graph: dict[str, set[str]] = {}
    for module, path in sorted(files.items()):
        if _layer(module) is None:
            faults.append(
                f"{path.relative_to(root)}:1: {module} has no layer: name it in LAYERS of {Path(__file__).name}"
            )
            continue
        found = list(_imports(path, module, files))
        graph[module] = {item.target for item in found if item.target in files and item.target != module}
        faults += [
            f"{path.relative_to(root)}:{item.line}: {fault}" for item in found if (fault := _fault(module, item, root))
        ]
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        faults.append(f"import cycle: {' -> '.join(reversed(error.args[1]))}")
    return faults


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _layer(module: str) -> float | None:
    top, _, rest = module.partition(".")
    if top == "data_prep":
        return DATA_PREP_LAYER
    if top == "benchmarks":
        return BENCHMARKS_LAYER
    return LAYERS.get(rest.partition(".")[0]) if rest else -1  # the package itself: below everything


def _imports(path: Path, module: str, files: dict[str, Path]) -> Iterator[Import]:
    """Every import, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield Import(path, node.lineno, submodule if submodule in files else base)


def _fault(module: str, item: Import, root: Path) -> str | None:
    top = item.target.partition(".")[0]
    mine = _layer(module)
    if top in ("bagpipe_hpc", "data_prep", "benchmarks"):
        theirs = _layer(item.target)
        if theirs is None:
            return f"imports {item.target}, which has no layer"
        if theirs > mine:
            return f"upward import: {module} (layer {mine:g}) imports {item.target} (layer {theirs:g})"
        siblings = _branch(module), _branch(item.target)
        if theirs == mine and siblings[0] != siblings[1] and 2 <= mine <= 7:
            return f"sibling import: {module} imports {item.target} of the same layer {mine:g}"
        room, _, name = module.rpartition(".")
        if room in KNOW_THE_RUN and f"{item.target}.".startswith("bagpipe_hpc.run.") and name not in KNOW_THE_RUN[room]:
            return f"{module} imports {item.target}; in {room} only {' and '.join(KNOW_THE_RUN[room])} may"
        if top == "data_prep" and mine != DATA_PREP_LAYER and mine < LOWEST_STARTED:
            return f"{module} (layer {mine:g}) imports data_prep; only what a user starts may"
        return None
    where = item.path.relative_to(root).as_posix()
    if top in ONLY_IMPORTERS and not where.startswith(ONLY_IMPORTERS[top]) and mine != BENCHMARKS_LAYER:
        return f"imports {top}; only {ONLY_IMPORTERS[top]} may"
    if mine == 0 and top not in sys.stdlib_module_names:
        return f"layer 0 imports {top}; it may use the standard library only"
    return None


def _branch(module: str) -> str:
    """The part of a module's name that LAYERS knows; data_prep as a whole."""
    parts = module.split(".")
    return parts[0] if parts[0] == "data_prep" or len(parts) == 1 else parts[1]


def test_this_tree_keeps_the_layers():
    assert find_faults(ROOT) == []


@pytest.mark.parametrize(
    ("place", "statement", "fault"),
    [
        ("bagpipe_hpc/planning/window.py", "from bagpipe_hpc.roles import oracle", "upward import"),
        ("bagpipe_hpc/planning/window.py", "def f():\n    import bagpipe_hpc.cli.commands", "upward import"),
        ("bagpipe_hpc/planning/window.py", "from ..roles import oracle", "upward import"),
        ("bagpipe_hpc/planning/window.py", "from .. import cli", "upward import"),
        ("bagpipe_hpc/cache/row_cache.py", "from bagpipe_hpc.planning import window", "sibling import"),
        ("bagpipe_hpc/storage/shards.py", "import bagpipe_hpc.mpi.rows.window", "sibling import"),
        ("bagpipe_hpc/roles/oracle.py", "import mpi4py.MPI", "imports mpi4py; only bagpipe_hpc/mpi/ may"),
        ("bagpipe_hpc/roles/oracle.py", "from h5py import File", "imports h5py; only bagpipe_hpc/storage/ may"),
        ("data_prep/criteo.py", "import h5py", "imports h5py; only bagpipe_hpc/storage/ may"),
        ("bagpipe_hpc/models/published/dlrm.py", "import horovod.torch", "imports horovod; only"),
        ("bagpipe_hpc/config/schema.py", "import numpy", "standard library only"),
        ("data_prep/criteo.py", "from bagpipe_hpc.planning import window", "upward import"),
        ("bagpipe_hpc/tools/simulate/trace.py", "import benchmarks.step", "upward import"),
        ("bagpipe_hpc/roles/oracle.py", "import data_prep.criteo", "only what a user starts may"),
        ("bagpipe_hpc/step/divergence.py", "from bagpipe_hpc.run import run", "only compute and slice_reader may"),
        ("bagpipe_hpc/helpers.py", "import os", "has no layer"),
    ],
)
def test_planted_fault_is_found(tmp_path, place, statement, fault):
    _plant(tmp_path, {place: statement})
    faults = find_faults(tmp_path)
    assert len(faults) == 1
    assert fault in faults[0]
    assert faults[0].startswith(place)


def test_planted_cycle_is_found(tmp_path):
    _plant(
        tmp_path,
        {
            "bagpipe_hpc/planning/window.py": "from bagpipe_hpc.planning import slots",
            "bagpipe_hpc/planning/slots.py": "from .window import Window",
        },
    )
    assert len(find_faults(tmp_path)) == 1
    assert find_faults(tmp_path)[0].startswith("import cycle: ")


def test_allowed_imports_are_no_faults(tmp_path):
    _plant(
        tmp_path,
        {
            "bagpipe_hpc/models/sums/horovod_sums.py": "import horovod.torch",
            "bagpipe_hpc/mpi/rows/window.py": "from mpi4py import MPI\nfrom bagpipe_hpc.errors import BagpipeError",
            "bagpipe_hpc/roles/oracle.py": "from bagpipe_hpc.planning.window import Window\nimport torch",
            "bagpipe_hpc/cli/commands.py": "from bagpipe_hpc import __version__\nimport data_prep.criteo",
            "data_prep/criteo.py": "from bagpipe_hpc.storage import shards\nimport numpy",
        },
    )
    assert find_faults(tmp_path) == []


def _plant(root: Path, sources: dict[str, str]) -> None:
    """A small tree like the real one, with the given lines in it."""
    modules = [
        "config/schema",
        "errors",
        "cli/commands",
        "planning/window",
        "planning/slots",
        "cache/row_cache",
        "storage/shards",
    ]
    modules += ["mpi/row_window", "models/published/dlrm", "models/sums/horovod_sums", "roles/oracle"]
    texts = {f"bagpipe_hpc/{module}.py": "" for module in modules} | {"data_prep/criteo.py": ""} | sources
    for place, text in texts.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text) + "\n")
        (path.parent / "__init__.py").touch()


def test_importing_the_command_line_loads_no_heavy_package():
    program = """
        import sys, bagpipe_hpc.cli.commands
        heavy = {"torch", "mpi4py", "numpy", "h5py", "horovod", "pyarrow"} & set(sys.modules)
        sys.exit(f"bagpipe_hpc.cli.commands imports {', '.join(sorted(heavy))}" if heavy else 0)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr

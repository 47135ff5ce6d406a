"""Files that commands read, changed in any place: each command that reads them ends with a clear message or its result.

Shards, checkpoints, what runs leave, exports, statistics, plans, and policies' records. Where a manifest names size and
checksum of a file, it mostly names those of the changed one, as a stranger's would.
"""

import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import pytest
from hypothesis import strategies as st

from tests.fuzz.commands import run_limited
from tests.fuzz.conftest import PLACE, RECSHARD, SLIPSTREAM
from tests.fuzz.damage import Damage, arrays_damage, bytes_damage, hdf_damage, json_damage, names_in
from tests.fuzz.hunting import hunt, require_clear

Commands = list[list[str]]
ONE_TOO_MANY = (KeyError, IndexError, ValueError, TypeError, OSError, BadZipFile, zlib.error)
"""What a damage raises where the one before it took what it changes."""
QUICK = "data.verify=quick"
PLANNED = ["--trainers=2", "--batches=2", QUICK]
SIMULATED = [*PLANNED, "--lookahead=2", "train.checkpoint_every_steps=0"]


def of_any(data: str) -> Commands:
    run = f"{data}.toml"
    return [
        ["inspect", data],
        ["inspect", data, "--verify"],
        ["train", run, "train.output=out", "train.max_steps=2"],
        ["train", run, "train.output=quick", "train.max_steps=2", QUICK],
        ["simulate", run, *SIMULATED, "--compute-us-per-sample=1"],
        ["compare-policies", run, *PLANNED, "--policies=bagpipe"],
    ]


def of_stored(data: str, rows: str) -> Commands:
    run = f"{data}.toml"
    return [
        ["inspect", data, "--look-ups"],
        ["inspect", data, "--statistics=found.npz"],
        ["profile", run, "policy.name=fae", "policy.profile=own.h5"],
        ["compare-placements", run, "--batches=2", QUICK, "--placements=by_table"],
        ["prepare", f"--like={data}", f"--input={rows}", "--output=like"],
        ["prepare", f"--grow={data}", f"--input={rows}", "--output=grown"],
    ]


GO_ON = ["train", "visits.toml", "train.epochs=2"]
READ: dict[str, Commands] = {
    "visits": [
        *of_any("visits"),
        *of_stored("visits", "visits.csv"),
        ["train", "visits.toml", "train.output=out", QUICK, *SLIPSTREAM],
        ["evaluate", "run"],
        ["predict", "run", "--input=visits.csv", "--output=found.csv"],
        ["train", "visits.toml", "train.output=later", "train.warm_start=run"],
    ],
    "clicks": [*of_any("clicks"), *of_stored("clicks", "clicks.tsv")],
    "graph": of_any("graph"),
    "run": [
        ["inspect", "run"],
        ["inspect", "run", "--verify"],
        ["compare", "run", "slip"],
        ["compare", "run/checkpoints/step-00000014", "run/checkpoints/step-00000012"],
        ["evaluate", "run"],
        ["predict", "run", "--input=visits.csv", "--output=found.csv"],
        [*GO_ON, "train.output=run", "train.resume=auto"],
        [*GO_ON, "train.output=out", "train.resume=run/checkpoints/step-00000014"],
        [*GO_ON, "train.output=warm", "train.warm_start=run"],
        ["simulate", "visits.toml", *SIMULATED, "--calibrate=run"],
        ["export", "run", "--to=out", "--no-onnx"],
    ],
    "exported": [["train", "visits.toml", "train.output=out", "train.warm_start=exported"]],
    "slip": [
        ["train", "visits.toml", "train.output=out", "train.resume=slip/checkpoints/step-00000009", *SLIPSTREAM],
        ["train", "visits.toml", "train.output=later", "train.resume=slip/checkpoints/step-00000012", *SLIPSTREAM],
        ["train", "visits.toml", "train.output=replayed", "policy.replay=slip", *SLIPSTREAM],
    ],
    "plan.npz": [
        [
            "compare-placements",
            "visits.toml",
            "--batches=2",
            "--placements",
            " ".join(["recshard tables.plan=plan.npz", *RECSHARD]),
        ],
        ["compare-policies", "visits.toml", *PLANNED, "--policies", "pinned policy.plan=plan.npz"],
    ],
    "counts.npz": [
        [*PLACE, "tables.plan=new.npz"],
        [
            "compare-placements",
            "visits.toml",
            "--batches=2",
            "--placements",
            "greedy_lookup tables.statistics=counts.npz",
        ],
    ],
}
LAST = "run/checkpoints/step-00000014"


def damage_to(what: str, folder: Path) -> st.SearchStrategy[Damage]:
    """Damage to the files of a folder, or to a file."""
    inside = [str(path.relative_to(folder)) for path in sorted((folder / what).rglob("*")) if path.is_file()]
    match what:
        case "plan.npz" | "counts.npz":
            return arrays_damage(folder, what) | bytes_damage(what)
        case "slip":
            inside = [file for file in inside if "/policy/" in file]
        case "run":
            others = [f"run/{name}" for name in ("config.toml", "metrics.jsonl", "summary.json")]
            inside = [*others, *(file for file in inside if file.startswith(LAST))]
        case "exported":
            inside = [file for file in inside if file.endswith((".json", ".safetensors"))]
    jsons, binaries = ([file for file in inside if file.endswith(end)] for end in (".json", ".h5"))
    damage = bytes_damage(*inside)
    if jsons:
        damage |= json_damage(folder, *jsons)
    if binaries:
        damage |= hdf_damage(folder, *binaries)
    return damage


FEW = {"visits": 2, "run": 1}
"""In `make test`; the others are slow."""
MANY = 12


@pytest.mark.parametrize(
    ("what", "examples"),
    [
        *(pytest.param(what, few, id=f"{what}-few") for what, few in FEW.items()),
        *(pytest.param(what, MANY, id=f"{what}-many", marks=pytest.mark.slow) for what in READ),
    ],
)
def test_changed_files(what: str, examples: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    sound: Path = request.getfixturevalue("exported" if what == "exported" else "sound")
    chosen = st.lists(st.sampled_from(READ[what]), min_size=1, max_size=3, unique_by=str)
    damage = st.lists(damage_to(what, sound), min_size=1, max_size=2)

    def check(drawn: tuple[Sequence[Damage], Commands]) -> None:
        damages, commands = drawn
        with tempfile.TemporaryDirectory(dir=tmp_path) as made:
            here = shutil.copytree(sound, Path(made) / "here")
            try:
                for one in damages:
                    one.apply(here)
            except ONE_TOO_MANY:
                return
            require_clear(here, commands, [*names_in(damages), what], damages)

    hunt(examples, st.tuples(damage, chosen), check)


@pytest.mark.slow
@pytest.mark.parametrize("what", READ)
def test_sound_files_are_read(what: str, exported: Path, tmp_path: Path) -> None:
    """Else a fuzz of what is refused anyway would find nothing."""
    for number, command in enumerate(READ[what]):
        here = shutil.copytree(exported, tmp_path / str(number))
        [ended] = run_limited(here, [command])
        assert ended.code in (0, 1), (ended.arguments, ended.said)
        shutil.rmtree(here)

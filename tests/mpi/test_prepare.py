"""Ranks that share a preparation write what one process writes, name the same bad row, and fail together."""

import errno
import gzip
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from mpi4py import MPI

import data_prep.preparation_state
import data_prep.prepare
from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.launched import launched_team
from data_prep.ranks.team import OtherRankError
from data_prep.schema.document import load_schema, to_document
from tests.click_rows import random_rows

SETTINGS = PrepareSettings(rows_per_shard=60, compression="gzip")


@pytest.fixture(params=[4])
def some(request: pytest.FixtureRequest, comm: MPI.Intracomm) -> Iterator[MPI.Intracomm | None]:
    """The first 1, 2 or 4 ranks; None on the others."""
    is_member = comm.Get_rank() < request.param
    part = comm.Split(0 if is_member else MPI.UNDEFINED, comm.Get_rank())
    yield MPI.Intracomm(part) if is_member else None
    if is_member:
        part.Free()


@pytest.fixture
def folder(comm: MPI.Intracomm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that all ranks share; plain files have many ranges."""
    monkeypatch.setattr(data_prep.prepare, "RANGE_BYTES", 2500)
    return Path(comm.bcast(str(tmp_path)))


def silent(_: str) -> None:
    """Progress that nobody reads."""


def write_inputs(folder: Path) -> list[str]:
    """Files of every kind; called on each rank, written by the first."""
    texts = {
        "large": "\n".join(random_rows(150, seed=1)).encode(),
        "marked": b"\xef\xbb\xbf" + "\n\n".join(random_rows(20, seed=2)).encode() + b"\n",
        "packed.gz": gzip.compress("\n".join(random_rows(40, seed=3)).encode()),
        "dos": "\r\n".join(random_rows(50, seed=4)).encode() + b"\r\n",
        "mac": "\r".join(random_rows(40, seed=5)).encode(),
    }
    if MPI.COMM_WORLD.Get_rank() == 0:
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    return [str(folder / name) for name in texts]


def digests(output: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in output.iterdir()}


def outcome(
    some: MPI.Intracomm | None, inputs: list[str], output: Path, settings: PrepareSettings = SETTINGS
) -> BagpipeError | None:
    """Prepare on some ranks: the error of this one."""
    if some is None:
        return None
    try:
        with launched_team(silent, some) as team:
            prepare_clicks(inputs, output, settings, silent, team)
    except BagpipeError as error:
        return error
    return None


def assert_all_failed(some: MPI.Intracomm | None, error: BagpipeError | None, *words: str) -> None:
    """The first rank knows why, the others that another one failed."""
    if some is None:
        assert error is None
    elif some.Get_rank() == 0:
        assert all(word in str(error) for word in words), error
    else:
        assert isinstance(error, OtherRankError)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(
    "some", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4], indirect=True
)
def test_any_number_of_ranks_writes_the_same_bytes(comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path):
    inputs = write_inputs(folder)
    comm.Barrier()
    assert outcome(some, inputs, folder / "shared") is None
    comm.Barrier()
    if comm.Get_rank() == 0:
        manifest = prepare_clicks(inputs, folder / "alone", SETTINGS, silent)
        assert digests(folder / "shared") == digests(folder / "alone")
        assert load_manifest(folder / "shared") == manifest
        assert (manifest.rows("train"), manifest.rows("test")) == (270, 30)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("some", [3], indirect=True)
def test_a_schema_takes_the_same_from_the_training_rows_on_any_number_of_ranks(
    comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path
):
    inputs = [str(folder / name) for name in ("clicks.csv", "clicks.parquet")]
    schema = load_schema("movielens")
    if comm.Get_rank() == 0:
        for seed, name in enumerate(inputs):
            generate_clicks(500, Path(name), seed=seed, ids_at_most=50, schema=schema)
    comm.Barrier()
    settings = PrepareSettings("schema", schema=to_document(schema))
    assert outcome(some, inputs, folder / "shared", settings) is None
    comm.Barrier()
    if comm.Get_rank() == 0:
        manifest = prepare_clicks(inputs, folder / "alone", settings, silent)
        assert digests(folder / "shared") == digests(folder / "alone")
        assert manifest.settings is not None
        assert manifest.settings["fitted"]["age"]["rows"] > 800


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("some", [pytest.param(2, marks=pytest.mark.slow), 4], indirect=True)
def test_later_rows_and_grown_vocabularies_do_not_depend_on_ranks(
    comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path
):
    inputs = write_inputs(folder)
    if comm.Get_rank() == 0:
        prepare_clicks(inputs[:1], folder / "first", replace(SETTINGS, min_count=5), silent)
    comm.Barrier()
    for number, how in enumerate(({"like": folder / "first"}, {"grow": folder / "first", "evict_unused": 100})):
        settings = replace(SETTINGS, **how)
        assert outcome(some, inputs[1:], folder / f"shared_{number}", settings) is None
        comm.Barrier()
        if comm.Get_rank() == 0:
            manifest = prepare_clicks(inputs[1:], folder / f"alone_{number}", settings, silent)
            assert digests(folder / f"shared_{number}") == digests(folder / f"alone_{number}")
            assert (manifest.grown_from is None) == ("like" in how)


@pytest.mark.mpi(min_size=4)
def test_the_first_bad_row_is_named_whoever_reads_it(comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path):
    inputs = write_inputs(folder)
    bad = [("large", 131), ("marked", 3), ("dos", 7), ("mac", 40)]
    if comm.Get_rank() == 0:
        for name, line in bad:
            text = (folder / name).read_bytes()
            lines = text.splitlines(keepends=True)
            lines[line - 1] = (
                b"broken" + lines[line - 1][-1:] if name == "dos" else lines[line - 1].replace(b"\t", b" ", 1)
            )
            (folder / name).write_bytes(b"".join(lines))
    comm.Barrier()
    for allowed, (name, line) in enumerate(bad):
        skipping = PrepareSettings(rows_per_shard=60, compression="gzip", skip_bad_rows=allowed)
        error = outcome(some, inputs, folder / "shared", skipping)
        assert_all_failed(some, error, f"/{name}:{line}: ", "--skip-bad-rows")
        comm.Barrier()
    skipping = PrepareSettings(rows_per_shard=60, compression="gzip", skip_bad_rows=len(bad))
    assert outcome(some, inputs, folder / "shared", skipping) is None
    comm.Barrier()
    skipped = [row.split(": ")[0] for row in load_manifest(folder / "shared").skipped_rows]
    assert skipped == [f"{folder}/{name}:{line}" for name, line in bad]


@pytest.mark.mpi(min_size=4)
def test_a_disk_that_is_full_for_one_rank_ends_all(
    comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """And the same command goes on, once there is room."""
    inputs = write_inputs(folder)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    comm.Barrier()
    for stage in ("note_part", "note_vocabularies", "note_shard"):
        last = -1 if some is None else some.Get_size() - 1
        with monkeypatch.context() as patch:
            if comm.Get_rank() == (0 if stage == "note_vocabularies" else last):
                patch.setattr(data_prep.preparation_state.WorkFolder, stage, fail)
            assert_all_failed(some, outcome(some, inputs, folder / "shared"), "shared: the disk is full")
        comm.Barrier()
    assert outcome(some, inputs, folder / "shared") is None
    comm.Barrier()
    if comm.Get_rank() == 0:
        prepare_clicks(inputs, folder / "alone", SETTINGS, silent)
        assert digests(folder / "shared") == digests(folder / "alone")


@pytest.mark.mpi(min_size=4)
def test_a_damaged_file_behind_a_bad_row_is_not_what_ends_it(
    comm: MPI.Intracomm, some: MPI.Intracomm | None, folder: Path
):
    inputs = write_inputs(folder)
    if comm.Get_rank() == 0:
        (folder / "packed.gz").write_bytes((folder / "packed.gz").read_bytes()[:-30])
    comm.Barrier()
    assert_all_failed(some, outcome(some, inputs, folder / "damaged"), "packed.gz: cannot be read")
    if comm.Get_rank() == 0:
        (folder / "marked").write_bytes(b"broken\n")
    comm.Barrier()
    assert_all_failed(some, outcome(some, inputs, folder / "bad"), "/marked:1: ")
    assert_all_failed(some, outcome(some, [*inputs, "absent"], folder / "other"), "absent: no such input file")

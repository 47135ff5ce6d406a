"""Plans that were written are read again, one at a time; what is damaged is refused, whatever is damaged."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanFileError
from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.plan_record import PlanRecord
from bagpipe_hpc.storage.plans.plan_file import MAGIC, PlanReader, PlanWriter, Stretch
from tests.drawing import share_of

Segments = list[list[BatchPlan]]


def record(rng: np.random.Generator, kind: type[PlanRecord], **integers: int) -> Any:
    """Any record: arrays of any values and lengths, often empty; optional ones, or None."""

    def array(dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
        return rng.integers(0, 256, dtype.itemsize * int(rng.integers(0, 5)), dtype=np.uint8).view(dtype)

    values: dict[str, Any] = {name: array(dtype) for name, dtype in kind.ARRAYS.items()}
    values |= {name: array(dtype) if rng.random() < 0.5 else None for name, dtype in kind.OPTIONAL.items()}
    return kind(**integers, **values)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, Segments]:
    """Groups of tables, trainers, and the plans of some segments."""
    groups, trainers, seed = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)

    def plan(batch: int) -> BatchPlan:
        numbers = dict.fromkeys(("samples", "prefetch_after", "retire_group", "unique_rows", "fetched_rows"), 0)
        first, *others = (
            BatchPlan(
                record(rng, SharedPlan, batch=batch, **numbers), [record(rng, TrainerPlan) for _ in range(trainers)]
            )
            for _ in range(groups)
        )
        return BatchPlan(first.shared, first.trainers, tuple(others))

    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return groups, trainers, [[plan(batch) for batch in range(length)] for length in lengths]


def written(path: Path, segments: Segments) -> tuple[list[Stretch], int]:
    with path.open("wb") as file:
        writer = PlanWriter(file)
        return [writer.write(iter(plans)) for plans in segments], writer.largest_bytes


def encoded(plans: list[BatchPlan]) -> list[list[bytes]]:
    return [[part.tobytes() for group in plan.groups for part in group.encode()] for plan in plans]


def decoded(plan: BatchPlan) -> list[dict[str, Any]]:
    """All that a plan says, in plain values."""
    records = [record for group in plan.groups for record in (group.shared, *group.trainers)]
    return [{name: array.tolist() for name, array in record.arrays().items()} for record in records]


@settings(max_examples=share_of(30), deadline=None)
@given(runs())
def test_reading_reverses_writing(tmp_path_factory: pytest.TempPathFactory, run: tuple[int, int, Segments]) -> None:
    groups, trainers, segments = run
    path = tmp_path_factory.mktemp("plans") / "plans.bin"
    stretches, largest = written(path, segments)
    assert stretches[0].first == len(MAGIC)
    assert stretches[-1].first + stretches[-1].bytes == path.stat().st_size
    reader = PlanReader(path, path.stat().st_size, groups, trainers, largest)
    for plans, stretch in [*zip(segments, stretches, strict=True)][::-1]:  # in any order, and more than once
        for _ in range(2):
            found = list(reader.plans(stretch))
            assert encoded(found) == encoded(plans)
            assert [decoded(plan) for plan in found] == [decoded(plan) for plan in plans]
    reader.close()


def plain_plans(count: int) -> list[BatchPlan]:
    def array(kind: type[PlanRecord], number: int) -> dict[str, Any]:
        return {name: np.arange(number + 3, dtype=dtype) for name, dtype in kind.ARRAYS.items()}

    return [
        BatchPlan(
            SharedPlan(number, 5, 0, 0, 7, 3, **array(SharedPlan, number)),
            [TrainerPlan(**array(TrainerPlan, number)) for _ in range(2)],
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stretch, int]:
    path = tmp_path_factory.mktemp("saved") / "plans.bin"
    (stretch,), largest = written(path, [plain_plans(3)])
    return path, stretch, largest


def read_all(
    path: Path, stretch: Stretch, largest: int, *, size: int | None = None, kind: type[PlanReader] = PlanReader
) -> int:
    reader = kind(path, path.stat().st_size if size is None else size, 1, 2, largest)
    try:
        return sum(1 for _ in reader.plans(stretch))
    finally:
        reader.close()


def test_every_bit_counts(saved: tuple[Path, Stretch, int], tmp_path: Path) -> None:
    """Any byte that is another one is found, in heads, sizes, records and padding."""
    path, stretch, largest = saved
    whole, damaged = path.read_bytes(), tmp_path / "damaged.bin"
    assert read_all(path, stretch, largest) == 3
    for place in range(len(whole)):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(PlanFileError, match=r"damaged\.bin: is .*save the plans again"):
            read_all(damaged, stretch, largest)


def test_every_length_counts(saved: tuple[Path, Stretch, int], tmp_path: Path) -> None:
    path, stretch, largest = saved
    whole, cut = path.read_bytes(), tmp_path / "cut.bin"
    for length in range(0, len(whole), 8):
        cut.write_bytes(whole[:length])
        with pytest.raises(PlanFileError, match=f"has {length} bytes instead of {len(whole)}"):
            read_all(cut, stretch, largest, size=len(whole))
        if length >= len(MAGIC):  # cut while it is read
            with pytest.raises(PlanFileError, match=f"ends at byte {length}, in plan"):
                read_all(cut, stretch, largest)


@settings(max_examples=share_of(60), deadline=None)
@given(data=st.binary(max_size=400), place=st.integers(16, 400))
def test_noise_is_refused(saved: tuple[Path, Stretch, int], data: bytes, place: int) -> None:
    path, stretch, largest = saved
    whole = path.read_bytes()
    noisy = path.with_name("noisy.bin")
    noisy.write_bytes((whole[:place] + data + whole[place + len(data) :])[: len(whole)])
    if noisy.read_bytes() == whole:
        assert read_all(noisy, stretch, largest) == 3
    else:
        with pytest.raises(PlanFileError):
            read_all(noisy, stretch, largest)


def test_one_plan_is_in_memory_at_a_time(saved: tuple[Path, Stretch, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that asks for more than the largest plan is refused before memory is taken for it."""
    path, stretch, largest = saved
    asked = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *given: asked.append(len(given[1][0])) or preadv(*given))
    assert read_all(path, stretch, largest) == 3
    assert max(asked) == largest
    with pytest.raises(PlanFileError, match="is damaged at byte"):
        read_all(path, stretch, largest - 8)


def test_a_stretch_must_be_filled(saved: tuple[Path, Stretch, int]) -> None:
    path, stretch, largest = saved
    with pytest.raises(PlanFileError, match="bytes are left behind byte"):
        read_all(path, stretch._replace(plans=2), largest)
    with pytest.raises(PlanFileError, match=r"is damaged at byte|ends at byte"):
        read_all(path, stretch._replace(plans=4), largest)


def refuses(kind: type[PlanReader], path: Path, stretch: Stretch, largest: int) -> bool:
    """Whether a reader refuses a file."""
    try:
        read_all(path, stretch, largest, kind=kind)
    except PlanFileError:
        return True
    return False


def is_sound(kind: type[PlanReader], saved: tuple[Path, Stretch, int], folder: Path) -> bool:
    """Whether a reader takes plans as they were written alone: no other order, no other value, none left out."""
    path, stretch, largest = saved
    whole = path.read_bytes()
    sizes = [32 + int.from_bytes(whole[16 + 8 : 16 + 16], "little")]
    second = 16 + sizes[0]
    sizes.append(32 + int.from_bytes(whole[second + 8 : second + 16], "little"))
    rest = second + sizes[1]
    other_order = whole[:16] + whole[second:rest] + whole[16:second] + whole[rest:]
    other_value = whole[: rest - 1] + bytes([whole[rest - 1] ^ 1]) + whole[rest:]
    damaged = folder / "damaged.bin"
    for content in (other_order, other_value):
        damaged.write_bytes(content)
        if not refuses(kind, damaged, stretch, largest):
            return False
    return refuses(kind, path, stretch._replace(plans=2), largest) and not refuses(kind, path, stretch, largest)


class HeadNotChecked(PlanReader):
    """Takes any plan for the one that is due."""

    def _require_head(self, *_: object) -> None:
        pass


class SumNotChecked(PlanReader):
    """Takes a plan whatever its checksum says."""

    def _require_sum(self, *_: object) -> None:
        pass


class EndNotChecked(PlanReader):
    """Takes the first plans of a segment for all of it."""

    def _require_end(self, *_: object) -> None:
        pass


MUTANTS = (HeadNotChecked, SumNotChecked, EndNotChecked)


def test_the_reader_is_sound(saved: tuple[Path, Stretch, int], tmp_path: Path) -> None:
    assert is_sound(PlanReader, saved, tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: type[PlanReader], saved: tuple[Path, Stretch, int], tmp_path: Path) -> None:
    assert not is_sound(mutant, saved, tmp_path)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="No such file"):
        PlanReader(tmp_path / "plans.bin", 8, 1, 1, 8)
    (tmp_path / "other.bin").write_bytes(b"something else")
    with pytest.raises(PlanFileError, match="is no file of plans"):
        PlanReader(tmp_path / "other.bin", 14, 1, 1, 8)


def test_plans_of_another_run_are_refused(tmp_path: Path) -> None:
    """Also where they are as long, as of another seed."""
    path = tmp_path / "plans.bin"
    with path.open("wb") as file:
        numbers = dict.fromkeys(("samples", "prefetch_after", "retire_group", "unique_rows", "fetched_rows"), 0)
        rng = np.random.default_rng(1)
        plan = BatchPlan(record(rng, SharedPlan, batch=0, **numbers), [record(rng, TrainerPlan)], ())
        writer = PlanWriter(file, key=1)
        stretch = writer.write(iter([plan]))
    about = (path, path.stat().st_size, 1, 1, writer.largest_bytes)
    with closing(PlanReader(*about, key=1)) as own:
        assert len(list(own.plans(stretch))) == 1
    with (
        closing(PlanReader(*about, key=2)) as other,
        pytest.raises(PlanFileError, match=r"is damaged between bytes .* or of another run"),
    ):
        list(other.plans(stretch))

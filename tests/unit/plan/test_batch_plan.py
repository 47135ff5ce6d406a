"""A plan that was encoded and decoded is the same plan, and decoding copies nothing."""

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bagpipe_hpc.plan.batch_plan import BatchPlan, GroupPlan, ReceivedPlan, SharedPlan, TrainerPlan, as_positions
from bagpipe_hpc.plan.plan_record import EncodedRecords, PlanRecord, any_has, encode_each
from bagpipe_hpc.plan.slices import BatchSlices
from tests.drawing import share_of

RECORDS = (SharedPlan, TrainerPlan)
AnyRecord = TypeVar("AnyRecord", bound=PlanRecord)


def integer_fields(kind: type[PlanRecord]) -> list[str]:
    return [field.name for field in fields(kind) if field.name not in kind.ARRAYS | kind.OPTIONAL]


@st.composite
def records(draw: st.DrawFn, kind: type[PlanRecord]) -> PlanRecord:
    """Any record of a kind: integers up to 64 bits, arrays of any values and lengths, often empty; optional ones, or
    None."""
    values: dict[str, Any] = {name: draw(st.integers(-(2**63), 2**63 - 1)) for name in integer_fields(kind)}
    for name, dtype in kind.ARRAYS.items():
        is_narrow = name in kind.NARROW and draw(st.booleans())
        values[name] = draw(arrays(np.uint16 if is_narrow else dtype, st.integers(0, 9)))
    for name, dtype in kind.OPTIONAL.items():
        values[name] = draw(st.none() | arrays(dtype, st.integers(0, 9)))
    return kind(**values)


def filled(kind: type[AnyRecord], length: int) -> AnyRecord:
    """A record whose every array has `length` numbers of its own."""
    values: dict[str, Any] = {name: number for number, name in enumerate(integer_fields(kind))}
    for number, (name, dtype) in enumerate(kind.ARRAYS.items()):
        values[name] = np.arange(length, dtype=dtype) + 1000 * number
    return kind(**values)


def header_length(array: np.ndarray) -> int:
    """~n where its numbers are narrow."""
    return ~array.size if array.dtype == np.uint16 else array.size


def assert_same(found: PlanRecord, expected: PlanRecord) -> None:
    for field in fields(expected):
        value, wanted = getattr(found, field.name), getattr(expected, field.name)
        if wanted is not None and field.name in expected.ARRAYS | expected.OPTIONAL:
            is_narrow = field.name in expected.NARROW and wanted.dtype == np.uint16
            assert value.dtype == (np.uint16 if is_narrow else (expected.ARRAYS | expected.OPTIONAL)[field.name])
            np.testing.assert_array_equal(value, wanted, err_msg=field.name)
        else:
            assert value == wanted, field.name


@settings(max_examples=share_of(40))
@given(st.one_of([records(kind) for kind in RECORDS]))
def test_decoding_reverses_encoding(record: PlanRecord) -> None:
    encoded = record.encode()
    assert encoded.dtype == np.uint8
    assert_same(type(record).decode(encoded), record)


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_every_array_starts_on_eight_bytes(kind: type[PlanRecord], length: int) -> None:
    """So that int64 arrays behind int32 ones of odd length can be used in place."""
    encoded = filled(kind, length).encode()
    assert encoded.size % 8 == 0
    decoded = kind.decode(encoded)
    starts = [getattr(decoded, name).ctypes.data - encoded.ctypes.data for name in kind.ARRAYS]
    assert all(start % 8 == 0 for start in starts)


@pytest.mark.parametrize("kind", RECORDS)
def test_decoded_arrays_are_views(kind: type[PlanRecord]) -> None:
    encoded = filled(kind, 3).encode()
    decoded = kind.decode(encoded)
    assert all(np.shares_memory(getattr(decoded, name), encoded) for name in kind.ARRAYS)


@settings(max_examples=share_of(40))
@given(st.one_of([records(kind) for kind in RECORDS]))
def test_an_allocated_record_is_encoded_once_it_is_filled(record: PlanRecord) -> None:
    """Byte for byte as if its arrays had been made apart, without another copy."""
    lengths = {name: header_length(array) for name, array in record.arrays().items()}
    allocated = type(record).allocate(lengths, **{name: getattr(record, name) for name in integer_fields(type(record))})
    for name, array in record.arrays().items():
        getattr(allocated, name)[:] = array
    np.testing.assert_array_equal(allocated.encode(), record.encode())
    assert all(np.shares_memory(array, allocated.encode()) for array in allocated.arrays().values() if array.size)


def test_narrow_numbers_take_half_the_bytes() -> None:
    wide = filled(TrainerPlan, 1000)
    narrow = replace(wide, positions=wide.arrays()["positions"].astype(np.uint16))
    assert wide.encode().size - narrow.encode().size == 2000
    assert as_positions(np.arange(3), 1 << 16).dtype == np.uint16
    assert as_positions(np.arange(3), (1 << 16) + 1).dtype == np.int32


def test_encoding_takes_other_types_and_strides() -> None:
    numbers = np.arange(12, dtype=np.int64)
    record = TrainerPlan(*[numbers[::3]] * len(TrainerPlan.ARRAYS))
    decoded = TrainerPlan.decode(record.encode())
    assert_same(decoded, TrainerPlan(*[np.asarray([0, 3, 6, 9])] * len(TrainerPlan.ARRAYS)))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_optional_arrays_take_bytes_where_they_are_there(count: int) -> None:
    """No samples are something else than the default ones, and an array behind them starts on 8 bytes."""
    plain = filled(TrainerPlan, 3)
    encoded = replace(plain, samples=np.arange(count, dtype=np.int32)).encode()
    assert encoded[: plain.encode().size].tobytes() == plain.encode().tobytes()
    assert encoded.size == plain.encode().size + 8 * len(TrainerPlan.OPTIONAL) + -(-count // 2) * 8
    decoded = TrainerPlan.decode(encoded)
    assert decoded.samples is not None
    np.testing.assert_array_equal(decoded.samples, np.arange(count))
    assert TrainerPlan.decode(plain.encode()).samples is None


def test_what_a_trainer_adds_travels_in_its_plan() -> None:
    plain = filled(TrainerPlan, 3)
    assert isinstance(plain, TrainerPlan)
    assert plain.additions is None
    assert plain.rows_written == 3
    rows, slots, bases = np.arange(5) + 2**40, np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32) + 5
    adding = replace(plain, add_rows=rows, add_slots=slots, base_slots=bases)
    decoded = TrainerPlan.decode(adding.encode())
    assert decoded.additions is not None
    for found, wanted in zip(decoded.additions, (rows, slots, bases), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert decoded.rows_written == 3 + 5
    assert decoded.samples is None


def test_a_plan_on_the_memory_of_its_encoding_takes_samples() -> None:
    part = TrainerPlan.decode(filled(TrainerPlan, 3).encode())
    slices = BatchSlices.of([np.asarray([1, 2]), np.asarray([0])], 3, 2)
    plan = BatchPlan(filled(SharedPlan, 1), (part, part)).with_samples(slices)  # type: ignore[arg-type]
    decoded = [TrainerPlan.decode(own.encode()).samples for own in plan.trainers]
    assert [None if found is None else found.tolist() for found in decoded] == [[1, 2], [0]]


def test_the_plan_without_samples_is_the_closing_one() -> None:
    values: dict[str, Any] = vars(filled(SharedPlan, 0))
    assert SharedPlan(**values | {"samples": 0}).is_closing
    assert not SharedPlan(**values | {"samples": 1}).is_closing


@st.composite
def parts_alike(draw: st.DrawFn) -> list[TrainerPlan]:
    """Parts that have the same optional arrays."""
    optional = draw(st.lists(st.sampled_from(list(TrainerPlan.OPTIONAL)), unique=True))
    names = TrainerPlan.ARRAYS | {name: dtype for name, dtype in TrainerPlan.OPTIONAL.items() if name in optional}
    any_of = {name: arrays(dtype, st.integers(0, 9)) for name, dtype in names.items()}
    any_of |= {name: any_of[name] | arrays(np.uint16, st.integers(0, 9)) for name in TrainerPlan.NARROW}
    one = st.builds(TrainerPlan, **any_of)
    return draw(st.lists(one, min_size=1, max_size=5))


@settings(max_examples=share_of(25), deadline=None)
@given(parts_alike())
def test_parts_in_one_memory_are_encoded_once_they_are_filled(parts: list[TrainerPlan]) -> None:
    """Byte for byte as each one alone; they are decoded as they were."""
    optional = [name for name in TrainerPlan.OPTIONAL if getattr(parts[0], name) is not None]
    lengths = np.asarray([[header_length(array) for array in part.arrays().values()] for part in parts])
    records, addresses = EncodedRecords.allocate(TrainerPlan, lengths, optional)
    for record, part, starts in zip(records, parts, addresses, strict=True):
        for (name, array), start in zip(part.arrays().items(), starts, strict=True):
            assert not array.size or getattr(record, name).ctypes.data == start
            getattr(record, name)[:] = array
    assert [found.tobytes() for found in encode_each(records)] == [part.encode().tobytes() for part in parts]
    for record, part in zip(records, parts, strict=True):
        assert_same(record, part)
    for name in TrainerPlan.OPTIONAL:
        assert any_has(records, [name]) == any_has(parts, [name]) == (name in optional)


def of_trainer(**numbers: list[int]) -> TrainerPlan:
    """A trainer's part in which only the given arrays hold something."""
    given: dict[str, Any] = {name: np.array(found, dtype=np.int32) for name, found in numbers.items()}
    return replace(filled(TrainerPlan, 0), **given)


def test_versions_of_before_a_checkpoint_are_none() -> None:
    """Of the shared part and of every trainer's, in every group of tables; the step's own is in the checkpoint."""
    shared = replace(filled(SharedPlan, 0), versions=np.array([3, 5, 6], np.int32))
    plan = BatchPlan(shared, [of_trainer(versions=[9, 5]), of_trainer(versions=[1, 6])])
    plan = replace(plan, others=(plan,)).without_versions_up_to(5)
    for group in plan.groups:
        assert group.shared.versions.tolist() == [0, 0, 6]
        assert [part.versions.tolist() for part in group.trainers] == [[9, 0], [0, 6]]
        assert group.shared.versions.dtype == group.trainers[0].versions.dtype == np.int32


def test_rounds_of_additions_are_those_of_every_group_of_tables() -> None:
    """A group of tables may have fewer than another, and one that is not cut into rounds has one."""
    numbers = [10, 11, 12, 13, 14]
    three = of_trainer(add_rows=numbers, add_slots=numbers[::-1], base_slots=numbers, add_rounds=[2, 0, 3])
    one = of_trainer(add_rows=[20], add_slots=[21], base_slots=[22])
    shared = filled(SharedPlan, 0)
    plan = ReceivedPlan(tuple(GroupPlan(shared, part) for part in (one, three, of_trainer())))
    found = [{group: part.rows.tolist() for group, part in adds.items()} for adds in plan.addition_rounds]
    assert found == [{0: [20], 1: [10, 11]}, {1: []}, {1: [12, 13, 14]}]
    assert plan.addition_rounds[2][1].slots.tolist() == [12, 11, 10]
    assert plan.rows_written == 6
    assert ReceivedPlan((GroupPlan(shared, of_trainer()),)).addition_rounds == ()


def test_pulled_rows_are_the_last_that_are_fetched() -> None:
    pulled = of_trainer(fetch_rows=list(range(9)), new_slots=[4, 5], merged_slots=[6, 7, 8]).pulled
    assert (pulled.first, pulled.new, pulled.merged) == (4, slice(4, 6), slice(6, 9))
    assert of_trainer(fetch_rows=list(range(9))).pulled.first == 9

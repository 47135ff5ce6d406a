"""Dense weights and optimizer states come back bit for bit, and nothing in the file can do harm."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.dense_file import outline_dense_file, read_dense_file, write_dense_file

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "plain SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "Adam": lambda parameters: torch.optim.Adam(parameters, betas=(0.85, 0.99), amsgrad=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(1e-3), foreach=False),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr_decay=1e-4),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, centered=True),
    "two groups": lambda parameters: torch.optim.Adam(
        [{"params": list(parameters)[:1], "lr": 0.5}, {"params": list(parameters)[1:]}]
    ),
}


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().contiguous()
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().tobytes()


def assert_identical(found: Any, expected: Any) -> None:
    """Equal in value, type and bits, all the way down."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert bits(found) == bits(expected)
        return
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        assert [type(key) for key in found] == [type(key) for key in expected]
        for key, value in expected.items():
            assert_identical(found[key], value)
        return
    assert type(found) is type(expected)
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for found_item, item in zip(found, expected, strict=True):
            assert_identical(found_item, item)
    elif isinstance(expected, float):
        assert np.float64(found).tobytes() == np.float64(expected).tobytes()
    else:
        assert found == expected


def round_trip(path: Path, model: dict[str, Any], optimizer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    write_dense_file(path, model, optimizer)
    return read_dense_file(path)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_for_bit_from_what_was_read(tmp_path: Path, name: str) -> None:
    def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        return model, OPTIMIZERS[name](model.parameters())

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.full((2, 3), step / 7)).square().sum().backward()
            optimizer.step()

    model, optimizer = fresh()
    train(model, optimizer, 3)
    states = round_trip(tmp_path / "dense.h5", model.state_dict(), optimizer.state_dict())
    assert_identical(states[0], dict(model.state_dict()))
    assert_identical(states[1], optimizer.state_dict())

    resumed, resumed_optimizer = fresh()
    resumed.load_state_dict(states[0])
    resumed_optimizer.load_state_dict(states[1])
    train(model, optimizer, 2)
    train(resumed, resumed_optimizer, 2)
    assert_identical(dict(resumed.state_dict()), dict(model.state_dict()))
    assert_identical(resumed_optimizer.state_dict(), optimizer.state_dict())


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_tensors_of_every_type_and_shape(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.arange(24).reshape(2, 3, 4).to(dtype)
    tensors = {"full": values, "none": values[:, :0], "scalar": values[1, 1, 1], "strided": values.transpose(0, 2)[1]}
    assert_identical(round_trip(tmp_path / "dense.h5", tensors, {}), (tensors, {}))


def test_plain_values_of_every_kind(tmp_path: Path) -> None:
    state = {
        "none": None,
        "flags": [True, False],
        "numbers": (0, -1, 2**70, 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan),
        "text": 'a "quoted" text, \u00fc, \u2028',
        "nested": {0: {1: {"2": ((), [], {})}}, "": "empty key"},
        "tensor": {"tensor": "model/weight"},
    }
    assert_identical(round_trip(tmp_path / "dense.h5", {}, state), ({}, state))


def test_tensor_names_may_hold_anything(tmp_path: Path) -> None:
    names = ["a/b", ".", "..", "/", "", "a%2Fb", "top.0.weight", "\u00fc\0", "tree", " "]
    model = {name: torch.tensor(float(number)) for number, name in enumerate(names)}
    assert_identical(round_trip(tmp_path / "dense.h5", model, {}), (model, {}))


def test_weights_are_readable_without_this_package(tmp_path: Path) -> None:
    write_dense_file(tmp_path / "dense.h5", {"top.0.weight": torch.eye(2)}, {})
    with h5py.File(tmp_path / "dense.h5") as file:
        assert file["model/top.0.weight"][()].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"a": {"b": object()}}, "optimizer/a/b"),
        ({"a": np.float32(1)}, "optimizer/a"),
        ({"a": torch.zeros(1, dtype=torch.complex64)}, "optimizer/a"),
        ({"a": torch.eye(2).to_sparse()}, "optimizer/a"),
        ({1.5: 1}, "1.5"),
    ],
)
def test_what_has_no_place_is_named(tmp_path: Path, state: dict[Any, Any], place: str) -> None:
    with pytest.raises(TypeError, match=place):
        write_dense_file(tmp_path / "dense.h5", {}, state)


@pytest.mark.parametrize(
    "tree",
    [
        b"",
        b"{",
        b"[1]",
        b'{"model": {"dict": []}}',
        b'{"model": 3, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [], "list": []}, "optimizer": {"dict": []}}',
        b'{"model": {"pickle": "cos"}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [[["a"], 1]]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [1]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [["a", [1]]]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [["a", {"tensor": 3}]]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [["a", {"tensor": "/model/../model"}]]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [["a", {"tensor": "tree"}]]}, "optimizer": {"dict": []}}',
        b'{"model": {"dict": [["a", {"float": "1.0x"}]]}, "optimizer": {"dict": []}}',
        b'{"model": ' + b'{"list": [' * 20_000,
    ],
)
def test_a_hostile_tree_is_refused_by_name(tmp_path: Path, tree: bytes) -> None:
    path = tmp_path / "dense.h5"
    with h5py.File(path, "w") as file:
        file["tree"] = np.frombuffer(tree, np.uint8)
    with pytest.raises(CheckpointError) as raised:
        read_dense_file(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_a_tensor_that_was_never_stored_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "dense.h5"
    tree = {"model": {"dict": [["a", {"tensor": "a"}]]}, "optimizer": {"dict": []}}
    with h5py.File(path, "w") as file:
        file["tree"] = np.frombuffer(json.dumps(tree).encode(), np.uint8)
        file.create_dataset("a", (2**40,), "<f4").attrs["dtype"] = "float32"
    with pytest.raises(CheckpointError, match="a is no dataset"):
        read_dense_file(path)


def test_a_type_of_variable_length_is_not_read(tmp_path: Path) -> None:
    """HDF5 crashes where a damaged file has such a value."""
    path = tmp_path / "dense.h5"
    write_dense_file(path, {"a": torch.ones(3)}, {})
    with h5py.File(path, "r+") as file:
        file["model/a"].attrs["dtype"] = "float32"
    with pytest.raises(CheckpointError, match=r"'model/a' is float32 with dtype = None"):
        read_dense_file(path)


def named(*names: str) -> bytes:
    """A tree whose model has tensors under these names."""
    members = [[str(number), {"tensor": name}] for number, name in enumerate(names)]
    return json.dumps({"model": {"dict": members}, "optimizer": {"dict": []}}).encode()


def test_a_tensor_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "dense.h5"
    write_dense_file(path, {"a": torch.ones(1000)}, {})
    with h5py.File(path, "r+") as file:
        del file["tree"]
        file["tree"] = np.frombuffer(named(*["model/a"] * 100), np.uint8)
    with pytest.raises(CheckpointError, match=r"dense\.h5: .*'model/a' is named twice"):
        read_dense_file(path)


def test_one_tensor_under_many_names_takes_no_more_memory_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dense.h5"
    write_dense_file(path, {"0": torch.ones(10_000)}, {})
    with h5py.File(path, "r+") as file:
        for number in range(1, 100):
            file[f"model/{number}"] = file["model/0"]
        del file["tree"]
        file["tree"] = np.frombuffer(named(*(f"model/{number}" for number in range(100))), np.uint8)
    with pytest.raises(CheckpointError, match="tensors of more bytes than the file has"):
        read_dense_file(path)
    with pytest.raises(CheckpointError, match="tensors of more bytes than the file has"):
        outline_dense_file(path)


def test_a_tree_of_megabytes_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "dense.h5"
    with h5py.File(path, "w") as file:
        file["tree"] = np.frombuffer(b"[" + b"{}," * (12 << 20), np.uint8)
    with pytest.raises(CheckpointError, match="its tree has 37748737 bytes"):
        read_dense_file(path)


def test_an_outline_has_shapes_and_types_but_no_values(tmp_path: Path) -> None:
    write_dense_file(tmp_path / "dense.h5", {"a": torch.ones(2, 3, dtype=torch.bfloat16)}, {"lr": 0.5})
    model, optimizer = outline_dense_file(tmp_path / "dense.h5")
    assert (model["a"].shape, model["a"].dtype, model["a"].device.type) == ((2, 3), torch.bfloat16, "meta")
    assert optimizer == {"lr": 0.5}

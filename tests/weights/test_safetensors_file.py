"""One file of tensors: what others write is read to the bit, what we write others read, and damage is one message."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from nanoeuler.errors import UserError
from nanoeuler.weights.safetensors_file import read_header, write_tensors
from nanoeuler.weights.tensors import narrow, widen

TENSORS = {
    "matrix": np.arange(15, dtype=np.float32).reshape(3, 5) - 7.25,
    "vector": np.array([1e-30, np.inf, np.nan, -0.0], np.float32),
    "number": np.array(3.5, np.float32),
    "nothing": np.zeros((0, 3), np.float32),
}


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        read_header(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_reads_what_the_library_writes(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    given = {name: tensor.astype(dtype) for name, tensor in TENSORS.items()}
    save_file(given, path)
    found = read_header(path)
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        assert (found[name].dtype, found[name].shape) == (dtype, tensor.shape)
        assert found[name].read().tobytes() == tensor.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_library_reads_what_we_write(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    given = TENSORS | {"transposed": TENSORS["matrix"].T, "slice": np.arange(12, dtype=np.float64)[::3]}
    write_tensors(path, given, dtype)
    loaded = load_file(path)
    assert loaded.keys() == given.keys()
    for name, tensor in given.items():
        assert loaded[name].tobytes() == tensor.astype(dtype).tobytes(), name
    other = tmp_path / "plain"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


def test_bfloat16_travels_both_ways_with_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="NumPy has no bfloat16, PyTorch has")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    given = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    write_tensors(path, {"x": given, "y": given.T}, "bfloat16")
    theirs = safetensors_torch.load_file(path)
    assert theirs["x"].dtype == torch.bfloat16
    assert (theirs["x"] == torch.tensor(given).to(torch.bfloat16)).all()
    assert (theirs["y"] == theirs["x"].T).all()
    safetensors_torch.save_file({"z": theirs["x"]}, path)
    found = read_header(path)["z"]
    assert (found.dtype, found.shape) == ("bfloat16", (7, 3))
    assert (found.read() == widen(narrow(given))).all()


def test_rounding_beyond_a_dtype_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for dtype, value in (("float16", 7e4), ("bfloat16", 3.4e38), ("float32", 1e39)):
        with pytest.raises(UserError, match=f"tensor large has numbers that are beyond {dtype}"):
            write_tensors(path, {"fine": np.ones(2), "large": np.array([1.0, value])}, dtype)
        assert not path.exists()
    with pytest.raises(UserError, match="beyond float16"):
        write_tensors(path, {"both": np.array([np.inf, 7e4], np.float32)}, "float16")
    write_tensors(path, {"infinite": np.array([np.inf, np.nan], np.float32)}, "float16")  # it was before


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    assert refusal(path) == "missing"
    for content, words in (
        (b"", "it has 0 bytes"),
        (b"1234567", "it has 7 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "a page of the web"),
        *((pickle.dumps({"a": 1}, protocol), "a pickle") for protocol in range(2, 6)),
        (b"PK\x03\x04" + bytes(100), "PyTorch"),
        (b"GGUF" + bytes(100), "llama.cpp"),
        (b"\xff" * 100, "its header claims 18,446,744,073,709,551,615 bytes"),
    ):
        path.write_bytes(content)
        assert words in refusal(path)
    path.unlink()
    path.mkdir()
    assert "cannot be read" in refusal(path)


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (file_of({"a": entry()}, bytes(8), length=10**6), "its header claims 1,000,000 bytes"),
        (file_of({"a": entry(shape=(2_500_000_000,), offsets=(0, 10**10))}, bytes(8)), "of another size than"),
        (file_of({"a": entry()}, bytes(7)), "of another size than"),
        (file_of({"a": entry()}, bytes(9)), "of another size than"),
        (file_of({"a": entry(shape=(3,))}, bytes(8)), "damaged"),
        (file_of({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)), "damaged"),
        (file_of({"a": entry(offsets=(8, 16))}, bytes(16)), "damaged"),
        (file_of({"a": entry(offsets=(8, 0))}, bytes(8)), "damaged"),
        (file_of({"a": entry(shape=(2**40, 2**40))}, bytes(8)), "damaged"),
        (file_of({"a": entry(shape=(-2,))}, bytes(8)), "damaged"),
        (file_of({"a": entry(dtype="F31")}, bytes(8)), "damaged"),
        (file_of({"a": entry(dtype="I32")}, bytes(8)), "tensor a is of the dtype I32"),
        (file_of({"a": entry(dtype="F8_E4M3", offsets=(0, 2))}, bytes(2)), "tensor a is of the dtype F8_E4M3"),
        (file_of(b"[1, 2]"), "damaged"),
        (file_of(b'{"a": '), "damaged"),
        (file_of(b"\xff\xfe\xfd"), "damaged"),
    ],
)
def test_headers_that_lie(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    assert words in refusal(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "a.safetensors"
    save_file(TENSORS, path)
    return path.read_bytes()


def damaged(path: Path, content: bytes) -> None:
    """Assert that a damaged file is refused, or read as a file of the shapes that its header says."""
    path.write_bytes(content)
    try:
        found = read_header(path)
    except UserError:
        return
    for tensor in found.values():
        assert tensor.read().shape == tensor.shape


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_flipped_bits(data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        content[bit // 8] ^= 1 << bit % 8
    damaged(tmp_path_factory.getbasetemp() / "flipped.safetensors", bytes(content))


def test_any_truncation(whole: bytes, tmp_path: Path) -> None:
    for length in range(len(whole)):
        (tmp_path / "a.safetensors").write_bytes(whole[:length])
        refusal(tmp_path / "a.safetensors")


def test_a_file_that_is_cut_off_after_it_was_opened(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(whole)
    found = read_header(path)
    path.write_bytes(whole[:-5])
    messages = []
    for tensor in found.values():
        try:
            tensor.read()
        except UserError as error:
            messages.append(str(error))
    assert len(messages) == 1
    assert messages[0] == f"{path}: cut off since it was opened"
    path.unlink()  # nothing keeps it open
    read: Callable[[], np.ndarray] = found["matrix"].read
    with pytest.raises(UserError, match="cannot be read"):
        read()

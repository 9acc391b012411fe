"""A file of tensors of `safetensors <https://huggingface.co/docs/safetensors>`_: read lazily, and written.

The library checks a header against the size of the file before anything else happens: its length, that every tensor
lies within the file, that none overlaps another and nothing is between them. What it reports is said here for people.
"""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file

from nanoeuler.errors import UserError
from nanoeuler.weights.tensors import DTYPES, Tensor, read_array, rounded

#: The format's names for the dtypes of weights.
STORED = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
#: What a file that is no safetensors begins with, and what it is then.
BEGINNINGS = {
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: run git lfs pull where it was cloned",
    b"PK\x03\x04": "a file of PyTorch's, which is a pickle and can run code when it is read",
    **{bytes([0x80, protocol]): "a pickle, which can run code when it is read" for protocol in range(2, 6)},
    b"GGUF": "a GGUF file of llama.cpp's, which nanoeuler does not read",
    b"<": "a page of the web: the download went wrong",
}


def read_header(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name; none of them is read.

    Raises:
        UserError: there is no such file, it cannot be read, it is another kind of file, cut off or damaged, or a
            tensor's dtype is none of weights.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path}: cannot be read: it is not a file")
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            file.seek(0)
            beginning = file.read(32)
            with safe_open(path, framework="numpy"):  # checks the header against the file
                file.seek(8)
                header = json.loads(file.read(size))
    except SafetensorError as error:
        raise UserError(f"{path}: {_explained(str(error), beginning, path.stat().st_size)}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: missing") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            tensors[name] = _tensor(path, name, entry, 8 + size)
    return tensors


def _tensor(path: Path, name: str, entry: dict[str, Any], start: int) -> Tensor:
    if entry["dtype"] not in STORED:
        raise UserError(
            f"{path}: tensor {name} is of the dtype {entry['dtype']}; nanoeuler reads weights of {', '.join(DTYPES)}"
        )
    dtype, shape, offset = STORED[entry["dtype"]], tuple(entry["shape"]), start + entry["data_offsets"][0]
    return Tensor(dtype, shape, partial(read_array, path, offset, dtype, shape))


def _explained(message: str, beginning: bytes, size: int) -> str:
    """Return what is wrong with a file, from what the library says of it."""
    for start, what in BEGINNINGS.items():
        if beginning.startswith(start):
            return what
    if size < 8:
        return f"cut off: it has {size} bytes"
    claimed = int.from_bytes(beginning[:8], "little")
    if claimed > size - 8:
        return f"cut off, or no safetensors file: its header claims {claimed:,} bytes, and the file has {size:,}"
    if "not fully covered" in message or "MetadataIncompleteBuffer" in message:  # the library's older word
        return f"cut off or damaged: its header claims tensors of another size than the {size:,} bytes of the file"
    reason = message.removeprefix("Error while deserializing header: ").partition("\n")[0]
    return f"damaged: its header is not one of safetensors ({reason})"


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], dtype: str) -> None:
    """Write tensors, rounded to ``dtype``, to a new file.

    Memory: the library takes all tensors at once, so those that are not contiguous, as GPT-2's, or of another dtype
    are copied for that moment; all others are written from the buffers that they lie in.

    Raises:
        UserError: a number is beyond the dtype.
        OSError, SafetensorError: the file cannot be written.
    """
    arrays = {name: rounded(name, tensor, dtype) for name, tensor in tensors.items()}
    specs = {
        name: TensorSpec(dtype=dtype, shape=list(array.shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, array in arrays.items()
    }
    serialize_file(specs, path, {"format": "pt"})  # transformers 4 asks for "pt", whoever wrote the file
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)  # safetensors makes files that only their owner may read

"""Any model by its path or id: what it is, and all of it in memory."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler import checkpoint  # as a module: it imports this package itself
from nanoeuler.config import ModelConfig
from nanoeuler.console import byte_bar, format_bytes
from nanoeuler.errors import UserError, nearest
from nanoeuler.parameters import flat_size, parameter_count, parameter_shapes
from nanoeuler.tokenizer import Tokenizer, load_tokenizer
from nanoeuler.tokenizer.gpt2 import find_gpt2
from nanoeuler.weights import llama2c, llmc
from nanoeuler.weights.directory import open_directory, pickle_message, read_end_ids, read_model_config
from nanoeuler.weights.hub import find_model, is_model_id
from nanoeuler.weights.model_files import ModelFiles
from nanoeuler.weights.tensors import read_flat

#: What a source of weights may be, for messages.
SOURCES = (
    "a folder in Hugging Face's layout, one of our runs or checkpoints, a .bin file of llm.c or llama2.c, or the id of "
    "a model of the hub, owner/name or owner/name@revision"
)
#: Files that tell of a tokenizer in a folder.
TOKENIZERS = (
    "nanoeuler_tokenizer.json",
    "tokenizer.json",
    "vocab.json",
    "tokenizer.model",
    "*.tiktoken",
    "tokenizer.bin",
)
#: Files that are no model, by how they begin; and what they are and what to do.
OTHERS: tuple[tuple[bytes, str], ...] = (
    (struct.pack("<i", 20240520), "tokens, a shard of a corpus: give its folder to --data.dataset"),
    (struct.pack("<i", 20240522), "an evaluation set of llm.c, no model"),
    (struct.pack("<i", 20240527), "the optimizer's state of llm.c: the model is in model_*.bin beside it"),
    (struct.pack("<i", 20240327), "a debug state of llm.c: the model is in the .bin file without _debug_state"),
    (struct.pack("<i", 20240328), "a tokenizer of llm.c, no model"),
    (b"GGUF", "a model in llama.cpp's GGUF, which is not read here: take the one in safetensors that it was made from"),
    (b"version https://git-lfs", "only a pointer of Git LFS to the file: run `git lfs pull` in its repository"),
)
#: How the files begin that PyTorch pickles: zip archives, and bare pickles.
PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04")


@dataclass(frozen=True)
class Pretrained:
    """A model in memory. ``weights`` is a flat buffer in the layout of :func:`parameter_shapes`."""

    config: ModelConfig
    weights: np.ndarray
    source: str
    files: ModelFiles

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer beside the weights, if there is one. It is read when it is asked for.

        Raises:
            UserError: it is damaged or of a kind that we do not know: the weights can be used without it all the same.
        """
        return read_tokenizer(self.files)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a generation."""
        return end_ids(self.files, None if self.files.end_ids else self.tokenizer)


def open_model(source: str | Path) -> ModelFiles:
    """Return what a model is, with nothing of its weights read.

    Args:
        source: a folder in Hugging Face's layout, one of our runs or checkpoints (whose checksums are checked), a .bin
            file of llm.c or llama2.c, a .safetensors file with a config.json beside it, or a hub's id.

    Raises:
        UserError: there is nothing of that name, it is no model, it is damaged, or of an architecture that we lack.
    """
    return _open(_local(source, weights=True))


def outline_model(source: str | Path) -> ModelFiles:
    """Return what a model is as far as its small files say it: those with weights are neither fetched nor opened.

    Raises:
        UserError: as :func:`open_model`.
    """
    path = _local(source, weights=False)
    if path.is_dir() and not _is_ours(path):
        return ModelFiles("Hugging Face", path, read_model_config(path), {}, read_end_ids(path))
    return _open(path)


def load_pretrained(source: str | Path, dtype: Any = np.float32) -> Pretrained:
    """Return a model with its weights in memory.

    Args:
        source: as for :func:`open_model`.
        dtype: of the buffer, to which the numbers in the files are rounded.

    Raises:
        UserError: as :func:`open_model`; a tensor is damaged or not finite, or there is too little memory.
    """
    files = open_model(source)
    return Pretrained(files.config, read_weights(files, dtype), str(source), files)


def read_weights(files: ModelFiles, dtype: Any = np.float32) -> np.ndarray:
    """Return all weights of a model in one flat buffer, with a bar on a terminal.

    Raises:
        UserError: there is too little memory; as :func:`~nanoeuler.weights.tensors.read_flat`.
    """
    from nanoeuler.plan import available_on  # it imports this module itself

    shapes, itemsize = parameter_shapes(files.config), np.dtype(dtype).itemsize
    needed, available = flat_size(shapes) * itemsize, available_on("cpu")
    if available is not None and needed > available:
        raise UserError(
            f"{files.path}: its {parameter_count(shapes):,} weights take {format_bytes(needed)} of memory in "
            f"{np.dtype(dtype)}, and {format_bytes(available)} are available"
        )
    with _blaming(files.path), byte_bar() as bar:
        task = bar.add_task(f"reading {files.path.name}", total=parameter_count(shapes) * itemsize)
        return read_flat(files.config, files.tensors, dtype, progress=lambda size: bar.advance(task, size * itemsize))


def read_tokenizer(files: ModelFiles) -> Tokenizer | None:
    """Return the tokenizer that belongs to a model, or None where there is none.

    A folder has its own; beside a file of llama2.c it is the one tokenizer of the model's size, where there is one
    such; llm.c's models have GPT-2's vocabulary.

    Raises:
        UserError: it is damaged, or of a kind that we do not know.
    """
    if files.format == "llama2.c":
        found = [_tokenizer_or_none(path) for path in sorted(files.path.parent.glob("tok*.bin"))]
        fitting = [each for each in found if each is not None and each.vocab_size == files.config.vocab_size]
        return fitting[0] if len(fitting) == 1 else None
    if files.format == "llm.c":
        return _gpt2() if files.config.vocab_size == llmc.GPT2_VOCABULARY else None
    return _folder_tokenizer(files.path if files.path.is_dir() else files.path.parent)


def needed_tokenizer(files: ModelFiles) -> Tokenizer:
    """Return the tokenizer that belongs to a model.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    tokenizer = read_tokenizer(files)
    if tokenizer is None:
        raise UserError(f"{files.path}: there is no tokenizer beside the weights, and text takes one")
    return tokenizer


def end_ids(files: ModelFiles, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Return the tokens that end a generation: those of the model's files, else the tokenizer's EOS or end of text."""
    if files.end_ids or tokenizer is None:
        return files.end_ids
    end = tokenizer.end_of_text if tokenizer.eos is None else tokenizer.eos
    return () if end is None else (end,)


def _folder_tokenizer(folder: Path) -> Tokenizer | None:
    there = [path for pattern in TOKENIZERS for path in folder.glob(pattern)]
    return load_tokenizer(folder) if there else None


def _tokenizer_or_none(path: Path) -> Tokenizer | None:
    try:
        return load_tokenizer(path)
    except UserError:
        return None


# --- which kind of source it is


def _local(source: str | Path, weights: bool) -> Path:
    """Return the path of a model, fetched from the hub if it is an id.

    What could be an id is one where its first part is no folder here: a path of ours that is misspelt is no id.
    """
    path, text = Path(source), str(source)
    if _exists(path):
        return path
    maybe_id = isinstance(source, str) and is_model_id(text)
    if maybe_id and ("@" in text or not _exists(path.parent)):
        return find_model(text, weights)
    instead = f"; for the hub's model of this name give {text}@main" if maybe_id else f"; a model is {SOURCES}"
    raise UserError(f"{text}: there is no such file or folder{_nearest_path(path)}{instead}")


def _open(path: Path) -> ModelFiles:
    """Return what the model at a path that exists is."""
    if path.is_dir():
        return _open_ours(path) if _is_ours(path) else open_directory(path)
    if not path.is_file():  # such as a pipe, which would be waited for
        raise UserError(f"{path}: neither a file nor a folder")
    if path.suffix == ".safetensors":
        return open_directory(path.parent, path.name)
    with _blaming(path), path.open("rb") as file:
        start = file.read(llama2c.HEADER_BYTES[0])
    for magic, what in OTHERS:
        if start.startswith(magic):
            raise UserError(f"{path}: {what}")
    if start.startswith(PICKLE_STARTS):
        raise UserError(pickle_message(str(path.parent), path.name))
    if start.startswith(struct.pack("<i", llmc.MAGIC)):
        return llmc.open_llmc(path)
    if start.startswith(struct.pack("<I", llama2c.MAGIC)) or _may_be_llama2c(start):
        return llama2c.open_llama2c(path)
    inside = ": give the folder that it is in" if path.suffix == ".json" else ""
    raise UserError(f"{path}: not a model{inside or f' of a kind that we know: that is {SOURCES}'}")


def _may_be_llama2c(start: bytes) -> bool:
    """Return whether a file begins as those of llama2.c's version 0, which have no magic number but seven sizes."""
    if len(start) < llama2c.HEADER_BYTES[0]:
        return False
    C, F, L, H, K, V, T = struct.unpack("<7i", start)
    return min(C, F, L, H, K, abs(V), T) > 0 and C % H == 0 and H % K == 0


def _is_ours(folder: Path) -> bool:
    """Return whether a folder is one of our runs, the checkpoints of one, or a checkpoint."""
    return (
        (folder / "checkpoints").is_dir()
        or (folder / checkpoint.SUMS).exists()
        or bool(checkpoint.list_checkpoints(folder))
    )


def _open_ours(folder: Path) -> ModelFiles:
    """Return the newest checkpoint that is whole."""
    path, damaged = checkpoint.find_checkpoint(folder)
    files = open_directory(path)
    notes = [f"passed over a damaged checkpoint: {line}" for line in damaged]
    return replace(files, note="\n".join([*notes, *([files.note] if files.note else [])]))


def _gpt2() -> Tokenizer | None:
    """Return GPT-2's tokenizer, or None where it cannot be had."""
    try:
        return find_gpt2()
    except UserError:
        return None


def _nearest_path(path: Path) -> str:
    """Return a hint at what is there under a similar name."""
    try:
        return nearest(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with NUL in it
        return False


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into a :class:`UserError` that names it."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None

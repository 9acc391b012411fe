"""Token shards: llm.c's ``.bin`` files, written whole and mapped into memory.

A shard is a header of 256 little-endian int32 (a magic number, a version, how many tokens follow, zeros) and then the
tokens. Vocabularies of up to 65,536 take uint16 under GPT-2's magic number and version, larger ones uint32 under those
that llm.c has for Llama 3 (`dev/data/data_common.py <https://github.com/karpathy/llm.c>`_), so shards travel both ways.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole

HEADER = np.dtype("<i4")
HEADER_INTS = 256
HEADER_BYTES = HEADER_INTS * HEADER.itemsize
#: Most tokens of one shard: the count is an int32.
MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Format:
    """How the tokens of one shard lie in it."""

    magic: int
    version: int
    dtype: np.dtype


NARROW = Format(20240520, 1, np.dtype("<u2"))
WIDE = Format(20240801, 7, np.dtype("<u4"))


def format_for(vocab_size: int) -> Format:
    """Return the narrowest format for ids below ``vocab_size``.

    >>> format_for(50257).dtype.name, format_for(128256).dtype.name
    ('uint16', 'uint32')
    """
    return NARROW if vocab_size <= 2**16 else WIDE


def header(form: Format, count: int) -> bytes:
    """Return the header of a shard of ``count`` tokens."""
    numbers = np.zeros(HEADER_INTS, HEADER)
    numbers[:3] = form.magic, form.version, count
    return numbers.tobytes()


def write_shard(path: Path, tokens: np.ndarray, form: Format) -> None:
    """Write (N,) token ids as a shard, all of it or nothing.

    Raises:
        UserError: it cannot be written.
        ValueError: an id does not fit the format, or there are more than a shard's count can say.
    """
    if len(tokens) > MOST_TOKENS:
        raise ValueError(f"{len(tokens)} tokens, and a shard has {MOST_TOKENS} at most")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) <= np.iinfo(form.dtype).max:
        raise ValueError(f"ids from {tokens.min()} to {tokens.max()} do not fit {form.dtype}")
    with written_whole(path) as file:
        file.write(header(form, len(tokens)))
        file.write(np.ascontiguousarray(tokens, form.dtype).data)


def read_shard(path: Path) -> np.ndarray:
    """Map a shard into memory: (N,) uint16 or uint32, read-only; no token is read yet.

    Raises:
        UserError: the file is missing, unreadable, no shard, of another version, or shorter or longer than it says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path}: missing") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    if len(head) < HEADER_BYTES:
        raise UserError(f"{path}: damaged: {size} bytes, and a shard's header alone has {HEADER_BYTES}")
    magic, version, count = (int(number) for number in np.frombuffer(head, HEADER, 3))
    form = next((form for form in (NARROW, WIDE) if form.magic == magic), None)
    if form is None:
        raise UserError(f"{path}: not a shard of tokens: it begins with {magic}, not {NARROW.magic} or {WIDE.magic}")
    if version != form.version:
        raise UserError(f"{path}: version {version} of the format; this nanoeuler reads {form.version}")
    expected = HEADER_BYTES + count * form.dtype.itemsize
    if count < 0 or size != expected:
        raise UserError(f"{path}: damaged: {size} bytes, and its header says {count} tokens, which take {expected}")
    if count == 0:
        return np.empty(0, form.dtype)
    return np.memmap(path, form.dtype, "r", HEADER_BYTES, (count,))


def split_of(file: str) -> str | None:
    """Return the split that a shard's name tells, as llm.c names them; None if it tells none.

    >>> split_of("fineweb_train_000001.bin"), split_of("tiny_shakespeare_val.bin"), split_of("hellaswag.bin")
    ('train', 'val', None)
    """
    match = re.search(r"_(train|val)(_\d+)?\.bin$", file)
    return match[1] if match else None

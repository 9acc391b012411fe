"""llama2.c's model files, read (versions 0 and 1) and written (version 0, the one that its run.c reads).

The file (``legacy_export`` and ``version1_export`` of llama2.c's export.py): a header, then every parameter as float32,
those of all layers together; versions 0 and 1 differ in header and order. Linear weights are (out, in), as here. RoPE
turns neighbouring channels (2i, 2i + 1) of a head, ours (i, i + D/2): the rows of queries and keys are in another
order. Numbers are little-endian. Version 2 holds quantised numbers of eight bits, and is refused.
"""

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nanoeuler.config import ModelConfig, config_from_dict
from nanoeuler.cpu.rope import rope_tables
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.weights.binary import (
    Order,
    check_fixed,
    check_size,
    in_order,
    order_size,
    tensors_in_order,
    write_array,
)
from nanoeuler.weights.mapping import huggingface_views
from nanoeuler.weights.model_files import ModelFiles
from nanoeuler.weights.tensors import Tensor

#: What files of version 1 and later begin with: the characters 24ka.
MAGIC = 0x616B3432
#: Bytes of the header, by version.
HEADER_BYTES = {0: 7 * 4, 1: 256}
#: What llama2.c has fixed.
ROPE_THETA, NORM_EPS = 10000.0, 1e-5
#: Tokens that end a text there: run.c stops at <s>, its chat at </s>.
END_IDS = (1, 2)
#: The tables of RoPE's cosines and sines, which version 0 has among its weights.
TABLES = ("freq_cis_real", "freq_cis_imag")


class Header(NamedTuple):
    """What a header says."""

    version: int
    sizes: tuple[int, ...]  # dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
    shared: bool  # the classifier is the embedding


def open_llama2c(path: Path) -> ModelFiles:
    """Return the model in a file of llama2.c; none of its weights is read.

    Raises:
        UserError: the file cannot be read, is none of llama2.c's, is quantised, or its size is not the one that its
            header promises.
    """
    version, (C, F, L, H, K, V, T), shared = _read_header(path)
    keys = {"vocab_size": V, "max_seq_len": T, "num_layers": L, "num_heads": H, "num_kv_heads": K, "hidden_dim": C}
    keys |= {"feed_forward_dim": F, "tie_embeddings": shared}
    fixed = {"preset": "euler", "rope_theta": ROPE_THETA, "norm_eps": NORM_EPS}
    try:
        config = config_from_dict({"model": fixed | keys}).model
    except UserError as error:
        raise UserError(f"{path}: no model of llama2.c, or a damaged one: header: {error}") from None
    order = parameter_order(config, version)
    check_size(path, HEADER_BYTES[version] + 4 * order_size(order, L), "model of llama2.c")
    tensors = tensors_in_order(path, HEADER_BYTES[version], "float32", order, L)
    if version == 0:
        _check_tables(path, config, *(tensors.pop(name).read() for name in TABLES))
    tensors = {name: _as_huggingface(name, tensor, config.head_dim) for name, tensor in tensors.items()}
    return ModelFiles("llama2.c", path, config, tensors, end_ids=END_IDS)


def check_llama2c(config: ModelConfig) -> None:
    """Check that a file of llama2.c can hold an architecture; further prediction heads are left out of it.

    Raises:
        UserError: it cannot; the message names every difference.
    """
    fixed = {"norm": "rmsnorm", "position": "rope", "activation": "swiglu", "bias": False, "qkv_bias": False}
    fixed |= {"qk_norm": False, "attention_head_dim": config.hidden_dim // config.num_heads}
    check_fixed("llama2.c", config, fixed | {"rope_theta": ROPE_THETA, "rope_factor": 1.0, "norm_eps": NORM_EPS})


def write_llama2c(path: Path, config: ModelConfig, weights: Mapping[str, np.ndarray]) -> None:
    """Write a file of llama2.c, version 0, float32: all of it, or nothing is changed.

    Args:
        path: of the file.
        config: the architecture.
        weights: as :func:`parameter_shapes` names them; further prediction heads are left out.

    Raises:
        UserError: such a file cannot hold this model, or it cannot be written.
    """
    check_llama2c(config)
    C, L, V, T, D = config.hidden_dim, config.num_layers, config.vocabulary, config.max_seq_len, config.head_dim
    classifier = V if config.tie_embeddings else -V  # a negative vocabulary: the classifier has weights of its own
    sizes = C, config.ff_dim, L, config.num_heads, config.kv_heads, classifier, T
    arrays = huggingface_views(config, weights) | dict(zip(TABLES, rope_tables(T, D, ROPE_THETA), strict=True))
    with written_whole(path) as file:
        file.write(struct.pack("<7i", *sizes))
        for name, _ in in_order(parameter_order(config, version=0), L):
            write_array(file, name, interleaved(arrays[name], D) if _is_turned(name) else arrays[name], "float32")


def interleaved(rows: np.ndarray, D: int) -> np.ndarray:
    """Return (heads·D, C) rows with the channels of a pair next to each other.

    >>> interleaved(np.arange(8).reshape(8, 1), D=4).ravel().tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return rows.reshape(-1, 2, D // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def half_split(rows: np.ndarray, D: int) -> np.ndarray:
    """Return (heads·D, C) rows with the channels of a pair half a head apart: undoes :func:`interleaved`.

    >>> half_split(np.array([0, 2, 1, 3, 4, 6, 5, 7]).reshape(8, 1), D=4).ravel().tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return rows.reshape(-1, D // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _read_header(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES[1])
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror or error}") from None
    if len(header) >= 8 and struct.unpack_from("<I", header)[0] == MAGIC:
        return _later_header(path, header)
    if len(header) < HEADER_BYTES[0]:
        raise UserError(f"{path}: no model of llama2.c: {len(header)} bytes are less than its header alone")
    *sizes, V, T = struct.unpack_from("<7i", header)
    return Header(0, (*sizes, abs(V), T), shared=V > 0)


def _later_header(path: Path, header: bytes) -> Header:
    (version,) = struct.unpack_from("<i", header, 4)
    if version == 2:
        raise UserError(
            f"{path}: version 2 of llama2.c's files: weights quantised to eight bits (int8), which nanoeuler does not "
            "read; export the model once more as version 0 or 1"
        )
    if version != 1:
        raise UserError(f"{path}: version {version} of llama2.c's files; 0 and 1 can be read")
    if len(header) < HEADER_BYTES[1]:
        raise UserError(f"{path}: cut off: {len(header)} bytes are less than a header of llama2.c alone")
    *sizes, shared = struct.unpack_from("<7iB", header, 8)
    return Header(1, tuple(sizes), bool(shared))


def parameter_order(config: ModelConfig, version: int) -> Order:
    """Return the parameters, under Hugging Face's names, in a version's order."""
    C, F, D, T, layer = config.hidden_dim, config.ff_dim, config.head_dim, config.max_seq_len, "model.layers.{}."
    H, K = config.num_heads, config.kv_heads
    embedding = ("model.embed_tokens.weight", (config.vocabulary, C))
    attention_norm = (layer + "input_layernorm.weight", (C,))
    attention = (
        (layer + "self_attn.q_proj.weight", (H * D, C)),
        (layer + "self_attn.k_proj.weight", (K * D, C)),
        (layer + "self_attn.v_proj.weight", (K * D, C)),
        (layer + "self_attn.o_proj.weight", (C, H * D)),
    )
    mlp_norm = (layer + "post_attention_layernorm.weight", (C,))
    mlp = (
        (layer + "mlp.gate_proj.weight", (F, C)),
        (layer + "mlp.down_proj.weight", (C, F)),
        (layer + "mlp.up_proj.weight", (F, C)),
    )
    final_norm = ("model.norm.weight", (C,))
    classifier = () if config.tie_embeddings else (("lm_head.weight", (config.vocabulary, C)),)
    if version == 1:
        return (attention_norm, mlp_norm, final_norm, embedding, *attention, *mlp, *classifier)
    tables = [(table, (T, D // 2)) for table in TABLES]
    return (embedding, attention_norm, *attention, mlp_norm, *mlp, final_norm, *tables, *classifier)


def _is_turned(name: str) -> bool:
    return name.endswith(("q_proj.weight", "k_proj.weight"))


def _as_huggingface(name: str, tensor: Tensor, D: int) -> Tensor:
    if _is_turned(name):
        return replace(tensor, read=lambda: half_split(tensor.read(), D))
    return tensor


def _check_tables(path: Path, config: ModelConfig, cos: np.ndarray, sin: np.ndarray) -> None:
    """Refuse tables of another base, which run.c once read and no longer does; zeros are a table left out.

    Compared by the first positions, where float32 has not lost the angle yet.
    """
    expected = rope_tables(min(config.max_seq_len, 16), config.head_dim, ROPE_THETA)
    for table, right in zip((cos, sin), expected, strict=True):
        if table.any() and not np.allclose(table[: len(right)], right, rtol=0, atol=1e-3):
            raise UserError(f"{path}: its table of RoPE is not that of base {ROPE_THETA:g}, the one that llama2.c has")

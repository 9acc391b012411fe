"""llm.c's checkpoints of GPT-2, read and written.

The file (``write_model`` of llm.c's train_gpt2.py, ``gpt2_write_to_checkpoint`` of its train_gpt2.cu): a header of 256
int32, then every parameter, those of all layers together, as float32 (version 3) or bfloat16 (version 5). Linear
weights are (out, in). The embedding has rows of zeros at its end, up to a multiple of 128. Numbers are little-endian.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig, config_from_dict
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.weights.binary import (
    STORED,
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

MAGIC = 20240326
VERSIONS = {3: "float32", 5: "bfloat16"}
HEADER_BYTES = 256 * 4
#: The embedding's rows are a multiple of this.
PADDING = 128
EMBEDDING = "transformer.wte.weight"
#: GPT-2's vocabulary, which llm.c takes for granted, and the end of text in it.
GPT2_VOCABULARY, END_OF_TEXT = 50257, 50256


def open_llmc(path: Path) -> ModelFiles:
    """Return the model in a checkpoint of llm.c; none of its weights is read.

    Raises:
        UserError: the file cannot be read, is none of llm.c's, or its size is not the one that its header promises.
    """
    magic, version, T, V, L, H, C, rows = _read_header(path)
    if magic != MAGIC:
        raise UserError(f"{path}: no checkpoint of llm.c: it begins with {magic}, and one of those with {MAGIC}")
    if version not in VERSIONS:
        raise UserError(
            f"{path}: version {version} of llm.c's checkpoints; 3 (float32) and 5 (bfloat16) can be read: "
            "write it once more with today's llm.c"
        )
    keys = {"vocab_size": V, "max_seq_len": T, "num_layers": L, "num_heads": H, "hidden_dim": C}
    config = config_from_dict({"model": {"preset": "gpt2"} | keys}, source=f"{path}: header: ").model
    if rows < V:
        raise UserError(f"{path}: header: an embedding of {rows} rows for a vocabulary of {V}")
    order, dtype = parameter_order(config, rows), VERSIONS[version]
    check_size(path, HEADER_BYTES + order_size(order, L) * STORED[dtype].itemsize, "checkpoint of llm.c")
    tensors = tensors_in_order(path, HEADER_BYTES, dtype, order, L)
    tensors = {name: _as_huggingface(name, tensor, V) for name, tensor in tensors.items()}
    return ModelFiles(
        format="llm.c",
        path=path,
        config=config,
        tensors=tensors,
        end_ids=(END_OF_TEXT,) if V == GPT2_VOCABULARY else (),
    )


def check_llmc(config: ModelConfig) -> None:
    """Check that a checkpoint of llm.c can hold an architecture; further prediction heads are left out of it.

    Raises:
        UserError: it cannot; the message names every difference.
    """
    C, H = config.hidden_dim, config.num_heads
    fixed: dict[str, Any] = {"norm": "layernorm", "position": "learned", "activation": "gelu", "bias": True}
    fixed |= {"qkv_bias": True, "qk_norm": False, "tie_embeddings": True, "norm_eps": 1e-5}
    check_fixed("llm.c", config, fixed | {"num_kv_heads": H, "attention_head_dim": C // H, "feed_forward_dim": 4 * C})


def write_llmc(path: Path, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: str) -> None:
    """Write a checkpoint of llm.c: all of it, or nothing is changed.

    Args:
        path: of the file.
        config: the architecture.
        weights: as :func:`parameter_shapes` names them; further prediction heads are left out.
        dtype: float32 or bfloat16; numbers are rounded to it.

    Raises:
        UserError: such a file cannot hold this model or this dtype, or it cannot be written.
    """
    check_llmc(config)
    versions = {name: version for version, name in VERSIONS.items()}
    if dtype not in versions:
        raise UserError(f"{path}: llm.c has no checkpoints of {dtype}: use float32 or bfloat16")
    V, T, L = config.vocabulary, config.max_seq_len, config.num_layers
    rows = -(-V // PADDING) * PADDING
    header = np.zeros(256, "<i4")
    header[:8] = MAGIC, versions[dtype], T, V, L, config.num_heads, config.hidden_dim, rows
    views = huggingface_views(config, weights)
    with written_whole(path) as file:
        file.write(header.data)
        for name, _ in in_order(parameter_order(config, rows), L):
            write_array(file, name, views[name].T if _is_linear(name) else views[name], dtype)
            if name == EMBEDDING:
                write_array(file, name, np.zeros((rows - V, config.hidden_dim), np.float32), dtype)


def _read_header(path: Path) -> list[int]:
    """Return the eight numbers of the header that mean something."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror or error}") from None
    if len(header) < HEADER_BYTES:
        raise UserError(f"{path}: no checkpoint of llm.c: {len(header)} bytes are less than its header alone")
    return [int(number) for number in np.frombuffer(header, "<i4", count=8)]


def parameter_order(config: ModelConfig, rows: int) -> Order:
    """Return the parameters in the file's order, with an embedding of so many rows; linear weights are (out, in)."""
    C, F, layer = config.hidden_dim, config.ff_dim, "transformer.h.{}."
    return (
        (EMBEDDING, (rows, C)),
        ("transformer.wpe.weight", (config.max_seq_len, C)),
        (layer + "ln_1.weight", (C,)),
        (layer + "ln_1.bias", (C,)),
        (layer + "attn.c_attn.weight", (3 * C, C)),
        (layer + "attn.c_attn.bias", (3 * C,)),
        (layer + "attn.c_proj.weight", (C, C)),
        (layer + "attn.c_proj.bias", (C,)),
        (layer + "ln_2.weight", (C,)),
        (layer + "ln_2.bias", (C,)),
        (layer + "mlp.c_fc.weight", (F, C)),
        (layer + "mlp.c_fc.bias", (F,)),
        (layer + "mlp.c_proj.weight", (C, F)),
        (layer + "mlp.c_proj.bias", (C,)),
        ("transformer.ln_f.weight", (C,)),
        ("transformer.ln_f.bias", (C,)),
    )


def _is_linear(name: str) -> bool:
    return ".c_" in name and name.endswith(".weight")


def _as_huggingface(name: str, tensor: Tensor, V: int) -> Tensor:
    """Return a tensor as Hugging Face lays it out: the embedding of V rows, linear weights (in, out)."""
    if name == EMBEDDING:
        return replace(tensor, shape=(V, *tensor.shape[1:]), read=lambda: tensor.read()[:V])
    if _is_linear(name):
        return replace(tensor, shape=tensor.shape[::-1], read=lambda: tensor.read().T)
    return tensor

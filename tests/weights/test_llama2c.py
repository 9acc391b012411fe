"""llama2.c's files, against a writer and a forward pass of the published layout, and against real weights."""

import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_close
from safetensors.numpy import load_file

from nanoeuler import cpu
from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.weights.llama2c import half_split, interleaved, open_llama2c, write_llama2c
from nanoeuler.weights.tensors import check_tensors, read_flat

V, T, L, H, K, C, F = 11, 9, 2, 4, 2, 24, 10
D = C // H
SMALL = {
    "vocab_size": V,
    "max_seq_len": T,
    "num_layers": L,
    "num_heads": H,
    "num_kv_heads": K,
    "hidden_dim": C,
    "feed_forward_dim": F,
}
#: The published layout of version 0, in the names of run.c.
LAYOUT = {
    "token_embedding_table": (V, C),
    "rms_att_weight": (L, C),
    "wq": (L, H * D, C),
    "wk": (L, K * D, C),
    "wv": (L, K * D, C),
    "wo": (L, C, H * D),
    "rms_ffn_weight": (L, C),
    "w1": (L, F, C),
    "w2": (L, C, F),
    "w3": (L, F, C),
    "rms_final_weight": (C,),
    "freq_cis_real": (T, D // 2),
    "freq_cis_imag": (T, D // 2),
    "wcls": (V, C),
}
#: The order of version 1, which has no tables.
ORDER_1 = [
    *("rms_att_weight", "rms_ffn_weight", "rms_final_weight", "token_embedding_table"),
    *("wq", "wk", "wv", "wo", "w1", "w2", "w3", "wcls"),
]

shared = pytest.mark.parametrize("shared", [True, False], ids=["shared classifier", "a classifier of its own"])
versions = pytest.mark.parametrize("version", [0, 1])


def arrays_of_llama2c(shared: bool) -> dict[str, np.ndarray]:
    """Return random tensors of version 0; the tables by the formula of the paper, one number at a time."""
    random = np.random.default_rng(3)
    arrays = {name: random.standard_normal(shape).astype(np.float32) / 2 for name, shape in LAYOUT.items()}
    for position in range(T):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            arrays["freq_cis_real"][position, i] = math.cos(angle)
            arrays["freq_cis_imag"][position, i] = math.sin(angle)
    if shared:
        del arrays["wcls"]
    return arrays


def file_of(arrays: dict[str, np.ndarray], version: int = 0) -> bytes:
    """Return a file, number by number."""
    is_shared = "wcls" not in arrays
    if version == 0:
        data, names = struct.pack("<7i", C, F, L, H, K, V if is_shared else -V, T), list(LAYOUT)
    else:
        data, names = struct.pack("<Ii7iB", 0x616B3432, version, C, F, L, H, K, V, T, is_shared), ORDER_1
        data += bytes(256 - len(data))
    for name in names:
        if name in arrays:
            data += b"".join(struct.pack("<f", number) for number in arrays[name].ravel().tolist())
    return data


def reference_logits(arrays: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """Return the logits of every position, computed as run.c does: one token after the other, pairs side by side."""
    W = {name: array.astype(np.float64) for name, array in arrays.items()}
    keys: list[list[np.ndarray]] = [[] for _ in range(L)]
    values: list[list[np.ndarray]] = [[] for _ in range(L)]
    logits = []

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight * x / np.sqrt(np.mean(x * x) + 1e-5)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        out = x.copy()
        for i in range(0, x.size, 2):
            angle = position / 10000 ** ((i % D) / D)
            out[i] = x[i] * math.cos(angle) - x[i + 1] * math.sin(angle)
            out[i + 1] = x[i] * math.sin(angle) + x[i + 1] * math.cos(angle)
        return out

    for position, token in enumerate(tokens):
        x = W["token_embedding_table"][token].copy()
        for layer in range(L):
            h = norm(x, W["rms_att_weight"][layer])
            q = turned(W["wq"][layer] @ h, position).reshape(H, D)
            keys[layer].append(turned(W["wk"][layer] @ h, position).reshape(K, D))
            values[layer].append((W["wv"][layer] @ h).reshape(K, D))
            heads = []
            for head in range(H):
                group = head // (H // K)
                scores = np.array([q[head] @ key[group] for key in keys[layer]]) / math.sqrt(D)
                weights = np.exp(scores - scores.max())
                heads.append(sum(w * v[group] for w, v in zip(weights / weights.sum(), values[layer], strict=True)))
            x += W["wo"][layer] @ np.concatenate(heads)
            h = norm(x, W["rms_ffn_weight"][layer])
            gate = W["w1"][layer] @ h
            x += W["w2"][layer] @ (gate / (1 + np.exp(-gate)) * (W["w3"][layer] @ h))
        logits.append(W.get("wcls", W["token_embedding_table"]) @ norm(x, W["rms_final_weight"]))
    return np.array(logits)


def our_logits(config: ModelConfig, flat: np.ndarray, tokens: list[int]) -> np.ndarray:
    return Transformer(config, cpu, flat, 1, len(tokens)).logits(np.array([tokens]))[0]


def weights_of(config: ModelConfig) -> dict[str, np.ndarray]:
    shapes = parameter_shapes(config)
    return named_views(np.random.default_rng(2).standard_normal(flat_size(shapes)).astype(np.float32), shapes)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@versions
@shared
def test_reading(version: int, shared: bool, tmp_path: Path) -> None:
    """The model computes what run.c does, with the pairs of RoPE lying elsewhere."""
    arrays = arrays_of_llama2c(shared)
    files = open_llama2c(write(tmp_path / "model.bin", file_of(arrays, version)))
    assert files.config == ModelConfig(**SMALL, tie_embeddings=shared)
    assert (files.format, files.end_ids) == ("llama2.c", (1, 2))
    check_tensors(files.config, files.tensors)
    assert all(tensor.read().shape == tensor.shape for tensor in files.tensors.values())
    tokens = [1, 7, 2, 10, 0, 7, 7, 3, 9]
    flat = read_flat(files.config, files.tensors, np.float64)
    assert_close(our_logits(files.config, flat, tokens), reference_logits(arrays, tokens), 1e-12)


@shared
def test_writing(shared: bool, tmp_path: Path) -> None:
    """What is written is what was read, byte for byte."""
    data = file_of(arrays_of_llama2c(shared))
    files = open_llama2c(write(tmp_path / "model.bin", data))
    weights = named_views(read_flat(files.config, files.tensors), parameter_shapes(files.config))
    write_llama2c(tmp_path / "again.bin", files.config, weights)
    assert (tmp_path / "again.bin").read_bytes() == data


@versions
def test_both_versions_hold_the_same_model(version: int, tmp_path: Path) -> None:
    arrays = arrays_of_llama2c(False)
    one = open_llama2c(write(tmp_path / "one.bin", file_of(arrays, 0)))
    other = open_llama2c(write(tmp_path / "other.bin", file_of(arrays, 1)))
    assert one.config == other.config
    for name, tensor in one.tensors.items():
        np.testing.assert_array_equal(tensor.read(), other.tensors[name].read())


@settings(max_examples=25, deadline=None)
@given(
    vocabulary=st.integers(1, 5),
    layers=st.integers(1, 3),
    groups=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    half=st.integers(1, 3),
    shared=st.booleans(),
)
def test_round_trip(
    tmp_path_factory: Any, vocabulary: int, layers: int, groups: int, kv_heads: int, half: int, shared: bool
) -> None:
    heads = groups * kv_heads
    config = ModelConfig(
        vocab_size=vocabulary,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        hidden_dim=2 * half * heads,
        feed_forward_dim=3,
        max_seq_len=40,
        tie_embeddings=shared,
    )
    path, weights = tmp_path_factory.mktemp("round") / "model.bin", weights_of(config)
    write_llama2c(path, config, weights)
    files = open_llama2c(path)
    assert files.config == config
    again = named_views(read_flat(files.config, files.tensors), parameter_shapes(config))
    for name, array in weights.items():
        assert again[name].tobytes() == array.tobytes(), name


def test_the_rows_of_a_head() -> None:
    rows = np.arange(24.0).reshape(12, 2)  # two heads of six channels
    assert interleaved(rows, 6)[:, 0].tolist() == [0, 6, 2, 8, 4, 10, 12, 18, 14, 20, 16, 22]
    np.testing.assert_array_equal(half_split(interleaved(rows, 6), 6), rows)


# --- real weights

MODELS = Path(os.environ.get("NANOEULER_DATA", "no such folder")).parent / "models" / "stories260K"
real = pytest.mark.skipif(
    not (MODELS / "stories260K.bin").is_file(),
    reason="the weights of stories260K are not in ../models beside the folder that NANOEULER_DATA names",
)


@real
def test_stories260k_is_its_hugging_face_folder() -> None:
    """Every tensor, bit by bit."""
    files = open_llama2c(MODELS / "stories260K.bin")
    theirs = load_file(MODELS / "hf" / "model.safetensors")
    assert files.tensors.keys() == theirs.keys()
    for name, tensor in files.tensors.items():
        assert tensor.read().tobytes() == theirs[name].tobytes(), name


@real
def test_stories260k_is_written_as_it_was(tmp_path: Path) -> None:
    """Byte by byte, but for the tables of RoPE: ours are rounded from float64, theirs computed in float32."""
    files = open_llama2c(MODELS / "stories260K.bin")
    weights = named_views(read_flat(files.config, files.tensors), parameter_shapes(files.config))
    write_llama2c(tmp_path / "again.bin", files.config, weights)
    ours, theirs = ((path / name).read_bytes() for path, name in ((tmp_path, "again.bin"), (MODELS, "stories260K.bin")))
    tables = 4 * 2 * 512 * 4  # the last in the file
    assert ours[:-tables] == theirs[:-tables]
    cos_and_sin = [np.frombuffer(data[-tables:], "<f4") for data in (ours, theirs)]
    np.testing.assert_allclose(*cos_and_sin, rtol=0, atol=5e-5)


# --- what cannot be written

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a GPT-2": ({"preset": "gpt2", "num_kv_heads": H, "feed_forward_dim": 96}, "norm is layernorm, there rmsnorm"),
    "biases": ({"bias": True}, "bias is True, there False"),
    "biases of Qwen2": ({"qkv_bias": True}, "qkv_bias is True, there False"),
    "norms of Qwen3": ({"qk_norm": True}, "qk_norm is True, there False"),
    "heads of their own size": ({"attention_head_dim": 8}, "attention_head_dim is 8, there 6"),
    "another base": ({"rope_theta": 5e5}, "rope_theta is 500000.0, there 10000.0"),
    "Llama 3's RoPE": ({"rope_factor": 8}, "rope_factor is 8.0, there 1.0"),
    "another epsilon": ({"norm_eps": 1e-6}, "norm_eps is 1e-06, there 1e-05"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_other_architectures_are_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = ModelConfig(**(SMALL | changes))
    with pytest.raises(UserError, match=message):
        write_llama2c(tmp_path / "model.bin", config, weights_of(config))
    assert list(tmp_path.iterdir()) == []


def test_further_prediction_heads_are_left_out(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL, num_prediction_heads=3)
    write_llama2c(tmp_path / "model.bin", config, weights_of(config))
    assert open_llama2c(tmp_path / "model.bin").config == ModelConfig(**SMALL)


# --- what cannot be read

BIG = 2**31 - 1
NAMES = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"]
HEADERS: dict[str, tuple[dict[str, int], str]] = {
    "no channels": ({"dim": 0}, "model.hidden_dim"),
    "negative channels": ({"dim": -24}, "model.hidden_dim"),
    "a negative feed-forward layer": ({"hidden_dim": -F}, "model.feed_forward_dim"),
    "no vocabulary": ({"vocab_size": 0}, "model.vocab_size"),
    "no heads": ({"n_heads": 0}, "model.num_heads"),
    "heads that are not shared evenly": ({"n_kv_heads": 3}, "num_heads 4 is not a multiple of num_kv_heads 3"),
    "an odd head": ({"n_heads": 8, "n_kv_heads": 8}, "must be even"),
    "a billion layers": ({"n_layers": BIG}, "model.num_layers"),
    "all that a header can claim": (
        dict.fromkeys(NAMES, BIG - 1) | {"n_layers": 10_000, "n_heads": 1, "n_kv_heads": 1},
        "cut off",
    ),
    "a token too many": ({"vocab_size": V + 1}, "cut off"),
    "a token too few": ({"vocab_size": V - 1}, "more in it"),
}


@versions
@pytest.mark.parametrize(("header", "message"), HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_lies(header: dict[str, int], message: str, version: int, tmp_path: Path) -> None:
    data = bytearray(file_of(arrays_of_llama2c(True), version))
    for name, number in header.items():
        struct.pack_into("<i", data, 4 * NAMES.index(name) + 8 * version, number)
    path = write(tmp_path / "model.bin", bytes(data))
    with pytest.raises(UserError, match=message) as caught:
        open_llama2c(path)
    assert str(path) in str(caught.value)


def test_a_header_that_lies_about_the_length_of_the_tables(tmp_path: Path) -> None:
    data = bytearray(file_of(arrays_of_llama2c(True)))
    struct.pack_into("<i", data, 4 * NAMES.index("seq_len"), T + 1)
    with pytest.raises(UserError, match="cut off"):
        open_llama2c(write(tmp_path / "model.bin", bytes(data)))


def test_a_negative_vocabulary_is_no_sign_of_a_classifier_in_version_1(tmp_path: Path) -> None:
    data = bytearray(file_of(arrays_of_llama2c(False), 1))
    struct.pack_into("<i", data, 8 + 4 * NAMES.index("vocab_size"), -V)
    with pytest.raises(UserError, match=r"model\.vocab_size"):
        open_llama2c(write(tmp_path / "model.bin", bytes(data)))


@versions
@pytest.mark.parametrize("size", [0, 3, 8, 27, 28, 37, 255, -4000, -1, 1])
def test_a_file_of_another_size(size: int, version: int, tmp_path: Path) -> None:
    data = file_of(arrays_of_llama2c(True), version)
    data = data + b"x" if size == 1 else data[:size]
    with pytest.raises(UserError, match=r"model\.bin: (no model of llama2\.c|cut off|more in it)"):
        open_llama2c(write(tmp_path / "model.bin", data))


def test_quantised_weights_are_refused_by_name(tmp_path: Path) -> None:
    data = bytearray(file_of(arrays_of_llama2c(True), 1))
    struct.pack_into("<i", data, 4, 2)
    with pytest.raises(UserError, match=r"version 2 .* eight bits \(int8\).*export the model once more as version 0"):
        open_llama2c(write(tmp_path / "model.bin", bytes(data)))
    struct.pack_into("<i", data, 4, 3)
    with pytest.raises(UserError, match=r"version 3 of llama2\.c's files; 0 and 1 can be read"):
        open_llama2c(write(tmp_path / "model.bin", bytes(data)))


def test_tables_of_another_base_are_refused_and_empty_ones_are_not(tmp_path: Path) -> None:
    """A run.c of old read the tables; today's takes 10000 whatever they say."""
    arrays = arrays_of_llama2c(True)
    angles = np.arange(T)[:, None] * 1e6 ** (-np.arange(0, D, 2) / D)
    arrays["freq_cis_real"], arrays["freq_cis_imag"] = np.cos(angles), np.sin(angles)
    with pytest.raises(UserError, match="its table of RoPE is not that of base 10000"):
        open_llama2c(write(tmp_path / "model.bin", file_of(arrays)))
    arrays["freq_cis_real"], arrays["freq_cis_imag"] = np.zeros((2, T, D // 2))
    assert open_llama2c(write(tmp_path / "model.bin", file_of(arrays))).config.rope_theta == 10000


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(UserError, match="cannot read it"):
            open_llama2c(path)

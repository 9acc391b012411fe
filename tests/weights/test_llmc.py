"""llm.c's checkpoints, against a writer and a reader of the published layout that know nothing of ours."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_close

from nanoeuler import cpu
from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.weights.binary import order_size
from nanoeuler.weights.llmc import open_llmc, parameter_order, write_llmc
from nanoeuler.weights.tensors import check_tensors, read_flat

SMALL = {"preset": "gpt2", "vocab_size": 130, "max_seq_len": 6, "num_layers": 3, "num_heads": 2, "hidden_dim": 8}
T, V, L, H, C, ROWS = 6, 130, 3, 2, 8, 256  # as SMALL; the vocabulary padded to a multiple of 128

#: The published layout: what train_gpt2.cu calls its tensors, and their shapes.
LAYOUT = {
    "wte": (ROWS, C),
    "wpe": (T, C),
    "ln1w": (L, C),
    "ln1b": (L, C),
    "qkvw": (L, 3 * C, C),
    "qkvb": (L, 3 * C),
    "attprojw": (L, C, C),
    "attprojb": (L, C),
    "ln2w": (L, C),
    "ln2b": (L, C),
    "fcw": (L, 4 * C, C),
    "fcb": (L, 4 * C),
    "fcprojw": (L, C, 4 * C),
    "fcprojb": (L, C),
    "lnfw": (C,),
    "lnfb": (C,),
}
#: Where Hugging Face has them; the linear ones are (in, out) there.
THEIRS = {
    "ln1w": "ln_1.weight",
    "ln1b": "ln_1.bias",
    "qkvw": "attn.c_attn.weight",
    "qkvb": "attn.c_attn.bias",
    "attprojw": "attn.c_proj.weight",
    "attprojb": "attn.c_proj.bias",
    "ln2w": "ln_2.weight",
    "ln2b": "ln_2.bias",
    "fcw": "mlp.c_fc.weight",
    "fcb": "mlp.c_fc.bias",
    "fcprojw": "mlp.c_proj.weight",
    "fcprojb": "mlp.c_proj.bias",
}


def arrays_of_llmc() -> dict[str, np.ndarray]:
    """Return random tensors of the layout, in numbers that bfloat16 holds exactly."""
    random = np.random.default_rng(5)
    arrays = {}
    for name, shape in LAYOUT.items():
        bits = random.standard_normal(shape).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        arrays[name] = bits.view(np.float32)
    arrays["wte"][V:] = 0
    return arrays


def file_of(arrays: dict[str, np.ndarray], version: int = 3, **header: int) -> bytes:
    """Return a checkpoint, number by number; ``header`` changes what its header says."""
    numbers = {"magic": 20240326, "version": version, "T": T, "V": V, "L": L, "H": H, "C": C, "rows": ROWS} | header
    data = struct.pack("<8i", *numbers.values()) + bytes(248 * 4)
    for array in arrays.values():
        for number in array.ravel().tolist():
            four = struct.pack("<f", number)
            data += four if version == 3 else four[2:]  # bfloat16 is the upper half, the latter one of the bytes
    return data


def parsed(data: bytes) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """Return the header and the tensors of a checkpoint in the layout above."""
    header, place, arrays = struct.unpack_from("<8i", data), 1024, {}
    for name, shape in LAYOUT.items():
        size = int(np.prod(shape))
        if header[1] == 3:
            numbers = struct.unpack_from(f"<{size}f", data, place)
        else:
            halves = struct.unpack_from(f"<{size}H", data, place)
            numbers = [struct.unpack("<f", struct.pack("<HH", 0, half))[0] for half in halves]
        arrays[name] = np.array(numbers, np.float32).reshape(shape)
        place += size * (4 if header[1] == 3 else 2)
    assert place == len(data)
    assert not any(data[32:1024])
    return header, arrays


def weights_of(config: ModelConfig) -> dict[str, np.ndarray]:
    shapes = parameter_shapes(config)
    return named_views(np.random.default_rng(2).standard_normal(flat_size(shapes)).astype(np.float32), shapes)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("version", "dtype"), [(3, "float32"), (5, "bfloat16")])
def test_reading(version: int, dtype: str, tmp_path: Path) -> None:
    arrays = arrays_of_llmc()
    files = open_llmc(write(tmp_path / "model.bin", file_of(arrays, version)))
    assert files.config == ModelConfig(**SMALL)
    assert files.format == "llm.c"
    check_tensors(files.config, files.tensors)
    assert {tensor.dtype for tensor in files.tensors.values()} == {dtype}
    expected = {
        "transformer.wte.weight": arrays["wte"][:V],
        "transformer.wpe.weight": arrays["wpe"],
        "transformer.ln_f.weight": arrays["lnfw"],
        "transformer.ln_f.bias": arrays["lnfb"],
    }
    for ours, theirs in THEIRS.items():
        for layer in range(L):
            expected[f"transformer.h.{layer}.{theirs}"] = arrays[ours][layer].T  # of a vector the same
    assert files.tensors.keys() == expected.keys()
    for name, tensor in files.tensors.items():
        assert tensor.shape == expected[name].shape
        np.testing.assert_array_equal(tensor.read(), expected[name], strict=True)
    flat = named_views(read_flat(files.config, files.tensors), parameter_shapes(files.config))
    np.testing.assert_array_equal(flat["layers.1.qkv.weight"], arrays["qkvw"][1])
    np.testing.assert_array_equal(flat["layers.2.down.weight"], arrays["fcprojw"][2])


def test_a_model_of_transformers_computes_the_same(tmp_path: Path) -> None:
    """Its weights in the published layout, read by us: the same logits."""
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch (extra 'oracles')")
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "n_positions": T, "n_layer": L, "n_head": H, "n_embd": C, "initializer_range": 0.3}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).eval()
    for vector in (parameter for parameter in theirs.parameters() if parameter.ndim == 1):
        torch.nn.init.normal_(vector, 0.5, 0.3)  # biases are zeros, and norms ones, in a new model
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    arrays = {"wte": np.pad(state["transformer.wte.weight"], ((0, ROWS - V), (0, 0)))}
    arrays["wpe"] = state["transformer.wpe.weight"]
    for name, place in THEIRS.items():
        arrays[name] = np.stack([state[f"transformer.h.{layer}.{place}"].T for layer in range(L)])
    arrays |= {"lnfw": state["transformer.ln_f.weight"], "lnfb": state["transformer.ln_f.bias"]}
    files = open_llmc(write(tmp_path / "model.bin", file_of(arrays)))
    tokens = np.array([[3, 129, 0, 77, 77, 5]])
    logits = Transformer(files.config, cpu, read_flat(files.config, files.tensors), 1, T).logits(tokens)
    with torch.no_grad():
        assert_close(logits, theirs(torch.tensor(tokens)).logits, 1e-5)


@pytest.mark.parametrize(("version", "dtype"), [(3, "float32"), (5, "bfloat16")])
def test_writing(version: int, dtype: str, tmp_path: Path) -> None:
    """What is written is what was read, byte for byte, and what an independent reader finds in it."""
    data = file_of(arrays_of_llmc(), version)
    files = open_llmc(write(tmp_path / "model.bin", data))
    flat = read_flat(files.config, files.tensors)
    again = tmp_path / "again.bin"
    write_llmc(again, files.config, named_views(flat, parameter_shapes(files.config)), dtype)
    assert again.read_bytes() == data
    header, arrays = parsed(again.read_bytes())
    assert header == (20240326, version, T, V, L, H, C, ROWS)
    assert not arrays["wte"][V:].any()
    for name, array in arrays_of_llmc().items():
        np.testing.assert_array_equal(arrays[name], array)


def test_bfloat16_is_rounded_to_the_nearest_and_ties_to_even(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL)
    weights = weights_of(config)
    ulp = 2.0**-7  # of bfloat16, at 1
    weights["final_norm.weight"][:] = [1 + x * ulp for x in (0, 0.49, 0.5, 0.51, 1.49, 1.5, 1.51, -0.1)]
    write_llmc(tmp_path / "model.bin", config, weights, "bfloat16")
    _, arrays = parsed((tmp_path / "model.bin").read_bytes())
    assert arrays["lnfw"].tolist() == [1 + x * ulp for x in (0, 0, 0, 1, 1, 2, 2, 0)]


@settings(max_examples=25, deadline=None)
@given(
    vocabulary=st.sampled_from([1, 127, 128, 129, 300]),
    layers=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=st.integers(1, 5),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_round_trip(tmp_path_factory: Any, vocabulary: int, layers: int, heads: int, length: int, dtype: str) -> None:
    sizes = {"vocab_size": vocabulary, "num_layers": layers, "num_heads": heads, "max_seq_len": length}
    config = ModelConfig(preset="gpt2", hidden_dim=4 * heads, **sizes)
    shapes, path = parameter_shapes(config), tmp_path_factory.mktemp("round") / "model.bin"
    bits = np.random.default_rng(0).integers(0, 1 << 16, flat_size(shapes), np.uint32) << 16
    exact = named_views(np.nan_to_num(bits.view(np.float32)), shapes)  # tiny, huge, both zeros
    exact = {name: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for name, x in exact.items()}
    write_llmc(path, config, exact, dtype)
    files = open_llmc(path)
    assert files.config == config
    assert path.stat().st_size == 1024 + (
        -vocabulary % 128 * config.hidden_dim + sum(x.size for x in exact.values())
    ) * (4 if dtype == "float32" else 2)
    again = named_views(read_flat(files.config, files.tensors), shapes)
    for name, array in exact.items():
        assert again[name].tobytes() == array.tobytes(), name


def test_only_the_vocabulary_of_gpt2_has_an_end_of_text(tmp_path: Path) -> None:
    config = ModelConfig(preset="gpt2", vocab_size=50257, num_layers=1, num_heads=1, hidden_dim=1, max_seq_len=1)
    write_llmc(tmp_path / "model.bin", config, weights_of(config), "float32")
    files = open_llmc(tmp_path / "model.bin")
    assert files.end_ids == (50256,)
    assert open_llmc(write(tmp_path / "small.bin", file_of(arrays_of_llmc()))).end_ids == ()


def test_gpt2_has_as_many_parameters_as_llm_c_prints() -> None:
    config = ModelConfig(preset="gpt2", vocab_size=50257, max_seq_len=1024, num_layers=12, num_heads=12, hidden_dim=768)
    assert order_size(parameter_order(config, 50304), 12) == 124_475_904


# --- what cannot be written

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a Llama": ({"preset": "euler"}, "norm is rmsnorm, there layernorm"),
    "untied": ({"tie_embeddings": False}, "tie_embeddings is False, there True"),
    "grouped queries": ({"num_kv_heads": 1}, "num_kv_heads is 1, there 2"),
    "a narrow feed-forward layer": ({"feed_forward_dim": 16}, "feed_forward_dim is 16, there 32"),
    "heads of their own size": ({"attention_head_dim": 6}, "attention_head_dim is 6, there 4"),
    "another epsilon": ({"norm_eps": 1e-6}, "norm_eps is 1e-06, there 1e-05"),
    "no biases": ({"bias": False}, "bias is False, there True"),
    "RoPE": ({"position": "rope"}, "position is rope, there learned"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_other_architectures_are_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = ModelConfig(**(SMALL | changes))
    with pytest.raises(UserError, match=message):
        write_llmc(tmp_path / "model.bin", config, weights_of(config), "float32")
    assert list(tmp_path.iterdir()) == []


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL)
    with pytest.raises(UserError, match="no checkpoints of float16: use float32 or bfloat16"):
        write_llmc(tmp_path / "model.bin", config, weights_of(config), "float16")


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", 3.4e38), ("float32", 1e300)])
def test_a_number_beyond_the_dtype_is_refused(dtype: str, number: float, tmp_path: Path) -> None:
    config = ModelConfig(**SMALL)
    weights = {name: array.astype(np.float64) for name, array in weights_of(config).items()}
    weights["layers.1.up.bias"][3] = number
    with pytest.raises(UserError, match=f"tensor transformer.h.1.mlp.c_fc.bias has numbers that are beyond {dtype}"):
        write_llmc(tmp_path / "model.bin", config, weights, dtype)
    assert list(tmp_path.iterdir()) == []


def test_further_prediction_heads_are_left_out(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL, num_prediction_heads=3)
    write_llmc(tmp_path / "model.bin", config, weights_of(config), "float32")
    assert open_llmc(tmp_path / "model.bin").config == ModelConfig(**SMALL)


# --- what cannot be read

BIG = 2**31 - 1
HEADERS: dict[str, tuple[dict[str, int], str]] = {
    "another magic number": ({"magic": 20240520}, "no checkpoint of llm.c: it begins with 20240520"),
    "an old version": ({"version": 1}, "version 1 of llm.c's checkpoints; 3 .* and 5 .* can be read"),
    "a version that is yet to come": ({"version": -7}, "version -7"),
    "no layers": ({"L": 0}, "model.num_layers"),
    "a negative vocabulary": ({"V": -130}, "model.vocab_size"),
    "a negative width": ({"C": -8}, "model.hidden_dim"),
    "no heads": ({"H": 0}, "model.num_heads"),
    "heads that do not divide the width": ({"H": 3}, "hidden_dim 8 is not a multiple of num_heads 3"),
    "a billion layers": ({"L": BIG}, "model.num_layers"),
    "gigabytes": ({"rows": BIG}, "cut off"),
    "all that a header can claim": ({"T": BIG, "V": BIG, "C": BIG - 1, "rows": BIG, "L": 10_000}, "cut off"),
    "fewer rows than tokens": ({"rows": 129}, "an embedding of 129 rows for a vocabulary of 130"),
    "negative rows": ({"rows": -1}, "an embedding of -1 rows"),
    "a row too many": ({"rows": ROWS + 1}, "cut off"),
    "a row too few": ({"rows": ROWS - 1}, "more in it"),
    "a position too few": ({"T": T - 1}, "more in it"),
}


@pytest.mark.parametrize(("header", "message"), HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_lies(header: dict[str, int], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.bin", file_of(arrays_of_llmc()))
    data = bytearray(path.read_bytes())
    names = ["magic", "version", "T", "V", "L", "H", "C", "rows"]
    for name, number in header.items():
        struct.pack_into("<i", data, 4 * names.index(name), number)
    with pytest.raises(UserError, match=message) as caught:
        open_llmc(write(path, bytes(data)))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 3, 32, 1023, 1024, -5000, -1, 1])
def test_a_file_of_another_size(size: int, tmp_path: Path) -> None:
    data = file_of(arrays_of_llmc())
    data = data + b"x" if size == 1 else data[:size]
    with pytest.raises(UserError, match=r"model\.bin: (no checkpoint of llm\.c: |cut off|more in it)"):
        open_llmc(write(tmp_path / "model.bin", data))


def test_a_file_that_is_cut_off_after_it_was_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "model.bin", file_of(arrays_of_llmc()))
    files = open_llmc(path)
    write(path, path.read_bytes()[:3000])
    with pytest.raises(UserError, match="cut off since it was opened"):
        read_flat(files.config, files.tensors)
    path.unlink()
    with pytest.raises(UserError, match=r"model\.bin: cannot be read: No such file"):
        read_flat(files.config, files.tensors)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(UserError, match="cannot read it"):
            open_llmc(path)


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "model.bin", file_of(arrays_of_llmc()))
    monkeypatch.setattr(np, "fromfile", None)
    assert len(open_llmc(path).tensors) == 4 + 12 * L


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    arrays = arrays_of_llmc()
    arrays["fcb"][2, 5] = np.nan
    files = open_llmc(write(tmp_path / "model.bin", file_of(arrays)))
    with pytest.raises(UserError, match=r"tensor transformer\.h\.2\.mlp\.c_fc\.bias: 1 of its 32 numbers"):
        read_flat(files.config, files.tensors)

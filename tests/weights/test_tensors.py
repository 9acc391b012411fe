"""From named tensors to one flat buffer: bfloat16 as torch has it, and nothing is read that does not fit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import normal

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.parameters import flat_size, named_views, parameter_count, parameter_shapes
from nanoeuler.weights import Tensor
from nanoeuler.weights.mapping import huggingface_shapes, huggingface_views
from nanoeuler.weights.tensors import check_tensors, narrow, read_flat, widen

# --- bfloat16


def test_widen_all_numbers_of_bfloat16() -> None:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    bits = np.arange(2**16, dtype=np.uint16)
    expected = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert widen(bits).dtype == np.float32
    assert widen(bits).tobytes() == expected.tobytes()  # payloads of NaN too


def test_narrow_undoes_widen() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    finite = ~np.isnan(widen(bits))
    np.testing.assert_array_equal(narrow(widen(bits))[finite], bits[finite])


def awkward_numbers() -> np.ndarray:
    """Return float32 numbers of every exponent, ties and their neighbours, infinities, NaN, both zeros."""
    bits = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    near = bits | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    drawn = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    return np.concatenate([near.ravel(), drawn]).view(np.float32)


def test_narrow_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    x = awkward_numbers()
    expected = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(x)
    assert narrow(x).dtype == np.uint16
    np.testing.assert_array_equal(narrow(x)[number], expected[number])
    assert np.isnan(widen(narrow(x)[~number])).all()  # which NaN it is depends on torch's vector units


@given(st.floats(width=32, allow_nan=False))
@example(1 + 2**-8)  # ties, to the even one below and above
@example(1 + 3 * 2**-8)
@example(3 * 2.0**-134)  # among denormals
@example((2 - 2**-8) * 2.0**127)
def test_narrow_takes_the_nearest(x: float) -> None:
    """By its definition, with no other library: no neighbour is nearer, and of two as near the even one is taken."""
    bits = int(narrow(np.array([x], np.float32))[0])
    got = bfloat16(bits)
    assert np.signbit(got) == np.signbit(x)
    if np.isinf(got):
        assert abs(x) >= (2 - 2**-8) * 2.0**127  # half a step beyond the largest
        return
    for neighbour in (bits - 1, bits + 1):  # of 0 and of the largest: a NaN and infinity
        other = bfloat16(neighbour % 2**16)
        if np.isfinite(other):
            assert abs(got - x) < abs(other - x) or (abs(got - x) == abs(other - x) and bits % 2 == 0)


def bfloat16(bits: int) -> float:
    return float(widen(np.array([bits], np.uint16))[0])


def test_narrow_keeps_the_shape_and_takes_any_stride() -> None:
    x = normal((6, 10)).astype(np.float32)
    np.testing.assert_array_equal(narrow(x.T[::2]), narrow(x).T[::2])


# --- names and shapes

CONFIG = ModelConfig(vocab_size=13, max_seq_len=10, num_layers=2, num_heads=4, num_kv_heads=2, hidden_dim=24)
GPT2 = ModelConfig(vocab_size=13, max_seq_len=10, num_layers=1, num_heads=2, hidden_dim=8, preset="gpt2")


def never() -> np.ndarray:
    raise AssertionError("nothing may be read yet")


def unread(config: ModelConfig) -> dict[str, Tensor]:
    return {name: Tensor("float32", shape, never) for name, shape in huggingface_shapes(config).items()}


def refusal(tensors: dict[str, Tensor], config: ModelConfig = CONFIG) -> str:
    """Return the message with which both functions refuse, before anything is read."""
    messages = []
    for function in (check_tensors, read_flat):
        with pytest.raises(UserError) as error:
            function(config, tensors)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    return messages[0]


@pytest.mark.parametrize("config", [CONFIG, GPT2])
def test_what_fits_is_accepted(config: ModelConfig) -> None:
    check_tensors(config, unread(config))


def test_a_missing_tensor() -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    tensors = unread(CONFIG)
    del tensors[name]
    assert refusal(tensors) == f"tensor {name} is missing"
    tensors["model.layers.1.self_attn.k_pro.weight"] = Tensor("float32", (12, 24), never)
    message = refusal(tensors)
    assert message.startswith(f"tensor {name} is missing")
    assert "model.layers.1.self_attn.k_pro.weight" in message
    assert "is missing" in refusal({})


def test_a_tensor_too_many() -> None:
    extra = {"model.layers.2.self_attn.q_proj.weight": Tensor("float32", (24, 24), never)}
    message = refusal(unread(CONFIG) | extra)
    assert message.startswith("tensor model.layers.2.self_attn.q_proj.weight is not part of the architecture")


@pytest.mark.parametrize("shape", [(23,), (24, 1), (), (1, 24)])
def test_another_shape(shape: tuple[int, ...]) -> None:
    message = refusal(unread(CONFIG) | {"model.norm.weight": Tensor("float32", shape, never)})
    assert message == f"tensor model.norm.weight has the shape {shape}; the configuration makes it (24,)"


def test_a_transposed_tensor() -> None:
    name = "transformer.h.0.attn.c_attn.weight"
    message = refusal(unread(GPT2) | {name: Tensor("float32", (24, 8), never)}, GPT2)
    assert message == f"tensor {name} has the shape (24, 8); the configuration makes it (8, 24)"


# --- the flat buffer


def holding(config: ModelConfig, dtype: Any = np.float32) -> dict[str, Tensor]:
    """Return tensors that hold random numbers of a dtype."""
    shapes = huggingface_shapes(config)
    arrays = {name: normal(shape, dtype, i) for i, (name, shape) in enumerate(shapes.items())}
    return {
        name: Tensor(np.dtype(dtype).name, array.shape, lambda array=array: array) for name, array in arrays.items()
    }


@pytest.mark.parametrize("config", [CONFIG, GPT2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("wanted", [np.float32, np.float64])
def test_every_number_is_rounded_once(config: ModelConfig, dtype: Any, wanted: Any) -> None:
    tensors = holding(config, dtype)
    flat = read_flat(config, tensors, wanted)
    shapes = parameter_shapes(config)
    assert flat.dtype == wanted
    assert flat.shape == (flat_size(shapes),)
    for name, view in huggingface_views(config, named_views(flat, shapes)).items():
        np.testing.assert_array_equal(view, tensors[name].read().astype(wanted), err_msg=name)
    for view in named_views(flat, shapes).values():
        view[...] = 0
    assert not flat.any()  # nor is there anything between the tensors


def test_the_progress_ends_at_the_number_of_parameters() -> None:
    told: list[int] = []
    read_flat(CONFIG, holding(CONFIG), progress=told.append)
    assert len(told) == len(huggingface_shapes(CONFIG))
    assert sum(told) == parameter_count(parameter_shapes(CONFIG))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_number_that_is_none(value: float, dtype: Any) -> None:
    tensors = holding(CONFIG, dtype)
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name].read()[1, 2:4] = value
    size = tensors[name].read().size
    with pytest.raises(UserError, match=rf"^tensor {name}: 2 of its {size} numbers are infinite or NaN"):
        read_flat(CONFIG, tensors)
    flat = read_flat(CONFIG, tensors, finite=False)
    assert np.count_nonzero(~np.isfinite(flat)) == 2


def test_a_number_that_float32_cannot_hold() -> None:
    tensors = holding(CONFIG, np.float64)
    tensors["lm_head.weight"].read()[0, 0] = 1e300
    with pytest.raises(UserError, match=r"^tensor lm_head.weight: 1 of its 312 numbers.*in float32"):
        read_flat(CONFIG, tensors)
    assert read_flat(CONFIG, tensors, np.float64).max() == 1e300

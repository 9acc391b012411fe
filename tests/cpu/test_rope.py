"""Rotary position embedding against complex numbers in PyTorch, and by what rotations keep."""

import numpy as np
import pytest
from oracle import (
    assert_close,
    assert_same_with_threads,
    dtypes,
    leaf,
    more_than_a_block,
    needs_torch,
    normal,
    torch,
    unwritten,
)

from nanoeuler import cpu as ops
from nanoeuler.cpu.rope import RopeScaling

BASE = 100.0
# B, T, H, D
SHAPES = [(1, 1, 1, 2), (2, 5, 3, 6), (3, 1, 2, 4), (2, more_than_a_block(9 * 32), 9, 32)]


@needs_torch
@dtypes
@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize(("B", "T", "H", "D"), SHAPES)
def test_equals_a_product_of_complex_numbers(B: int, T: int, H: int, D: int, start: int, dtype: type) -> None:
    x, dout = normal((B, T, H, D), dtype, 1), normal((B, T, H, D), dtype, 2)
    out, dx = unwritten(x.shape, dtype), unwritten(x.shape, dtype)
    cos, sin = (table[start:] for table in ops.rope_tables(start + T, D, BASE, dtype))
    ops.rope_forward(out, x, cos, sin)
    ops.rope_backward(dx, dout, cos, sin)

    tx = leaf(x)
    turn = torch.complex(*(torch.tensor(t, dtype=torch.float64) for t in (cos, sin)))[:, None]
    pairs = torch.complex(tx[..., : D // 2], tx[..., D // 2 :]) * turn
    expected = torch.cat([pairs.real, pairs.imag], dim=-1)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dx, tx.grad)


def test_tables() -> None:
    cos, sin = ops.rope_tables(5, 4, 10000.0, np.float64)
    assert_close(cos, np.cos(np.outer(np.arange(5), [1, 0.01])))
    assert_close(sin, np.sin(np.outer(np.arange(5), [1, 0.01])))
    rounded = ops.rope_tables(4000, 64, 10000.0, np.float32)
    exact = ops.rope_tables(4000, 64, 10000.0, np.float64)
    assert all((a == b.astype(np.float32)).all() and a.dtype == np.float32 for a, b in zip(rounded, exact, strict=True))


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def test_llama3_stretches_long_waves_and_leaves_short_ones() -> None:
    """Of waves of 2π, 2π·10 and 2π·1000 positions: shorter than a quarter of 96, between, and longer than 96."""
    theta = np.array([1.0, 0.1, 0.001])
    scaled = RopeScaling(**LLAMA3, original_length=96).scaled(theta)
    share = (96 / (2 * np.pi * 10) - 1) / (4 - 1)  # of the middle one that stays as it was
    assert 0 < share < 1
    assert_close(scaled, [1.0, 0.1 * (share + (1 - share) / 8), 0.001 / 8])
    assert (RopeScaling().scaled(theta) == theta).all()


@pytest.mark.parametrize("length", [16, 200, 8192])
def test_llama3_equals_transformers(length: int) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    rope = LLAMA3 | {"rope_type": "llama3", "rope_theta": 5e5, "original_max_position_embeddings": length}
    config = transformers.LlamaConfig(hidden_size=128, num_attention_heads=2, rope_parameters=rope)
    compute = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"]
    expected, attention = compute(config, torch.device("cpu"))
    assert attention == 1
    exact = 5e5 ** (-np.arange(0, 64, 2) / 64)
    scaled = RopeScaling(**LLAMA3, original_length=length).scaled(exact)
    assert (scaled < exact).any()
    np.testing.assert_allclose(scaled, expected.numpy(), rtol=1e-6)  # theirs are float32
    tables = ops.rope_tables(7, 64, 5e5, np.float64, RopeScaling(**LLAMA3, original_length=length))
    assert_close(tables[0], np.cos(np.outer(np.arange(7), scaled)))


def test_position_zero_is_not_turned_and_every_length_is_kept() -> None:
    x, out = normal((2, 5, 3, 6)), unwritten((2, 5, 3, 6))
    ops.rope_forward(out, x, *ops.rope_tables(5, 6, BASE, np.float64))
    assert (out[:, 0] == x[:, 0]).all()
    assert_close(np.linalg.norm(out, axis=-1), np.linalg.norm(x, axis=-1))
    assert np.abs(out[:, 1:] - x[:, 1:]).min() > 0


def test_backward_turns_back() -> None:
    x, out, back = normal((2, 5, 3, 6)), unwritten((2, 5, 3, 6)), unwritten((2, 5, 3, 6))
    tables = ops.rope_tables(5, 6, BASE, np.float64)
    ops.rope_forward(out, x, *tables)
    ops.rope_backward(back, out, *tables)
    assert_close(back, x)


def test_product_of_query_and_key_depends_on_their_distance_alone() -> None:
    q, k = (np.broadcast_to(normal((6,), seed=seed), (1, 9, 1, 6)) for seed in (1, 2))
    tables = ops.rope_tables(9, 6, BASE, np.float64)
    turned_q, turned_k = unwritten(q.shape), unwritten(k.shape)
    ops.rope_forward(turned_q, q, *tables)
    ops.rope_forward(turned_k, k, *tables)
    scores = turned_q[0, :, 0] @ turned_k[0, :, 0].T
    for distance in range(9):
        along = np.diagonal(scores, -distance)
        assert np.ptp(along) < 1e-12
    assert np.ptp(scores[:, 0]) > 0.1


@dtypes
@pytest.mark.parametrize(("B", "T", "H", "D"), SHAPES)
def test_in_place_in_packed_rows(B: int, T: int, H: int, D: int, dtype: type) -> None:
    """As the model does it: queries and keys of a packed q|k|v are turned where they lie, the values left alone."""
    packed = normal((B, T, H + 2, D), dtype)
    before, heads = packed.copy(), packed[:, :, :H]
    tables = ops.rope_tables(T, D, BASE, dtype)
    for rotate in (ops.rope_forward, ops.rope_backward):
        expected = unwritten(heads.shape, dtype)
        rotate(expected, np.ascontiguousarray(heads), *tables)
        rotate(heads, heads, *tables)
        assert (heads == expected).all()
    assert (packed[:, :, H:] == before[:, :, H:]).all()


def test_threads_give_the_same_bits() -> None:
    T = more_than_a_block(9 * 32)
    x, tables = normal((2, T, 9, 32)), ops.rope_tables(T, 32, BASE, np.float64)

    def run() -> list[np.ndarray]:
        out, dx = unwritten(x.shape), unwritten(x.shape)
        ops.rope_forward(out, x, *tables)
        ops.rope_backward(dx, x, *tables)
        return [out, dx]

    assert_same_with_threads(run)

"""Attention against its own definition, against PyTorch's, and by what causality and grouping mean."""

import numpy as np
import pytest
from oracle import assert_close, assert_same_with_threads, dtypes, leaf, needs_torch, normal, torch, unwritten

from nanoeuler import cpu as ops
from nanoeuler.cpu import attention
from nanoeuler.cpu.attention import attention_definition

# B, T, S, H, K, D
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (3, 1, 1, 4, 2, 5),  # one token: the output is its value
    (2, 5, 5, 6, 2, 3),  # three queries share a key
    (1, 7, 7, 3, 3, 4),  # multi-head
    (2, 6, 6, 5, 1, 7),  # multi-query
    (2, 1, 9, 4, 2, 3),  # one new token, eight cached keys
    (1, 4, 11, 2, 1, 6),
    (1, 64, 64, 2, 1, 5),  # exactly one block of queries
    (2, 65, 65, 2, 2, 3),
    (1, 130, 130, 4, 2, 8),  # two blocks and two rows
    (1, 70, 600, 8, 1, 2),  # so many keys that a block has fewer queries
    (2, 129, 150, 6, 3, 1),
]
shapes = pytest.mark.parametrize(("B", "T", "S", "H", "K", "D"), SHAPES)


def inputs(B: int, T: int, S: int, H: int, K: int, D: int, dtype: type = np.float64) -> tuple[np.ndarray, ...]:
    """Return q, k, v, dout."""
    query, key = (B, T, H, D), (B, S, K, D)
    return tuple(normal(shape, dtype, seed) for seed, shape in enumerate((query, key, key, query)))


def forward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, starts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    B, T, H, _ = q.shape
    out, lse = unwritten(q.shape, q.dtype), unwritten((B, H, T), q.dtype)
    ops.attention_forward(out, lse, q, k, v, starts)
    return out, lse


def backward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, dout: np.ndarray, starts: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Return dq, dk, dv."""
    out, lse = forward(q, k, v, starts)
    gradients = tuple(unwritten(x.shape, x.dtype) for x in (q, k, v))
    ops.attention_backward(*gradients, dout, out, lse, q, k, v, starts)
    return gradients


def documents(B: int, T: int, S: int, share: float) -> np.ndarray:
    """Return starts of documents: a query begins one with this probability, others in every sequence."""
    place, random = np.arange(T, dtype=np.int32) + S - T, np.random.default_rng(T)
    return np.maximum.accumulate(np.where(random.random((B, T)) < share, place, np.int32(0)), axis=1)


def begins(*lengths: int) -> np.ndarray:
    """Return the starts of documents of these lengths in one sequence."""
    return np.repeat(np.cumsum([0, *lengths[:-1]]), lengths).astype(np.int32)[None]


@dtypes
@shapes
def test_equals_its_definition(B: int, T: int, S: int, H: int, K: int, D: int, dtype: type) -> None:
    q, k, v, _ = inputs(B, T, S, H, K, D, dtype)
    out, lse = forward(q, k, v)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    assert_close(out, attention_definition(q, k, v))
    for b, t, h in {(0, 0, 0), (B - 1, T - 1, H - 1), (0, T // 2, H // 2)}:
        scores = k[b, : t + 1 + S - T, h // (H // K)] @ q[b, t, h] / np.sqrt(D)
        assert lse[b, h, t] == pytest.approx(np.log(np.exp(scores).sum()), rel=1e-5, abs=1e-6)


@needs_torch
@dtypes
@shapes
def test_equals_torch(B: int, T: int, S: int, H: int, K: int, D: int, dtype: type) -> None:
    q, k, v, dout = inputs(B, T, S, H, K, D, dtype)
    tq, tk, tv = (leaf(x) for x in (q, k, v))
    heads_first = [x.transpose(1, 2) for x in (tq, tk.repeat_interleave(H // K, 2), tv.repeat_interleave(H // K, 2))]
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=seen).transpose(1, 2)
    expected.backward(leaf(dout))
    assert_close(forward(q, k, v)[0], expected)
    for actual, x in zip(backward(q, k, v, dout), (tq, tk, tv), strict=True):
        largest = float(x.grad.abs().max())  # with one key, dq and dk are 0 but for rounding
        assert_close(actual, x.grad) if largest > 1e-6 else np.testing.assert_allclose(actual, 0, atol=1e-5)


@needs_torch
@dtypes
@shapes
@pytest.mark.parametrize("share", [0.04, 0.5, 1])
def test_documents_equal_torch_with_a_mask(
    B: int, T: int, S: int, H: int, K: int, D: int, share: float, dtype: type
) -> None:
    q, k, v, dout = inputs(B, T, S, H, K, D, dtype)
    starts = documents(B, T, S, share)
    place = np.arange(S)
    seen = (starts[:, :, None] <= place) & (place <= np.arange(T)[:, None] + S - T)
    tq, tk, tv = (leaf(x) for x in (q, k, v))
    heads_first = [x.transpose(1, 2) for x in (tq, tk.repeat_interleave(H // K, 2), tv.repeat_interleave(H // K, 2))]
    mask = torch.tensor(seen)[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask).transpose(1, 2)
    expected.backward(leaf(dout))
    out, lse = forward(q, k, v, starts)
    assert_close(out, expected)
    assert_close(attention_definition(*(x.astype(np.float64) for x in (q, k, v)), starts), expected)
    scores = torch.einsum("bhtd,bhsd->bhts", *heads_first[:2]) / np.sqrt(D)
    assert_close(lse, scores.masked_fill(~mask, -np.inf).logsumexp(-1))
    for actual, x in zip(backward(q, k, v, dout, starts), (tq, tk, tv), strict=True):
        largest = float(x.grad.abs().max())  # with one key, dq and dk are 0 but for rounding
        assert_close(actual, x.grad) if largest > 1e-6 else np.testing.assert_allclose(actual, 0, atol=1e-5)


@pytest.mark.parametrize(
    "lengths", [(5,), (1, 1, 1), (64, 64, 2), (63, 65, 1, 1), (1, 200, 3), (30, 1, 128, 64, 7)], ids=str
)
def test_documents_together_are_documents_alone(lengths: tuple[int, ...]) -> None:
    """Forward and backward; some end where a block of queries does, or beside it."""
    T = sum(lengths)
    q, k, v, dout = inputs(1, T, T, 4, 2, 3)
    together = *forward(q, k, v, begins(*lengths)), *backward(q, k, v, dout, begins(*lengths))
    for begin, length in zip(begins(*lengths)[0, np.cumsum(lengths) - 1], lengths, strict=True):
        here = slice(begin, begin + length)
        own = [x[:, here] for x in (q, k, v)]
        alone = *forward(*own), *backward(*own, dout[:, here])
        for packed, x in zip(together, alone, strict=True):
            np.testing.assert_allclose(packed[:, :, here] if packed.ndim == 3 else packed[:, here], x, atol=1e-13)


@shapes
def test_one_document_changes_no_bit(B: int, T: int, S: int, H: int, K: int, D: int) -> None:
    q, k, v, dout = inputs(B, T, S, H, K, D)
    whole = documents(B, T, S, 0)
    for one, none in zip(
        (*forward(q, k, v, whole), *backward(q, k, v, dout, whole)),
        (*forward(q, k, v), *backward(q, k, v, dout)),
        strict=True,
    ):
        assert (one == none).all()


def test_no_query_sees_another_document() -> None:
    """Whatever is in it, and no gradient comes there."""
    q, k, v, dout = inputs(1, 130, 130, 4, 2, 8)
    starts, other, own = begins(70, 60), slice(None, 70), slice(70, None)
    before = *forward(q, k, v, starts)[:1], *backward(q, k, v, dout, starts)
    k[:, other], v[:, other] = normal(k[:, other].shape, seed=8), normal(v[:, other].shape, seed=9)
    after = *forward(q, k, v, starts)[:1], *backward(q, k, v, dout, starts)
    for a, b in zip(after, before, strict=True):
        assert (a[:, own] == b[:, own]).all()
        assert np.abs(a[:, other] - b[:, other]).max() > 0.1
    dout[:, own] = 0
    for gradient in backward(q, k, v, dout, starts):
        assert (gradient[:, own] == 0).all()
    k[:, other] = np.nan
    assert np.isfinite(forward(q, k, v, starts)[0][:, own]).all()


def test_blocks_meet_only_keys_of_documents_that_they_have_a_part_of() -> None:
    blocks = list(attention._query_blocks(200, 200, 1, begins(10, 60, 100, 30)[0]))
    assert blocks == [
        (slice(192, 200), slice(170, 200)),
        (slice(128, 192), slice(70, 192)),
        (slice(64, 128), slice(10, 128)),
        (slice(0, 64), slice(0, 64)),
    ]


@dtypes
@pytest.mark.parametrize(("B", "T", "H", "K", "D"), [(2, 5, 6, 2, 3), (1, 130, 4, 2, 8), (3, 1, 2, 1, 4)])
def test_views_of_packed_rows(B: int, T: int, H: int, K: int, D: int, dtype: type) -> None:
    """As the model calls it: q, k, v and their gradients are slices of one q|k|v, and nothing else is written."""
    packed, dout = normal((B, T, H + 2 * K + 1, D), dtype), normal((B, T, H, D), dtype, 1)
    q, k, v = packed[:, :, :H], packed[:, :, H : H + K], packed[:, :, H + K : H + 2 * K]
    apart = [np.ascontiguousarray(x) for x in (q, k, v)]
    assert (forward(q, k, v)[0] == forward(*apart)[0]).all()

    dpacked = unwritten(packed.shape, dtype)
    out, lse = forward(q, k, v)
    dq, dk, dv = dpacked[:, :, :H], dpacked[:, :, H : H + K], dpacked[:, :, H + K : H + 2 * K]
    ops.attention_backward(dq, dk, dv, dout, out, lse, q, k, v)
    for actual, expected in zip((dq, dk, dv), backward(*apart, dout), strict=True):
        assert (actual == expected).all()
    assert np.isnan(dpacked[:, :, H + 2 * K :]).all()


def test_no_query_sees_a_later_key() -> None:
    q, k, v, dout = inputs(1, 130, 130, 4, 2, 8)
    out = forward(q, k, v)[0]
    later = slice(70, None)
    k[:, later], v[:, later] = normal(k[:, later].shape, seed=8), normal(v[:, later].shape, seed=9)
    changed = forward(q, k, v)[0]
    assert_close(changed[:, :70], out[:, :70])
    assert np.abs(changed[:, later] - out[:, later]).max() > 0.1
    dout[:, later] = 0  # gradient of the first 70 tokens alone
    for gradient in backward(q, k, v, dout):
        assert (gradient[:, later] == 0).all()


def test_queries_read_the_keys_of_their_group() -> None:
    q, k, v, _ = inputs(2, 5, 5, 6, 2, 3)
    out = forward(q, k, v)[0]
    k[:, :, 1], v[:, :, 1] = normal(k[:, :, 1].shape, seed=8), normal(v[:, :, 1].shape, seed=9)
    changed = forward(q, k, v)[0]
    assert (changed[:, :, :3] == out[:, :, :3]).all()
    assert (changed[:, :, 3:] != out[:, :, 3:])[:, 1:].any(axis=-1).all()


def test_grouped_heads_are_multi_head_with_repeated_keys() -> None:
    q, k, v, dout = inputs(2, 5, 5, 6, 2, 3)
    repeated = [np.repeat(x, 3, axis=2) for x in (k, v)]
    assert_close(forward(q, k, v)[0], forward(q, *repeated)[0])
    dq, dk, dv = backward(q, k, v, dout)
    many = backward(q, *repeated, dout)
    assert_close(dq, many[0])
    assert_close(dk, many[1].reshape(2, 5, 2, 3, 3).sum(axis=3))
    assert_close(dv, many[2].reshape(2, 5, 2, 3, 3).sum(axis=3))


def test_cached_keys_give_the_last_rows_of_the_whole() -> None:
    q, k, v, _ = inputs(2, 130, 130, 4, 2, 8)
    out, lse = forward(q, k, v)
    for new in (1, 3, 66):
        last, last_lse = forward(q[:, -new:], k, v)
        assert_close(last, out[:, -new:])
        assert_close(last_lse, lse[:, :, -new:])


@dtypes
@pytest.mark.parametrize("scale", [1e2, 1e-4])
def test_huge_and_tiny_scores(scale: float, dtype: type) -> None:
    """Scores of about ±1e4 saturate the softmax and overflow nothing; tiny ones leave the mean of the values."""
    q, k, v, dout = inputs(2, 70, 70, 4, 2, 8, dtype)
    q, k = q * dtype(scale), k * dtype(scale)
    out, lse = forward(q, k, v)
    exact = attention_definition(*(x.astype(np.float64) for x in (q, k, v)))
    # a score of 1e4 is only known to 1e4 ε, and e^score relatively to that
    assert_close(out, exact, tolerance=max(1.0, scale**2) * 30 * float(np.finfo(dtype).eps))
    assert np.isfinite(lse).all()
    assert all(np.isfinite(gradient).all() for gradient in backward(q, k, v, dout))
    if scale < 1:
        means = np.cumsum(v.astype(np.float64), axis=1) / np.arange(1, 71)[:, None, None]
        assert_close(out, np.repeat(means, 2, axis=2), tolerance=1e-5)


@shapes
def test_threads_give_the_same_bits(B: int, T: int, S: int, H: int, K: int, D: int) -> None:
    q, k, v, dout = inputs(B, T, S, H, K, D)
    assert_same_with_threads(lambda: [*forward(q, k, v), *backward(q, k, v, dout)])
    starts = documents(B, T, S, 0.1)
    assert_same_with_threads(lambda: [*forward(q, k, v, starts), *backward(q, k, v, dout, starts)])

"""Causal scaled dot-product attention with grouped queries.

Sources: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.

Letters: B batch, T queries, S ≥ T keys (the queries are the last T of the S positions: S = T in training, S > T when
earlier keys come from a cache), H query heads, K key/value heads, G = H / K, D head size. Query head h reads key/value
head h // G; K = H is multi-head, K = 1 multi-query attention.

    scores[t, s] = q[t] · k[s] / √D   for s ≤ t + S - T        lse[t] = log Σ_s e^scores[t, s]
    p[t, s]      = e^(scores[t, s] - lse[t])                    out[t] = Σ_s p[t, s] v[s]

Documents. Several may lie one after the other in a sequence. With ``starts``, the place at which the document of each
query begins, a query sees only the keys of its own: starts[t] ≤ s ≤ t + S - T. A later query's document begins no
earlier, and none begins after its query.

Backward. Only lse is kept; p is computed again (as in FlashAttention, Dao et al. 2022, arXiv:2205.14135). Through
out = p v, then through the softmax, whose Jacobian is diag(p) - p pᵀ, then through the product q · k::

    dv[s]    = Σ_t p[t, s] dout[t]                  dp[t, s] = dout[t] · v[s]
    dscores  = p (dp - delta[t])                    delta[t] = Σ_s p dp = dout[t] · out[t]
    dq[t]    = Σ_s dscores[t, s] k[s] / √D          dk[s]    = Σ_t dscores[t, s] q[t] / √D

dk and dv sum over the G query heads that share them. Queries are taken in blocks of rows; a block meets only the keys
from the first that its first query may see to the last that its last query may, so of a long T x S square nearly half
is never computed, with documents far more, and none of it is stored. :func:`attention_definition` is the same in a few
plain lines.
"""

import functools
import math
from collections.abc import Iterator

import numpy as np

from nanoeuler.cpu.parallel import TILES, is_parallel, ones, parallel, scratch

#: Query rows in one block.
QUERY_ROWS = 64
#: Elements of one block of scores.
SCORE_ELEMENTS = 131072


def attention_definition(q: np.ndarray, k: np.ndarray, v: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """Return the attention of (B, T, H, D) queries to (B, S, K, D) keys and values, as the formula says it.

    With (B, T) ``starts`` a query sees the keys of its own document only.
    """
    T, S, H = q.shape[1], k.shape[1], q.shape[2]
    k, v = (np.repeat(x, H // x.shape[2], axis=2) for x in (k, v))  # each key/value head for its G query heads
    scores = np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[3])
    scores += np.triu(np.full((T, S), -np.inf, q.dtype), k=1 + S - T)  # no query sees a later key
    if starts is not None:
        scores[np.broadcast_to(np.arange(S) < starts[:, None, :, None], scores.shape)] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", p, v)


def attention_forward(
    out: np.ndarray,
    lse: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    starts: np.ndarray | None = None,
) -> None:
    """Write the attention's output and the log-sum-exp that the backward needs.

    Args:
        out: (B, T, H, D), written.
        lse: (B, H, T), written.
        q: (B, T, H, D); rows may lie apart (a slice of packed q|k|v), and so may those of k and v.
        k: (B, S, K, D).
        v: (B, S, K, D).
        starts: (B, T) int32, the first key that each query may see; None if all earlier ones. Along T it may not
            decrease, and not go beyond the query's own place t + S - T.
    """
    (B, T, H, D), (S, K) = q.shape, k.shape[1:3]
    G = H // K

    def item(part: tuple[slice, slice]) -> None:
        some, heads = part
        keys, values = k[some, :, heads].swapaxes(1, 2), v[some, :, heads].swapaxes(1, 2)  # (b, n, S, D)
        b, n = keys.shape[:2]
        queries = slice(heads.start * G, heads.stop * G)
        begins = None if starts is None else starts[some.start]
        for rows, seen in _query_blocks(T, S, b * n * G, begins):
            R = rows.stop - rows.start
            p = _scores(keys[:, :, seen], _scaled_queries(q[some, rows, queries], n), R)
            _mask_other_documents(p, begins, rows, seen)
            largest = np.max(p, axis=2, out=scratch("attention max", (b, n, G * R), q.dtype))
            p -= largest[:, :, None]
            np.exp(p, out=p)
            sums = np.matmul(
                ones(seen.stop - seen.start, q.dtype), p, out=scratch("attention sums", (b, n, G * R), q.dtype)
            )
            o = scratch("attention out", (b, n, G * R, D), q.dtype)
            np.matmul(p.swapaxes(2, 3), values[:, :, seen], out=o)
            o /= sums[..., None]
            out[some, rows, queries] = o.reshape(b, n * G, R, D).swapaxes(1, 2)
            np.log(sums, out=sums)
            np.add(largest.reshape(b, -1, R), sums.reshape(b, -1, R), out=lse[some, queries, rows])

    parallel(item, _items(B, T, S, H, K, starts is not None))


def attention_backward(
    dq: np.ndarray,
    dk: np.ndarray,
    dv: np.ndarray,
    dout: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    starts: np.ndarray | None = None,
) -> None:
    """Write the gradients of queries, keys and values.

    Args:
        dq: (B, T, H, D), written.
        dk: (B, S, K, D), written.
        dv: (B, S, K, D), written.
        dout: (B, T, H, D).
        out: (B, T, H, D), the forward's.
        lse: (B, H, T), the forward's.
        q: (B, T, H, D), the forward's.
        k: (B, S, K, D), the forward's.
        v: (B, S, K, D), the forward's.
        starts: (B, T) int32 or None, the forward's.
    """
    (B, T, H, D), (S, K) = q.shape, k.shape[1:3]
    G, dtype = H // K, q.dtype

    def item(part: tuple[slice, slice]) -> None:
        some, heads = part
        keys, values = k[some, :, heads].swapaxes(1, 2), v[some, :, heads].swapaxes(1, 2)  # (b, n, S, D)
        b, n = keys.shape[:2]
        queries = slice(heads.start * G, heads.stop * G)
        dkeys, dvalues = dk[some, :, heads].swapaxes(1, 2), dv[some, :, heads].swapaxes(1, 2)
        begins = None if starts is None else starts[some.start]
        for rows, seen in _query_blocks(T, S, b * n * G, begins):
            R = rows.stop - rows.start
            scaled = _scaled_queries(q[some, rows, queries], n)
            p = _scores(keys[:, :, seen], scaled, R)
            _mask_other_documents(p, begins, rows, seen)
            p -= lse[some, queries, rows].reshape(b, n, 1, G * R)
            np.exp(p, out=p)

            d = scratch("attention dout", (b, n * G, R, D), dtype)
            d[...] = dout[some, rows, queries].swapaxes(1, 2)
            product = scratch("attention product", d.shape, dtype)
            np.multiply(d, out[some, rows, queries].swapaxes(1, 2), out=product)
            delta = np.matmul(product, ones(D, dtype), out=scratch("attention delta", d.shape[:3], dtype))
            d = d.reshape(b, n, G * R, D)

            _add_or_write(dvalues, p, d, seen)
            dp = np.matmul(values[:, :, seen], d.swapaxes(2, 3), out=scratch("attention dp", p.shape, dtype))
            dp -= delta.reshape(b, n, 1, G * R)
            dp *= p  # dscores
            _add_or_write(dkeys, dp, scaled, seen)
            dqueries = np.matmul(dp.swapaxes(2, 3), keys[:, :, seen], out=d).reshape(b, n * G, R, D)
            np.multiply(dqueries.swapaxes(1, 2), dtype.type(1 / math.sqrt(D)), out=dq[some, rows, queries])

    parallel(item, _items(B, T, S, H, K, starts is not None))


def _items(B: int, T: int, S: int, H: int, K: int, documents: bool) -> list[tuple[slice, slice]]:
    """Cut the work into (some sequences, some key/value heads), so many that a block of scores stays in the cache.

    Small ones go together, since each call of NumPy costs a microsecond and more; a team gets an item each, if it can.
    With documents a sequence goes alone: each has borders of its own.
    """
    one_head = H // K * min(T, QUERY_ROWS) * S  # scores of one key/value head
    heads = max(1, min(K, SCORE_ELEMENTS // one_head))
    sequences = max(1, min(B, SCORE_ELEMENTS // (one_head * K))) if heads == K and not documents else 1
    if is_parallel():
        sequences = max(1, min(sequences, B // TILES))
    return [
        (slice(b, min(b + sequences, B)), slice(first, min(first + heads, K)))
        for b in range(0, B, sequences)
        for first in range(0, K, heads)
    ]


def _query_blocks(T: int, S: int, heads: int, begins: np.ndarray | None) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of query rows, the last first, each with the keys that one of its rows may see.

    ``begins``, (T,), says where each row's document begins.
    """
    size = max(1, min(QUERY_ROWS, SCORE_ELEMENTS // (heads * S)))
    for start in reversed(range(0, T, size)):
        stop = min(start + size, T)
        first = 0 if begins is None else int(begins[start])  # later rows see no earlier one
        yield slice(start, stop), slice(first, stop + S - T)


def _scaled_queries(q: np.ndarray, n: int) -> np.ndarray:
    """Copy (b, R, n·G, D) queries to (b, n, G·R, D), divided by √D: fewer numbers to scale than the scores."""
    b, R, heads, D = q.shape
    scaled = scratch("attention q", (b, heads, R, D), q.dtype)
    np.multiply(q.swapaxes(1, 2), q.dtype.type(1 / math.sqrt(D)), out=scaled)
    return scaled.reshape(b, n, -1, D)


def _scores(keys: np.ndarray, scaled: np.ndarray, R: int) -> np.ndarray:
    """Return the (b, n, s, G·R) scores of (b, n, s, D) keys and (b, n, G·R, D) queries, -inf for a later key.

    Keys run down and queries across, so that maxima and sums over the keys of each query go over whole rows at a time,
    several times faster than along them. Only the last R keys can be later than any of the R queries.
    """
    b, n, seen, _ = keys.shape
    p = scratch("attention p", (b, n, seen, scaled.shape[2]), keys.dtype)
    np.matmul(keys, scaled.swapaxes(2, 3), out=p)
    p.reshape(b, n, seen, -1, R)[:, :, seen - R :] += _later(R, keys.dtype)
    return p


_masks: dict[tuple[int, np.dtype], np.ndarray] = {}


def _later(n: int, dtype: np.dtype) -> np.ndarray:
    """Return (n, 1, n): -inf where the key (down) comes after the query (across), 0 elsewhere; made once per size."""
    if (n, dtype) not in _masks:
        _masks[n, dtype] = np.tril(np.full((n, n), -np.inf, dtype), k=-1)[:, None]
    return _masks[n, dtype]


def _mask_other_documents(p: np.ndarray, begins: np.ndarray | None, rows: slice, seen: slice) -> None:
    """Set the (b, n, s, G·R) scores of keys before a query's document, which begins at (T,) ``begins``, to -inf.

    Only keys before the document of the block's last query can be of an earlier one than any of its queries.
    """
    if begins is None:
        return
    begins = begins[rows]
    keys = _places(seen.stop)[seen.start : begins[-1]]
    earlier = np.less(keys[:, None], begins, out=scratch("attention mask", (len(keys), len(begins)), np.bool_))
    scores = p.reshape(*p.shape[:3], -1, len(begins))[:, :, : len(keys)]
    np.copyto(scores, -np.inf, where=earlier[:, None])


@functools.cache
def _places(n: int) -> np.ndarray:
    """Return 0 to n - 1, (n,) int32; made once per size."""
    return np.arange(n, dtype=np.int32)


def _add_or_write(total: np.ndarray, a: np.ndarray, b: np.ndarray, seen: slice) -> None:
    """Write ``a @ b``, the gradient of the seen keys, where the block is the first, which sees the last key; add after.

    What the first block does not see is set to 0.
    """
    if seen.stop == total.shape[2]:
        np.matmul(a, b, out=total[:, :, seen])
        total[:, :, : seen.start] = 0
    else:
        part = scratch("attention part", (*total.shape[:2], seen.stop - seen.start, total.shape[3]), total.dtype)
        total[:, :, seen] += np.matmul(a, b, out=part)

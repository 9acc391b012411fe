"""Causal attention on the GPU, as FlashAttention: scores live in registers and shared memory, never in an array.

Sources: Dao et al. 2022, arXiv:2205.14135; FlashAttention-2: Dao 2023, arXiv:2307.08691; the online softmax: Milakov and
Gimelshein 2018, arXiv:1805.02867. Letters and formulas: :mod:`nanoeuler.cpu.attention`.

A block of threads owns ROWS rows of one head: queries in the forward and for dq, keys for dk and dv. They are read into
shared memory once. The other side streams past them, COLUMNS rows at a time, through a second tile of shared memory; of
its rows only those are read that some owned row may see. Between the two lies a ROWS x COLUMNS tile of scores.

    forward     owns q             streams k, v        scores -> p,        out += p v
    dq          owns q, dout       streams v, k        scores -> dscores,  dq  += dscores k
    dk, dv      owns k, v          streams q, dout, q  scores -> p,        dv  += pᵀ dout,   dk += dscoresᵀ q

Online softmax: a row's scores come a tile at a time, so its maximum m and its sum are only known so far. When a tile
raises m, what has been added up is too large by e^(m_new - m_old), and is multiplied by e^(m_old - m_new):

    m_new = max(m, scores)    sum = sum e^(m - m_new) + Σ e^(scores - m_new)    out likewise; at the end out / sum

Shared among threads: a warp owns 16 rows of the tile. Its lanes stand in 4 rows of 8 (row, column = lane // 8, lane % 8):

    scores      lane -> rows 4 row ... 4 row + 3, columns column, column + 8, ...      sums over D, two operands in shared
    out, d...   lane -> the same rows, VECTOR adjacent elements of D in every 8 VECTOR   sums over COLUMNS

Each is a small matrix product whose result stays in registers: 4 x 4 scores cost 8 reads of shared memory of four floats
each for 64 multiply-adds. The 8 lanes that share a row find its maximum by shuffles. p must pass from the first product
to the second, where other lanes need it, and does so through a third tile, which only its own warp writes and reads.

Bytes: scores, B H T S numbers, move nowhere. The forward reads q and writes out once, and reads the visible half of k
and v once for each ROWS queries, mostly from the L2 cache: 4 · 2 D · T S / (2 ROWS) for each head, 1 / 64 of what the
scores would take at D = 64. A query head reads the keys of its group where they are. The gradients are added up by the
block that owns them, over the G query heads of a key too, in the same order in every run.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import FULL, WARP

Array = Any

#: Rows of a warp, and of each of its lanes; lanes that share a row; adjacent elements of D that a lane owns.
WARP_ROWS, LANE_ROWS, LANES, VECTOR = 16, 4, 8, 4
MINUS_INFINITY = np.float32(-np.inf)

# What a variant of the kernels exchanges: see `tiles`, which computes them.
WARPS = 4
ROWS = 64  # 16 for each warp
COLUMNS = 32
LANE_COLUMNS = 4  # COLUMNS / 8: a lane has 4 x 4 scores
CHUNKS = 2  # HEAD / 32, where HEAD is D rounded up
STRIDE = 68  # HEAD + 4: the 8 rows that a warp reads at a time then begin in different banks
P_STRIDE = 68  # ROWS + 4, likewise

#: By padded head size: most warps of a block, and COLUMNS, forward and backward, so that the tiles fit into 48 KB.
SHAPES = {
    32: ((4, 32), (4, 32)),
    64: ((4, 32), (2, 32)),
    96: ((4, 32), (2, 32)),
    128: ((4, 16), (2, 16)),
}


def tiles(D: int, rows: int, backward: bool) -> dict[str, int]:
    """Return what a kernel is compiled with, for this head size and this many rows to be shared out among blocks."""
    head = next((size for size in SHAPES if size >= D), None)
    if head is None:
        raise UserError(f"attention on the GPU has head sizes to {max(SHAPES)}, not {D}: use more, smaller heads")
    (most, columns), warps = SHAPES[head][backward], 1
    while warps < most and warps * WARP_ROWS < rows:
        warps *= 2
    return {
        "WARPS": warps, "ROWS": WARP_ROWS * warps, "P_STRIDE": WARP_ROWS * warps + 4,
        "COLUMNS": columns, "LANE_COLUMNS": columns // LANES,
        "CHUNKS": head // WARP, "STRIDE": head + 4,
    }  # fmt: skip


# What a lane does with its own numbers. Inlined, so that the loops over these are unrolled and they stay in registers.


@cuda.jit(device=True, forceinline=True)
def clear(sums: Any) -> None:
    """Set a lane's (rows, chunks, vector) sums to 0."""
    for i in range(sums.shape[0]):
        for e in range(sums.shape[1]):
            for x in range(sums.shape[2]):
                sums[i, e, x] = float32(0)


@cuda.jit(device=True, forceinline=True)
def dot_products(scores: Any, a: Any, b: Any, row: Any, column: Any, D: Any) -> None:
    """Write a lane's scores: the rows ``row + i`` of tile ``a`` times the rows ``column + 8 j`` of tile ``b``."""
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            scores[i, j] = float32(0)
    for start in range(0, D, VECTOR):  # tiles are filled with zeros up to HEAD
        d = uint32(start)
        for i in range(scores.shape[0]):
            for j in range(scores.shape[1]):
                for x in range(VECTOR):
                    scores[i, j] += a[row + i, d + x] * b[column + LANES * j, d + x]


@cuda.jit(device=True, forceinline=True)
def add_products(sums: Any, p: Any, b: Any, row: Any, column: Any) -> None:
    """Add to a lane's sums the transposed tile ``p`` times the tile ``b``, over all of their rows."""
    for start in range(0, p.shape[0], 2):
        for y in range(2):
            s = uint32(start) + y
            for i in range(sums.shape[0]):
                for e in range(sums.shape[1]):
                    for x in range(sums.shape[2]):
                        sums[i, e, x] += p[s, row + i] * b[s, WARP * e + VECTOR * column + x]


@cuda.jit(device=True, forceinline=True)
def put(tile: Any, numbers: Any, row: Any, lane: Any) -> None:
    """Write what a warp has read to the rows from ``row`` of a tile."""
    for i in range(numbers.shape[0]):
        for e in range(numbers.shape[1]):
            tile[row + i, lane + WARP * e] = numbers[i, e]


@cuda.jit(device=True, forceinline=True)
def put_transposed(p: Any, scores: Any, row: Any, column: Any) -> None:
    """Write a lane's numbers to the transposed tile ``p``."""
    for j in range(scores.shape[1]):
        for i in range(scores.shape[0]):
            p[column + LANES * j, row + i] = scores[i, j]


@cuda.jit(device=True)
def row_max(value: Any) -> Any:
    """Return the largest value of the 8 lanes that share a row."""
    for step in (4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(FULL, value, step))
    return value


@cuda.jit(device=True)
def row_sum(value: Any) -> Any:
    """Return the sum over the 8 lanes that share a row."""
    for step in (4, 2, 1):
        value += cuda.shfl_xor_sync(FULL, value, step)
    return value


@cuda.jit
def attend(out: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any) -> None:
    """Write out and lse of ROWS queries of one head; blocks with the most keys come first."""
    q_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    tile = cuda.shared.array((COLUMNS, STRIDE), float32, alignment=16)  # keys, then values
    p_tile = cuda.shared.array((COLUMNS, P_STRIDE), float32, alignment=16)
    read = cuda.local.array((LANE_ROWS, CHUNKS), float32)
    p = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    total = cuda.local.array((LANE_ROWS, CHUNKS, VECTOR), float32)
    largest = cuda.local.array(LANE_ROWS, float32)
    sums = cuda.local.array(LANE_ROWS, float32)
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(WARP_ROWS * warp + LANE_ROWS * (lane // LANES)), uint32(lane % LANES)
    h, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    first = uint32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * ROWS)

    for base in range(LANE_ROWS * warp, ROWS, LANE_ROWS * WARPS):
        for i in range(LANE_ROWS):
            t = first + base + i
            for e in range(CHUNKS):
                d = lane + WARP * e
                read[i, e] = widen(q[b, t, h, d]) * scale if t < T and d < D else float32(0)
        put(q_tile, read, base, lane)
    for i in range(LANE_ROWS):
        largest[i] = MINUS_INFINITY
        sums[i] = float32(0)
    clear(total)

    for begin in range(0, min(first + ROWS, T) + S - T, COLUMNS):  # up to what the last query sees
        start = uint32(begin)
        cuda.syncthreads()  # the last tile is no longer needed
        for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
            for i in range(LANE_ROWS):
                s = start + base + i
                for e in range(CHUNKS):
                    d = lane + WARP * e
                    read[i, e] = widen(k[b, s, kv, d]) if s < S and d < D else float32(0)
            put(tile, read, base, lane)
        cuda.syncthreads()
        dot_products(p, q_tile, tile, row, column, D)
        for i in range(LANE_ROWS):
            new = largest[i]
            for j in range(LANE_COLUMNS):
                if start + column + LANES * j > first + row + i + S - T:  # a later key
                    p[i, j] = MINUS_INFINITY
                new = max(new, p[i, j])
            new = row_max(new)  # finite: the first tile has a key that every query sees
            shrink = math.exp(largest[i] - new)
            largest[i] = new
            sums[i] *= shrink
            for e in range(CHUNKS):
                for x in range(VECTOR):
                    total[i, e, x] *= shrink
            for j in range(LANE_COLUMNS):
                p[i, j] = math.exp(p[i, j] - new)
                sums[i] += p[i, j]  # of this lane's keys
        cuda.syncthreads()
        for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
            for i in range(LANE_ROWS):
                s = start + base + i
                for e in range(CHUNKS):
                    d = lane + WARP * e
                    read[i, e] = widen(v[b, s, kv, d]) if s < S and d < D else float32(0)
            put(tile, read, base, lane)
        put_transposed(p_tile, p, row, column)
        cuda.syncthreads()
        add_products(total, p_tile, tile, row, column)

    for i in range(LANE_ROWS):
        t = first + row + i
        whole = row_sum(sums[i])
        inverse = float32(1) / whole
        if t < T:
            if column == 0:
                lse[b, h, t] = largest[i] + math.log(whole)
            for e in range(CHUNKS):
                for x in range(VECTOR):
                    d = WARP * e + VECTOR * column + x
                    if d < D:
                        out[b, t, h, d] = narrow(total[i, e, x] * inverse)


@cuda.jit
def sum_products(delta: Array, dout: Array, out: Array) -> None:
    """Write delta: 8 lanes add up the products of one row."""
    T, D = out.shape[1], out.shape[3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    h, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    t = uint32((cuda.blockIdx.x * cuda.blockDim.y + warp) * (WARP // LANES) + lane // LANES)
    total = float32(0)
    if t < T:
        for d in range(lane % LANES, D, LANES):
            total += widen(dout[b, t, h, d]) * widen(out[b, t, h, d])
    total = row_sum(total)
    if t < T and lane % LANES == 0:
        delta[b, h, t] = total


@cuda.jit
def queries_gradient(
    dq: Array, dout: Array, delta: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any
) -> None:
    """Write dq of ROWS queries of one head."""
    q_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    dout_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    tile = cuda.shared.array((COLUMNS, STRIDE), float32, alignment=16)  # values, then keys
    p_tile = cuda.shared.array((COLUMNS, P_STRIDE), float32, alignment=16)  # dscores
    read = cuda.local.array((LANE_ROWS, CHUNKS), float32)
    p = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    dp = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    total = cuda.local.array((LANE_ROWS, CHUNKS, VECTOR), float32)
    row_lse = cuda.local.array(LANE_ROWS, float32)
    row_delta = cuda.local.array(LANE_ROWS, float32)
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(WARP_ROWS * warp + LANE_ROWS * (lane // LANES)), uint32(lane % LANES)
    h, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    first = uint32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * ROWS)

    for base in range(LANE_ROWS * warp, ROWS, LANE_ROWS * WARPS):
        for i in range(LANE_ROWS):
            t = first + base + i
            for e in range(CHUNKS):
                d = lane + WARP * e
                read[i, e] = widen(q[b, t, h, d]) * scale if t < T and d < D else float32(0)
        put(q_tile, read, base, lane)
    for base in range(LANE_ROWS * warp, ROWS, LANE_ROWS * WARPS):
        for i in range(LANE_ROWS):
            t = first + base + i
            for e in range(CHUNKS):
                d = lane + WARP * e
                read[i, e] = widen(dout[b, t, h, d]) if t < T and d < D else float32(0)
        put(dout_tile, read, base, lane)
    for i in range(LANE_ROWS):
        t = first + row + i
        row_lse[i] = lse[b, h, t] if t < T else float32(0)
        row_delta[i] = delta[b, h, t] if t < T else float32(0)
    clear(total)

    for begin in range(0, min(first + ROWS, T) + S - T, COLUMNS):  # up to what the last query sees
        start = uint32(begin)
        cuda.syncthreads()  # the last tile is no longer needed
        for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
            for i in range(LANE_ROWS):
                s = start + base + i
                for e in range(CHUNKS):
                    d = lane + WARP * e
                    read[i, e] = widen(v[b, s, kv, d]) if s < S and d < D else float32(0)
            put(tile, read, base, lane)
        cuda.syncthreads()
        dot_products(dp, dout_tile, tile, row, column, D)
        cuda.syncthreads()
        for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
            for i in range(LANE_ROWS):
                s = start + base + i
                for e in range(CHUNKS):
                    d = lane + WARP * e
                    read[i, e] = widen(k[b, s, kv, d]) if s < S and d < D else float32(0)
            put(tile, read, base, lane)
        cuda.syncthreads()
        dot_products(p, q_tile, tile, row, column, D)
        for i in range(LANE_ROWS):
            for j in range(LANE_COLUMNS):
                seen = math.exp(p[i, j] - row_lse[i])
                if start + column + LANES * j > first + row + i + S - T:  # a later key
                    seen = float32(0)
                p[i, j] = seen * (dp[i, j] - row_delta[i])  # dscores
        put_transposed(p_tile, p, row, column)
        cuda.syncwarp()
        add_products(total, p_tile, tile, row, column)

    for i in range(LANE_ROWS):
        t = first + row + i
        for e in range(CHUNKS):
            for x in range(VECTOR):
                d = WARP * e + VECTOR * column + x
                if t < T and d < D:
                    dq[b, t, h, d] = narrow(total[i, e, x] * scale)


@cuda.jit
def keys_gradients(
    dk: Array, dv: Array, dout: Array, delta: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any
) -> None:
    """Write dk and dv of ROWS keys of one key/value head, summed over its query heads; scores lie keys by queries."""
    k_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    v_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    tile = cuda.shared.array((COLUMNS, STRIDE), float32, alignment=16)  # queries, dout, queries again
    p_tile = cuda.shared.array((COLUMNS, P_STRIDE), float32, alignment=16)  # p, then dscores
    read = cuda.local.array((LANE_ROWS, CHUNKS), float32)
    p = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    dp = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    total_k = cuda.local.array((LANE_ROWS, CHUNKS, VECTOR), float32)
    total_v = cuda.local.array((LANE_ROWS, CHUNKS, VECTOR), float32)
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(WARP_ROWS * warp + LANE_ROWS * (lane // LANES)), uint32(lane % LANES)
    kv, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    first = uint32(cuda.blockIdx.x * ROWS)

    for base in range(LANE_ROWS * warp, ROWS, LANE_ROWS * WARPS):
        for i in range(LANE_ROWS):
            s = first + base + i
            for e in range(CHUNKS):
                d = lane + WARP * e
                read[i, e] = widen(k[b, s, kv, d]) if s < S and d < D else float32(0)
        put(k_tile, read, base, lane)
    for base in range(LANE_ROWS * warp, ROWS, LANE_ROWS * WARPS):
        for i in range(LANE_ROWS):
            s = first + base + i
            for e in range(CHUNKS):
                d = lane + WARP * e
                read[i, e] = widen(v[b, s, kv, d]) if s < S and d < D else float32(0)
        put(v_tile, read, base, lane)
    clear(total_k)
    clear(total_v)

    earliest = max(0, first - (S - T)) // COLUMNS * COLUMNS  # a tile's first query that may see one of the keys
    for head in range(kv * (H // K), (kv + 1) * (H // K)):
        h = uint32(head)
        for begin in range(earliest, T, COLUMNS):
            start = uint32(begin)
            cuda.syncthreads()  # the last tile is no longer needed
            for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
                for i in range(LANE_ROWS):
                    t = start + base + i
                    for e in range(CHUNKS):
                        d = lane + WARP * e
                        read[i, e] = widen(q[b, t, h, d]) * scale if t < T and d < D else float32(0)
                put(tile, read, base, lane)
            cuda.syncthreads()
            dot_products(p, k_tile, tile, row, column, D)
            for j in range(LANE_COLUMNS):
                t = start + column + LANES * j
                column_lse = lse[b, h, t] if t < T else float32(0)
                for i in range(LANE_ROWS):
                    seen = math.exp(p[i, j] - column_lse)
                    p[i, j] = seen if t < T and first + row + i <= t + S - T else float32(0)
            put_transposed(p_tile, p, row, column)
            cuda.syncthreads()
            for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
                for i in range(LANE_ROWS):
                    t = start + base + i
                    for e in range(CHUNKS):
                        d = lane + WARP * e
                        read[i, e] = widen(dout[b, t, h, d]) if t < T and d < D else float32(0)
                put(tile, read, base, lane)
            cuda.syncthreads()
            dot_products(dp, v_tile, tile, row, column, D)
            add_products(total_v, p_tile, tile, row, column)
            cuda.syncthreads()
            for base in range(LANE_ROWS * warp, COLUMNS, LANE_ROWS * WARPS):
                for i in range(LANE_ROWS):
                    t = start + base + i
                    for e in range(CHUNKS):
                        d = lane + WARP * e
                        read[i, e] = widen(q[b, t, h, d]) * scale if t < T and d < D else float32(0)
                put(tile, read, base, lane)
            for j in range(LANE_COLUMNS):
                t = start + column + LANES * j
                column_delta = delta[b, h, t] if t < T else float32(0)
                for i in range(LANE_ROWS):
                    p[i, j] *= dp[i, j] - column_delta  # dscores
            put_transposed(p_tile, p, row, column)
            cuda.syncthreads()
            add_products(total_k, p_tile, tile, row, column)

    for i in range(LANE_ROWS):
        s = first + row + i
        for e in range(CHUNKS):
            for x in range(VECTOR):
                d = WARP * e + VECTOR * column + x
                if s < S and d < D:
                    dk[b, s, kv, d] = narrow(total_k[i, e, x])
                    dv[b, s, kv, d] = narrow(total_v[i, e, x])


def attention_forward(out: Array, lse: Array, q: Array, k: Array, v: Array) -> None:
    """Write the attention's output and the log-sum-exp that the backward needs.

    Args:
        out: (B, T, H, D), written.
        lse: (B, H, T) float32, written.
        q: (B, T, H, D); rows may lie apart (a slice of packed q|k|v), and so may those of k and v.
        k: (B, S, K, D).
        v: (B, S, K, D).
    """
    B, T, H, D = q.shape
    size = tiles(D, T, backward=False)
    grid = (-(-T // size["ROWS"]), H, B)
    launch(variant(attend, **size), grid, (WARP, size["WARPS"]), out, lse, q, k, v, 1 / math.sqrt(D))


def attention_backward(
    dq: Array,
    dk: Array,
    dv: Array,
    dout: Array,
    out: Array,
    lse: Array,
    q: Array,
    k: Array,
    v: Array,
) -> None:
    """Write the gradients of queries, keys and values.

    Args:
        dq: (B, T, H, D), written.
        dk: (B, S, K, D), written.
        dv: (B, S, K, D), written.
        dout: (B, T, H, D).
        out: (B, T, H, D), the forward's.
        lse: (B, H, T) float32, the forward's.
        q: (B, T, H, D), the forward's.
        k: (B, S, K, D), the forward's.
        v: (B, S, K, D), the forward's.
    """
    (B, T, H, D), (S, K) = q.shape, k.shape[1:3]
    scale = 1 / math.sqrt(D)
    delta = scratch("attention delta", (B, H, T), np.float32, like=lse)
    launch(sum_products, (-(-T // 16), H, B), (WARP, 4), delta, dout, out)
    size = tiles(D, T, backward=True)
    grid = (-(-T // size["ROWS"]), H, B)
    launch(
        variant(queries_gradient, **size), grid, (WARP, size["WARPS"]), dq, dout, delta, lse, q, k, v, scale
    )
    size = tiles(D, S, backward=True)
    grid = (-(-S // size["ROWS"]), K, B)
    launch(
        variant(keys_gradients, **size), grid, (WARP, size["WARPS"]), dk, dv, dout, delta, lse, q, k, v, scale
    )

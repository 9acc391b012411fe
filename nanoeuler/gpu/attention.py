"""Causal attention on the GPU, as FlashAttention: scores live in registers and shared memory, never in an array.

Sources: Dao et al. 2022, arXiv:2205.14135, and Dao 2023, arXiv:2307.08691; the online softmax: Milakov and Gimelshein
2018, arXiv:1805.02867. Letters and formulas are those of :mod:`nanoeuler.cpu.attention`.

A block of threads owns ROWS rows of one head: queries in the forward and for dq, keys for dk and dv. They are read into
shared memory once. The other side streams past them, COLUMNS rows at a time, through one more tile of shared memory,
and only those of its rows that an owned row may see. Between the two lies a tile of ROWS x COLUMNS scores::

    attend            owns q         streams k, v          scores -> p           out += p v
    queries_gradient  owns q, dout   streams v, k          scores -> dscores     dq += dscores k
    keys_gradients    owns k, v      streams q, dout, q    scores -> p, dscores  dv += pᵀ dout, dk += dscoresᵀ q

Online softmax. A row's scores come a tile at a time, so its maximum m and its sum are only those so far. Where a tile
raises m, all that was added up is too large by e^(m_new - m), and is shrunk before more is added::

    m_new = max(m, scores)    sum = e^(m - m_new) sum + Σ e^(scores - m_new)    out = e^(m - m_new) out + Σ e^(…) v

At the end out is divided by sum, and lse = m + log sum. The backward has lse, so p = e^(scores - lse) at once.

Documents. Where a query may see the keys of its own document only, a block's loop begins and ends with the tiles that
one of its rows has to do with. Of some of them a row may see nothing: m then stays as it began, finite, the row's
e^(-∞ - m) are 0, and nothing is shrunk. Where there are no documents the kernels are compiled without all that.

Threads. A warp owns 16 of the rows. Its 32 lanes stand in 4 rows of 8, and each works on 4 of the warp's rows::

    scores         columns column, column + 8, ...            column = lane % 8; sums over D
    out, dq, ...   4 adjacent elements of D out of every 32   sums over COLUMNS

Both are small matrix products from shared memory into registers: 4 x 4 scores times 4 elements of D are 64
multiply-adds for 8 reads of 16 bytes. The 8 lanes that share a row find its maximum and its sum by shuffles. The second
product needs p from all of them, so p passes through a tile of its own; a warp writes and reads its own 16 rows there.
At the end the sums go back to a tile, and from it to memory, neighbours side by side.

Bytes. Of the B H T S scores none goes to memory. q is read once and out written once; the half of k and v that is seen
is read for each ROWS queries, mostly from the L2 cache, and by the G query heads of a group from the same place. The
gradients of a key are summed by the block that owns it, over the G heads too: no atomics, the same bits in every run.
The backward reads q twice per tile, since a tile for dout beside it would not fit.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.gpu.backend import cuda, float32, int32, uint32
from nanoeuler.gpu.bfloat16 import BFLOAT16, narrow, widen, widen_bfloat16
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import FULL, WARP

Array = Any

WARP_ROWS = 16  # rows that a warp owns
LANE_ROWS = 4  # adjacent rows that a lane works on
LANES = 8  # lanes that work on the same rows
VECTOR = 4  # adjacent floats that a lane reads at a time
MINUS_INFINITY = np.float32(-np.inf)
LOWEST = np.finfo(np.float32).min

# A kernel is compiled for these, and `tile_sizes` says for which others: here D = 64.
WARPS = 4  # of a block
ROWS = 64  # 16 for each warp
COLUMNS = 32
LANE_COLUMNS = 4  # COLUMNS / 8
CHUNKS = 2  # D / 32, rounded up: tiles are filled with zeros
STRIDE = 68  # from row to row: 32 CHUNKS + 4, so that 8 rows which a warp reads side by side lie in different banks
P_STRIDE = 68  # ROWS + 4, likewise

#: CHUNKS: the most warps of a block, and COLUMNS, forward and backward. As large as 48 KB of shared memory allow.
SHAPES = {1: ((4, 32), (4, 32)), 2: ((4, 32), (2, 32)), 3: ((4, 32), (2, 32)), 4: ((4, 16), (2, 16))}


def tile_sizes(D: int, owned: int, streamed: int, backward: bool) -> dict[str, int]:
    """Return what a kernel is compiled for, given the head size and how many rows of a head are owned and streamed.

    >>> sizes = tile_sizes(64, 1024, 1024, backward=False)
    >>> sizes["ROWS"], sizes["COLUMNS"]
    (64, 32)

    Raises:
        UserError: the head size is above 128.
    """
    chunks, warps = -(-D // WARP), 1
    if chunks not in SHAPES:
        raise UserError(f"attention on the GPU has head sizes from 1 to {WARP * max(SHAPES)}, not {D}")
    most_warps, columns = SHAPES[chunks][backward]
    while warps < most_warps and warps * WARP_ROWS < owned:
        warps *= 2
    while columns > LANES and columns // 2 >= streamed:
        columns //= 2
    return {
        "WARPS": warps, "ROWS": WARP_ROWS * warps, "P_STRIDE": WARP_ROWS * warps + 4,
        "COLUMNS": columns, "LANE_COLUMNS": columns // LANES, "CHUNKS": chunks, "STRIDE": WARP * chunks + 4,
    }  # fmt: skip


# What a lane does with its own numbers, inlined: then the loops over them are unrolled, and they are registers.


@cuda.jit(device=True, forceinline=True)
def clear(sums: Any) -> None:
    """Set a lane's (rows, chunks, vector) sums to 0."""
    for i in range(sums.shape[0]):
        for e in range(sums.shape[1]):
            for x in range(sums.shape[2]):
                sums[i, e, x] = float32(0)


def loader(convert: Any) -> Any:
    """Return the function that reads rows into a tile, for arrays whose elements ``convert`` makes float32."""

    @cuda.jit(device=True, forceinline=True)
    def load(
        tile: Any, read: Any, x: Any, b: Any, first: Any, h: Any, scale: Any, lane: Any, warp: Any, warps: Any
    ) -> None:
        """Fill a tile with rows of a head, from ``first`` on, times ``scale``; with zeros where the array ends.

        A warp reads four rows at a time into registers before it writes them: as many loads are on their way at once.
        """
        for base in range(LANE_ROWS * warp, tile.shape[0], LANE_ROWS * warps):
            for i in range(LANE_ROWS):
                n = first + base + i
                for e in range(read.shape[1]):
                    d = lane + WARP * e
                    inside = n < x.shape[1] and d < x.shape[3]
                    read[i, e] = convert(x[b, n, h, d]) * scale if inside else float32(0)
            for i in range(LANE_ROWS):
                for e in range(read.shape[1]):
                    tile[base + i, lane + WARP * e] = read[i, e]

    return load


load, load_bfloat16 = loader(widen), loader(widen_bfloat16)


@cuda.jit(device=True, forceinline=True)
def first_key(starts: Any, b: Any, t: Any) -> Any:
    """Return the first key that a query may see, where there are no documents: ``starts`` is a 0."""
    return 0


@cuda.jit(device=True, forceinline=True)
def first_key_of_document(starts: Any, b: Any, t: Any) -> Any:
    """Return the first key that a query may see: none for a row after the last query, so any will do."""
    return starts[b, t] if t < starts.shape[1] else int32(0)


@cuda.jit(device=True, forceinline=True)
def dot_products(scores: Any, own: Any, tile: Any, row: Any, column: Any, D: Any) -> None:
    """Write a lane's scores: rows ``row + i`` of the owned tile times rows ``column + 8 j`` of the streamed one."""
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            scores[i, j] = float32(0)
    for start in range(0, D, VECTOR):
        d = uint32(start)
        for i in range(scores.shape[0]):
            for j in range(scores.shape[1]):
                for x in range(VECTOR):
                    scores[i, j] += own[row + i, d + x] * tile[column + LANES * j, d + x]


@cuda.jit(device=True, forceinline=True)
def put_transposed(p_tile: Any, p: Any, row: Any, column: Any) -> None:
    """Write a lane's part of p, or of dscores, to its tile, which lies COLUMNS by ROWS."""
    for j in range(p.shape[1]):
        for i in range(p.shape[0]):
            p_tile[column + LANES * j, row + i] = p[i, j]


@cuda.jit(device=True, forceinline=True)
def add_products(sums: Any, p_tile: Any, tile: Any, row: Any, column: Any) -> None:
    """Add p times the streamed tile to a lane's sums: a column of p times a row of the tile, one after the other."""
    for start in range(0, p_tile.shape[0], 2):  # two at a time: fewer steps of the loop
        for y in range(2):
            s = uint32(start) + y
            for i in range(sums.shape[0]):
                for e in range(sums.shape[1]):
                    for x in range(sums.shape[2]):
                        sums[i, e, x] += p_tile[s, row + i] * tile[s, WARP * e + VECTOR * column + x]


@cuda.jit(device=True, forceinline=True)
def put_sums(tile: Any, sums: Any, row: Any, column: Any) -> None:
    """Write a lane's sums to a tile, from which whole rows go to memory, neighbours side by side."""
    for i in range(sums.shape[0]):
        for e in range(sums.shape[1]):
            for x in range(sums.shape[2]):
                tile[row + i, WARP * e + VECTOR * column + x] = sums[i, e, x]


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
def attend(out: Array, lse: Array, q: Array, k: Array, v: Array, starts: Any, scale: Any) -> None:
    """Write out and lse of ROWS queries of one head; blocks with the most keys come first."""
    q_tile = cuda.shared.array((ROWS, STRIDE), float32, alignment=16)
    tile = cuda.shared.array((COLUMNS, STRIDE), float32, alignment=16)  # keys, then values
    p_tile = cuda.shared.array((COLUMNS, P_STRIDE), float32, alignment=16)
    read = cuda.local.array((LANE_ROWS, CHUNKS), float32)
    p = cuda.local.array((LANE_ROWS, LANE_COLUMNS), float32)
    total = cuda.local.array((LANE_ROWS, CHUNKS, VECTOR), float32)
    largest = cuda.local.array(LANE_ROWS, float32)
    sums = cuda.local.array(LANE_ROWS, float32)
    begins = cuda.local.array(LANE_ROWS, int32)
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(WARP_ROWS * warp + LANE_ROWS * (lane // LANES)), uint32(lane % LANES)
    h, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    first = uint32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * ROWS)

    load(q_tile, read, q, b, first, h, scale, lane, warp, WARPS)
    for i in range(LANE_ROWS):
        largest[i] = LOWEST
        sums[i] = float32(0)
        begins[i] = first_key(starts, b, first + row + i)
    clear(total)

    earliest = first_key(starts, b, first) // COLUMNS * COLUMNS  # a tile's first key that the first query sees
    for begin in range(earliest, min(first + ROWS, T) + S - T, COLUMNS):  # up to what the last query sees
        start = uint32(begin)
        cuda.syncthreads()  # the last tile is no longer needed
        load(tile, read, k, b, start, kv, float32(1), lane, warp, WARPS)
        cuda.syncthreads()
        dot_products(p, q_tile, tile, row, column, D)
        for i in range(LANE_ROWS):
            new = largest[i]
            for j in range(LANE_COLUMNS):
                s = start + column + LANES * j
                if s > first + row + i + S - T or s < begins[i]:  # a later key, or another document's
                    p[i, j] = MINUS_INFINITY
                new = max(new, p[i, j])
            new = row_max(new)
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
        load(tile, read, v, b, start, kv, float32(1), lane, warp, WARPS)
        put_transposed(p_tile, p, row, column)
        cuda.syncthreads()
        add_products(total, p_tile, tile, row, column)

    for i in range(LANE_ROWS):
        t = first + row + i
        whole = row_sum(sums[i])
        inverse = float32(1) / whole
        for e in range(CHUNKS):
            for x in range(VECTOR):
                total[i, e, x] *= inverse
        if t < T and column == 0:
            lse[b, h, t] = largest[i] + math.log(whole)
    put_sums(q_tile, total, row, column)  # of q_tile too a warp needs its own rows alone
    cuda.syncwarp()
    for own in range(WARP_ROWS * warp, WARP_ROWS * warp + WARP_ROWS):
        t = first + own
        for d in range(lane, D, WARP):
            if t < T:
                out[b, t, h, d] = narrow(q_tile[own, d])


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
    dq: Array, dout: Array, delta: Array, lse: Array, q: Array, k: Array, v: Array, starts: Any, scale: Any
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
    begins = cuda.local.array(LANE_ROWS, int32)
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(WARP_ROWS * warp + LANE_ROWS * (lane // LANES)), uint32(lane % LANES)
    h, b = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    first = uint32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * ROWS)

    load(q_tile, read, q, b, first, h, scale, lane, warp, WARPS)
    load(dout_tile, read, dout, b, first, h, float32(1), lane, warp, WARPS)
    for i in range(LANE_ROWS):
        t = first + row + i
        row_lse[i] = lse[b, h, t] if t < T else float32(0)
        row_delta[i] = delta[b, h, t] if t < T else float32(0)
        begins[i] = first_key(starts, b, t)
    clear(total)

    earliest = first_key(starts, b, first) // COLUMNS * COLUMNS  # a tile's first key that the first query sees
    for begin in range(earliest, min(first + ROWS, T) + S - T, COLUMNS):  # up to what the last query sees
        start = uint32(begin)
        cuda.syncthreads()  # the last tile is no longer needed
        load(tile, read, v, b, start, kv, float32(1), lane, warp, WARPS)
        cuda.syncthreads()
        dot_products(dp, dout_tile, tile, row, column, D)
        cuda.syncthreads()
        load(tile, read, k, b, start, kv, float32(1), lane, warp, WARPS)
        cuda.syncthreads()
        dot_products(p, q_tile, tile, row, column, D)
        for i in range(LANE_ROWS):
            for j in range(LANE_COLUMNS):
                seen = math.exp(p[i, j] - row_lse[i])
                s = start + column + LANES * j
                if s > first + row + i + S - T:  # a later key
                    seen = float32(0)
                if s < begins[i]:  # another document's
                    seen = float32(0)
                p[i, j] = seen * (dp[i, j] - row_delta[i])  # dscores
        put_transposed(p_tile, p, row, column)
        cuda.syncwarp()
        add_products(total, p_tile, tile, row, column)

    put_sums(q_tile, total, row, column)
    cuda.syncwarp()
    for own in range(WARP_ROWS * warp, WARP_ROWS * warp + WARP_ROWS):
        t = first + own
        for d in range(lane, D, WARP):
            if t < T:
                dq[b, t, h, d] = narrow(q_tile[own, d] * scale)


@cuda.jit
def keys_gradients(
    dk: Array, dv: Array, dout: Array, delta: Array, lse: Array, q: Array, k: Array, v: Array, starts: Any, scale: Any
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

    load(k_tile, read, k, b, first, kv, float32(1), lane, warp, WARPS)
    load(v_tile, read, v, b, first, kv, float32(1), lane, warp, WARPS)
    clear(total_k)
    clear(total_v)

    earliest = max(0, first - (S - T)) // COLUMNS * COLUMNS  # a tile's first query that may see one of the keys
    for head in range(kv * (H // K), (kv + 1) * (H // K)):
        h = uint32(head)
        for begin in range(earliest, T, COLUMNS):
            start = uint32(begin)
            cuda.syncthreads()  # the last tile is no longer needed
            if first_key(starts, b, start) >= first + ROWS:  # later documents only; all have read their owned rows
                break
            load(tile, read, q, b, start, h, scale, lane, warp, WARPS)
            cuda.syncthreads()
            dot_products(p, k_tile, tile, row, column, D)
            for j in range(LANE_COLUMNS):
                t = start + column + LANES * j
                column_lse = lse[b, h, t] if t < T else float32(0)
                column_begin = first_key(starts, b, t)
                for i in range(LANE_ROWS):
                    seen = math.exp(p[i, j] - column_lse)
                    p[i, j] = seen if first + row + i <= t + S - T else float32(0)
                    if first + row + i < column_begin:  # a query of a later document
                        p[i, j] = float32(0)
            put_transposed(p_tile, p, row, column)
            cuda.syncthreads()
            load(tile, read, dout, b, start, h, float32(1), lane, warp, WARPS)
            cuda.syncthreads()
            dot_products(dp, v_tile, tile, row, column, D)
            add_products(total_v, p_tile, tile, row, column)
            cuda.syncthreads()
            load(tile, read, q, b, start, h, scale, lane, warp, WARPS)
            for j in range(LANE_COLUMNS):
                t = start + column + LANES * j
                column_delta = delta[b, h, t] if t < T else float32(0)
                for i in range(LANE_ROWS):
                    p[i, j] *= dp[i, j] - column_delta  # dscores
            put_transposed(p_tile, p, row, column)
            cuda.syncthreads()
            add_products(total_k, p_tile, tile, row, column)

    put_sums(k_tile, total_k, row, column)
    put_sums(v_tile, total_v, row, column)
    cuda.syncwarp()
    for own in range(WARP_ROWS * warp, WARP_ROWS * warp + WARP_ROWS):
        s = first + own
        for d in range(lane, D, WARP):
            if s < S:
                dk[b, s, kv, d] = narrow(k_tile[own, d])
                dv[b, s, kv, d] = narrow(v_tile[own, d])


def fitted(kernel: Any, sizes: dict[str, int], q: Array, starts: Array | None) -> Any:
    """Return the kernel for these tiles, for the type of the queries' elements, and for documents if there are any."""
    return variant(
        kernel,
        **sizes,
        load=load_bfloat16 if q.dtype == BFLOAT16 else load,
        first_key=first_key if starts is None else first_key_of_document,
    )


def attention_forward(out: Array, lse: Array, q: Array, k: Array, v: Array, starts: Array | None = None) -> None:
    """Write the attention's output and the log-sum-exp that the backward needs.

    Args:
        out: (B, T, H, D), written.
        lse: (B, H, T) float32, written.
        q: (B, T, H, D); rows may lie apart (a slice of packed q|k|v), and so may those of k and v.
        k: (B, S, K, D).
        v: (B, S, K, D).
        starts: (B, T) int32, the first key that each query may see; None if all earlier ones. Along T it may not
            decrease, and not go beyond the query's own place t + S - T.
    """
    (B, T, H, D), S = q.shape, k.shape[1]
    sizes = tile_sizes(D, T, S, backward=False)
    grid, block = (-(-T // sizes["ROWS"]), H, B), (WARP, sizes["WARPS"])
    given = 0 if starts is None else starts
    launch(fitted(attend, sizes, q, starts), grid, block, out, lse, q, k, v, given, 1 / math.sqrt(D))


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
    starts: Array | None = None,
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
        starts: (B, T) int32 or None, the forward's.
    """
    (B, T, H, D), (S, K) = q.shape, k.shape[1:3]
    given, scale = 0 if starts is None else starts, 1 / math.sqrt(D)
    delta = scratch("attention delta", (B, H, T), np.float32, like=lse)
    launch(sum_products, (-(-T // 16), H, B), (WARP, 4), delta, dout, out)
    sizes = tile_sizes(D, T, S, backward=True)
    grid, block = (-(-T // sizes["ROWS"]), H, B), (WARP, sizes["WARPS"])
    launch(fitted(queries_gradient, sizes, q, starts), grid, block, dq, dout, delta, lse, q, k, v, given, scale)
    sizes = tile_sizes(D, S, T, backward=True)
    grid, block = (-(-S // sizes["ROWS"]), K, B), (WARP, sizes["WARPS"])
    launch(fitted(keys_gradients, sizes, q, starts), grid, block, dk, dv, dout, delta, lse, q, k, v, given, scale)

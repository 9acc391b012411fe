"""The ladder of attention's forward, in float32: from a square of scores in memory to none, one idea at a time.

    three kernels           the formula as it stands: scores to memory, softmax over their rows, times v. The B H T S
                            scores, 4 MB for each head at 1024 tokens, move six times: written, read three times and
                            written by the softmax, read by the last. Half of them, the masked ones, are for nothing
    online softmax          one kernel, a thread for each query, which goes through its keys with a running maximum and
                            sum: no array of scores, and no masked ones. But each thread reads all of its k and v by
                            itself, and its own q again for every key: 12 bytes from the caches for 2 multiply-adds
    shared tiles            64 queries read a tile of keys and values together, neighbours neighbours, into shared
                            memory, and all of them use it: k and v come a 64th as often. Yet a number read from
                            shared memory serves one multiply-add, and those reads are now what takes the time
    lanes share a query     the op in use: 8 lanes on 4 queries, products of small tiles in registers. A number read
                            from shared memory serves 4 or more multiply-adds, and q too is read once

Formulas and letters are those of :mod:`nanoeuler.cpu.attention`.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu.attention import attention_forward
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant

Array = Any

MINUS_INFINITY = np.float32(-np.inf)
THREADS = 128  # of a block, where one is as good as another
QUERIES = 64  # of a block with shared tiles
KEYS = 16  # of a tile
HEAD = 64  # D: a kernel is compiled for each, as only then a query's output is registers


@cuda.jit
def write_scores(scores: Array, q: Array, k: Array, scale: Any) -> None:
    """Write the scores of one query: a thread for each key."""
    (T, H, D), (S, K) = q.shape[1:], k.shape[1:3]
    s, t = uint32(cuda.grid(1)), uint32(cuda.blockIdx.y)
    h, b = uint32(cuda.blockIdx.z % H), uint32(cuda.blockIdx.z // H)
    kv = uint32(h // (H // K))
    if s >= S:
        return
    score = float32(0)
    for d in range(D):
        score += q[b, t, h, uint32(d)] * k[b, s, kv, uint32(d)]
    scores[b, h, t, s] = score * scale if s <= t + S - T else MINUS_INFINITY


@cuda.jit
def softmax_rows(p: Array, lse: Array) -> None:
    """Turn a query's scores into probabilities: a thread for each query."""
    T, S = p.shape[2:]
    t, h, b = uint32(cuda.grid(1)), uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    if t >= T:
        return
    largest, total = p[b, h, t, 0], float32(0)
    for s in range(1, S):
        largest = max(largest, p[b, h, t, uint32(s)])
    for s in range(S):
        total += math.exp(p[b, h, t, uint32(s)] - largest)
    lse[b, h, t] = largest + math.log(total)
    for s in range(S):
        p[b, h, t, uint32(s)] = math.exp(p[b, h, t, uint32(s)] - largest) / total


@cuda.jit
def average_values(out: Array, p: Array, v: Array) -> None:
    """Write a query's output: a thread for each element."""
    (T, H, D), (S, K) = out.shape[1:], v.shape[1:3]
    i, h, b = uint32(cuda.grid(1)), uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    if i >= T * D:
        return
    t, d, kv = uint32(i // D), uint32(i % D), uint32(h // (H // K))
    total = float32(0)
    for s in range(S):
        total += p[b, h, t, uint32(s)] * v[b, uint32(s), kv, d]
    out[b, t, h, d] = total


@cuda.jit
def online_softmax(out: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any) -> None:
    """Write the output of a query: one thread goes through all of its keys."""
    total = cuda.local.array(HEAD, float32)
    (T, H), (S, K) = q.shape[1:3], k.shape[1:3]
    t, h, b = uint32(cuda.grid(1)), uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    if t >= T:
        return
    largest, sum_p = MINUS_INFINITY, float32(0)
    for d in range(HEAD):
        total[d] = float32(0)
    for key in range(t + S - T + 1):
        s, score = uint32(key), float32(0)
        for d in range(HEAD):
            score += q[b, t, h, d] * k[b, s, kv, d]
        score *= scale
        new = max(largest, score)
        shrink, p = math.exp(largest - new), math.exp(score - new)
        largest, sum_p = new, sum_p * shrink + p
        for d in range(HEAD):
            total[d] = total[d] * shrink + p * v[b, s, kv, d]
    lse[b, h, t] = largest + math.log(sum_p)
    for d in range(HEAD):
        out[b, t, h, d] = total[d] / sum_p


@cuda.jit
def shared_tiles(out: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any) -> None:
    """Write the outputs of QUERIES queries: a thread for each, which share their keys and values."""
    k_tile = cuda.shared.array((KEYS, HEAD), float32)
    v_tile = cuda.shared.array((KEYS, HEAD), float32)
    total = cuda.local.array(HEAD, float32)
    (T, H), (S, K) = q.shape[1:3], k.shape[1:3]
    thread, h, b = cuda.threadIdx.x, uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
    kv = uint32(h // (H // K))
    first = cuda.blockIdx.x * QUERIES
    t = uint32(min(first + thread, T - 1))  # threads that are left over do the last query again, and write nothing
    largest, sum_p = MINUS_INFINITY, float32(0)
    for d in range(HEAD):
        total[d] = float32(0)
    end = min(first + QUERIES, T) + S - T  # what the block's last query sees
    for start in range(0, end, KEYS):
        cuda.syncthreads()  # the last tile is no longer needed
        for i in range(thread, KEYS * HEAD, QUERIES):
            row, d = i // HEAD, i % HEAD
            if start + row < end:
                k_tile[row, d] = k[b, uint32(start + row), kv, uint32(d)]
                v_tile[row, d] = v[b, uint32(start + row), kv, uint32(d)]
        cuda.syncthreads()
        for row in range(min(KEYS, t + S - T + 1 - start)):
            score = float32(0)
            for d in range(HEAD):
                score += q[b, t, h, d] * k_tile[uint32(row), d]
            score *= scale
            new = max(largest, score)
            shrink, p = math.exp(largest - new), math.exp(score - new)
            largest, sum_p = new, sum_p * shrink + p
            for d in range(HEAD):
                total[d] = total[d] * shrink + p * v_tile[uint32(row), d]
    if first + thread < T:
        lse[b, h, t] = largest + math.log(sum_p)
        for d in range(HEAD):
            out[b, t, h, d] = total[d] / sum_p


def run_three_kernels(out: Array, lse: Array, q: Array, k: Array, v: Array) -> None:
    """Do what :func:`nanoeuler.gpu.attention.attention_forward` does: with all scores in memory."""
    (B, T, H, D), S = q.shape, k.shape[1]
    p = scratch("attention ladder", (B, H, T, S), np.float32, like=lse)
    launch(write_scores, (-(-S // THREADS), T, B * H), THREADS, p, q, k, 1 / math.sqrt(D))
    launch(softmax_rows, (-(-T // THREADS), H, B), THREADS, p, lse)
    launch(average_values, (-(-T * D // THREADS), H, B), THREADS, out, p, v)


def run_online_softmax(out: Array, lse: Array, q: Array, k: Array, v: Array) -> None:
    """Do what :func:`nanoeuler.gpu.attention.attention_forward` does: a thread for each query."""
    B, T, H, D = q.shape
    grid = (-(-T // THREADS), H, B)
    launch(variant(online_softmax, HEAD=D), grid, THREADS, out, lse, q, k, v, 1 / math.sqrt(D))


def run_shared_tiles(out: Array, lse: Array, q: Array, k: Array, v: Array) -> None:
    """Do what :func:`nanoeuler.gpu.attention.attention_forward` does: keys and values in shared memory."""
    B, T, H, D = q.shape
    grid = (-(-T // QUERIES), H, B)
    launch(variant(shared_tiles, HEAD=D), grid, QUERIES, out, lse, q, k, v, 1 / math.sqrt(D))


VERSIONS = [
    Version("three kernels", "the formula as it stands, with all scores in memory", run_three_kernels),
    Version(
        "online softmax", "one pass over the keys, a thread for each query, no scores in memory", run_online_softmax
    ),
    Version("shared tiles", "64 queries read keys and values together, into shared memory", run_shared_tiles),
    Version("lanes share a query", "small matrix products from shared memory into registers", attention_forward),
]

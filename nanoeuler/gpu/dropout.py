"""Dropout on the GPU, with the very masks of :mod:`nanoeuler.cpu.dropout`, where the random numbers are described.

A thread computes one Philox block: the words of a group of four elements that lie side by side. It should not read and
write these four itself, as a warp's reads would then lie 16 bytes apart. A warp has 32 groups, so 128 elements side by
side, of which lane l has elements l, 32 + l, 64 + l and 96 + l, each time next to its neighbours. Lane 4a + p (a < 8,
p < 4) computes group 8p + a, and four shuffles transpose the words among the four lanes of a quad: its word k is then
word p of the group that lane 4a + k computed, group 8k + a, of element 4 (8k + a) + p = 32k + (4a + p).

Groups are aligned in the stream, not in the array, so the first warp may begin up to three elements before it.

Moved: 2 elements for each element of ``out``. The words cost about 20 integer instructions an element, which run while
memory is waited for: x is loaded before they are computed.
"""

from typing import Any

import numpy as np

from nanoeuler.cpu.dropout import SITE_BITS
from nanoeuler.gpu.backend import cuda, float32, int32, int64, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.warp import FULL, WARP

Array = Any

MULTIPLIERS = (np.uint32(0xD2511F53), np.uint32(0xCD9E8D57))
WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
ROUNDS = 10
GROUP = 4  # words of one Philox block
WARPS = 8  # of a block
EACH_WARP = WARP * GROUP  # elements


@cuda.jit(device=True)
def philox(words: Any, k0: Any, k1: Any) -> None:
    """Turn a counter of four 32-bit words, in place, into four random ones, under a key of two."""
    c0, c1, c2, c3 = words[0], words[1], words[2], words[3]
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2  # of two uint32 Numba makes a uint64
        c0, c1 = uint32((product1 >> uint32(32)) ^ c1 ^ k0), uint32(product1)
        c2, c3 = uint32((product0 >> uint32(32)) ^ c3 ^ k1), uint32(product0)
        k0, k1 = uint32(k0 + WEYL[0]), uint32(k1 + WEYL[1])
    words[0], words[1], words[2], words[3] = c0, c1, c2, c3


@cuda.jit(device=True)
def transpose_in_quads(words: Any, place: Any) -> None:
    """Let word k of lane p and word p of lane k change places, among four lanes: pairs first, then pairs of pairs."""
    for distance in (1, 2):
        upper = place & distance != 0
        for k in (0, 3 - distance):  # words 0 and 1, 2 and 3; then 0 and 2, 1 and 3
            given = words[k] if upper else words[k + distance]
            got = uint32(cuda.shfl_xor_sync(FULL, int32(given), distance))
            if upper:
                words[k] = got
            else:
                words[k + distance] = got


@cuda.jit
def drop(
    out: Array, x: Array, threshold: Any, scale: Any, k0: Any, k1: Any, site: Any, micro_batch: Array, start: Any
) -> None:
    """Write x with the elements zeroed whose word is below the threshold, the others scaled."""
    lane = cuda.threadIdx.x % WARP
    warp = int64(cuda.blockIdx.x) * WARPS + cuda.threadIdx.x // WARP
    first = start // GROUP + warp * WARP  # the warp's first group
    values = cuda.local.array(GROUP, float32)
    for k in range(GROUP):
        i = first * GROUP - start + k * WARP + lane
        if i >= 0 and i < out.size:
            values[k] = widen(x[i])

    words = cuda.local.array(GROUP, uint32)
    place = lane % GROUP
    group = first + place * (WARP // GROUP) + lane // GROUP
    stream = micro_batch[0] << SITE_BITS | site
    words[0], words[1] = uint32(group), uint32(group >> 32)
    words[2], words[3] = uint32(stream), uint32(stream >> 32)
    philox(words, k0, k1)
    transpose_in_quads(words, place)

    for k in range(GROUP):
        i = first * GROUP - start + k * WARP + lane
        if i >= 0 and i < out.size:
            kept = float32(1) if int64(words[k]) >= threshold else float32(0)
            out[i] = narrow(values[k] * scale * kept)


def dropout_forward(
    out: Array, x: Array, rate: float, seed: int, site: int, micro_batch: Array, start: int = 0
) -> None:
    """Write x with a share ``rate`` of its elements zeroed and the others scaled up, so that the mean stays.

    Args:
        out: any shape, written; may be ``x`` itself.
        x: as ``out``.
        rate: in [0, 1).
        seed: below 2⁶⁴.
        site: the place in the model, below 2¹⁶.
        micro_batch: (1,) int64, the number of the micro-batch in the run, below 2⁴⁷.
        start: index of the first element in its stream, for a piece of a batch.
    """
    warps = -(-(start % GROUP + out.size) // EACH_WARP)
    threshold, scale = round(rate * 2**32), 1 / (1 - rate)
    k0, k1 = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    launch(
        drop, -(-warps // WARPS), WARPS * WARP,
        out.reshape(-1), x.reshape(-1), threshold, scale, k0, k1, site, micro_batch, start,
    )  # fmt: skip


def dropout_backward(
    dx: Array, dout: Array, rate: float, seed: int, site: int, micro_batch: Array, start: int = 0
) -> None:
    """Write the input's gradient: the same mask and the same scale, so the same op.

    Args:
        dx: any shape, written; may be ``dout`` itself.
        dout: as ``dx``.
        rate: the forward's.
        seed: the forward's.
        site: the forward's.
        micro_batch: (1,) int64, the forward's.
        start: the forward's.
    """
    dropout_forward(dx, dout, rate, seed, site, micro_batch, start)

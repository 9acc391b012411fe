"""Dropout (Srivastava et al. 2014) from counter-based random numbers (Philox4x32-10, Salmon et al. 2011).

    out[i] = x[i] / (1 - rate)   where random(seed, stream, i) ≥ rate, else 0
    dx[i]  = dout[i] / (1 - rate)  at the same places: the op is a product with a mask

No mask is stored and no generator has a state: the number at index i is a function of (seed, stream, i), so that
forward and backward agree, on any thread, in any order, and on a GPU. Philox turns a counter of four 32-bit words,
(i / 4, low and high; stream, low and high), under a key of two, the seed, into four random words, for i to i + 3.

Each place in the model has a stream of its own in each micro-batch of a run::

    stream = micro_batch 2¹⁶ + site

The number of the micro-batch is read from an array when the numbers are drawn: a step that is recorded once and then
repeated (a CUDA graph) draws new ones when somebody counts it up.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel

#: Philox's multipliers and the constants its key grows by (Salmon et al. 2011, table 2 and section 4.3).
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)
#: Bits of a stream's number that name the place in the model.
SITE_BITS = 16


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return four random 32-bit words for each counter.

    Args:
        counter: (4, n) uint64 holding 32-bit words.
        key: two 32-bit words.

    Returns:
        (4, n) uint64 holding 32-bit words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = (product1 >> WORD) ^ c1 ^ np.uint64(k0), product1 & LOW
        c2, c3 = (product0 >> WORD) ^ c3 ^ np.uint64(k1), product0 & LOW
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def random_words(seed: int, stream: int, start: int, n: int) -> np.ndarray:
    """Return the random 32-bit words number ``start`` to ``start + n`` of a seed's stream, (n,) uint64."""
    first, last = start // 4, -(-(start + n) // 4)
    index = np.arange(first, last, dtype=np.uint64)
    counter = np.empty((4, index.size), np.uint64)
    counter[0], counter[1] = index & LOW, index >> WORD
    counter[2], counter[3] = stream & 0xFFFFFFFF, stream >> 32
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return words.T.reshape(-1)[start - 4 * first :][:n]


def dropout_forward(
    out: np.ndarray, x: np.ndarray, rate: float, seed: int, site: int, micro_batch: np.ndarray, start: int = 0
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
    flat, inputs = out.reshape(-1), x.reshape(-1)
    stream = int(micro_batch[0]) << SITE_BITS | site
    threshold = np.uint64(round(rate * 2**32))
    scale = 1 / (1 - rate)

    def block(part: slice) -> None:
        words = random_words(seed, stream, start + part.start, part.stop - part.start)
        np.multiply(inputs[part], scale, out=flat[part])
        flat[part] *= words >= threshold

    parallel(block, blocks(flat.size))


def dropout_backward(
    dx: np.ndarray, dout: np.ndarray, rate: float, seed: int, site: int, micro_batch: np.ndarray, start: int = 0
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

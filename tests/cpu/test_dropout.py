"""Dropout: the generator against published vectors, the mask by its statistics, pieces against the whole."""

import numpy as np
import pytest
from oracle import assert_close, assert_same_with_threads, dtypes, more_than_a_block, normal, unwritten

from nanoeuler import cpu as ops
from nanoeuler.cpu.dropout import philox, random_words

# counter, key, words: the known answers of Random123 (Salmon et al. 2011), philox4x32 with 10 rounds
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]

MICRO_BATCH = np.array([7])


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter: str, key: str, expected: str) -> None:
    result = philox(np.array(words(counter), np.uint64)[:, None], (words(key)[0], words(key)[1]))
    assert result[:, 0].tolist() == words(expected)


def test_philox_takes_many_counters_at_once() -> None:
    counters = np.array([words(counter) for counter, _, _ in KNOWN_ANSWERS[:2]], np.uint64).T
    both = philox(counters, (0, 0))
    assert both[:, 0].tolist() == words(KNOWN_ANSWERS[0][2])
    assert both[:, 1].tolist() == philox(counters[:, 1:], (0, 0))[:, 0].tolist()


def test_words_are_laid_out_as_said() -> None:
    """Index / 4 in the counter's first two words, the stream in the last two, the seed as the key: low words first."""
    index, stream, seed = 2**35 + 3, 2**40 + 5, 2**50 + 7
    counter = np.array([[3], [2**3], [5], [2**8]], np.uint64)
    assert random_words(seed, stream, 4 * index, 4).tolist() == philox(counter, (7, 2**18))[:, 0].tolist()
    assert random_words(0, 0, 0, 4).tolist() == words(KNOWN_ANSWERS[0][2])


@pytest.mark.parametrize("start", [0, 1, 3, 4, 1001, 2**34 - 2])
def test_words_do_not_depend_on_where_one_starts(start: int) -> None:
    whole = random_words(5, 6, start - start % 8, 40)
    for n in (1, 2, 5, 8):
        assert random_words(5, 6, start, n).tolist() == whole[start % 8 :][:n].tolist()


@pytest.mark.parametrize(("shape", "cut"), [((7, 5), 3), ((64, 16), 31), ((2 * more_than_a_block(96), 96), 683)])
def test_pieces_are_the_whole(shape: tuple[int, int], cut: int) -> None:
    x, whole, pieces = normal(shape), unwritten(shape), unwritten(shape)
    ops.dropout_forward(whole, x, 0.3, 5, 6, MICRO_BATCH)
    ops.dropout_forward(pieces[:cut], x[:cut], 0.3, 5, 6, MICRO_BATCH)
    ops.dropout_forward(pieces[cut:], x[cut:], 0.3, 5, 6, MICRO_BATCH, start=cut * shape[1])
    assert (pieces == whole).all()


@dtypes
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_share_and_scale(rate: float, dtype: type) -> None:
    n = 200_000
    out = unwritten((n,), dtype)
    ops.dropout_forward(out, np.ones(n, dtype), rate, 5, 6, MICRO_BATCH)
    kept = out != 0
    assert_close(out[kept], np.full(kept.sum(), 1 / (1 - rate)))
    deviation = np.sqrt(rate * (1 - rate) / n)
    assert abs(1 - kept.mean() - rate) <= 4 * deviation
    if rate:
        neighbours = (kept[1:] & kept[:-1]).mean()  # independent of each other
        assert abs(neighbours - (1 - rate) ** 2) < 8 * deviation


@dtypes
def test_backward_drops_and_scales_the_same_places(dtype: type) -> None:
    ones = np.ones((7, 5), dtype)
    out, dx, dout = unwritten((7, 5), dtype), unwritten((7, 5), dtype), normal((7, 5), dtype, 1)
    ops.dropout_forward(out, ones, 0.3, 5, 6, MICRO_BATCH, start=9)
    ops.dropout_backward(dx, dout, 0.3, 5, 6, MICRO_BATCH, start=9)
    assert 0 < (out == 0).sum() < 35
    assert_close(dx, dout.astype(np.float64) * out)
    ops.dropout_backward(dout, dout, 0.3, 5, 6, MICRO_BATCH, start=9)
    assert (dout == dx).all()


def test_every_seed_site_micro_batch_and_start_has_its_own_mask() -> None:
    masks = set()
    places = [(5, 6, 7, 0), (6, 5, 7, 0), (5, 7, 6, 0), (5, 6, 8, 0), (5, 7, 7, 0), (5, 6, 7, 1)]
    far = [(5 + 2**32, 6, 7, 0), (5, 6, 7 + 2**16, 0), (5, 6, 7 + 2**46, 0), (2**64 - 1, 2**16 - 1, 2**47 - 1, 2**40)]
    for seed, site, micro_batch, start in [*places, *far]:
        out = unwritten((64,))
        ops.dropout_forward(out, np.ones(64), 0.5, seed, site, np.array([micro_batch]), start)
        masks.add((out != 0).tobytes())
    assert len(masks) == len(places) + len(far)


def test_the_stream_is_of_micro_batch_and_site() -> None:
    out = unwritten((64,))
    ops.dropout_forward(out, np.ones(64), 0.5, 5, 2**16 - 1, np.array([2**40 + 3]), start=9)
    words = random_words(5, (2**40 + 3) * 2**16 + 2**16 - 1, 9, 64)
    assert ((out != 0) == (words >= 2**31)).all()


def test_a_call_made_again_draws_what_the_micro_batch_then_says() -> None:
    """A step recorded once is repeated with the same arguments: only the array's content changes."""
    micro_batch, masks = np.array([0]), []
    for _ in range(2):
        out = unwritten((64,))
        ops.dropout_forward(out, np.ones(64), 0.5, 5, 6, micro_batch)
        masks.append((out != 0).tobytes())
        micro_batch += 1
    assert masks[0] != masks[1]


def test_threads_give_the_same_bits() -> None:
    x = normal((2 * more_than_a_block(96), 96))

    def run() -> list[np.ndarray]:
        out, dx = unwritten(x.shape), unwritten(x.shape)
        ops.dropout_forward(out, x, 0.3, 5, 6, MICRO_BATCH)
        ops.dropout_backward(dx, x, 0.3, 5, 6, MICRO_BATCH)
        return [out, dx]

    assert_same_with_threads(run)

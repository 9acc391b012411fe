"""What the numbers of a tensor look like: extremes, mean, deviation, a histogram, and what is not finite among them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

#: Numbers that are turned to float64 at once: a tensor needs no second copy of itself.
BLOCK = 1 << 18
#: The histogram goes from so many deviations below the mean to as many above.
REACH = 4


@dataclass(frozen=True)
class Statistics:
    """Of the finite numbers of a tensor; what is not known is None: of no number, or of such as float64 cannot add."""

    size: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    zeros: int
    nans: int
    infinities: int
    low: float | None  # where the histogram begins, and ends; the first and last bin have what lies beyond, too
    high: float | None
    histogram: tuple[int, ...]  # numbers in each bin


def statistics(x: np.ndarray, bins: int) -> Statistics:
    """Return the statistics of an array of any shape, computed in float64.

    >>> one = statistics(np.array([-1.0, 1.0, np.nan, 0.0]), bins=3)
    >>> one.minimum, one.maximum, one.mean, one.zeros, one.nans, one.histogram
    (-1.0, 1.0, 0.0, 1, 1, (1, 1, 1))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # float64 beyond 1e154 has a square that is infinite
        return _statistics(x, bins)


def _statistics(x: np.ndarray, bins: int) -> Statistics:
    count = zeros = nans = 0
    total, minimum, maximum = 0.0, np.inf, -np.inf
    for block, finite in _blocks(x):
        count, zeros = count + finite.size, zeros + int(np.count_nonzero(block == 0))
        nans += int(np.count_nonzero(np.isnan(block)))
        total += float(finite.sum())
        minimum, maximum = float(finite.min(initial=minimum)), float(finite.max(initial=maximum))
    infinities = x.size - count - nans
    if not count:
        return Statistics(x.size, None, None, None, None, zeros, nans, infinities, None, None, (0,) * bins)
    mean = total / count
    std = math.sqrt(sum(float(np.square(finite - mean).sum()) for _, finite in _blocks(x)) / count)
    known = math.isfinite(std)
    low, high = minimum, maximum
    if known:
        low, high = max(low, mean - REACH * std), min(high, mean + REACH * std)
    counts = np.zeros(bins, np.int64)
    for _, finite in _blocks(x):
        share = (finite / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.full(finite.size, 0.5)
        counts += np.bincount(np.clip(share * bins, 0, bins - 1).astype(np.int64), minlength=bins)
    moments = (mean if known else None, std if known else None)
    return Statistics(x.size, minimum, maximum, *moments, zeros, nans, infinities, low, high, tuple(counts.tolist()))


def _blocks(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the numbers in pieces of float64: all of a piece, and the finite ones of it."""
    flat = x.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK].astype(np.float64)
        yield block, block[np.isfinite(block)]

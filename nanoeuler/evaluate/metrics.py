"""Means over items and how sure they are."""

import math
from collections.abc import Sequence

import numpy as np


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return a mean and its standard error, from the deviation of the sample; None for a single value.

    >>> mean_and_error([1, 0, 0, 1])
    (0.5, 0.28867513459481287)
    """
    x = np.asarray(values, np.float64)
    return float(x.mean()), float(x.std(ddof=1)) / math.sqrt(x.size) if x.size > 1 else None


def perplexity(nats: float) -> float:
    """Return the perplexity of a loss; infinite where it is beyond what a float holds.

    >>> perplexity(0.0), perplexity(1e6)
    (1.0, inf)
    """
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf

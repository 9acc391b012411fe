import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.evaluate.metrics import mean_and_error, perplexity


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_as_in_the_standard_library(values):
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert error == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), rel=1e-6, abs=1e-9)


def test_perplexity():
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(math.inf) == math.inf

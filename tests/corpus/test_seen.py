from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.seen import Seen, hash_document

#: Few enough numbers that they come again, and the ends of the range.
HASHES = st.sampled_from([*range(12), 2**63, 2**64 - 1])


@given(st.lists(st.lists(HASHES, max_size=9), max_size=12))
def test_it_is_a_set(batches):
    seen, definition = Seen(), set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value not in definition)
            definition.add(value)
        assert seen.add(np.array(batch, np.uint64)).tolist() == expected
        assert len(seen) == len(definition)


def test_arrays_stay_few_and_the_memory_small():
    seen, source = Seen(), np.random.default_rng(0)
    for _ in range(200):
        seen.add(source.integers(0, 2**64, 50, np.uint64))
    sizes = [len(array) for array in seen._arrays]
    assert sum(sizes) == len(seen) == 10_000
    assert all(larger > 2 * smaller for larger, smaller in pairwise(sizes))
    assert sum(array.nbytes for array in seen._arrays) == 80_000


def test_hashes_are_spread_evenly():
    hashes = np.array([hash_document(b"%d" % i) for i in range(10_000)], np.uint64)
    assert len(np.unique(hashes)) == 10_000
    counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
    assert (abs(counts - 625) < 5 * 625**0.5).all()

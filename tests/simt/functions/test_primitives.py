"""Counting and reversing bits against Python's integers; the products rounded once are tested with libdevice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.simt.functions import primitives

INTEGERS = st.integers(0, 2**64 - 1) | st.integers(0, 63).map(lambda n: 1 << n) | st.just(0)
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@pytest.mark.parametrize("width", UNSIGNED)
@given(n=INTEGERS)
def test_bits(width: int, n: int) -> None:
    """Of signed and unsigned integers of each width."""
    n %= 1 << width
    unsigned = UNSIGNED[width](n)
    for x in (unsigned, unsigned.view(f"int{width}")):
        wanted = {"clz": width - n.bit_length()}
        if width >= 32:
            wanted |= {"popc": n.bit_count(), "ffs": (n & -n).bit_length()}
            wanted["brev"] = int(f"{n:0{width}b}"[::-1], 2)
        for name, value in wanted.items():
            got = getattr(primitives, f"{name}{width}")(x)
            assert got == value, name
            assert type(got) is (UNSIGNED[width] if name == "brev" else np.int32)


@pytest.mark.parametrize(("a", "b", "c", "fused"), [(1 + 2**-12, 1 + 2**-12, -(1 + 2**-11), 2**-24), (3, 5, 7, 22)])
def test_fma_rounds_once(a: float, b: float, c: float, fused: float) -> None:
    """The first product rounds away what is then left."""
    assert primitives.fma32(np.float32(a), np.float32(b), np.float32(c)) == np.float32(fused)
    assert primitives.fma64(np.float64(a), np.float64(b), np.float64(c)) == fused
    small = np.float64(1 + 2**-30)
    assert primitives.fma64(small, small, np.float64(-(1 + 2**-29))) == 2.0**-60


def test_fma_of_subnormals_and_of_products_beyond_the_range() -> None:
    """Neither the product's overflow nor a second rounding below 2**-1022 shows."""
    big, least = np.float64(2.0**1000), np.float64(5e-324)
    assert primitives.fma64(big, big, np.float64(-np.inf)) == -np.inf
    with np.errstate(all="ignore"):
        assert primitives.fma64(big, np.float64(2.0**24), np.float64(-(2.0**1023))) == 2.0**1023
        tie = primitives.fma64(np.float64(2.0**-537), np.float64(2.0**-538), np.float64(0))
        over = primitives.fma64(np.float64(2.0**-537 * (1 + 2**-52)), np.float64(2.0**-538), np.float64(0))
        assert (tie, over) == (0, least)
        assert primitives.fma32(np.float32(2.0**-75), np.float32(2.0**-75), np.float32(0)) == 0


def test_cube_root() -> None:
    """Of negative numbers too, with the sign of 0; the last bit is the C library's, which differs between machines."""
    assert abs(primitives.cbrt(np.float64(-27.0)) + 3.0) <= np.spacing(3.0)
    assert np.signbit(primitives.cbrt(np.float64(-0.0)))


def test_bits_of_floats() -> None:
    """Casts that keep the bits, each way."""
    assert primitives.float_bits(np.float32(1)) == 0x3F800000
    assert primitives.double_bits(np.float64(-2)) == np.int64(-(2**62))
    assert primitives.bits_float(np.int32(0x40490FDB)) == np.float32(np.pi)
    assert primitives.bits_double(primitives.double_bits(np.float64(np.pi))) == np.pi

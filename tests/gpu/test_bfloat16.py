"""bfloat16: all 65536 numbers and all ties between them, on the host and in kernels."""

from typing import Any

import numpy as np
import pytest
from oracle import needs_torch, torch
from simt.kernels.toolkit import need_toolkit

from nanoeuler.gpu.backend import cuda
from nanoeuler.gpu.bfloat16 import BFLOAT16, from_bfloat16, in_bfloat16, narrow, to_bfloat16, widen
from nanoeuler.gpu.launch import executing, launch

THREADS = 256
EVERY = np.arange(2**16, dtype=np.uint16)
IS_NAN = (EVERY & 0x7FFF) > 0x7F80
FINITE = EVERY[(EVERY & 0x7FFF) < 0x7F80]
every_side = pytest.mark.parametrize("side", ["host", "compiled", "checked", "ptx"])


@cuda.jit
def widen_each(out: Any, x: Any) -> None:
    """Write a float32 for each bfloat16."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = widen(x[i])


@cuda.jit
def narrow_each(out: Any, x: Any) -> None:
    """Write a bfloat16 for each float32."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = narrow(x[i])


def run(kernel: Any, side: Any, x: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the result for as much of x as an executor can do in a second: all, or every 31st element."""
    if side == "ptx":
        need_toolkit()
    x = x[some(side)]
    out = np.zeros(x.shape, dtype)
    with executing(side):
        launch(kernel, -(-x.size // THREADS), THREADS, out, x)
    return out


def some(side: str) -> slice:
    return slice(None, None, 31 if side == "checked" else 1)


def widened(side: str, bits: np.ndarray) -> np.ndarray:
    return from_bfloat16(bits) if side == "host" else run(widen_each, side, bits, np.float32)


def narrowed(side: str, x: np.ndarray) -> np.ndarray:
    return to_bfloat16(x) if side == "host" else run(narrow_each, side, x, BFLOAT16)


def float32_of(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.uint32).view(np.float32)


def value(bits: int) -> float:
    """Return what sign, 8 bits of exponent and 7 of fraction say."""
    sign, exponent, fraction = bits >> 15, bits >> 7 & 0xFF, bits & 0x7F
    size = fraction / 128 * 2.0**-126 if exponent == 0 else (1 + fraction / 128) * 2.0 ** (exponent - 127)
    return -size if sign else size


@every_side
def test_every_number_is_what_its_bits_say(side: str) -> None:
    got = widened(side, FINITE)
    assert got.tolist() == [value(int(bits)) for bits in FINITE[some(side)]]
    assert (np.signbit(got) == (FINITE[some(side)] >> 15 == 1)).all()


@every_side
def test_infinities_and_nan_are_kept(side: str) -> None:
    assert widened(side, np.array([0x7F80], np.uint16)).tolist() == [np.inf]
    assert widened(side, np.array([0xFF80], np.uint16)).tolist() == [-np.inf]
    assert np.isnan(widened(side, EVERY[IS_NAN])).all()
    assert narrowed(side, np.array([np.inf], np.float32)).tolist() == [0x7F80]
    assert narrowed(side, np.array([-np.inf], np.float32)).tolist() == [0xFF80]


@every_side
def test_every_number_comes_back(side: str) -> None:
    bits = EVERY[~IS_NAN]
    assert (narrowed(side, from_bfloat16(bits)) == bits[some(side)]).all()


@every_side
@pytest.mark.parametrize("nan", [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFF8000, 0xFFFFFFFF])
def test_nan_never_becomes_a_number(side: str, nan: int) -> None:
    assert narrowed(side, float32_of(np.array([nan]))).tolist() == [0x7FFF]


@every_side
@pytest.mark.parametrize(("lower_half", "up"), [(0x7FFF, "never"), (0x8000, "if odd"), (0x8001, "always")])
def test_what_lies_between_two_numbers_goes_to_the_nearest(side: str, lower_half: int, up: str) -> None:
    """Around the middle of every two neighbours, subnormals too; above the largest number lies infinity."""
    below = FINITE.astype(np.uint32)
    got = narrowed(side, float32_of(below << 16 | lower_half))
    expected = below + {"never": 0, "if odd": below & 1, "always": 1}[up]
    assert (got == expected[some(side)]).all()


def test_doubles_and_views_are_rounded_too() -> None:
    x = np.linspace(-3, 3, 20).reshape(4, 5)
    assert (to_bfloat16(x) == to_bfloat16(x.astype(np.float32))).all()
    assert (to_bfloat16(x[:, ::2]) == to_bfloat16(x)[:, ::2]).all()
    assert np.abs(from_bfloat16(to_bfloat16(x)) - x).max() <= 2**-8 * 2


@needs_torch
def test_equals_torch() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = x[~np.isnan(x)]
    expected = torch.tensor(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (to_bfloat16(x) == expected).all()


def test_a_launch_takes_the_variant_that_its_arrays_ask_for() -> None:
    x, out = np.array([1.5, -2.25], np.float32), np.zeros(2, np.float32)
    launch(widen_each, 1, 2, out, x)
    assert out.tolist() == [1.5, -2.25]
    launch(widen_each, 1, 2, out, to_bfloat16(-x))
    assert out.tolist() == [-1.5, 2.25]
    assert in_bfloat16(widen_each) is in_bfloat16(widen_each)

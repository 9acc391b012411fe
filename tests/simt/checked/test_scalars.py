"""Casts between scalars: Numba's types, and the GPU's values at the edges."""

import math
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.core import types
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.simt.checked.scalars import Literal, Unified, UntypedError, cast, convert

i8, i32, i64, u8, u32, u64 = np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64
f16, f32, f64, c64 = np.float16, np.float32, np.float64, np.complex64

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda: cast(f32(3e9), types.int32), i32(2**31 - 1)),
        (lambda: cast(f32(-1), types.uint8), u8(0)),
        (lambda: cast(f32(math.nan), types.int32), i32(0)),
        (lambda: cast(f32(math.nan), types.int64), i64(-(2**63))),
        (lambda: cast(f32(math.nan), types.uint64), u64(2**63)),
        (lambda: cast(f64(math.nan), types.int32), i32(-(2**31))),
        (lambda: cast(f64(math.nan), types.uint16), np.uint16(2**15)),
        (lambda: cast(f64(math.nan), types.int8), i8(0)),
        (lambda: cast(f32(300), types.int8), i8(44)),
        (lambda: cast(f32(-200), types.int8), i8(56)),
        (lambda: cast(f32(70000), types.int8), i8(-1)),
        (lambda: cast(f32(300), types.uint8), u8(44)),
        (lambda: cast(Literal(-1e30), types.int8), i8(0)),
        (lambda: cast(f16(300), types.int8), i8(127)),
        (lambda: cast(f16(2.5), types.int32), i32(2)),
        (lambda: cast(f16(-1.5), types.int32), i32(-2)),
        (lambda: cast(f32(-math.inf), types.int64), i64(-(2**63))),
        (lambda: cast(i64(300), types.int8), i8(44)),
        (lambda: cast(i64(-1), types.uint32), u32(2**32 - 1)),
        (lambda: cast(f64(0.1), types.float32), f32(0.1)),
        (lambda: cast(f64(1e300), types.float32), f32(math.inf)),
        (lambda: cast(Literal(0.1), types.float64), f64(0.1)),
    ],
)
def test_values_and_types(found: Any, wanted: Any, same: Any) -> None:
    """Integers wrap, floats become integers with saturation, and NaN is what cvt makes of it."""
    assert same(found(), wanted), (found(), wanted)


def test_casts_are_asked_for(creeping: list[str]) -> None:
    """A cast by name is meant; what is cast where branches meet keeps its mark, and its value."""
    for value in (i64(1), Literal(0.1), Unified(0.1)):
        assert type(cast(value, types.float64)) is f64
        assert type(cast(value, types.float32)) is f32
        assert type(convert(value, Unified)) is Unified
        assert convert(value, Unified) == value
    assert creeping == []


def test_what_numba_does_not_cast_is_refused() -> None:
    """A complex number has no one number, and None has none."""
    for value in (c64(1), None):
        with pytest.raises(UntypedError):
            cast(value, types.float32)


AWKWARD = (
    *(0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 127.5, 128, -128, -129, 200, 255.5, 256, 300, -200, 384),
    *(32767, 32768, -32768.5, -32769, 65535, 65536, 70000, -70000, 1e5, -1e5, 1e-40, 5e-324),
    *(2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**32 - 1, 2.0**32, 3e9, -3e9),
    *(2.0**63 - 1024, 2.0**63, -(2.0**63), -(2.0**63) * 1.5, 2.0**64 - 2048, 2.0**64, 1e30, -1e30),
    *(math.inf, -math.inf, math.nan),
)
EXECUTORS: tuple[simt.Executor, ...] = ("checked", "ptx")
INTEGERS = (i8, u8, np.int16, np.uint16, i32, u32, i64, u64)


def conversions(x, to_i8, to_u8, to_i16, to_u16, to_i32, to_u32, to_i64, to_u64):
    """Each result is stored as it is, cast by name, and added by an atomic where there is one."""
    i, n = cuda.threadIdx.x, x.size
    to_i8[i] = to_u8[i] = to_i16[i] = to_u16[i] = to_i32[i] = to_u32[i] = to_i64[i] = to_u64[i] = x[i]
    to_i8[n + i], to_u8[n + i] = types.int8(x[i]), types.uint8(x[i])
    to_i16[n + i], to_u16[n + i] = types.int16(x[i]), types.uint16(x[i])
    to_i32[n + i], to_u32[n + i] = types.int32(x[i]), types.uint32(x[i])
    to_i64[n + i], to_u64[n + i] = types.int64(x[i]), types.uint64(x[i])
    cuda.atomic.add(to_i32, 2 * n + i, x[i])
    cuda.atomic.add(to_u32, 2 * n + i, x[i])
    cuda.atomic.add(to_i64, 2 * n + i, x[i])
    cuda.atomic.add(to_u64, 2 * n + i, x[i])


@pytest.mark.parametrize("source", [f16, f32, f64])
def test_floats_become_integers_as_the_gpu_converts_them(source: Any) -> None:
    """By name, in a store and in an atomic: what the PTX executor gives, value by value."""
    need_toolkit()
    x = np.array(AWKWARD, source)
    found = {name: [np.zeros(3 * x.size, t) for t in INTEGERS] for name in EXECUTORS}
    for executor in EXECUTORS:
        simt.run(conversions, 1, x.size, (x, *found[executor]), executor=executor)
    for checked, ptx in zip(*found.values(), strict=True):
        differ = np.flatnonzero(checked != ptx)
        assert not differ.size, (checked.dtype, np.tile(x, 3)[differ], checked[differ], ptx[differ])

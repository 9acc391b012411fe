"""The language of kernels: each statement and expression does what it does in Python, with Numba's types."""

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32, types, uint8

from nanoeuler.simt import faults
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.source import emulates

SIZE, SCALE, PAIR = 3, 0.5, (2, 0.25)


def run(kernel: Any, *args: Any, block: Any = 1, **more: Any) -> None:
    """Run a kernel in which nothing may be wrong."""
    assert collect_faults(kernel, launch_shape(1, block, **more), args) == []


def statements(out):
    a = b = 2
    c: int = 3
    (d, out[0]), e = (a + b, c), 5
    out[1], out[2] = out[0], d
    e += 1
    out[2] += e
    out[2] *= 2
    for i, v in enumerate((10, 20), 1):
        out[3] += i * v
    for x, y in zip((1, 2), (3, 4)):  # noqa: B905 (a kernel has no strict)
        out[4] += x * y
    for i in range(10, 0, -3):
        if i == 4:
            continue
        if i < 4:
            break
        out[5] += i
    else:
        out[5] = -1
    n = 0
    while n < 4:
        n += 1
    else:
        out[6] = n
    m = n * 2
    if m > 7 and not m == 9:  # noqa: SIM201
        out[7] = m
    elif n:
        out[7] = 1
    pass
    out[8] = 1 if n > 100 else 2


def test_statements() -> None:
    """Assignments to several targets, loops with else, and conditional expressions."""
    out = np.zeros(9, np.int64)
    run(statements, out)
    assert out.tolist() == [3, 3, 20, 50, 11, 17, 4, 8, 2]


def calls(counter):
    counter[0] += 1
    return counter[0]


bump = cuda.jit(device=True)(calls)


def comparisons(out, counter):
    out[0] = 0 < bump(counter) < 5
    out[1] = 3 < bump(counter) < bump(counter)
    out[2] = counter[0]
    out[3] = counter is None
    out[4] = (1 <= 1) + (2 != 2)
    counter[bump(counter)] += 5


def test_what_is_evaluated_once_is() -> None:
    """The middle of a chain, an index that is read and written; and not what comes after a false link."""
    out, counter = np.zeros(5, np.int64), np.zeros(9, np.int64)
    run(comparisons, out, counter)
    assert out.tolist() == [1, 0, 2, 0, 1]
    assert counter.tolist() == [3, 0, 0, 5, 0, 0, 0, 0, 0]


def swap(a):
    i = cuda.threadIdx.x
    a[i], a[3 - i] = a[3 - i], a[i]


def test_swap() -> None:
    """Both values are read before one is written."""
    a = np.arange(4)
    run(swap, a, block=2)
    assert a.tolist() == [3, 2, 1, 0]


@cuda.jit(device=True)
def scaled(x, factor=2, offset=1):
    return x * factor + offset


@cuda.jit(device=True)
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


@cuda.jit(device=True)
def total(v, width=32):
    k = width // 2
    while k > 0:
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, k)
        k //= 2
    return v


@cuda.jit(device=True)
def pair(a):
    return a[0], a[1:]


def device_functions(out):
    out[0] = scaled(3)
    out[1] = scaled(3, offset=5, factor=1)
    out[2] = factorial(5)
    first, rest = pair(out)
    out[3] = first + rest[0]
    s = total(cuda.laneid)
    if cuda.laneid == 0:
        out[4] = s


def test_device_functions() -> None:
    """Defaults, keywords, recursion, tuples and views returned; one with warp operations waits inside."""
    out = np.zeros(5, np.int64)
    found = collect_faults(device_functions, launch_shape(1, 32), (out,))
    assert {f.kind for f in found} == {faults.RACE}  # all lanes write out[0] to out[3]
    assert out.tolist() == [7, 8, 120, 15, 496]


def make(factor: Any) -> Any:
    """Return a kernel that closes over a number."""

    @cuda.jit
    def multiply(out):
        out[0] = factor * out[0] + SIZE * PAIR[0]

    return multiply


def test_closures_and_globals() -> None:
    """Each closure has its own value; global numbers and tuples are constants."""
    for factor in (2, 5):
        out = np.ones(1, np.int64)
        run(make(factor), out)
        assert out[0] == factor + 6


def globals_of_types(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i] * float32(SCALE) + float32(1 / SIZE) + float32(-math.pi) + np.float32(PAIR[1])


def test_numbers_known_before_the_run_are_no_float64() -> None:
    """float32 of an expression of literals and globals is a float32 constant."""
    out = np.zeros(1, np.float32)
    run(globals_of_types, out, np.ones(1, np.float32))
    f32 = np.float32
    assert out[0] == f32(0.5) + f32(1 / 3) + f32(-math.pi) + f32(0.25)


def select(out, x):
    i = cuda.threadIdx.x
    y = x[i] if i < 1 else 0.0
    out[i] = y
    z = x[i] if i < 1 else 0
    out[i] = z * x[i]


def test_a_conditional_with_a_literal_is_float64() -> None:
    """Numba gives both sides one type: storing it is fine, computing with it is float64, whichever side was taken."""
    (fault,) = collect_faults(select, launch_shape(1, 1), (np.zeros(1, np.float32), np.ones(1, np.float32)))
    assert (fault.kind, fault.line) == (faults.FLOAT64, select.__code__.co_firstlineno + 5)


def functions(out):
    out[0] = cuda.popc(7) + cuda.clz(int32(1)) + cuda.ffs(8)
    out[1] = cuda.fma(float32(2), float32(3), float32(4))
    out[2] = cuda.selp(out[1] > 1, out[0], out[1])
    out[3] = abs(-2) + max(1, 2, 3) + min(4, 5) + int(2.9) + round(2.5) + len(out) + sum((1, 2))
    out[4] = math.sqrt(float32(16)) + np.sqrt(float32(9))
    q, r = divmod(17, 5)
    out[5] = q * 10 + r + pow(2, 3) + 2**4
    out[6] = uint8(300) + np.int32(7.9) + types.int64(1)
    out[7] = complex(3, 4).real + (3 + 4j).imag
    cuda.nanosleep(1)
    out[8] = cuda.ldcg(out, 3)
    cuda.stwt(out, 9, 11)


def test_functions() -> None:
    """Functions of cuda, of Python, math, NumPy and operator; casts; complex numbers."""
    out = np.zeros(10, np.float32)
    found = collect_faults(functions, launch_shape(1, 1), (out,), limit=50)
    assert {f.kind for f in found} <= {faults.FLOAT64}  # complex() of integers
    assert out.tolist() == [3 + 31 + 4, 10, 38, 2 + 3 + 4 + 2 + 2 + 10 + 3, 7, 32 + 8 + 16, 44 + 7 + 1, 7, 26, 11]


def vectors(out):
    v = cuda.float32x4(1, 2, 3, 4)
    w = cuda.int2(5, 6)
    u = cuda.float3(cuda.float2(1, 2), 3)
    out[0] = v.x + v.w * 10 + w.y * 100 + u.z * 1000


def test_vector_types() -> None:
    """Both names of each type; made of numbers and of smaller vectors."""
    out = np.zeros(1, np.float32)
    collect_faults(vectors, launch_shape(1, 1), (out,))
    assert out[0] == 3641


def library(out, x):
    out[0] = cuda.libdevice.rsqrtf(x[0])
    s, c = cuda.libdevice.sincosf(x[1])
    out[1] = s + c
    out[2] = cuda.libdevice.fmaf(x[0], x[0], x[0])


def test_libdevice() -> None:
    """Functions of libdevice are device functions in the types that they declare, and none is a float64 fault."""
    out = np.zeros(3, np.float32)
    run(library, out, np.array([4, 0], np.float32))
    assert out.tolist() == [0.5, 1, 20]


class Intrinsic:
    """Stands for an @intrinsic of inline PTX."""

    def __call__(self, array: Any, index: Any) -> Any:
        """Never run."""


double_load = Intrinsic()


@emulates(double_load)
def _(array, index):
    return array[index] + array[index + 1]


def uses_an_intrinsic(out, x):
    i = cuda.threadIdx.x
    out[i] = double_load(x, i)


def test_an_emulation_is_told_at_its_call() -> None:
    """What an emulated instruction does wrong is wrong on the kernel's line."""
    out = np.zeros(3, np.float32)
    (fault,) = collect_faults(uses_an_intrinsic, launch_shape(1, 3), (out, np.ones(3, np.float32)))
    assert (fault.kind, fault.index) == (faults.OUT_OF_BOUNDS, (3,))
    assert (fault.file, fault.line) == (__file__, uses_an_intrinsic.__code__.co_firstlineno + 2)
    assert out[:2].tolist() == [2, 2]


def prints(x):
    print("x", x[0], x.shape[0])


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers are printed as numbers."""
    run(prints, np.ones(1, np.float32))
    assert capsys.readouterr().out == "x 1.0 1\n"


def nothing_chosen(out, mask):
    if mask is not None:
        out[0] = mask[0]
    else:
        out[0] = 7


def arrays_in_a_tuple(pair):
    pair[0][0] = pair[1][2]


def test_arguments() -> None:
    """None and tuples of arrays, as Numba takes them."""
    out = np.zeros(1, np.int32)
    run(nothing_chosen, out, None)
    assert out[0] == 7
    run(arrays_in_a_tuple, (out, np.arange(3)))
    assert out[0] == 2
    (fault,) = collect_faults(arrays_in_a_tuple, launch_shape(1, 1), ((out, np.arange(2)),))
    assert (fault.array, fault.index) == ("pair[1]", (2,))


def unbound(out, n):
    i = cuda.threadIdx.x
    if i != n:
        value = 1
    cuda.syncthreads()
    out[i] = value


@cuda.jit(device=True)
def last_of(n):
    for i in range(n):
        last = i
    return last


def unbound_behind_a_device_function(out, n):
    out[cuda.threadIdx.x] = last_of(cuda.threadIdx.x)


def test_a_variable_that_was_never_assigned() -> None:
    """It is an uninitialised read, with its line and name; the other threads go on."""
    out = np.zeros(4, np.int64)
    (fault,) = collect_faults(unbound, launch_shape(1, 4), (out, 2))
    line = unbound.__code__.co_firstlineno + 5
    assert (fault.kind, fault.line, fault.array) == (faults.UNINITIALISED, line, "value")
    assert fault.parties[0].thread == (2, 0, 0)
    assert out.tolist() == [1, 1, 0, 1]
    (fault,) = collect_faults(unbound_behind_a_device_function, launch_shape(1, 4), (out, 2))
    assert (fault.kind, fault.line) == (faults.UNINITIALISED, last_of.py_func.__code__.co_firstlineno + 4)
    assert out.tolist() == [1, 0, 1, 2]


def bits(out, x):
    out[0] = x[0].bit_count()
    out[1] = (x[1] * x[0]).bit_count()


def test_bit_count() -> None:
    """A method of integers, which counts in their own width."""
    out = np.zeros(2, np.int64)
    run(bits, out, np.array([-1, 1], np.int32))
    assert out.tolist() == [32, 64]


def text_index(out, n):
    out[0] = out[0.5]


def of_two_types(out, n):
    out[0] = out[0] << 1.5


@pytest.mark.parametrize(
    ("kernel", "offset", "told"),
    [(text_index, 1, "indexed|integer|cannot"), (of_two_types, 1, "does not exist in Numba")],
)
def test_what_cannot_be_run_has_its_line(kernel: Any, offset: int, told: str) -> None:
    """What Numba would refuse while compiling is refused where it is met."""
    line = kernel.__code__.co_firstlineno + offset
    with pytest.raises(UnsupportedError, match=rf"test_translate.py:{line}: in kernel {kernel.__name__}: .*({told})"):
        run(kernel, np.zeros(1, np.int64), 1)


def test_an_expression_too_deep_for_pythons_stack_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep_kernel.py").write_text(f"def deep(out, n):\n    out[0] = {' + '.join(['n'] * 900)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedError, match=r"deep_kernel.py:2: an expression so deep cannot be run here"):
        run(importlib.import_module("deep_kernel").deep, np.zeros(1, np.int64), 1)

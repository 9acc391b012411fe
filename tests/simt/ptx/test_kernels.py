"""Whole kernels, as numba-cuda compiles them, against NumPy."""

import enum
import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="python -m pip install -e '.[gpu,compile]'")

from numba import cuda, float32, float64, int32
from numba.cuda import fp16, libdevice

from nanoeuler.errors import UserError
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import execute, run_ptx

pytestmark = pytest.mark.usefixtures("compiler")

TABLE = np.arange(5, dtype=np.float32) ** 2
RECORD = np.dtype([("a", "f4"), ("b", "i8"), ("c", "u1")], align=True)


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@cuda.jit
def tiled_product(a, b, out):
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + 7) // 8):
        k = tile * 8
        left[ty, tx] = a[row, k + tx] if row < a.shape[0] and k + tx < a.shape[1] else float32(0)
        right[ty, tx] = b[k + ty, column] if k + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for i in range(8):
            total += left[ty, i] * right[i, tx]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@pytest.mark.parametrize("shape", [(64, 64, 64), (1, 1, 1), (9, 17, 23), (8, 3, 16)])
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_tiled_product_with_tails(generator, shape, order):
    m, k, n = shape
    a, b = generator.standard_normal((m, k)).astype(np.float32), generator.standard_normal((k, n)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    run_ptx(tiled_product, launch_shape((-(-n // 8), -(-m // 8)), (8, 8), order=order, seed=3), (a, b, out))
    np.testing.assert_allclose(out, a @ b, atol=1e-5)


def test_groups_of_blocks_give_the_same(generator, monkeypatch):
    a, b = generator.standard_normal((2, 40, 40)).astype(np.float32)
    whole, parts = np.zeros((40, 40), np.float32), np.zeros((40, 40), np.float32)
    run_ptx(tiled_product, launch_shape((5, 5), (8, 8)), (a, b, whole))
    monkeypatch.setattr(execute, "LANE_BUDGET", 7 * 64)
    run_ptx(tiled_product, launch_shape((5, 5), (8, 8), order="reverse"), (a, b, parts))
    np.testing.assert_array_equal(whole, parts)


@cuda.jit(device=True)
def scaled(x, by):
    if x > 0:
        return math.sin(x) * by
    return x - by


@cuda.jit(device=True)
def twice(a, i):
    a[i] *= 2
    return scaled(a[i], float32(3))


def test_device_functions_constants_local_and_dynamic_shared_arrays(generator):
    def kernel(a, out):
        i, t = cuda.grid(1), cuda.threadIdx.x
        constants = cuda.const.array_like(TABLE)
        local = cuda.local.array(8, float32)
        shared = cuda.shared.array(0, float32)
        for k in range(8):
            local[k] = a[i] + k
        shared[t] = local[int(abs(a[i])) % 8]
        cuda.syncthreads()
        out[i] = shared[cuda.blockDim.x - 1 - t] + constants[i % 5] + twice(a, i)

    a = generator.uniform(-3, 3, 96).astype(np.float32)
    old, out = a.copy(), np.zeros(96, np.float32)
    run_ptx(kernel, launch_shape(3, 32, 32 * 4), (a, out))
    picked = old + np.abs(old).astype(int) % 8
    expected = picked.reshape(3, 32)[:, ::-1].ravel() + TABLE[np.arange(96) % 5]
    expected += np.where(2 * old > 0, np.sin(2 * old) * 3, 2 * old - 3)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(a, 2 * old)


UNARY = [math.sin, math.cos, math.tan, math.exp, math.expm1, math.log, math.log2, math.log10, math.log1p, math.sqrt]
UNARY += [
    math.tanh,
    math.sinh,
    math.cosh,
    math.atan,
    math.asinh,
    math.erf,
    math.erfc,
    math.gamma,
    math.floor,
    math.ceil,
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_math_functions(generator, dtype, tolerance):
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = math.sin(x[i]), math.cos(x[i]), math.tan(x[i]), math.exp(x[i])
        out[i, 4], out[i, 5], out[i, 6] = math.expm1(x[i]), math.log(x[i]), math.log2(x[i])
        out[i, 7], out[i, 8], out[i, 9] = math.log10(x[i]), math.log1p(x[i]), math.sqrt(x[i])
        out[i, 10], out[i, 11], out[i, 12] = math.tanh(x[i]), math.sinh(x[i]), math.cosh(x[i])
        out[i, 13], out[i, 14], out[i, 15] = math.atan(x[i]), math.asinh(x[i]), math.erf(x[i])
        out[i, 16], out[i, 17] = math.erfc(x[i]), math.gamma(x[i])
        out[i, 18], out[i, 19] = math.floor(x[i]), math.ceil(x[i])

    x = generator.uniform(0.1, 5, 64).astype(dtype)
    out = np.zeros((64, len(UNARY)), dtype)
    run_ptx(kernel, launch_shape(2, 32), (x, out))
    expected = np.array([[function(float(value)) for function in UNARY] for value in x])
    np.testing.assert_allclose(out, expected, rtol=tolerance * 3, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arguments_take_the_slow_path_of_the_library(dtype):
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = math.sin(x[i])

    x = np.array([1e6, 1e15, 1e22, -3e10, 1e30, 0.5], dtype)
    out = np.zeros(6, dtype)
    run_ptx(kernel, launch_shape(1, 6), (x, out))
    np.testing.assert_allclose(out, np.sin(x.astype(np.float64)), rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_two_arguments(generator, dtype):
    def kernel(a, b, out):
        i = cuda.grid(1)
        out[i, 0], out[i, 1] = math.atan2(a[i], b[i]), math.pow(a[i], b[i])
        out[i, 2], out[i, 3] = math.fmod(a[i], b[i]), math.hypot(a[i], b[i])
        mantissa, exponent = math.frexp(a[i])
        fraction, whole = math.modf(b[i])
        out[i, 4], out[i, 5] = mantissa + exponent, fraction * 2 + whole
        out[i, 6] = math.isnan(a[i]) + 2 * math.isinf(b[i]) + 4 * math.isfinite(a[i])
        out[i, 7] = round(a[i])

    a, b = generator.uniform(0.1, 5, 40).astype(dtype), generator.uniform(-3, 3, 40).astype(dtype)
    out = np.zeros((40, 8), dtype)
    run_ptx(kernel, launch_shape(1, 40), (a, b, out))
    rows = [
        [
            math.atan2(x, y),
            x**y,
            math.fmod(x, y),
            math.hypot(x, y),
            sum(math.frexp(x)),
            math.modf(y)[0] * 2 + math.modf(y)[1],
            4,
            round(x),
        ]
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    np.testing.assert_allclose(out, rows, rtol=1e-5 if dtype == np.float32 else 1e-13)


def test_libdevice_and_fast_math(generator):
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0], out[i, 1] = libdevice.fast_expf(x[i]), libdevice.rsqrtf(x[i])
        out[i, 2], out[i, 3] = cuda.fma(x[i], x[i], x[i]), libdevice.cbrtf(x[i])
        out[i, 4] = math.exp(x[i]) / math.sqrt(x[i]) + math.sin(x[i])

    x = generator.uniform(0.1, 3, 32).astype(np.float32)
    wide = x.astype(np.float64)
    expected = np.stack(
        [np.exp(wide), wide**-0.5, wide * wide + wide, np.cbrt(wide), np.exp(wide) / np.sqrt(wide) + np.sin(wide)], 1
    )
    for made in (kernel, cuda.jit(kernel), cuda.jit(fastmath=True)(kernel)):
        out = np.zeros((32, 5), np.float32)
        run_ptx(made, launch_shape(1, 32), (x, out))
        np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_fastmath_of_the_decorator_counts():
    @cuda.jit(fastmath=True)
    def fast(x):
        x[0] = x[0] * float32(2.0)

    x, y = np.array([1e-40], np.float32), np.array([1e-40], np.float32)
    run_ptx(fast, launch_shape(1, 1), (x,))
    run_ptx(fast.py_func, launch_shape(1, 1), (y,))
    assert (x[0], y[0]) == (0, np.float32(1e-40) * 2)  # subnormals are flushed with fastmath only


def test_integers_wrap_and_divide_like_python(generator):
    def kernel(a, b, out):
        i = cuda.grid(1)
        x, y = a[i], b[i]
        out[i, 0], out[i, 1], out[i, 2] = x // y, x % y, x >> 2
        out[i, 3], out[i, 4], out[i, 5] = cuda.popc(x), cuda.clz(x), cuda.ffs(x)
        out[i, 6], out[i, 7], out[i, 8] = cuda.selp(x > y, x, y), ~x, min(x, y)

    for dtype in (np.int32, np.int64):
        a, b = generator.integers(-1000, 1000, 40).astype(dtype), generator.integers(1, 50, 40).astype(dtype)
        out = np.zeros((40, 9), np.int64)
        run_ptx(kernel, launch_shape(1, 40), (a, b, out))
        width = 8 * a.itemsize
        bits = [int(x) % 2**width for x in a]
        expected = [a // b, a % b, a >> 2, [x.bit_count() for x in bits], [width - x.bit_length() for x in bits]]
        expected += [[(x & -x).bit_length() for x in bits], np.maximum(a, b), ~a, np.minimum(a, b)]
        np.testing.assert_array_equal(out, np.array(expected).T)


def test_three_dimensions():
    def kernel(out):
        x, y, z = cuda.grid(3)
        sx, sy, sz = cuda.gridsize(3)
        out[x, y, z] = x + 10 * y + 100 * z + 1000 * cuda.blockIdx.z + 10000 * (sx * sy * sz)

    out = np.zeros((6, 6, 6), np.int64)
    run_ptx(kernel, launch_shape((3, 2, 2), (2, 3, 3)), (out,))
    x, y, z = np.indices(out.shape)
    np.testing.assert_array_equal(out, x + 10 * y + 100 * z + 1000 * (z // 3) + 10000 * 216)


def test_records_arrays_of_them_and_one_alone():
    def kernel(items, one):
        i = cuda.grid(1)
        items[i].a = items[i].a * 2
        items[i].b = i + one.b
        items[i].c = 7
        if i == 0:
            one.a = 9.5

    items, one = np.zeros(10, RECORD), np.zeros(2, RECORD)
    items["a"], one["b"] = np.arange(10), 3
    run_ptx(kernel, launch_shape(1, 10), (items, one[1]))
    np.testing.assert_array_equal(items["a"], 2 * np.arange(10))
    np.testing.assert_array_equal(items["b"], np.arange(10) + 3)
    assert (items["c"] == 7).all()
    assert one["a"].tolist() == [0, 9.5]


def test_vector_types(generator):
    def kernel(a, out):
        i = cuda.grid(1)
        v = cuda.float32x4(a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3])
        out[i] = v.x * v.y + v.z * v.w

    a, out = generator.random(64).astype(np.float32), np.zeros(16, np.float32)
    run_ptx(kernel, launch_shape(1, 16), (a, out))
    np.testing.assert_allclose(out, a[::4] * a[1::4] + a[2::4] * a[3::4], rtol=1e-6)


def test_float16(generator):
    def kernel(a, b, out):
        i = cuda.grid(1)
        out[i, 0], out[i, 1] = a[i] * b[i] + a[i], fp16.hfma(a[i], b[i], a[i])
        out[i, 2], out[i, 3] = fp16.hmax(a[i], b[i]), fp16.hfloor(a[i])

    a, b = generator.standard_normal((2, 32)).astype(np.float16)
    out = np.zeros((32, 4), np.float16)
    run_ptx(kernel, launch_shape(1, 32), (a, b, out))
    np.testing.assert_allclose(out[:, 0], a * b + a, rtol=2e-3, atol=2e-3)
    exact = a.astype(np.float64) * b + a
    np.testing.assert_array_equal(out[:, 1], exact.astype(np.float16))
    np.testing.assert_array_equal(out[:, 2], np.maximum(a, b))
    np.testing.assert_array_equal(out[:, 3], np.floor(a))


def test_bfloat16(generator):
    bf16 = pytest.importorskip("numba.cuda.bf16")
    to_bf16, to_float = bf16.float32_to_bfloat16, bf16.bfloat16_to_float32

    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = to_float(to_bf16(a[i]) * to_bf16(a[i]))

    a, out = generator.random(8).astype(np.float32), np.zeros(8, np.float32)
    run_ptx(kernel, launch_shape(1, 8), (a, out))
    np.testing.assert_allclose(out, a * a, rtol=2.0**-6)
    assert not (out.view(np.uint32) & 0xFFFF).any()


def test_strided_arrays_are_changed_in_place(generator):
    def kernel(a, out):
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            out[i, j] = a[i, j] + 1

    base = generator.random((10, 12))
    a = base[::2, ::-2]
    whole = np.full((11, 13), -1.0)
    run_ptx(kernel, launch_shape(1, (8, 8)), (a, whole[1::2, 1::2]))
    np.testing.assert_array_equal(whole[1::2, 1::2], a + 1)
    assert (whole[::2] == -1).all()
    out = np.zeros((5, 6), order="F")
    run_ptx(kernel, launch_shape(1, (8, 8)), (a, out))
    np.testing.assert_array_equal(out, a + 1)


def test_arrays_that_share_memory_stay_aliases():
    def kernel(a, b):
        i = cuda.grid(1)
        a[i] = i
        cuda.syncthreads()
        b[i] = b[i] + 100

    a = np.zeros(20)
    run_ptx(kernel, launch_shape(1, 10), (a[:10], a[5:15]))
    np.testing.assert_array_equal(a[:15], [0, 1, 2, 3, 4, 105, 106, 107, 108, 109, 100, 100, 100, 100, 100])


class Colour(enum.IntEnum):
    RED = 3


def test_scalars_tuples_enumerations_and_complex_numbers():
    def kernel(out, flag, pair, small, colour, c):
        i = cuda.grid(1)
        if flag:
            out[i] = pair[0][i] + pair[1] + small + int32(colour == Colour.RED) + c

    out = np.zeros(8, np.complex128)
    run_ptx(kernel, launch_shape(1, 8), (out, True, (np.arange(8), 2.5), np.int8(-4), Colour.RED, np.complex64(1 + 2j)))
    np.testing.assert_array_equal(out, np.arange(8) + 2.5 - 4 + 1 + 1 + 2j)


def test_zero_dimensional_and_empty_arrays():
    def kernel(a, empty):
        a[()] = a[()] + empty.size + 1

    a = np.array(41.0)
    run_ptx(kernel, launch_shape(1, 1), (a, np.zeros(0)))
    assert a == 42


def test_print(capsys):
    def kernel(a):
        i = cuda.grid(1)
        if i % 2:
            print("lane", i, a[i], i > 2)

    run_ptx(kernel, launch_shape(1, 4), (np.array([0.5, 1.5, 2.5, 3.5], np.float32),))
    assert capsys.readouterr().out.split() == ["lane", "1", "1.500000", "False", "lane", "3", "3.500000", "True"]


def test_an_exception_ends_its_thread_alone():
    def kernel(a):
        i = cuda.grid(1)
        if i == 3:
            raise ValueError("three")
        a[i] = 1

    a = np.zeros(6)
    run_ptx(kernel, launch_shape(1, 6), (a,))
    assert a.tolist() == [1, 1, 1, 0, 1, 1]


def test_a_lock_is_passed_from_thread_to_thread():
    def kernel(lock, count):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)

    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run_ptx(kernel, launch_shape(2, 16), (lock, count))
    assert count[0] == 32


def test_bitonic_sort(generator):
    def kernel(a):
        shared = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        shared[t] = a[t]
        cuda.syncthreads()
        k = 2
        while k <= 128:
            j = k // 2
            while j > 0:
                other = t ^ j
                if other > t:
                    up = (t & k) == 0
                    if (shared[t] > shared[other]) == up:
                        shared[t], shared[other] = shared[other], shared[t]
                cuda.syncthreads()
                j //= 2
            k *= 2
        a[t] = shared[t]

    a = generator.random(128).astype(np.float32)
    expected = np.sort(a)
    run_ptx(kernel, launch_shape(1, 128), (a,))
    np.testing.assert_array_equal(a, expected)


def test_small_integer_arrays(generator):
    def kernel(a, b, out):
        i = cuda.grid(1)
        out[i] = a[i] * 2 + b[i]

    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        info = np.iinfo(dtype)
        a, b = generator.integers(info.min, info.max, (2, 33), endpoint=True).astype(dtype)
        out = np.zeros(33, dtype)
        run_ptx(kernel, launch_shape(1, 33), (a, b, out))
        np.testing.assert_array_equal(out, a * dtype(2) + b)


WRONG = [
    ((np.zeros(1),), r"kernel kernel\(a, b\) was given 1 arguments: missing a required argument: 'b'"),
    ((np.zeros(1), 1, 2), "too many positional arguments"),
    ((np.zeros(1), object()), "kernel kernel: argument 'b' is object, which kernels cannot take"),
    ((np.zeros(1, ">f4"), 1), "argument 'a' is an array of >f4, in another byte order: give"),
    ((np.zeros(1, object), 1), "argument 'a' is an array of object"),
    (("text", 1), "argument 'a' is str"),
    ((np.zeros(1), (1, "text")), "argument 'b' is str"),
    ((np.zeros(1, np.longdouble), 1), "kernel kernel: argument 'a' is an array of .*, which no GPU has: give float64"),
    ((np.zeros(1), 2**70), "argument 'b' is of type int, which no kernel takes .*too large"),
]


@pytest.mark.parametrize(("args", "words"), WRONG)
def test_wrong_arguments_are_named(args, words):
    def kernel(a, b):
        a[0] = b

    with pytest.raises(UserError, match=words):
        run_ptx(kernel, launch_shape(1, 1), args)


def test_what_is_no_kernel_is_named():
    with pytest.raises(UserError, match="scaled is a device function: give a kernel that calls it"):
        run_ptx(scaled, launch_shape(1, 1), (np.zeros(1),))
    with pytest.raises(UserError, match="5 is no kernel: give a function"):
        run_ptx(5, launch_shape(1, 1), ())


def test_defaults_may_be_left_out():
    def kernel(a, b=3, c=0.5):
        a[0] = b * c

    a = np.zeros(1)
    run_ptx(kernel, launch_shape(1, 1), (a,))
    assert a[0] == 1.5
    run_ptx(kernel, launch_shape(1, 1), (a, 5))
    assert a[0] == 2.5


@cuda.jit(device=True)
def factorial(n):
    if n < 2:
        return int32(1)
    return n * factorial(n - int32(1))  # here


@cuda.jit(device=True)
def even(n):
    return n == 0 or odd(n - 1)  # here


@cuda.jit(device=True)
def odd(n):
    return n != 0 and even(n - 1)  # here


@pytest.mark.parametrize(("device", "places"), [(factorial, [factorial]), (even, [even, odd])])
def test_recursion_is_named_with_its_line(device, places):
    def kernel(a):
        a[0] = device(a[0])

    with pytest.raises(UnsupportedError, match=r"kernel kernel \(test_kernels.py:\d+\).*recursion at ") as caught:
        run_ptx(kernel, launch_shape(1, 1), (np.zeros(1, np.int32),))
    lines = [inspect.getsourcelines(place.py_func) for place in places]
    here = [first + next(i for i, line in enumerate(text) if "# here" in line) for text, first in lines]
    assert any(f"recursion at test_kernels.py:{line}," in str(caught.value) for line in here)


def test_what_numba_cannot_compile_is_reported_with_its_words():
    def kernel(a):
        a[0] = math.nonsense

    with pytest.raises(UnsupportedError, match="nonsense"):
        run_ptx(kernel, launch_shape(1, 1), (np.zeros(1),))


def test_too_much_shared_memory():
    def kernel(a):
        s = cuda.shared.array(0, int32)
        s[0] = 1
        a[0] = s[0]

    with pytest.raises(UserError, match="shared memory"):
        run_ptx(kernel, launch_shape(1, 1, 300_000), (np.zeros(1),))


def test_functions_in_cpp_are_linked():
    source = cuda.CUSource('extern "C" __device__ int triple(int *out, int x) { *out = 3 * x; return 0; }')
    triple = cuda.declare_device("triple", "int32(int32)", link=source)

    def kernel(a):
        i = cuda.grid(1)
        a[i] = triple(a[i])

    a = np.arange(8, dtype=np.int32)
    run_ptx(kernel, launch_shape(1, 8), (a,))
    assert a.tolist() == [3 * i for i in range(8)]


def test_files_that_the_decorator_names_are_linked(tmp_path):
    (tmp_path / "triple.cu").write_text('extern "C" __device__ int triple(int *out, int x) { *out = 3 * x; return 0; }')
    triple = cuda.declare_device("triple", "int32(int32)")

    @cuda.jit(link=[str(tmp_path / "triple.cu")])
    def kernel(a):
        i = cuda.grid(1)
        a[i] = triple(a[i])

    a = np.arange(8, dtype=np.int32)
    run_ptx(kernel, launch_shape(1, 8), (a,))
    assert a.tolist() == [3 * i for i in range(8)]


def test_cpp_that_does_not_compile_is_shown():
    source = cuda.CUSource('extern "C" __device__ int broken(int *out, int x) { nonsense; }')
    broken = cuda.declare_device("broken", "int32(int32)", link=source)

    def kernel(a):
        a[0] = broken(a[0])

    with pytest.raises(UserError, match=r'(?s)does not compile.*identifier "nonsense" is undefined'):
        run_ptx(kernel, launch_shape(1, 1), (np.zeros(1, np.int32),))


def test_a_kernel_with_a_declared_signature_keeps_its_types():
    @cuda.jit
    def kernel(a, b):
        a[0] = b + 0.1

    a = np.zeros(1)
    run_ptx(kernel, launch_shape(1, 1), (a, 0.1))
    assert a[0] == 0.1 + 0.1
    # what is left by cuda.jit("void(float64[::1], float32)"), which needs a GPU
    kernel.overloads[float64[::1], float32] = SimpleNamespace(entry_point=None)
    kernel.disable_compile()
    run_ptx(kernel, launch_shape(1, 1), (a, 0.1))
    assert a[0] == float(np.float32(0.1)) + 0.1


def test_too_many_static_shared_arrays():
    def kernel(a):
        s = cuda.shared.array(13_000, float32)
        s[0] = a[0]
        a[0] = s[0] + 1

    with pytest.raises(UserError, match="52000 bytes of static shared arrays"):
        run_ptx(kernel, launch_shape(1, 1), (np.zeros(1, np.float32),))

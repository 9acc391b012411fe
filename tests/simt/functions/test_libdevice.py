"""Every function of libdevice: in Python, compiled by Numba, and as NVIDIA's own code that the PTX executor runs."""

import dis
import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import CellType, FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.simt import source
from nanoeuler.simt.functions import libdevice, special
from nanoeuler.simt.functions.half import bfloat_to_float, float_to_bfloat, float_to_half, half_to_float
from nanoeuler.simt.functions.libdevice import FUNCTIONS

# Values that are awkward somewhere: limits, ties, subnormals, zeros of functions, ends of ranges ---------------------

REALS = (
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.25, 0.75, -0.3),
    *(0.1, 1 / 3, math.pi, -math.pi / 2, 10.0, -10.0, 26.0, -40.0, 88.0, 89.0, -104.0, 130.0, 171.5, -171.5, 710.0),
    *(-746.0, 1e4, -1e5, 12345.678, 1e10, 2.0**31, 2.0**31 - 1, -(2.0**31) - 1, 2.0**32, 2.0**53 + 2, 2.0**63, -1e18),
    *(2.0**64, 65504.0, 65519.996, 65520.0, 2.0**-14, 2.0**-24, 2.0**-25, 1e-8, -1e-3, 1e-20, 0.49999997, 0.9, 1.001),
    *(0.49999999999999994, 2.404825557695773, 5.52, 7.3, 24.9, -0.01, 1e37, 16777217.0, 33554435.0, -2147483648.5),
)
WHOLE = (
    *(0, 1, -1, 2, 3, -7, 31, 255, 0x7531, 0x55555555, 0x00FF00FF, -0x12345678, 2**24 + 1, -(2**24) - 1, 2**31 - 1),
    *(-(2**31), -(2**31) + 1, 2**30, 16777219, 33554435, -126, -149, 1023, -1074, 200, 0x3210, 0x4567),
)
LONG = (
    *(2**63 - 1, -(2**63), -(2**63) + 1, 2**53 + 1, -(2**53) - 1, 2**62 + 2**38, 2**62 + 2**38 + 1, 2**62 + 2**9),
    *(2**62 + 2**9 + 1, 2**54 + 2, 2**54 + 6, 2**63 - 512, 2**63 - 513, 0x123456789ABCDEF0, -(2**40) - 3),
)


@cache
def values(kind: str) -> tuple[Any, ...]:
    """Return the values of a type, as its NumPy scalars."""
    dtype = np.dtype(kind).type
    if kind == "int16":
        return tuple(np.arange(-32768, 32768, 331).astype(np.int16)) + tuple(np.int16(x) for x in (0, 1, 0x3FF, 0x7C01))
    if kind.startswith("int"):
        return tuple(dtype(x) for x in (*WHOLE, *(LONG if kind == "int64" else ())))
    limits = np.finfo(dtype)
    tiny, least = float(limits.smallest_normal), float(limits.smallest_subnormal)
    extremes = (tiny, -tiny, 0.75 * tiny, least, -least, 3 * least, float(limits.max), -float(limits.max))
    near_one = (1 + float(limits.eps), 1 - float(limits.eps) / 2)
    with np.errstate(over="ignore"):
        return tuple(dtype(x) for x in (*REALS, *extremes, *near_one))


def rows(name: str, limit: int = 600) -> list[tuple[Any, ...]]:
    """Return arguments for a function: all combinations of the values, or ``limit`` of them, the same each time."""
    kinds = FUNCTIONS[name].arguments
    every = list(itertools.product(*map(values, kinds)))
    if name in BESSEL_N:  # the time of these grows with the order; NVIDIA's give no number for tiny x
        every = [(np.int32(n), x) for n in (-1, 0, 1, 2, 3, 7, 31) for x in values(kinds[1]) if 0.01 < abs(x) < 2e4]
    if len(every) > limit:
        every = [every[i] for i in np.random.default_rng(0).permutation(len(every))[:limit]]
    return every


# The three ways to run one -------------------------------------------------------------------------------------------


def in_python(name: str, arguments: list[tuple[Any, ...]]) -> list[np.ndarray]:
    """Return the results of the plain function, one array per value returned; each must be of the stated type."""
    emulation = FUNCTIONS[name]
    results = []
    with np.errstate(all="ignore"):
        for row in arguments:
            result = emulation.function(*row)
            results.append(result if isinstance(result, tuple) else (result,))
    for result, row in zip(results, arguments, strict=True):
        assert tuple(type(r) for r in result) == tuple(np.dtype(k).type for k in emulation.returns), (name, row, result)
    return [np.array(column, kind) for column, kind in zip(zip(*results, strict=True), emulation.returns, strict=True)]


@cache
def jitted(function: FunctionType) -> Any:
    """Return a function compiled by Numba, with those of ours that it calls."""
    from numba import njit

    def ready(value: Any) -> Any:
        ours = isinstance(value, FunctionType) and value.__module__.startswith("nanoeuler.")
        return jitted(value) if ours else value

    read = {i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}
    scope = {n: ready(v) if n in read else v for n, v in function.__globals__.items()}
    cells = tuple(CellType(ready(c.cell_contents)) for c in function.__closure__ or ())
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    return njit(error_model="numpy")(copy)


def by_numba(name: str, arguments: list[tuple[Any, ...]]) -> list[np.ndarray]:
    """Return the results of the function compiled for the CPU."""
    compiled = jitted(FUNCTIONS[name].function)
    results = [compiled(*row) for row in arguments]
    columns = zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True)
    return [np.array(column, kind) for column, kind in zip(columns, FUNCTIONS[name].returns, strict=True)]


def kernel_of(function: Any, arguments: int, results: int) -> Callable:
    """Return the kernel that applies a libdevice function to each row."""
    from numba import cuda

    def one(out: Any, x: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    def two(out: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i])

    def three(out: Any, x: Any, y: Any, z: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], z[i])

    def pair_of_one(out: Any, second: Any, x: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i], second[i] = function(x[i])

    def pair_of_two(out: Any, second: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i], second[i] = function(x[i], y[i])

    return {(1, 1): one, (2, 1): two, (3, 1): three, (1, 2): pair_of_one, (2, 2): pair_of_two}[arguments, results]


def launched(name: str, arguments: list[tuple[Any, ...]], executor: Any) -> list[np.ndarray]:
    """Return the results of a kernel that calls the function."""
    theirs = numba_libdevice()
    emulation = FUNCTIONS[name]
    columns = [np.array(c, k) for c, k in zip(zip(*arguments, strict=True), emulation.arguments, strict=True)]
    results = [np.zeros(len(arguments), kind) for kind in emulation.returns]
    kernel = kernel_of(getattr(theirs, name), len(columns), len(results))
    simt.run(kernel, -(-len(arguments) // 128), 128, (*results, *columns), executor=executor)
    return results


def numba_libdevice() -> Any:
    """Return numba.cuda.libdevice, or skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("numba_cuda", reason="needs numba-cuda: python -m pip install numba-cuda")
        from numba.cuda import libdevice as theirs
    return theirs


# How near results must be --------------------------------------------------------------------------------------------

BESSEL_N = {"jn", "jnf", "yn", "ynf"}
BESSEL = BESSEL_N | {"j0", "j0f", "j1", "j1f", "y0", "y0f", "y1", "y1f"}
FLOAT_EXACT = {"ceil", "copysign", "fabs", "fdim", "floor", "fmax", "fmin", "fmod", "frexp", "ldexp", "logb", "modf"}
FLOAT_EXACT |= {"nearbyint", "nextafter", "remainder", "remquo", "rint", "round", "scalbn", "sqrt", "trunc"}
APPROXIMATE = ("fast_", "frsqrt", "powi")


def is_exact(name: str) -> bool:
    """Whether the function has one right result, to the last bit."""
    if name.startswith(APPROXIMATE):
        return False
    plain = name.removesuffix("f")
    base = {*libdevice.ONE, *libdevice.TWO, *libdevice.AND_INTEGER, *BESSEL, "sincos", "sincospi"}
    return name in FLOAT_EXACT or plain in FLOAT_EXACT or not {name, plain} & base


def compare(name: str, arguments: list[Any], got: list[np.ndarray], want: list[np.ndarray], ulps: float) -> None:
    """Fail where two results differ by more than ``ulps`` units in the last place (0 for exact functions)."""
    for mine, theirs in zip(got, want, strict=True):
        with np.errstate(all="ignore"):
            same = (mine == theirs) & (np.signbit(mine) == np.signbit(theirs)) | ((mine != mine) & (theirs != theirs))
            if mine.dtype.kind == "f" and not is_exact(name):
                error = np.abs(mine.astype(np.float64) - theirs)
                slack = ulps * np.spacing(np.abs(theirs)).astype(np.float64)
                if name in BESSEL_N:
                    slack *= 16  # n steps of a recurrence
                if name in BESSEL:  # NVIDIA's own from 8 on (CUDA C++ Programming Guide, mathematical functions)
                    slack += 5e-12 if mine.dtype == np.float64 else 2.2e-6
                elif name.startswith("lgamma"):  # near its zeros it is as good as its size nearby
                    slack += 1e-13 if mine.dtype == np.float64 else 1e-6
                same |= error <= slack
        wrong = np.flatnonzero(~same)
        assert wrong.size == 0, (name, [(arguments[i], mine[i], theirs[i]) for i in wrong[:4]])


def same_halves(name: str, results: list[np.ndarray]) -> list[np.ndarray]:
    """Return results with one NaN for all where they are the bits of a float16."""
    return [results[0].view(np.float16)] if name == "float2half_rn" else results


QUICK = (
    *(
        "abs",
        "brev",
        "byte_perm",
        "cbrtf",
        "clzll",
        "dadd_ru",
        "ddiv_rz",
        "double2float_rd",
        "double2uint_rz",
        "erfcinvf",
    ),
    *(
        "expf",
        "fadd_rd",
        "fast_sincosf",
        "ffs",
        "float2half_rn",
        "float2int_rn",
        "float2ull_ru",
        "fma",
        "fmaf_rz",
        "fmin",
    ),
    *("frexpf", "fsqrt_ru", "half2float", "hiloint2double", "ilogb", "j0f", "ll2float_rn", "mul24", "nextafterf"),
    *("powf", "popc", "remquof", "roundf", "sinpif", "tgammaf", "ull2double_rd", "umul64hi"),
)
SLOW = tuple(pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS if name not in QUICK)
# NVIDIA's functions are within a few units in the last place of the exact value, those of approximate instructions less
FAST_ULPS, NVIDIA_ULPS, NUMBA_ULPS = 256, 5, 4
ULPS = {
    "powif": 32,
    "jnf": 32,
    "ynf": 32,
    "tgamma": 16,
}  # of float32 recurrences, and of the two gamma functions of CPython
# and these leave the exact value at the ends of their range
NVIDIA_FAILS: dict[str, Callable[..., bool]] = {
    "hypot": lambda x, y: max(abs(x), abs(y)) > 1e308,  # overflows
    "hypotf": lambda x, y: max(abs(x), abs(y)) > 3e38,
    "powif": lambda x, n: abs(n) > 20,  # the error of float32 products, and their overflow
    "fast_powf": lambda x, y: abs(x) > 1e38,
}


# Tests ---------------------------------------------------------------------------------------------------------------


def test_the_table_is_numba_cudas() -> None:
    """Every function of numba-cuda, with its types, and no other."""
    numba_libdevice()
    from numba.cuda import libdevicefuncs

    wanted = {}
    for name, (returned, arguments) in libdevicefuncs.functions.items():
        signature = libdevicefuncs.create_signature(returned, arguments)
        returns = getattr(signature.return_type, "types", (signature.return_type,))
        wanted[name.removeprefix("__nv_")] = tuple(map(str, signature.args)), tuple(map(str, returns))
    assert {name: (e.arguments, e.returns) for name, e in FUNCTIONS.items()} == wanted


def test_all_is_in_the_kernel_language() -> None:
    """The front end reads each function with all that it calls, and finds no barrier."""
    for emulation in FUNCTIONS.values():
        assert not source.read(emulation.function).blocks


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_compiled_as_in_python(name: str) -> None:
    """Numba makes of each function what Python does."""
    arguments = rows(name, 300)
    compare(name, arguments, by_numba(name, arguments), in_python(name, arguments), ULPS.get(name, NUMBA_ULPS))


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_as_nvidias(name: str) -> None:
    """NVIDIA's own code, run as PTX, gives the same: to the bit where there is one right result."""
    need_toolkit()
    fails = NVIDIA_FAILS.get(name)
    with np.errstate(all="ignore"):
        arguments = [row for row in rows(name) if fails is None or not fails(*row)]
    ulps = FAST_ULPS if name.startswith("fast_") else ULPS.get(name, NVIDIA_ULPS)
    mine, theirs = in_python(name, arguments), launched(name, arguments, "ptx")
    compare(name, arguments, same_halves(name, mine), same_halves(name, theirs), ulps)


@pytest.mark.parametrize("name", ["fsqrt_ru", "remquof", pytest.param("jn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("executor", ["compiled", "checked"])
def test_in_a_kernel(name: str, executor: str) -> None:
    """A kernel that calls libdevice gets the same from the executors that run source."""
    arguments = rows(name, 60)
    compare(name, arguments, launched(name, arguments, executor), in_python(name, arguments), NUMBA_ULPS)


# Against exact arithmetic --------------------------------------------------------------------------------------------


def rounded(exact: Fraction, dtype: Any, suffix: str) -> float:
    """Return the number of ``dtype`` that a fraction rounds to, by search among its neighbours."""
    limits = np.finfo(dtype)
    digits, lowest = limits.nmant + 1, limits.minexp - limits.nmant
    if exact == 0:
        return 0.0
    exponent = max(abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length() - digits - 1, lowest)
    while abs(exact) / Fraction(2) ** exponent >= 2**digits:
        exponent += 1
    scaled = exact / Fraction(2) ** exponent
    whole = {"_rn": round, "_rz": math.trunc, "_rd": math.floor, "_ru": math.ceil}[suffix](scaled)
    result = Fraction(whole) * Fraction(2) ** exponent
    if abs(result) > Fraction(float(limits.max)):
        away = suffix == "_rn" or suffix == ("_ru" if exact > 0 else "_rd")
        return math.copysign(math.inf if away else float(limits.max), float(exact > 0) - 0.5)
    return float(result)


def bits(dtype: Any) -> st.SearchStrategy[Any]:
    """Return finite numbers of ``dtype``, of all exponents alike, and near one another often enough to cancel."""
    width = np.dtype(dtype).itemsize * 8
    integer = np.dtype(f"u{width // 8}")
    everywhere = st.integers(0, 2**width - 1).map(lambda n: integer.type(n).view(dtype))
    near = st.integers(-70, 70).map(lambda n: dtype(1) + dtype(n) * np.finfo(dtype).eps)
    return st.one_of(everywhere, near).filter(lambda x: bool(np.isfinite(x)))


OPERATIONS: dict[str, Callable[..., Fraction]] = {
    **{"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b},
    **{"rcp": lambda a: 1 / a, "fma": lambda a, b, c: a * b + c},
}


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_rounding_against_fractions(operation: str, letter: str) -> None:
    """Sums, products, quotients and fused products in each mode are those of rational arithmetic."""
    exact = OPERATIONS[operation]
    name = {"ffma": "fmaf", "dfma": "fma"}.get(letter + operation, letter + operation)
    dtype = np.float32 if letter == "f" else np.float64
    count = exact.__code__.co_argcount

    @given(st.tuples(*[bits(dtype)] * count))
    def check(row: tuple[Any, ...]) -> None:
        if operation in ("div", "rcp") and row[-1] == 0:
            return
        wanted = exact(*(Fraction(float(x)) for x in row))
        for suffix in libdevice.MODES:
            with np.errstate(all="ignore"):
                got = FUNCTIONS[name + suffix].function(*row)
            assert type(got) is dtype
            assert float(got) == rounded(wanted, dtype, suffix), (name + suffix, row)

    check()


@pytest.mark.parametrize("letter", ["f", "d"])
def test_square_roots_in_each_mode(letter: str) -> None:
    """The root's square and its neighbours' enclose the number."""
    dtype = np.float32 if letter == "f" else np.float64
    for x in (abs(v) for v in values(np.dtype(dtype).name) if np.isfinite(v) and v != 0):
        root = {s: FUNCTIONS[f"{letter}sqrt{s}"].function(x) for s in libdevice.MODES}
        square = {s: Fraction(float(r)) ** 2 for s, r in root.items()}
        exact = Fraction(float(x))
        assert square["_rd"] <= exact <= square["_ru"]
        assert root["_rz"] == root["_rd"]
        assert root["_ru"] in (root["_rd"], np.nextafter(root["_rd"], dtype(math.inf)))
        assert (square["_rd"] == exact) == (root["_ru"] == root["_rd"])
        assert root["_rn"] == np.sqrt(x)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**54), 2**54))
def test_integers_become_floats_in_each_mode(n: int) -> None:
    """Signed and unsigned 32- and 64-bit integers, to float32 and float64."""
    small = (n + 2**31) % 2**32 - 2**31
    for suffix in libdevice.MODES:
        for kind, dtype in (("float", np.float32), ("double", np.float64)):
            assert FUNCTIONS[f"ll2{kind}{suffix}"].function(np.int64(n)) == rounded(Fraction(n), dtype, suffix)
            unsigned = FUNCTIONS[f"ull2{kind}{suffix}"].function(np.int64(n))
            assert unsigned == rounded(Fraction(n % 2**64), dtype, suffix)
        assert FUNCTIONS[f"int2float{suffix}"].function(np.int32(small)) == rounded(Fraction(small), np.float32, suffix)
        unsigned = FUNCTIONS[f"uint2float{suffix}"].function(np.int32(small))
        assert unsigned == rounded(Fraction(small % 2**32), np.float32, suffix)


def test_zero_sums_have_the_modes_sign() -> None:
    """An exact zero is -0 when rounding down, unless both terms are +0."""
    one, zero = np.float32(1), np.float32(0)
    for suffix in libdevice.MODES:
        down = suffix == "_rd"
        add, fused = FUNCTIONS["fadd" + suffix].function, FUNCTIONS["fma" + suffix].function
        assert np.signbit(add(one, -one)) == down
        assert np.signbit(add(zero, -zero)) == down
        assert not np.signbit(add(zero, zero))
        assert np.signbit(add(-zero, -zero))
        assert np.signbit(fused(np.float64(3), np.float64(-1), np.float64(3))) == down


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_high_products(x: int, y: int) -> None:
    """The upper half of a product, against Python's integers."""
    with np.errstate(over="ignore"):
        run = {n: int(FUNCTIONS[n].function(np.int64(x), np.int64(y))) for n in ("mul64hi", "umul64hi")}
    assert run["mul64hi"] == (x * y) >> 64
    assert run["umul64hi"] % 2**64 == ((x % 2**64) * (y % 2**64)) >> 64
    a, b = (np.int64(v).astype(np.int32) for v in (x, y))
    assert FUNCTIONS["mulhi"].function(a, b) == (int(a) * int(b)) >> 32
    assert int(FUNCTIONS["umulhi"].function(a, b)) % 2**32 == ((int(a) % 2**32) * (int(b) % 2**32)) >> 32


# Against functions written by others ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        *(("erfcx", "exp(x*x)*erfc(x)"), ("lgamma", "re(loggamma(x))"), ("tgamma", "gamma(x)"), ("y1", "bessely(1,x)")),
        *(("j0", "besselj(0,x)"), ("j1", "besselj(1,x)"), ("y0", "bessely(0,x)"), ("normcdf", "ncdf(x)")),
        *(("sinpi", "sinpi(x)"), ("cospi", "cospi(x)"), ("rcbrt", "sign(x)/cbrt(abs(x))"), ("erfc", "erfc(x)")),
    ],
)
def test_against_many_digits(name: str, exact: str) -> None:
    """1e-13 relative, or of the size nearby for what oscillates, against mpmath's 50 digits."""
    mp = pytest.importorskip("mpmath", reason="needs mpmath: python -m pip install mpmath").mp
    positive = [
        1e-12,
        1e-3,
        0.3,
        0.5,
        0.9,
        1.1,
        1.5,
        1.9,
        2.0,
        2.3,
        2.5,
        3.8,
        7.0,
        9.9,
        10.1,
        17.3,
        24.9,
        25.1,
        60.0,
        170.0,
    ]
    points = positive if name in ("y0", "y1") else positive + [-x for x in positive if x < 20 and x not in (2.0, 7.0)]
    absolute = 1e-14 if name in ("j0", "j1", "y0", "y1") else 1e-300
    with mp.workdps(50):
        for x in points:
            got = float(FUNCTIONS[name].function(np.float64(x)))
            wanted = float(eval(exact, {n: getattr(mp, n) for n in dir(mp) if n[0] != "_"}, {"x": mp.mpf(x)}))
            assert got == pytest.approx(wanted, rel=1e-13, abs=absolute), x


@pytest.mark.parametrize("n", [2, 3, 10, 40, 200])
def test_bessel_functions_of_an_order(n: int) -> None:
    """Below, at and above the turning point x = n."""
    mp = pytest.importorskip("mpmath", reason="needs mpmath: python -m pip install mpmath").mp
    for x in (1e-9, 0.1, 1.0, 0.5 * n, 0.99 * n, 1.01 * n, 2.0 * n, 1000.0):
        with np.errstate(over="ignore"):
            first, second = special.jn(np.int32(n), np.float64(x)), special.yn(np.int32(n), np.float64(x))
        assert float(first) == pytest.approx(float(mp.besselj(n, x)), rel=1e-12, abs=1e-14 if x > n else 0)
        assert float(second) == pytest.approx(float(mp.bessely(n, x)), rel=1e-12, abs=1e-14 if x > n else 0)
    odd = special.jn(np.int32(3), np.float64(-2.0))
    assert odd == -special.jn(np.int32(3), np.float64(2.0))


def test_inverse_error_functions_undo() -> None:
    """erfinv, erfcinv and normcdfinv give back what the functions were given, far into the tails too."""
    for x in (1e-10, 0.01, 0.3, 0.47, 0.49, 0.9, 1.5, 3.0, 5.0, 12.0, 26.0):
        p = np.float64(math.erfc(x))
        if x > 0.3:
            assert special.erfcinv(p) == pytest.approx(x, rel=1e-13)
        assert special.erfcinv(np.float64(2) - p) == -special.erfcinv(np.float64(2) - (np.float64(2) - p))
        if x < 3:
            assert special.erfinv(np.float64(math.erf(x))) == pytest.approx(x, rel=1e-11)
    for z in (-37.0, -8.0, -1.0, -0.1):
        assert special.normcdfinv(special.normcdf(np.float64(z))) == pytest.approx(z, rel=1e-13)
    for function, p, wanted in (
        *((special.erfinv, 1.0, math.inf), (special.erfinv, -1.0, -math.inf), (special.erfcinv, 0.0, math.inf)),
        *((special.erfcinv, 2.0, -math.inf), (special.normcdfinv, 0.0, -math.inf), (special.normcdfinv, 1.0, math.inf)),
    ):
        assert function(np.float64(p)) == wanted
    assert np.isnan(special.erfinv(np.float64(1.5)))
    assert np.isnan(special.normcdfinv(np.float64(-0.1)))


# float16 and bfloat16 ------------------------------------------------------------------------------------------------


def test_every_half() -> None:
    """All 65536 of them become the float32 that NumPy gives, and go back to themselves."""
    every = np.arange(65536, dtype=np.uint16)[::7]
    with np.errstate(invalid="ignore"):
        floats = np.array([half_to_float(h) for h in every])
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats, every.view(np.float16).astype(np.float32))
    numbers = ~np.isnan(floats)
    back = np.array([float_to_half(f) for f in floats[numbers]])
    assert back.dtype == np.uint16
    np.testing.assert_array_equal(back, every[numbers])


@given(bits(np.float32) | st.floats(-70000, 70000, width=32).map(np.float32))
def test_rounding_to_half(x: np.float32) -> None:
    """To nearest, ties to even, as NumPy rounds."""
    with np.errstate(over="ignore"):
        assert float_to_half(x) == x.astype(np.float16).view(np.uint16)


@given(bits(np.float32))
def test_rounding_to_bfloat(x: np.float32) -> None:
    """To nearest, ties to even: the nearest of the two float32 whose low 16 bits are 0."""
    result = float_to_bfloat(x)
    assert type(result) is np.uint16
    low = np.uint32(int(x.view(np.uint32)) & 0xFFFF0000)
    high = np.uint32((int(low) + 0x10000) & 0xFFFFFFFF)
    distance = int(x.view(np.uint32)) & 0xFFFF
    up = distance > 0x8000 or (distance == 0x8000 and (int(low) >> 16) & 1 == 1)
    assert int(result) << 16 == int(high if up else low)
    assert bfloat_to_float(np.uint16(int(low) >> 16)) == low.view(np.float32)


def test_not_a_number_in_16_bits() -> None:
    """It stays one."""
    nan = np.float32(math.nan)
    assert float_to_half(nan) == float_to_bfloat(nan) == 0x7FFF
    assert np.isnan(half_to_float(np.uint16(0x7C01)))
    assert half_to_float(np.int16(-1024)) == -math.inf

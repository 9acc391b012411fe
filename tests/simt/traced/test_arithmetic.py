"""What operations cost."""

import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba.cuda import libdevicefuncs

from nanoeuler.simt.traced.arithmetic import cost, precision


@pytest.mark.parametrize(
    ("names", "dtype", "expected"),
    [
        ("+ - * / add sub mul truediv subtract", "float32", ("flops", 1)),
        ("+ - * /", "float16", ("flops", 1)),
        ("fma fmaf fmaf_rn fma_rz", "float64", ("flops", 2)),
        ("fadd_rn dmul_ru fsub_rz ddiv_rd frcp_rn fast_fdividef", "float32", ("flops", 1)),
        ("exp sqrt fsqrt_rn frsqrt_rn rsqrtf sinf fast_expf tanh pow ** % // fmod erf", "float32", ("special", 1)),
        ("sincosf", "tuple", ("special", 1)),
        ("+ - * // % << >> & | ^ ~ ** popc clz mulhi", "int64", ("integer", 1)),
        ("+ *", "uint8", ("integer", 1)),
        ("< <= > >= == != not", "float32", ("none", 0)),
        ("< ==", "int64", ("none", 0)),
        ("min max abs fabs fabsf fminf fmax maximum negate selp floor ceilf round rintf", "float32", ("none", 0)),
        ("float2int_rn double2float_rz int_as_float half2float copysignf", "float32", ("none", 0)),
        ("min max abs umin llmax", "int64", ("none", 0)),
        ("& | isnan", "bool", ("none", 0)),
        ("+ -", "complex64", ("flops", 2)),
        ("*", "complex128", ("flops", 6)),
        ("/", "complex64", ("flops", 11)),
    ],
)
def test_cost(names: str, dtype: str, expected: tuple[str, int]) -> None:
    for name in names.split():
        assert cost(name, dtype) == expected, name


def test_every_function_of_libdevice_costs_something_or_nothing() -> None:
    for full in libdevicefuncs.functions:
        kind, each = cost(full.removeprefix("__nv_"), "float32")
        assert (kind == "none") == (each == 0)


def test_precision() -> None:
    assert [precision(d) for d in ("complex64", "complex128", "float16")] == ["float32", "float64", "float16"]

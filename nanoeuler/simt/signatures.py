"""The types of ``math`` inside a kernel: a float32 gives a float32, also from ceil, floor and trunc.

CPU Numba makes integers of those three and lacks some others. The signatures are numba-cuda's (its cudamath.py);
tests/simt/test_typing_parity.py holds CPU Numba's differences from it against the installed ones.
"""

from numba import types
from numba.core.typing import Signature, signature

UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "degrees", "erf", "erfc", "expm1", "gamma"),
    *("lgamma", "log1p", "radians", "sinh", "tanh", "tan"),
)
UNARY_OF_HALF = ("sin", "cos", "ceil", "floor", "sqrt", "log", "log2", "log10", "exp", "fabs", "trunc", "exp2")
PREDICATES = ("isinf", "isnan", "isfinite")


def _signatures() -> dict[str, list[Signature]]:
    """Return what each function of ``math`` takes and gives."""
    i32, i64, u64 = types.int32, types.int64, types.uint64
    f16, f32, f64 = types.float16, types.float32, types.float64
    unary = [(f64, i64), (f64, u64), (f32, f32), (f64, f64)]
    pair = [(f64, i64, i64), (f64, u64, u64), (f32, f32, f32), (f64, f64, f64)]
    power = [(f32, f32, f32), (f64, f64, f64), (f32, f32, i32), (f64, f64, i32)]
    cases: dict[str, list[tuple]] = {
        **dict.fromkeys(UNARY, unary),
        **{name: [*unary, (f16, f16)] for name in UNARY_OF_HALF},
        **{name: [(types.boolean, kind) for kind in (i64, u64, f32, f64)] for name in PREDICATES},
        **dict.fromkeys(("atan2", "hypot"), pair),
        **dict.fromkeys(("copysign", "fmod", "nextafter", "remainder"), power[:2]),
        **{"pow": power, "ldexp": power[2:]},
        **{"frexp": [(types.Tuple((f, i32)), f) for f in (f32, f64)]},
        **{"modf": [(types.UniTuple(f, 2), f) for f in (f64, f32)]},
    }
    return {name: [signature(*case) for case in listed] for name, listed in cases.items()}


SIGNATURES = _signatures()

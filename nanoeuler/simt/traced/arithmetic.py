"""What an operation counts for: floating-point operations, calls of special functions, integer arithmetic.

As in the roofline model (Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures", 2009): an addition, subtraction, multiplication or division is one operation, a fused multiply-add two.
Of complex numbers an addition is 2, a multiplication 6, a division 11, written out in real numbers. Square roots,
exponentials and their like are counted apart, as special functions. Comparing, choosing, rounding and converting are
none. Counted is what the source says: the compiler may fuse, hoist or drop some.
"""

import re
from typing import Literal

Kind = Literal["flops", "special", "integer", "none"]

BASIC = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "add": "add", "sub": "subtract", "mul": "multiply"},
    **{"div": "divide", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "truediv": "divide"},
    **{"true_divide": "divide", "fast_fdividef": "divide", "rcp": "divide", "fma": "fma", "fmaf": "fma"},
    "sum": "add",  # of two; of more it is told once all the same,
}
FLOPS = {"add": 1, "subtract": 1, "multiply": 1, "divide": 1, "fma": 2}
COMPLEX_FLOPS = {"add": 2, "subtract": 2, "multiply": 6, "divide": 11}
ROUNDED = re.compile(r"[fd]?(add|sub|mul|div|rcp|fma)f?_r[nduz]")  # libdevice's basic operations: fadd_rn, fma_rz
FREE = re.compile(
    r"(f|u|ll|ull)?(min|max|abs)f?|minimum|maximum|absolute|negate|neg|negative|plus|pos|positive|selp|fdimf?"
    r"|(floor|ceil|trunc|rint|round|nearbyint|copysign|modf|frexp|ldexp|scalbn|nextafter|logb|ilogb|saturate)f?"
    r"|ll(rint|round)f?|.*2.*_r[nduz]|.*_as_.*|half2float|hiloint2double|float|int|complex|bool|real|imag|conj(ugate)?"
)
COMPARING = {"<", "<=", ">", ">=", "==", "!=", "not", "lt", "le", "gt", "ge", "eq", "ne"}


def cost(name: str, dtype: str) -> tuple[Kind, int]:
    """Return what one operation counts as, and how much; ``dtype`` is its result's, "tuple" where it has several.

    >>> cost("*", "float32"), cost("fma", "float64"), cost("exp", "float32"), cost("<<", "int64"), cost("<", "float32")
    (('flops', 1), ('flops', 2), ('special', 1), ('integer', 1), ('none', 0))
    """
    if name in COMPARING or FREE.fullmatch(name) or dtype == "bool":
        return "none", 0
    if dtype.startswith(("int", "uint")) or name == "divmod":
        return "integer", 1
    rounded = ROUNDED.fullmatch(name)
    basic = BASIC.get(rounded[1] if rounded else name)
    if basic is None:
        return "special", 1
    return "flops", (COMPLEX_FLOPS if dtype.startswith("complex") else FLOPS).get(basic, 1)


def precision(dtype: str) -> str:
    """Return the type of the floating-point units that compute with ``dtype``: a complex64 is made of float32."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)

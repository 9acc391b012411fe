"""Where numba-cuda's type rules differ from those of CPU Numba, so that a newer version of either cannot differ unseen.

The executors that run source take CPU Numba's rules and follow numba-cuda where the table says so. It counts, for each
function on numbers, the combinations of argument types on which the two give other results; "-" is no result.
"""

import itertools
import json
import math
import operator
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

SCALARS = ("boolean", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
REAL: tuple[str, ...] = ()
COMPLEX, HALF = ("complex64", "complex128"), ("float16",)

UNARY = [
    *(getattr(math, n) for n in dir(math) if callable(getattr(math, n)) and n[0] != "_"),
    abs,
    round,
    int,
    float,
    bool,
]
UNARY += [operator.neg, operator.pos, operator.invert, operator.not_]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
BINARY += [operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, *IN_PLACE, operator.ilshift]
BINARY += [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    divmod,
    min,
    max,
    round,
    complex,
]
BINARY += [getattr(math, n) for n in ("atan2", "copysign", "fmod", "gcd", "hypot", "ldexp", "pow") if hasattr(math, n)]
BINARY += [getattr(math, n) for n in ("remainder", "nextafter") if hasattr(math, n)]


def result_types() -> Callable[[Any, tuple[str, ...]], tuple[str, str]]:
    """Return what gives the result types of a function by CPU Numba and by numba-cuda."""
    from numba import cuda, types  # noqa: F401
    from numba.core.registry import cpu_target
    from numba.cuda.descriptor import cuda_target

    contexts = cpu_target.typing_context, cuda_target.typing_context
    for target in (cpu_target, cuda_target):
        target.typing_context.refresh()
        target.target_context.refresh()

    def resolve(context: Any, function: Any, kinds: tuple[str, ...]) -> str:
        try:
            known = context.resolve_function_type(function, tuple(getattr(types, k) for k in kinds), {})
        except Exception:  # whatever it is: the function does not take these
            return "-"
        return "-" if known is None else str(known.return_type)

    def both(function: Any, kinds: tuple[str, ...]) -> tuple[str, str]:
        cpu, gpu = (resolve(context, function, kinds) for context in contexts)
        return cpu, gpu

    return both


def differences(both: Any, functions: list[Any], count: int, extra: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Return, per function of ``count`` arguments, how often each "CPU > GPU" was found.

    The arguments are of all scalar types or, where ``extra`` names some more, all rows with one of those.
    """
    found = {}
    for function in functions:
        counts: Counter[str] = Counter()
        for row in itertools.product(SCALARS + extra, repeat=count):
            if not extra or set(row) & set(extra):
                cpu, gpu = both(function, row)
                counts[f"{cpu} > {gpu}"] += cpu != gpu
        if +counts:
            found[function.__name__] = dict(+counts)
    return found


@cache
def measured(count: int) -> Any:
    """Return what ``main`` prints, of a process of its own: the executors teach Numba more, in the one they run in."""
    pytest.importorskip("numba_cuda", reason="needs numba-cuda: python -m pip install numba-cuda")
    command = [sys.executable, "-W", "ignore", __file__, str(count)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main(count: int) -> None:
    """Print the differences of the functions of ``count`` arguments, and the rules that both should have."""
    both = result_types()
    functions = UNARY if count == 1 else BINARY
    found = [differences(both, functions, count, extra) for extra in (REAL, COMPLEX, HALF)]
    print(json.dumps([found, [both(function, kinds) for function, kinds, _ in COMMON]]))


WHOLE = {"int64 > float32": 1, "int64 > float64": 6, "uint64 > float64": 4}  # a float stays what it is, others: float64
NEW = {"- > float32": 25, "- > float64": 96}  # not in CPU Numba
NARROW = {"float32 > float16": 1}
NARROW_PAIR = {"float32 > float16": 5}  # with float16, int8, uint8 and bool
KNOWN: dict[tuple[int, tuple[str, ...]], dict[str, dict[str, int]]] = {
    (1, REAL): {
        "ceil": WHOLE,
        "floor": WHOLE,
        "trunc": WHOLE,
        "frexp": {"Tuple(float64, int32) > Tuple(float32, int32)": 4},  # of bool, int8, uint8, int16
        "modf": {"- > UniTuple(float32 x 2)": 1, "- > UniTuple(float64 x 2)": 10},
    },
    (1, COMPLEX): {},
    (1, HALF): {
        **dict.fromkeys(("cos", "exp", "exp2", "fabs", "log", "log10", "log2", "sin", "sqrt"), NARROW),
        **dict.fromkeys(("abs", "neg", "pos"), NARROW),
        **{n: {"int64 > float16": 1} for n in ("ceil", "floor", "trunc")},
        "frexp": {"Tuple(float64, int32) > Tuple(float32, int32)": 1},
        "modf": {"- > UniTuple(float64 x 2)": 1},
        "int": {"- > int64": 1},
        "float": {"- > float16": 1},
    },
    (2, REAL): {
        "itruediv": {"float64 > int64": 65, "float64 > uint64": 16},  # of two integers: and then it does not compile
        "fmod": NEW,
        "remainder": NEW,
        "gcd": {
            **{"int8 > -": 9, "int16 > -": 13, "int32 > -": 17, "int64 > -": 42},
            **{"uint8 > -": 7, "uint16 > -": 9, "uint32 > -": 11, "uint64 > -": 13},
        },
        "ldexp": {"float64 > float32": 44},  # the first is a small integer: bool, int8, uint8, int16
        "pow": {"float64 > float32": 25},  # math.pow, of small integers, or of one to the power of an int32
        "nextafter": {"float64 > float32": 16},  # of two small integers
    },
    (2, COMPLEX): {n: {"- > complex64": 11, "- > complex128": 33} for n in ("min", "max")},
    (2, HALF): {
        **dict.fromkeys(("add", "sub", "mul", "truediv", "iadd", "isub", "imul", "itruediv"), NARROW_PAIR),
        **{n: {"- > float16": 5, "- > float32": 6, "- > float64": 10} for n in ("min", "max")},
        **{n: {"- > float32": 11, "- > float64": 12} for n in ("fmod", "remainder")},
        "gcd": {
            **{"int8 > -": 2, "int16 > -": 2, "int32 > -": 2, "int64 > -": 9},
            **{"uint8 > -": 2, "uint16 > -": 2, "uint32 > -": 2, "uint64 > -": 2},
        },
        "ldexp": {"float64 > float32": 16},
        "pow": {"float64 > float32": 5},
        "nextafter": {"float64 > float32": 9},
    },
}


# Rules that surprise and hold for both: an executor may rely on them.
COMMON: list[tuple[Any, tuple[str, ...], str]] = [
    *((operator.add, ("int32", "int32"), "int64"), (operator.add, ("uint32", "int32"), "int64")),
    *((operator.add, ("float32", "int32"), "float64"), (operator.add, ("int64", "uint64"), "int64")),
    *((operator.pow, ("float32", "int64"), "float32"), (operator.pow, ("int32", "float32"), "float64")),
    *((operator.truediv, ("int32", "int32"), "float64"), (min, ("int64", "uint64"), "float64")),
    *((max, ("float32", "int32"), "float64"), (min, ("int32", "uint32"), "int64"), (abs, ("uint32",), "uint32")),
    *((round, ("float32",), "int64"), (round, ("float32", "int64"), "float32"), (int, ("float32",), "int64")),
    *((int, ("int32",), "int32"), (float, ("float32",), "float32"), (float, ("int32",), "float64")),
    *((operator.neg, ("int8",), "int64"), (math.sqrt, ("float32",), "float32"), (math.sqrt, ("int32",), "float64")),
]


@pytest.mark.parametrize(
    ("count", "extra"), [pytest.param(*key, marks=[pytest.mark.slow] if key[0] == 2 else []) for key in KNOWN]
)
def test_differences_are_the_known_ones(count: int, extra: tuple[str, ...]) -> None:
    """No function differs otherwise than the table says; one that this Python lacks is left out."""
    names = {f.__name__ for f in (UNARY if count == 1 else BINARY)}
    known = {name: counts for name, counts in KNOWN[count, extra].items() if name in names}
    assert measured(count)[0][(REAL, COMPLEX, HALF).index(extra)] == known


def test_what_both_have_in_common() -> None:
    """Each rule holds for CPU Numba and for numba-cuda."""
    for (function, kinds, wanted), got in zip(COMMON, measured(1)[1], strict=True):
        assert got == [wanted, wanted], (function.__name__, kinds)


if __name__ == "__main__":
    main(int(sys.argv[1]))

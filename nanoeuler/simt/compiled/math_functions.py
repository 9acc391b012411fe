"""``math`` inside a compiled kernel, with the types of numba.cuda: CPU Numba's own functions, and what it lacks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.extending import overload, register_jitable

from nanoeuler.simt.signatures import SIGNATURES


@register_jitable
def _remainder(x: Any, y: Any) -> Any:
    """x minus the nearest multiple of y (IEEE 754, remainder)."""
    if x != x or y != y or y == 0 or abs(x) == math.inf:
        return x * 0 / (y * 0)
    if abs(y) == math.inf:
        return x
    size, step = abs(x), abs(y)
    rest = np.fmod(size, step)
    quotient_is_odd = np.fmod(size, 2 * step) >= step if 2 * step != math.inf else False
    other = step - rest
    if rest > other or (rest == other and quotient_is_odd):
        rest = -other
    return math.copysign(1.0, x) * rest


@register_jitable
def _modf(x: Any) -> Any:
    """The fraction of x and its whole part, both with its sign."""
    whole = np.trunc(x)
    return (math.copysign(0.0, x) if abs(x) == math.inf else math.copysign(x - whole, x)), whole


# Where CPU Numba's own is another or none; the rest of the names are its own functions.
OTHERS: dict[str, Callable] = {
    **{name: getattr(np, name) for name in ("ceil", "floor", "trunc", "fmod", "nextafter", "exp2")},
    **{"remainder": _remainder, "modf": _modf},
}


def _typed(name: str) -> Callable:
    """Return ``math.name`` with its CUDA types."""
    run = OTHERS.get(name) or getattr(math, name)
    cases = SIGNATURES[name]

    def function(*values: Any) -> Any:
        """Stands for the function in Python."""

    @overload(function, strict=False)
    def _pick(*values: Any) -> Any:
        given = tuple(types.unliteral(v) for v in values)
        known = cpu_target.typing_context.resolve_overload(f"math.{name}", cases, given, {})
        if known is None:
            raise TypingError(f"math.{name} does not take ({', '.join(map(str, given))})")
        computed = [types.float32 if kind == types.float16 else kind for kind in known.args]
        result = known.return_type
        first = computed[0]
        if isinstance(result, types.BaseTuple):
            one, two = result.types

            def both(*values: Any) -> Any:
                pair = run(first(values[0]))
                return one(pair[0]), two(pair[1])

            return both
        if len(given) == 1:
            return lambda *values: result(run(first(values[0])))
        second = computed[1]
        return lambda *values: result(run(first(values[0]), second(values[1])))

    return function


FUNCTIONS = {name: _typed(name) for name in SIGNATURES if name in OTHERS or hasattr(math, name)}

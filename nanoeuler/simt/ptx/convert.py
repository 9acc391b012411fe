"""``cvt``: between integers and floats of all widths, with every rounding and saturation (PTX ISA section 9.7.9.21)."""

from collections.abc import Callable

import numpy as np

from nanoeuler.simt.ptx import rounding
from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.floating import flush, rectified, saturate
from nanoeuler.simt.ptx.kinds import DTYPES, FLOATS, UNSIGNED, Array, Fetch, Step
from nanoeuler.simt.ptx.program import Instruction

Change = Callable[[Array], Array]
_TO_INTEGER: dict[str, Change] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_KNOWN = (*_TO_INTEGER, *rounding.MODES, "rna", "ftz", "sat", "relu", "satfinite")
_UNKNOWN_FOR = {
    "bf16": {"pack", "sat", "satfinite", "rm", "rp"},
    "bf16x2": {"pack", "sat", "satfinite", "rm", "rp"},
    "tf32": {"pack", "sat", "satfinite", "relu"},
}


@opcode("cvt")
def cvt(decoder: Decoder, instruction: Instruction) -> Step:
    """``cvt.dtype.atype d, a``, and ``cvt.f16x2.f32 d, a, b``, which packs a above b."""
    modifiers = decoder.modifiers(instruction, *_KNOWN, "pack")
    result, kind = decoder.kind(instruction, 0), decoder.kind(instruction, 1)
    if modifiers & _UNKNOWN_FOR.get(result, {"pack"}):
        decoder.refuse(instruction)
    if result in ("f16x2", "bf16x2"):
        return pack(decoder, instruction, result, kind, modifiers)
    target, a = decoder.operands(instruction, 2)
    if result == "tf32":
        return decoder.assign(instruction, target, "b32", to_tf32(decoder.source(instruction, a, kind), modifiers))
    fetch = decoder.source(instruction, a, kind)
    change = conversion(result, kind, modifiers)
    if change is None:
        decoder.refuse(instruction)
    return decoder.assign(instruction, target, result, lambda registers: change(fetch(registers)))


def conversion(result: str, kind: str, modifiers: frozenset[str]) -> Change | None:
    """Return the function from arrays of ``kind`` to ``result``; None for a pair of types that is not known."""
    if kind in FLOATS:
        load = (
            (lambda a: flush(_number(a, kind)))
            if "ftz" in modifiers and kind == "f32"
            else (lambda a: _number(a, kind))
        )
        if result in FLOATS:
            change = float_to_float(result, kind, modifiers)
        elif DTYPES[result].kind in "iu":
            change = float_to_integer(result, kind, modifiers)
        else:
            return None
        return lambda a: change(load(a))
    if DTYPES[kind].kind not in "iu":
        return None
    if result in FLOATS:
        return integer_to_float(result, modifiers)
    return integer_to_integer(result, kind, modifiers)


def _number(a: Array, kind: str) -> Array:
    """Return the float values of ``a``."""
    return rounding.from_bf16(a) if kind == "bf16" else a


def integer_to_integer(result: str, kind: str, modifiers: frozenset[str]) -> Change:
    """Return the extension, truncation or saturation from ``kind`` to ``result``."""
    dtype = DTYPES[result]
    if "sat" not in modifiers:
        return lambda a: a.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    mine_low, mine_high = np.iinfo(DTYPES[kind]).min, np.iinfo(DTYPES[kind]).max
    bounds = DTYPES[kind].type(max(low, mine_low)), DTYPES[kind].type(min(high, mine_high))
    return lambda a: np.clip(a, *bounds).astype(dtype)


def float_to_integer(result: str, kind: str, modifiers: frozenset[str]) -> Change:
    """Return the conversion that rounds, saturates, and gives NaN the value that the ISA names."""
    dtype = DTYPES[result]
    round_ = next((_TO_INTEGER[part] for part in modifiers if part in _TO_INTEGER), np.trunc)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = kind == "f64" or result in ("s64", "u64")
    nan = (-(1 << 8 * dtype.itemsize - 1) if dtype.kind == "i" else 1 << 8 * dtype.itemsize - 1) if wide else 0

    def change(a: Array) -> Array:
        value = round_(a.astype(np.float64))
        above, below = value >= float(high), value <= float(low)
        inside = np.where(above | below | np.isnan(value), 0.0, value)
        exact = np.where(above, dtype.type(high), np.where(below, dtype.type(low), inside.astype(dtype)))
        return np.where(np.isnan(value), dtype.type(nan), exact)

    return change


def integer_to_float(result: str, modifiers: frozenset[str]) -> Change:
    """Return the conversion of an integer to a float, rounded by the mode named."""
    mode = next((part for part in rounding.MODES if part in modifiers), "rn")

    def change(a: Array) -> Array:
        if result == "f32" and mode == "rn":
            value = a.astype(np.float32)
        elif a.dtype.itemsize < 8:
            value = _narrowed(a.astype(np.float64), result, mode)
        else:
            nearest = a.astype(np.float64)
            back = np.where(nearest >= 2.0 ** (63 if a.dtype.kind == "i" else 64), 0.0, nearest).astype(a.dtype)
            top = nearest >= 2.0 ** (63 if a.dtype.kind == "i" else 64)  # the nearest float64 is above every integer
            error = np.where(top, -1.0, np.where(a > back, 1.0, np.where(a < back, -1.0, 0.0)))
            if result == "f64":
                value = rounding.nudge(nearest, error, mode)
            else:
                value = _narrowed(rounding.round_to_odd(nearest, error), result, mode)
        return saturate(value) if "sat" in modifiers else value

    return change


def _narrowed(value: Array, result: str, mode: str) -> Array:
    """Return float64 ``value`` (exact, or rounded to odd) as a float of kind ``result``."""
    if result == "f64":
        return value
    if result == "bf16":
        return rounding.to_bf16(rounding.odd_float32(value), mode)
    return rounding.narrow(value, mode, DTYPES[result])


def float_to_float(result: str, kind: str, modifiers: frozenset[str]) -> Change:
    """Return the conversion of a float: to another width, or to an integral value of the same one."""
    mode = next((part for part in rounding.MODES if part in modifiers), "rn")
    integral = next((_TO_INTEGER[part] for part in modifiers if part in _TO_INTEGER), None)

    def change(a: Array) -> Array:
        if integral is not None:
            value = np.copysign(integral(a), a)  # -0.3 becomes -0
        elif result == "bf16":
            wide = rounding.odd_float32(a) if a.dtype == np.float64 else a.astype(np.float32)
            return rounding.to_bf16(rectified(wide) if "relu" in modifiers else wide, mode)
        elif DTYPES[result].itemsize < a.dtype.itemsize:
            value = rounding.narrow(a.astype(np.float64), mode, DTYPES[result])
        else:
            value = a.astype(DTYPES[result])
        if "ftz" in modifiers and result == "f32":
            value = flush(value)
        if "satfinite" in modifiers:
            largest = np.finfo(value.dtype).max
            value = np.where(np.isnan(value), value, np.clip(value, -largest, largest))
        if "relu" in modifiers:
            value = rectified(value)
        return saturate(value) if "sat" in modifiers else value

    return change


def pack(decoder: Decoder, instruction: Instruction, result: str, kind: str, modifiers: frozenset[str]) -> Step:
    """Return the step of ``cvt.f16x2.f32 d, a, b``: a in the upper half, b in the lower.

    Raises:
        UnsupportedError: it is not of float32, or rounds or saturates in another way.
    """
    if kind != "f32" or modifiers & {"sat", "rna", "rm", "rp"}:
        decoder.refuse(instruction)
    target, a, b = decoder.operands(instruction, 3)
    high, low = decoder.source(instruction, a, kind), decoder.source(instruction, b, kind)
    change = float_to_float(result[:-2], kind, modifiers)

    def compute(registers: list[Array]) -> Array:
        upper, lower = (change(fetch(registers)).view(np.uint16).astype(np.uint32) for fetch in (high, low))
        return lower | upper << np.uint32(16)

    return decoder.assign(instruction, target, "b32", compute)


def to_tf32(fetch: Fetch, modifiers: frozenset[str]) -> Fetch:
    """Return the fetch of float32 rounded to 10 bits of mantissa: ties away (``rna``), to even, or cut (``rz``)."""

    def compute(registers: list[Array]) -> Array:
        value = fetch(registers)
        bits = value.view(UNSIGNED[4])
        if "rna" in modifiers:
            rounded = bits + np.uint32(0x1000)
        elif "rz" in modifiers:
            rounded = bits
        else:
            rounded = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
        return np.where(np.isfinite(value), rounded & np.uint32(0xFFFFE000), bits)

    return compute

"""Integer instructions against Python's own unbounded integers, on awkward values."""

import itertools

import numpy as np
import pytest

from nanoeuler.simt.faults import UnsupportedError

WIDTHS = {"u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}


def wrap(value: int, kind: str) -> int:
    """Return ``value`` as it is in a register of ``kind``."""
    width = int(kind[1:])
    value %= 1 << width
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


def awkward(kind: str) -> list[int]:
    """Return values at the edges of ``kind``."""
    width = int(kind[1:])
    edges = [
        0,
        1,
        2,
        3,
        7,
        255,
        (1 << width - 1) - 1,
        1 << width - 1,
        (1 << width) - 1,
        (1 << width) - 2,
        0x1234567 * 89,
    ]
    return [wrap(value, kind) for value in edges]


def pairs(kind: str, count: int = 2) -> list[list[int]]:
    """Return columns of all combinations of awkward values."""
    return [list(column) for column in zip(*itertools.product(awkward(kind), repeat=count), strict=True)]


def truncated(a: int, b: int) -> int:
    """Return a / b toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul.lo": lambda a, b, w: a * b,
    "mul.hi": lambda a, b, w: a * b >> w,
    "min": lambda a, b, w: min(a, b),
    "max": lambda a, b, w: max(a, b),
    "div": lambda a, b, w: truncated(a, b) if b else -1,
    "rem": lambda a, b, w: a - b * truncated(a, b) if b else a,
}


@pytest.mark.parametrize("kind", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
def test_binary_arithmetic(evaluate, name, kind):
    a, b = pairs(kind)
    (d,) = evaluate(f"{name}.{kind} %d0, %a, %b", f"{kind} {kind}", kind, a, b)
    assert d.tolist() == [wrap(BINARY[name](x, y, WIDTHS[kind]), kind) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(("kind", "wide"), [("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")])
def test_wide_products(evaluate, kind, wide):
    a, b = pairs(kind)
    (d,) = evaluate(f"mul.wide.{kind} %d0, %a, %b", f"{kind} {kind}", wide, a, b)
    assert d.tolist() == [x * y for x, y in zip(a, b, strict=True)]
    c = [wrap(3**40 + i, wide) for i in range(len(a))]
    (d,) = evaluate(f"mad.wide.{kind} %d0, %a, %b, %c", f"{kind} {kind} {wide}", wide, a, b, c)
    assert d.tolist() == [wrap(x * y + z, wide) for x, y, z in zip(a, b, c, strict=True)]


@pytest.mark.parametrize("kind", WIDTHS)
def test_mad(evaluate, kind):
    a, b, c = pairs(kind, 3)
    (low,) = evaluate(f"mad.lo.{kind} %d0, %a, %b, %c", f"{kind} {kind} {kind}", kind, a, b, c)
    (high,) = evaluate(f"mad.hi.{kind} %d0, %a, %b, %c", f"{kind} {kind} {kind}", kind, a, b, c)
    assert low.tolist() == [wrap(x * y + z, kind) for x, y, z in zip(a, b, c, strict=True)]
    assert high.tolist() == [wrap((x * y >> WIDTHS[kind]) + z, kind) for x, y, z in zip(a, b, c, strict=True)]


def test_saturated_add_and_sub(evaluate):
    a, b = pairs("s32")
    for name, sign in (("add", 1), ("sub", -1)):
        (d,) = evaluate(f"{name}.sat.s32 %d0, %a, %b", "s32 s32", "s32", a, b)
        assert d.tolist() == [max(-(2**31), min(2**31 - 1, x + sign * y)) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("part", ["lo", "hi"])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(evaluate, part, kind):
    a, b = pairs(kind)
    low = [
        [wrap(v % (1 << 24) << 8, "s32") >> 8 if kind == "s32" else v % (1 << 24) for v in values] for values in (a, b)
    ]
    products = [x * y >> (16 if part == "hi" else 0) for x, y in zip(*low, strict=True)]
    (d,) = evaluate(f"mul24.{part}.{kind} %d0, %a, %b", f"{kind} {kind}", kind, a, b)
    assert d.tolist() == [wrap(p, kind) for p in products]
    (d,) = evaluate(f"mad24.{part}.{kind} %d0, %a, %b, 5", f"{kind} {kind}", kind, a, b)
    assert d.tolist() == [wrap(p + 5, kind) for p in products]


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_carry_chains(evaluate, kind):
    width = WIDTHS[kind]
    a, b, c = pairs(kind, 3)
    text = f"add.cc.{kind} %d0, %a, %b; addc.cc.{kind} %d1, %c, %b; addc.{kind} %d2, 0, 0"
    low, high, carry = evaluate(text, f"{kind} {kind} {kind}", f"{kind} {kind} {kind}", a, b, c)
    whole = [x + y + (z + y << width) for x, y, z in zip(a, b, c, strict=True)]
    found = [int(x) | int(y) << width | int(z) << 2 * width for x, y, z in zip(low, high, carry, strict=True)]
    assert found == whole
    text = f"sub.cc.{kind} %d0, %a, %b; subc.{kind} %d1, %c, %b"
    low, high = evaluate(text, f"{kind} {kind} {kind}", f"{kind} {kind}", a, b, c)
    whole = [(x - y + (z - y << width)) % (1 << 2 * width) for x, y, z in zip(a, b, c, strict=True)]
    assert [int(x) | int(y) << width for x, y in zip(low, high, strict=True)] == whole
    text = f"mad.lo.cc.{kind} %d0, %a, %b, %c; madc.hi.{kind} %d1, %a, %b, 0"
    low, high = evaluate(text, f"{kind} {kind} {kind}", f"{kind} {kind}", a, b, c)
    whole = [x * y + z for x, y, z in zip(a, b, c, strict=True)]
    assert [int(x) | int(y) << width for x, y in zip(low, high, strict=True)] == whole


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_and_neg(evaluate, kind):
    a = awkward(kind)
    (d,) = evaluate(f"abs.{kind} %d0, %a", kind, kind, a)
    assert d.tolist() == [wrap(abs(x), kind) for x in a]
    (d,) = evaluate(f"neg.{kind} %d0, %a", kind, kind, a)
    assert d.tolist() == [wrap(-x, kind) for x in a]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic(evaluate, width):
    kind = f"b{width}"
    a, b = pairs(f"u{width}")
    for name, function in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        (d,) = evaluate(f"{name}.{kind} %d0, %a, %b", f"{kind} {kind}", kind, a, b)
        assert d.tolist() == [function(x, y) for x, y in zip(a, b, strict=True)]
    (d,) = evaluate(f"not.{kind} %d0, %a", kind, kind, a)
    assert d.tolist() == [x ^ ((1 << width) - 1) for x in a]
    (d,) = evaluate(f"cnot.{kind} %d0, %a", kind, kind, a)
    assert d.tolist() == [int(x == 0) for x in a]


@pytest.mark.parametrize("kind", ["b16", "s16", "u16", "b32", "s32", "u32", "b64", "s64", "u64"])
def test_shifts_are_clamped(evaluate, kind):
    width = int(kind[1:])
    signed = kind if kind[0] == "s" else f"u{width}"
    values = awkward(signed)
    counts = [0, 1, width - 1, width, width + 1, 255, 2**32 - 1]
    a, b = (list(column) for column in zip(*itertools.product(values, counts), strict=True))
    if kind[0] == "b":
        (d,) = evaluate(f"shl.{kind} %d0, %a, %b", f"{kind} u32", kind, a, b)
        assert d.tolist() == [wrap(x << min(n, width), f"u{width}") for x, n in zip(a, b, strict=True)]
    (d,) = evaluate(f"shr.{kind} %d0, %a, %b", f"{kind} u32", kind, a, b)
    assert d.tolist() == [x >> min(n, width) for x, n in zip(a, b, strict=True)]
    (d,) = evaluate(f"shr.{kind} %d0, %a, 3", kind, kind, values)
    assert d.tolist() == [x >> 3 for x in values]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shift(evaluate, mode):
    a, b, c = (
        list(x)
        for x in zip(
            *itertools.product([0, 1, 0x80000001, 2**32 - 1], [0, 5, 2**32 - 2], [0, 1, 31, 32, 40]), strict=True
        )
    )
    (left,) = evaluate(f"shf.l.{mode}.b32 %d0, %a, %b, %c", "b32 b32 u32", "b32", a, b, c)
    (right,) = evaluate(f"shf.r.{mode}.b32 %d0, %a, %b, %c", "b32 b32 u32", "b32", a, b, c)
    count = [n % 32 if mode == "wrap" else min(n, 32) for n in c]
    both = [y << 32 | x for x, y in zip(a, b, strict=True)]
    assert left.tolist() == [(v << n >> 32) % 2**32 for v, n in zip(both, count, strict=True)]
    assert right.tolist() == [(v >> n) % 2**32 for v, n in zip(both, count, strict=True)]


def extracted(value: int, position: int, length: int, kind: str) -> int:
    """Return what bfe gives, as the ISA's own pseudocode says it."""
    width, word = int(kind[1:]), value % (1 << int(kind[1:]))
    top = width - 1
    sign = 0 if kind[0] == "u" or length == 0 else word >> min(position + length - 1, top) & 1
    bits = [sign] * width
    for i in range(min(length, width)):
        if position + i <= top:
            bits[i] = word >> position + i & 1
    return wrap(sum(bit << i for i, bit in enumerate(bits)), kind)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(evaluate, kind):
    width = int(kind[1:])
    grid = itertools.product(awkward(kind), [0, 1, 8, width - 1, width, 200], [0, 1, 7, width - 1, width, 255])
    a, b, c = (list(column) for column in zip(*grid, strict=True))
    (d,) = evaluate(f"bfe.{kind} %d0, %a, %b, %c", f"{kind} u32 u32", kind, a, b, c)
    assert d.tolist() == [extracted(x, y, z, kind) for x, y, z in zip(a, b, c, strict=True)]


@pytest.mark.parametrize("width", [32, 64])
def test_bit_field_insert(evaluate, width):
    kind = f"b{width}"
    grid = itertools.product(
        [0, 0xABCDEF, (1 << width) - 1], [0, (1 << width) - 1], [0, 3, width - 1, width, 99], [0, 1, 8, width, 255]
    )
    a, b, c, e = (list(column) for column in zip(*grid, strict=True))
    (d,) = evaluate(f"bfi.{kind} %d0, %a, %b, %c, %e", f"{kind} {kind} u32 u32", kind, a, b, c, e)
    expected = []
    for x, y, position, length in zip(a, b, c, e, strict=True):
        for i in range(length):
            if position + i < width:
                y = y & ~(1 << position + i) | (x >> i & 1) << position + i
        expected.append(y)
    assert d.tolist() == expected


@pytest.mark.parametrize("width", [32, 64])
def test_counting_and_reversing_bits(evaluate, width):
    kind, top = f"b{width}", (1 << width) - 1
    values = [*awkward(f"u{width}"), (1 << 48) - 1 & top, (1 << 54) - 1 & top]
    (count,) = evaluate(f"popc.{kind} %d0, %a", kind, "u32", values)
    (zeros,) = evaluate(f"clz.{kind} %d0, %a", kind, "u32", values)
    (turned,) = evaluate(f"brev.{kind} %d0, %a", kind, kind, values)
    assert count.tolist() == [x.bit_count() for x in values]
    assert zeros.tolist() == [width - x.bit_length() for x in values]
    assert turned.tolist() == [int(f"{x:0{width}b}"[::-1], 2) for x in values]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_find_highest_bit(evaluate, kind):
    values = awkward(kind)
    (place,) = evaluate(f"bfind.{kind} %d0, %a", kind, "u32", values)
    (shift,) = evaluate(f"bfind.shiftamt.{kind} %d0, %a", kind, "u32", values)
    places = [(x if x >= 0 else ~x).bit_length() - 1 for x in values]
    assert place.tolist() == [p % 2**32 for p in places]
    assert shift.tolist() == [int(kind[1:]) - 1 - p if p >= 0 else 2**32 - 1 for p in places]


def test_byte_permutation(evaluate):
    a, b = 0x83828180, 0x07060584
    whole = [v >> 8 * k & 255 for v in (a, b) for k in range(4)]
    choices = [0x3210, 0x7654, 0x0123, 0xFEDC, 0x8888, 0x5410]
    (d,) = evaluate("prmt.b32 %d0, %a, %b, %c", "b32 b32 b32", "b32", [a] * 6, [b] * 6, choices)
    expected = []
    for choice in choices:
        picked = [(whole[choice >> 4 * k & 7], choice >> 4 * k & 8) for k in range(4)]
        expected.append(sum((255 * (byte >> 7) if sign else byte) << 8 * k for k, (byte, sign) in enumerate(picked)))
    assert d.tolist() == expected
    (d,) = evaluate("prmt.b32.f4e %d0, %a, %b, %c", "b32 b32 b32", "b32", [a] * 4, [b] * 4, [0, 1, 2, 3])
    assert d.tolist() == [sum(whole[i + k] << 8 * k for k in range(4)) for i in range(4)]
    (d,) = evaluate("prmt.b32.rc16 %d0, %a, %b, %c", "b32 b32 b32", "b32", [a] * 2, [b] * 2, [0, 1])
    assert d.tolist() == [0x81808180, 0x83828382]


@pytest.mark.parametrize("table", [0x80, 0xFE, 0x96, 0xE8, 0x1B, 0x00, 0xFF])
def test_lop3(evaluate, table):
    a, b, c = 0xF0F0AA00, 0xCCCC1234, 0xAAAA9876
    (d,) = evaluate(f"lop3.b32 %d0, %a, %b, %c, {table:#x}", "b32 b32 b32", "b32", [a], [b], [c])
    expected = sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))
    assert d.tolist() == [expected]


def test_sad_and_dot_products(evaluate):
    a, b = pairs("s32")
    (d,) = evaluate("sad.s32 %d0, %a, %b, 7", "s32 s32", "s32", a, b)
    assert d.tolist() == [wrap(7 + abs(x - y), "s32") for x, y in zip(a, b, strict=True)]
    x, y = np.array([0x80FF7F01, 0x01020304], np.uint32), np.array([0x7F80FF02, 0xFFFFFFFF], np.uint32)
    signed = [v.view(np.int8).reshape(-1, 4).astype(int) for v in (x, y)]
    (d,) = evaluate("dp4a.s32.s32 %d0, %a, %b, -9", "b32 b32", "s32", x, y)
    assert d.tolist() == ((signed[0] * signed[1]).sum(axis=1) - 9).tolist()
    (d,) = evaluate("dp4a.u32.u32 %d0, %a, %b, 9", "b32 b32", "u32", x, y)
    assert d.tolist() == ((x.view(np.uint8).astype(int) * y.view(np.uint8)).reshape(-1, 4).sum(axis=1) + 9).tolist()
    (d,) = evaluate("dp2a.hi.s32.u32 %d0, %a, %b, 1", "b32 b32", "s32", x, y)
    halves, high = x.view(np.int16).reshape(-1, 2).astype(int), y.view(np.uint8).reshape(-1, 4)[:, 2:]
    assert d.tolist() == ((halves * high).sum(axis=1) + 1).tolist()


def test_bit_mask(evaluate):
    a, b = (list(x) for x in zip(*itertools.product([0, 3, 31, 32, 40], [0, 1, 8, 32, 50]), strict=True))
    (d,) = evaluate("bmsk.clamp.b32 %d0, %a, %b", "b32 b32", "b32", a, b)
    assert d.tolist() == [((1 << min(n, 32)) - 1 << min(p, 32)) % 2**32 for p, n in zip(a, b, strict=True)]


def test_an_unknown_modifier_is_refused(evaluate):
    with pytest.raises(UnsupportedError, match=r"add\.nonsense\.s32 .*'\.nonsense'"):
        evaluate("add.nonsense.s32 %d0, %a, %a", "s32", "s32", [1])


def test_an_unknown_instruction_is_refused(evaluate):
    with pytest.raises(UnsupportedError, match=r"wgmma\.fence"):
        evaluate("wgmma.fence.sync.aligned", "", "")

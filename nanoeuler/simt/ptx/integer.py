"""Integer and logic instructions (PTX ISA sections 9.7.1, 9.7.2 and 9.7.8). Widths wrap, as NumPy's do."""

from collections.abc import Callable

import numpy as np

from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.kinds import DTYPES, SIGNED, UNSIGNED, Array, Step, is_signed
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.program import Instruction

Binary = Callable[[Array, Array], Array]


def bits_of(kind: str) -> str:
    """Return the untyped kind of the same width: two's complement makes add, sub and mul.lo the same for both signs."""
    return f"b{8 * DTYPES[kind].itemsize}"


def wide_of(kind: str) -> str:
    """Return the integer kind of twice the width."""
    return f"{kind[0]}{16 * DTYPES[kind].itemsize}"


def add_or_sub(decoder: Decoder, instruction: Instruction) -> Step:
    """``add``, ``sub`` of integers, ``.sat`` and with carries."""
    modifiers = decoder.modifiers(instruction, "sat", "cc")
    kind = decoder.kind(instruction)
    subtract = instruction.parts[0] == "sub"
    if "cc" in modifiers:
        return with_carry(decoder, instruction, carry_in=False)
    if "sat" in modifiers:
        if kind != "s32":
            decoder.refuse(instruction)
        return decoder.binary(instruction, saturated(np.subtract if subtract else np.add), kind)
    return decoder.binary(instruction, np.subtract if subtract else np.add, bits_of(kind))


def saturated(operation: Binary) -> Binary:
    """Return ``operation`` on s32, held to the range of s32."""
    low, high = -(1 << 31), (1 << 31) - 1
    return lambda a, b: np.clip(operation(a.astype(np.int64), b.astype(np.int64)), low, high).astype(np.int32)


@opcode("addc", "subc", "madc")
def extended(decoder: Decoder, instruction: Instruction) -> Step:
    """``addc``, ``subc``, ``madc``: arithmetic that takes the carry of the instruction before."""
    decoder.modifiers(instruction, "cc", "lo", "hi")
    return with_carry(decoder, instruction, carry_in=True)


def with_carry(decoder: Decoder, instruction: Instruction, carry_in: bool) -> Step:
    """Return the step of an instruction of the carry chain: ``.cc`` writes the carry, a ``c`` at the end reads it.

    Raises:
        UnsupportedError: the integers have fewer than 32 bits.
    """
    kind = decoder.kind(instruction)
    name = instruction.parts[0]
    if DTYPES[kind].itemsize < 4:
        decoder.refuse(instruction)
    target, *sources = instruction.operands
    dtype = DTYPES[kind]
    bits = UNSIGNED[dtype.itemsize]
    fetches = [decoder.source(instruction, text, kind) for text in sources]
    carry = decoder.register(instruction, "%cc")
    register = decoder.register(instruction, target)
    part = multiply_high if "hi" in instruction.parts else np.multiply

    def step(machine: Machine, lanes: Lanes) -> None:
        a, b, *rest = (fetch(machine.registers) for fetch in fetches)
        if name.startswith("mad"):
            a, b = part(a, b), rest[0]
        a, b = a.view(bits), b.view(bits)
        c = machine.registers[carry.index].astype(bits) if carry_in else bits.type(0)
        if name.startswith("sub"):
            value = a - b - c
            out = (a < b) | ((a == b) & (c != 0))
        else:
            value = a + b + c
            out = (value < a) | ((c != 0) & (value == a))
        if "cc" in instruction.parts:
            machine.write(carry, out, lanes)
        machine.write(register, value.view(register.dtype), lanes)

    return step


def multiply(decoder: Decoder, instruction: Instruction) -> Step:
    """``mul.lo``, ``mul.hi``, ``mul.wide`` of integers."""
    modifiers = decoder.modifiers(instruction, "lo", "hi", "wide")
    kind = decoder.kind(instruction)
    if "wide" in modifiers:
        wide = DTYPES[wide_of(kind)]
        return decoder.binary(instruction, lambda a, b: a.astype(wide) * b.astype(wide), kind, wide_of(kind))
    if "hi" in modifiers:
        return decoder.binary(instruction, multiply_high, kind)
    return decoder.binary(instruction, np.multiply, bits_of(kind))


def multiply_high(a: Array, b: Array) -> Array:
    """Return the upper half of the exact products of integers.

    >>> multiply_high(np.array([-1], np.int32), np.array([1], np.int32))
    array([-1], dtype=int32)
    """
    dtype = a.dtype
    size = dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{dtype.kind}{2 * size}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(8 * size)).astype(dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    cross = x1 * y0 + (x0 * y0 >> half)
    middle = x0 * y1 + (cross & low)
    high = x1 * y1 + (cross >> half) + (middle >> half)
    if dtype.kind == "i":  # the unsigned product counts a negative factor as 2**64 too large
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(dtype)


def multiply_add(decoder: Decoder, instruction: Instruction) -> Step:
    """``mad`` of integers: a * b + c, of the lower, upper or whole product."""
    kind = decoder.kind(instruction)
    modifiers = decoder.modifiers(instruction, "lo", "hi", "wide", "cc", "sat")
    if "cc" in modifiers:
        return with_carry(decoder, instruction, carry_in=False)
    if "wide" in modifiers:
        wide = DTYPES[wide_of(kind)]
        kinds = (kind, kind, wide_of(kind))
        return decoder.ternary(instruction, lambda a, b, c: a.astype(wide) * b.astype(wide) + c, kinds)
    if "sat" in modifiers:
        if kind != "s32" or "hi" not in modifiers:
            decoder.refuse(instruction)
        add = saturated(np.add)
        return decoder.ternary(instruction, lambda a, b, c: add(multiply_high(a, b), c), (kind,) * 3)
    if "hi" in modifiers:
        return decoder.ternary(instruction, lambda a, b, c: multiply_high(a, b) + c, (kind,) * 3)
    return decoder.ternary(instruction, lambda a, b, c: a * b + c, (bits_of(kind),) * 3)


@opcode("mul24", "mad24")
def mul24(decoder: Decoder, instruction: Instruction) -> Step:
    """``mul24``, ``mad24``: the lower or upper 32 bits of the 48-bit product of the low 24 bits."""
    modifiers = decoder.modifiers(instruction, "lo", "hi")
    kind = decoder.kind(instruction)
    shift = 16 if "hi" in modifiers else 0

    def product(a: Array, b: Array) -> Array:
        x, y = ((v << v.dtype.type(8) >> v.dtype.type(8)).astype(np.int64) for v in (a, b))
        return (x * y >> shift).astype(np.uint32).view(a.dtype)

    if instruction.parts[0] == "mul24":
        return decoder.binary(instruction, product, kind)
    return decoder.ternary(instruction, lambda a, b, c: product(a, b) + c, (kind,) * 3)


def divide(decoder: Decoder, instruction: Instruction) -> Step:
    """``div``, ``rem`` of integers, rounded toward zero. By zero: all ones, and the dividend (as GPUs do)."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    return decoder.binary(instruction, quotient if instruction.parts[0] == "div" else remainder, kind)


def quotient(a: Array, b: Array) -> Array:
    """Return a / b rounded toward zero; all ones where b is 0."""
    bits = UNSIGNED[a.dtype.itemsize]
    x, y = (np.abs(v).view(bits) if v.dtype.kind == "i" else v for v in (a, b))
    whole = np.floor_divide(x, np.where(y == 0, bits.type(1), y))
    if a.dtype.kind == "i":
        whole = np.where((a < 0) != (b < 0), -whole, whole).astype(bits)
    return np.where(b == 0, bits.type(-1 % (1 << 8 * bits.itemsize)), whole).view(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """Return a - b * (a / b): it has the sign of a; a itself where b is 0."""
    return np.where(b == 0, a, a - b * quotient(a, b)).astype(a.dtype)


@opcode("rem")
def rem(decoder: Decoder, instruction: Instruction) -> Step:
    """``rem``: the remainder of a division of integers."""
    return divide(decoder, instruction)


@opcode("sad")
def sad(decoder: Decoder, instruction: Instruction) -> Step:
    """``sad``: c + |a - b|."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    bits = UNSIGNED[DTYPES[kind].itemsize]

    def compute(a: Array, b: Array, c: Array) -> Array:
        difference = np.where(a < b, b.view(bits) - a.view(bits), a.view(bits) - b.view(bits))
        return (c.view(bits) + difference).view(c.dtype)

    return decoder.ternary(instruction, compute, (kind,) * 3)


@opcode("dp4a", "dp2a")
def dot(decoder: Decoder, instruction: Instruction) -> Step:
    """``dp4a``, ``dp2a``: dot product of packed bytes (dp2a: of 16-bit values with two of the bytes), plus c."""
    modifiers = decoder.modifiers(instruction, "lo", "hi")
    left_kind, right_kind = decoder.kind(instruction, 0), decoder.kind(instruction, 1)
    result = "u32" if (left_kind, right_kind) == ("u32", "u32") else "s32"
    left_size = 1 if instruction.parts[0] == "dp4a" else 2
    left_dtype = (SIGNED if is_signed(left_kind) else UNSIGNED)[left_size]
    right_dtype = (SIGNED if is_signed(right_kind) else UNSIGNED)[1]

    def pieces(value: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(value).view(dtype).reshape(value.size, -1).astype(np.int64)

    def compute(a: Array, b: Array, c: Array) -> Array:
        x, y = pieces(a, left_dtype), pieces(b, right_dtype)
        if "hi" in modifiers:
            y = y[:, 2:]
        elif "lo" in modifiers:
            y = y[:, :2]
        return (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32).view(c.dtype)

    return decoder.ternary(instruction, compute, (left_kind, right_kind, result))


@opcode("and", "or", "xor")
def logic(decoder: Decoder, instruction: Instruction) -> Step:
    """``and``, ``or``, ``xor`` of bits or predicates."""
    decoder.modifiers(instruction)
    operation = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[instruction.parts[0]]
    kind = decoder.kind(instruction)
    if kind != "pred":
        return decoder.binary(instruction, operation, bits_of(kind))
    target, a, b = decoder.operands(instruction, 3)
    left, right = decoder.predicate(instruction, a), decoder.predicate(instruction, b)
    return decoder.assign(instruction, target, kind, lambda registers: operation(left(registers), right(registers)))


@opcode("not", "cnot")
def complement(decoder: Decoder, instruction: Instruction) -> Step:
    """``not``: every bit; ``cnot``: 1 where the value is 0, else 0."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    if instruction.parts[0] == "not":
        return decoder.unary(instruction, np.invert, kind)
    return decoder.unary(instruction, lambda a: (a == 0).astype(a.dtype), kind)


@opcode("shl", "shr")
def shift(decoder: Decoder, instruction: Instruction) -> Step:
    """``shl``, ``shr``: a count above the width counts as the width."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    width = 8 * DTYPES[kind].itemsize
    target, a, b = decoder.operands(instruction, 3)
    value, count = decoder.source(instruction, a, kind), decoder.source(instruction, b, "u32")
    operation: Binary = np.left_shift if instruction.parts[0] == "shl" else np.right_shift
    dtype = DTYPES[kind]
    signed = is_signed(kind) and instruction.parts[0] == "shr"

    def clamped(registers: list[Array]) -> Array:
        bits, by = value(registers), count(registers)
        result = operation(bits, np.minimum(by, np.uint32(width - 1)).astype(dtype))
        return result if signed else np.where(by >= width, dtype.type(0), result)

    def plain(registers: list[Array]) -> Array:
        return operation(value(registers), constant)

    if b.isdecimal() and int(b) < width:
        constant = dtype.type(int(b))
        return decoder.assign(instruction, target, kind, plain)
    return decoder.assign(instruction, target, kind, clamped)


@opcode("shf")
def funnel_shift(decoder: Decoder, instruction: Instruction) -> Step:
    """``shf``: 32 bits of the 64 bits b:a shifted; the count is clamped at 32 or taken modulo 32."""
    modifiers = decoder.modifiers(instruction, "l", "r", "clamp", "wrap")

    def compute(a: Array, b: Array, c: Array) -> Array:
        both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        count = (c & np.uint32(31) if "wrap" in modifiers else np.minimum(c, np.uint32(32))).astype(np.uint64)
        moved = both << count >> np.uint64(32) if "l" in modifiers else both >> count
        # the upper half of a left shift by 32 is a itself: its bits are then at 32 to 63
        return moved.astype(np.uint32)

    return decoder.ternary(instruction, compute, ("b32", "b32", "u32"))


@opcode("bfe")
def extract(decoder: Decoder, instruction: Instruction) -> Step:
    """``bfe``: the field of ``len`` bits at ``pos``, extended by zero or by its sign."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    dtype = DTYPES[kind]
    width = 8 * dtype.itemsize
    bits = UNSIGNED[dtype.itemsize]

    def compute(a: Array, b: Array, c: Array) -> Array:
        position = (b & np.uint32(0xFF)).astype(np.int64)
        length = (c & np.uint32(0xFF)).astype(np.int64)
        field = np.where(position < width, a.view(bits) >> np.minimum(position, width - 1).astype(bits), bits.type(0))
        kept = low_ones(np.minimum(length, width), bits)
        field = field & kept
        if is_signed(kind):
            at = np.minimum(position + length - 1, width - 1)
            sign = (a.view(bits) >> np.maximum(at, 0).astype(bits)) & bits.type(1) != 0
            field = np.where(sign & (length > 0), field | ~low_ones(np.clip(width - position, 0, length), bits), field)
        return field.view(dtype)

    target, a, b, c = decoder.operands(instruction, 4)
    value = decoder.source(instruction, a, kind)
    start, count = decoder.source(instruction, b, "u32"), decoder.source(instruction, c, "u32")
    return decoder.assign(
        instruction, target, kind, lambda registers: compute(value(registers), start(registers), count(registers))
    )


def low_ones(count: Array, bits: np.dtype[np.unsignedinteger]) -> Array:
    """Return words with the low ``count`` bits set, 0 to the width."""
    width = 8 * bits.itemsize
    ones = bits.type((1 << width) - 1)
    return np.where(count > 0, ones >> np.clip(width - count, 0, width - 1).astype(bits), bits.type(0)).astype(bits)


@opcode("bfi")
def insert(decoder: Decoder, instruction: Instruction) -> Step:
    """``bfi f, a, b, pos, len``: b with the low ``len`` bits of a put at ``pos``."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    bits = UNSIGNED[DTYPES[kind].itemsize]
    width = 8 * bits.itemsize
    target, *sources = decoder.operands(instruction, 5)
    a, b = (decoder.source(instruction, text, kind) for text in sources[:2])
    c, d = (decoder.source(instruction, text, "u32") for text in sources[2:])

    def compute(registers: list[Array]) -> Array:
        position = (c(registers) & np.uint32(0xFF)).astype(np.int64)
        length = np.minimum((d(registers) & np.uint32(0xFF)).astype(np.int64), width)
        by = np.minimum(position, width - 1).astype(bits)
        mask = np.where(position < width, low_ones(length, bits) << by, bits.type(0))
        return (b(registers) & ~mask) | (a(registers) << by & mask)

    return decoder.assign(instruction, target, kind, compute)


@opcode("bmsk")
def bit_mask(decoder: Decoder, instruction: Instruction) -> Step:
    """``bmsk d, a, b``: b ones from bit a on; positions above 32 are clamped or wrapped."""
    modifiers = decoder.modifiers(instruction, "clamp", "wrap")

    def compute(a: Array, b: Array) -> Array:
        limit = np.uint32(31)
        position = a & limit if "wrap" in modifiers else np.minimum(a, np.uint32(32))
        length = b & limit if "wrap" in modifiers else np.minimum(b, np.uint32(32))
        word = low_ones(length.astype(np.int64), np.dtype(np.uint32)).astype(np.uint64) << position.astype(np.uint64)
        return word.astype(np.uint32)

    return decoder.binary(instruction, compute, "b32")


@opcode("popc", "clz", "brev", "bfind")
def scan(decoder: Decoder, instruction: Instruction) -> Step:
    """``popc``, ``clz``, ``brev``, ``bfind``: ones, leading zeros, the bits reversed, the place of the highest."""
    modifiers = decoder.modifiers(instruction, "shiftamt")
    kind = decoder.kind(instruction)
    width = np.uint32(8 * DTYPES[kind].itemsize)
    name = instruction.parts[0]
    if name == "popc":
        return decoder.unary(instruction, lambda a: np.bitwise_count(a).astype(np.uint32), kind, "u32")
    if name == "clz":
        return decoder.unary(instruction, lambda a: width - bit_length(a), kind, "u32")
    if name == "brev":
        return decoder.unary(instruction, reverse_bits, kind)

    def find(a: Array) -> Array:
        magnitude = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
        place = bit_length(magnitude.view(UNSIGNED[a.dtype.itemsize])) - np.uint32(1)  # all ones where there is none
        return np.where(place == np.uint32(0xFFFFFFFF), place, width - 1 - place) if "shiftamt" in modifiers else place

    return decoder.unary(instruction, find, kind, "u32")


def bit_length(a: Array) -> Array:
    """Return the number of bits up to the highest one, 0 for 0."""
    high, low = (np.frexp(part.astype(np.float64))[1] for part in (a >> a.dtype.type(16), a & a.dtype.type(0xFFFF)))
    if a.dtype.itemsize == 8:  # float64 cannot tell 2**48 - 1 from 2**48 once it holds more than 53 bits
        upper = np.frexp((a >> np.uint64(32)).astype(np.float64))[1]
        middle = np.frexp((a >> np.uint64(16) & np.uint64(0xFFFF)).astype(np.float64))[1]
        return np.where(upper > 0, upper + 32, np.where(middle > 0, middle + 16, low)).astype(np.uint32)
    return np.where(high > 0, high + 16, low).astype(np.uint32)


def reverse_bits(a: Array) -> Array:
    """Return each word with its bits in the opposite order."""
    size = a.dtype.itemsize
    flags = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(a.size, size), axis=1, bitorder="little")
    return np.packbits(flags[:, ::-1], axis=1, bitorder="little").view(a.dtype).reshape(a.size)


@opcode("lop3")
def lop3(decoder: Decoder, instruction: Instruction) -> Step:
    """``lop3.b32 d, a, b, c, table``: any function of three bits; bit ``4a + 2b + c`` of the table is its value."""
    decoder.modifiers(instruction)
    target, *sources, table = decoder.operands(instruction, 5)
    a, b, c = (decoder.source(instruction, text, "b32") for text in sources)
    truth = int(decoder.source(instruction, table, "u32")([])[0])

    def compute(registers: list[Array]) -> Array:
        x, y, z = a(registers), b(registers), c(registers)
        value: Array = np.zeros(1, np.uint32)
        for entry in range(8):
            if truth >> entry & 1:
                value = value | (x if entry & 4 else ~x) & (y if entry & 2 else ~y) & (z if entry & 1 else ~z)
        return value

    return decoder.assign(instruction, target, "b32", compute)


@opcode("prmt")
def permute(decoder: Decoder, instruction: Instruction) -> Step:
    """``prmt``: four bytes picked from the eight of b:a, perhaps replaced by their sign."""
    modifiers = decoder.modifiers(instruction, "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    mode = next((part for part in modifiers if part in _PERMUTATIONS), None)

    def compute(a: Array, b: Array, c: Array) -> Array:
        bytes_ = np.stack(
            [(v >> np.uint32(8 * k)) & np.uint32(0xFF) for v in np.broadcast_arrays(a, b) for k in range(4)]
        )
        value: Array = np.zeros(1, np.uint32)
        for place in range(4):
            if mode is None:
                choice = np.broadcast_to(c >> np.uint32(4 * place) & np.uint32(0xF), bytes_.shape[1:])
                index, sign = choice & np.uint32(7), choice & np.uint32(8) != 0
            else:
                index = np.broadcast_to(
                    np.array(_PERMUTATIONS[mode])[(c & np.uint32(3)).astype(int), place], bytes_.shape[1:]
                )
                sign = np.zeros(index.shape, np.bool_)
            byte = np.take_along_axis(bytes_, index[None].astype(np.int64), axis=0)[0]
            byte = np.where(sign, (byte >> np.uint32(7)) * np.uint32(0xFF), byte)
            value = value | byte << np.uint32(8 * place)
        return value

    def broadcast(a: Array, b: Array, c: Array) -> Array:
        return compute(*np.broadcast_arrays(a, b, c))

    return decoder.ternary(instruction, broadcast, ("b32", "b32", "b32"))


# For each mode and each value of the low two bits of c: the byte that goes to each place, the lowest place first.
_PERMUTATIONS = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}

"""Tensor-core instructions: ``mma``, ``ldmatrix``, ``stmatrix``, ``movmatrix`` (PTX ISA section 9.7.14).

A matrix is spread over the registers of a warp: with g = lane // 4 and t = lane % 4 the layouts of all shapes
follow one pattern (see ``Fragments``). Products are summed in float64 and rounded once: a GPU rounds more often, in an
order that is not published, so its last bits differ.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.faults import MISSING_LANES
from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.ptx.access import check_written, locate, vector
from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.kinds import DTYPES, Array
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.parse import split_operands
from nanoeuler.simt.ptx.program import Instruction
from nanoeuler.simt.ptx.rounding import from_bf16
from nanoeuler.simt.ptx.schedule import Ending, Meeting

_G, _T = np.arange(WARP_SIZE) // 4, np.arange(WARP_SIZE) % 4
_SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "f16": ((16, 8, 16), (16, 8, 8)),
    "bf16": ((16, 8, 16), (16, 8, 8)),
    "tf32": ((16, 8, 8), (16, 8, 4)),
    "s8": ((16, 8, 32), (16, 8, 16)),
    "u8": ((16, 8, 32), (16, 8, 16)),
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)),
}
_PER_REGISTER = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4, "f64": 1, "f32": 1, "s32": 1}


@dataclass(frozen=True)
class Fragments:
    """Where the elements of a matrix are: ``row`` and ``column`` are (registers, 32 lanes, elements per register)."""

    row: Array
    column: Array


def operand_fragments(rows: int, depth: int, each: int) -> Fragments:
    """Return the layout of A, ``rows`` by ``depth``, with ``each`` elements in a register.

    Register r holds row g (+ 8 where r is odd, if there are 16 rows) and columns from t * each on, one block of
    4 * each columns after the other. B is laid out as the transpose of an A with 8 rows.
    """
    halves = rows // 8
    count = halves * depth // (4 * each)
    register = np.arange(count)[:, None, None]
    element = np.arange(each)[None, None, :]
    row = _G[None, :, None] + 8 * (register % halves) + 0 * element
    column = _T[None, :, None] * each + element + 4 * each * (register // halves)
    return Fragments(row, column)


def result_fragments(rows: int, each: int) -> Fragments:
    """Return the layout of C and D, ``rows`` by 8: pairs of columns from 2 t on, row g and then row g + 8."""
    count = rows // 8 * 2 // each
    register = np.arange(count)[:, None, None]
    element = np.arange(each)[None, None, :]
    linear = register * each + element
    row = _G[None, :, None] + 8 * (linear // 2)
    column = 2 * _T[None, :, None] + linear % 2
    return Fragments(row, column)


def numbers(words: Array, kind: str) -> Array:
    """Return register words of shape (...,) as the float64 or int64 elements in them, shape (..., elements)."""
    if kind == "f64":
        return words.view(np.float64)[..., None]
    if kind == "f32":
        return words.view(np.float32)[..., None].astype(np.float64)
    if kind == "tf32":  # the low 13 bits of the mantissa are not looked at
        return (words & np.uint32(0xFFFFE000)).view(np.float32)[..., None].astype(np.float64)
    if kind == "s32":
        return words.view(np.int32)[..., None].astype(np.int64)
    part = {"f16": np.uint16, "bf16": np.uint16, "s8": np.int8, "u8": np.uint8}[kind]
    pieces = np.ascontiguousarray(words)[..., None].view(part)
    if kind == "bf16":
        return from_bf16(pieces).astype(np.float64)
    if kind == "f16":
        return pieces.view(np.float16).astype(np.float64)
    return pieces.astype(np.int64)


@dataclass(frozen=True)
class MatrixProduct:
    """The kinds and shape of one ``mma``: D = A @ B + C."""

    rows: int
    depth: int
    a: str
    b: str
    c: str
    d: str

    def fragments(self) -> tuple[Fragments, Fragments, Fragments]:
        """Return the layouts of A, of B transposed, and of C and D."""
        each = _PER_REGISTER[self.a]
        return (
            operand_fragments(self.rows, self.depth, each),
            operand_fragments(8, self.depth, each),
            result_fragments(self.rows, _PER_REGISTER[self.c]),
        )


@opcode("mma")
def mma(decoder: Decoder, instruction: Instruction) -> Ending:
    """``mma.sync.aligned.shape.row.col.d.a.b.c {d}, {a}, {b}, {c}``."""
    product = product_of(decoder, instruction)
    texts = decoder.operands(instruction, 4)
    a_layout, b_layout, c_layout = product.fragments()
    targets = vector(decoder, instruction, texts[0], len(c_layout.row))
    fetches = []
    for text, layout, kind in zip(
        texts[1:], (a_layout, b_layout, c_layout), (product.a, product.b, product.c), strict=True
    ):
        names = split_operands(text.strip("{} "))
        if len(names) != len(layout.row):
            decoder.refuse(instruction, f"{len(names)} registers for {len(layout.row)}")
        width = "b64" if kind == "f64" else "b32"
        fetches.append([decoder.source(instruction, name, width) for name in names])
    result = results_as(product.d, "satfinite" in instruction.parts)

    def step(machine: Machine, lanes: Lanes) -> None:
        check_whole_warps(machine, lanes, instruction)
        a, b, c = (
            gathered(machine, [fetch(machine.registers) for fetch in group], layout, kind, shape)
            for group, layout, kind, shape in (
                (fetches[0], a_layout, product.a, (product.rows, product.depth)),
                (fetches[1], b_layout, product.b, (8, product.depth)),
                (fetches[2], c_layout, product.c, (product.rows, 8)),
            )
        )
        d = a @ b.transpose(0, 2, 1) + c
        words = result(d[:, c_layout.row, c_layout.column])  # (warps, registers, 32)
        for number, register in enumerate(targets):
            if register is not None:
                machine.write(register, machine.from_warps(words[:, number]).view(register.dtype), lanes)

    return Meeting(step, instruction, lambda registers: np.array([0xFFFFFFFF], np.uint32), decoder.guard(instruction))


def product_of(decoder: Decoder, instruction: Instruction) -> MatrixProduct:
    """Return the shape and kinds that the opcode names.

    Raises:
        UnsupportedError: there is no such shape, or not of these kinds.
    """
    modifiers = decoder.modifiers(
        instruction,
        "sync",
        "aligned",
        "row",
        "col",
        "satfinite",
        "m16n8k16",
        "m16n8k8",
        "m16n8k4",
        "m16n8k32",
        "m8n8k4",
    )
    shape = next((part for part in instruction.parts if part.startswith("m16n8k") or part == "m8n8k4"), "")
    d, a, b, c = (decoder.kind(instruction, number) for number in range(4))
    rows, depth = (8 if shape == "m8n8k4" else 16), int(shape.rpartition("k")[2] or 0)
    same = a == b or {a, b} == {"s8", "u8"}
    sums = {"f16": ("f16", "f32"), "f64": ("f64",), "s8": ("s32",), "u8": ("s32",)}.get(a, ("f32",))
    known = (rows, 8, depth) in _SHAPES.get(a, ()) and same and c == d and c in sums
    if not known or not {"sync", "aligned", "row", "col"} <= modifiers:
        decoder.refuse(instruction)
    return MatrixProduct(rows, depth, a, b, c, d)


def gathered(machine: Machine, words: list[Array], layout: Fragments, kind: str, shape: tuple[int, int]) -> Array:
    """Return the matrices of all warps, (warps, *shape), from the register words of their lanes."""
    matrix = np.zeros((machine.warps, *shape), np.int64 if kind in ("s8", "u8", "s32") else np.float64)
    for number, word in enumerate(words):
        elements = numbers(machine.to_warps(word), kind)
        matrix[:, layout.row[number], layout.column[number]] = elements
    return matrix


def results_as(kind: str, saturate: bool) -> Callable[[Array], Array]:
    """Return the function from results (warps, registers, 32, elements) to register words (warps, registers, 32)."""
    if kind == "s32":
        low, high = -(1 << 31), (1 << 31) - 1
        return lambda d: (np.clip(d, low, high) if saturate else d).astype(np.uint32)[..., 0]
    if kind == "f16":
        return lambda d: np.ascontiguousarray(d.astype(np.float16)).view(np.uint32)[..., 0]
    return lambda d: d.astype(DTYPES[kind])[..., 0]


def check_whole_warps(machine: Machine, lanes: Lanes, instruction: Instruction) -> None:
    """Raise a fault where a warp that runs this has fewer than 32 lanes.

    Raises:
        KernelFaults: there is such a warp.
    """
    if lanes.mask is None and machine.slot is None:
        return
    here = machine.to_warps(np.ones(machine.n, np.bool_) if lanes.mask is None else lanes.mask, False)
    partial = here.any(axis=1) & ~here.all(axis=1)
    if partial.any():
        warp = int(np.flatnonzero(partial)[0])
        lane = int(np.flatnonzero((machine.warp == warp) & machine.from_warps(here))[0])
        message = f"{instruction.opcode} needs all 32 lanes of the warp, and {int(here[warp].sum())} are here"
        machine.fault(MISSING_LANES, message, instruction, lane, "calls")


@opcode("ldmatrix", "stmatrix")
def matrix_access(decoder: Decoder, instruction: Instruction) -> Ending:
    """``ldmatrix``, ``stmatrix``: 1, 2 or 4 matrices of 8 by 8 elements of 16 bits; lane 8 m + i addresses row i of m.

    A lane gets elements 2 t and 2 t + 1 of row g of each; ``.trans``: of column g.
    """
    modifiers = decoder.modifiers(
        instruction, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"
    )
    if not {"m8n8", "b16"} <= modifiers:
        decoder.refuse(instruction)
    count = next((number for number in (1, 2, 4) if f"x{number}" in modifiers), 1)
    loads = instruction.parts[0] == "ldmatrix"
    texts = decoder.operands(instruction, 2)
    values, place = texts if loads else texts[::-1]
    address, _ = decoder.address(instruction, place)
    move = (load_matrices if loads else store_matrices)(decoder, instruction, values, count, "trans" in modifiers)

    def step(machine: Machine, lanes: Lanes) -> None:
        check_whole_warps(machine, lanes, instruction)
        addressing = lanes.chosen(machine.lane < 8 * count)
        assert addressing is not None
        places = np.zeros(machine.n, np.int64)
        action = "reads" if loads else "writes"
        for memory, found, here in locate(
            machine, "shared", address(machine.registers), 16, addressing, instruction, action
        ):
            if loads:
                for part in range(0, 16, 4):
                    check_written(machine, memory, found + part, 4, here, instruction)
            places[here.numbers] = found
        rows = machine.to_warps(places)[:, : 8 * count].reshape(machine.warps, count, 8)
        move(machine, lanes, rows[..., None] // 2 + np.arange(8))

    return Meeting(step, instruction, lambda registers: np.array([0xFFFFFFFF], np.uint32), decoder.guard(instruction))


Move = Callable[[Machine, Lanes, Array], None]


def load_matrices(decoder: Decoder, instruction: Instruction, values: str, count: int, transposed: bool) -> Move:
    """Return what puts the elements at ``index``, (warps, matrices, 8, 8), into registers.

    Raises:
        UnsupportedError: their number is not ``count``.
    """
    registers = vector(decoder, instruction, values, count)

    def move(machine: Machine, lanes: Lanes, index: Array) -> None:
        elements = machine.spaces["shared"].view(np.dtype(np.uint16))[index]
        if transposed:
            elements = elements.transpose(0, 1, 3, 2)
        words = np.ascontiguousarray(elements).view(np.uint32).reshape(machine.warps, count, WARP_SIZE)
        for number, register in enumerate(registers):
            if register is not None:
                machine.write(register, machine.from_warps(words[:, number]).view(register.dtype), lanes)

    return move


def store_matrices(decoder: Decoder, instruction: Instruction, values: str, count: int, transposed: bool) -> Move:
    """Return what puts registers into the elements at ``index``, (warps, matrices, 8, 8).

    Raises:
        UnsupportedError: their number is not ``count``.
    """
    fetches = [decoder.source(instruction, name, "b32") for name in split_operands(values.strip("{} "))]
    if len(fetches) != count:
        decoder.refuse(instruction, f"{len(fetches)} registers for {count}")

    def move(machine: Machine, lanes: Lanes, index: Array) -> None:
        memory = machine.spaces["shared"]
        here = machine.to_warps(np.ones(machine.n, np.bool_) if lanes.mask is None else lanes.mask, False).any(axis=1)
        for number, fetch in enumerate(fetches):
            words = np.ascontiguousarray(machine.to_warps(fetch(machine.registers)))
            elements = words.view(np.uint16).reshape(machine.warps, 8, 8)
            if transposed:
                elements = elements.transpose(0, 2, 1)
            at = index[here, number]
            memory.view(np.dtype(np.uint16))[at] = elements[here]
            memory.mark(at * 2, 2)

    return move


@opcode("movmatrix")
def movmatrix(decoder: Decoder, instruction: Instruction) -> Ending:
    """``movmatrix.trans``: an 8 by 8 matrix of 16-bit elements, spread over the warp, transposed."""
    decoder.modifiers(instruction, "sync", "aligned", "m8n8", "trans")
    target, a = decoder.operands(instruction, 2)
    fetch, register = decoder.source(instruction, a, "b32"), decoder.register(instruction, target)

    def step(machine: Machine, lanes: Lanes) -> None:
        check_whole_warps(machine, lanes, instruction)
        words = np.ascontiguousarray(machine.to_warps(fetch(machine.registers)))
        elements = words.view(np.uint16).reshape(machine.warps, 8, 8).transpose(0, 2, 1)
        turned = np.ascontiguousarray(elements).view(np.uint32).reshape(machine.warps, WARP_SIZE)
        machine.write(register, machine.from_warps(turned).view(register.dtype), lanes)

    return Meeting(step, instruction, lambda registers: np.array([0xFFFFFFFF], np.uint32), decoder.guard(instruction))

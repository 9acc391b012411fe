"""Atomics of every operation and type, with lanes that meet at one address, against one thread after the other."""

import numpy as np
import pytest

from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import run_text

INTEGER = {
    "add": lambda old, x: old + x,
    "min": min,
    "max": max,
    "exch": lambda old, x: x,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "inc": lambda old, x: 0 if old >= x else old + 1,
    "dec": lambda old, x: x if old == 0 or old > x else old - 1,
}
CASES = [("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "s32"), ("min", "u64"), ("max", "s64")]
CASES += [
    ("exch", "b32"),
    ("exch", "b64"),
    ("and", "b32"),
    ("or", "b64"),
    ("xor", "b32"),
    ("inc", "u32"),
    ("dec", "u32"),
]
CASES += [("add", "f32"), ("add", "f64"), ("add", "f16")]
SUFFIX = {"f16": "noftz.f16"}


def dtype_of(kind: str) -> np.dtype:
    return np.dtype(f"{'u' if kind[0] == 'b' else {'s': 'i'}.get(kind[0], kind[0])}{int(kind[1:]) // 8}")


def program(operation: str, kind: str, space: str) -> str:
    """Return a kernel in which thread t applies ``operation`` with operand x[t] to cell t % 3."""
    register, size = kind.replace("f16", "b16"), int(kind[1:]) // 8
    stored = f"b{8 * size}"
    shared = space == "shared"
    return f""".version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 cells, .param .u64 x, .param .u64 old) {{
.shared .align 8 .b8 tile[{3 * size}];
.reg .u64 %c, %x, %o, %p, %q, %s; .reg .u32 %t, %m; .reg .{register} %v, %w; .reg .{stored} %z; .reg .pred %first;
ld.param.u64 %c, [cells]; ld.param.u64 %x, [x]; ld.param.u64 %o, [old];
mov.u32 %t, %tid.x; rem.u32 %m, %t, 3;
mul.wide.u32 %p, %t, {size}; mul.wide.u32 %q, %m, {size};
add.u64 %x, %x, %p; add.u64 %o, %o, %p; add.u64 %c, %c, %q;
ld.global.{stored} %v, [%x];
mov.u64 %s, tile; add.u64 %s, %s, %q; setp.lt.u32 %first, %t, 3;
@%first ld.global.{stored} %z, [%c];
@%first st.shared.{stored} [%s], %z;
bar.sync 0;
atom.{space}.{operation}.{SUFFIX.get(kind, kind)} %w, [{"%s" if shared else "%c"}], %v;
st.global.{stored} [%o], %w;
bar.sync 0;
{f"@%first ld.shared.{stored} %z, [%s]; @%first st.global.{stored} [%c], %z;" if shared else ""}
ret; }}"""


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("operation", "kind"), CASES)
def test_one_after_the_other(operation, kind, space):
    dtype = dtype_of(kind)
    generator = np.random.default_rng(4)
    low, high = (-50, 50) if kind[0] in "sf" else (0, 100)
    cells, x = generator.integers(low, high, 3).astype(dtype), generator.integers(low, high, 40).astype(dtype)
    if kind[0] == "f":
        x = x / dtype.type(8)
    expected_cells, expected_old = cells.copy(), np.zeros(40, dtype)
    for thread in range(40):
        cell = thread % 3
        old = expected_cells[cell]
        expected_old[thread] = old
        new = INTEGER[operation](old if kind[0] == "f" else int(old), x[thread] if kind[0] == "f" else int(x[thread]))
        expected_cells[cell] = (
            new if kind[0] == "f" else np.array(new % 2 ** (8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)
        )
    old = np.zeros(40, dtype)
    run_text(program(operation, kind, space), launch_shape(1, 40), (cells, x, old))
    np.testing.assert_array_equal(cells, expected_cells)
    np.testing.assert_array_equal(old, expected_old)


def test_the_order_of_turns_is_that_of_the_launch():
    for order, turns in (("forward", range(40)), ("reverse", range(39, -1, -1))):
        cells, x, old = np.zeros(3, np.uint32), np.arange(1, 41, dtype=np.uint32), np.zeros(40, np.uint32)
        run_text(program("exch", "b32", "global"), launch_shape(1, 40, order=order), (cells, x, old))
        last = [max(t for t in range(40) if t % 3 == c) if order == "forward" else c for c in range(3)]
        assert cells.tolist() == [t + 1 for t in last]
        first = [next(t for t in turns if t % 3 == c) for c in range(3)]
        assert [old[t] for t in first] == [0, 0, 0]


def test_compare_and_swap():
    text = program("exch", "b32", "global").replace(
        "atom.global.exch.b32 %w, [%c], %v;", "atom.global.cas.b32 %w, [%c], 0, %v;"
    )
    cells, x, old = np.array([0, 5, 0], np.uint32), np.arange(1, 41, dtype=np.uint32), np.zeros(40, np.uint32)
    run_text(text, launch_shape(1, 40), (cells, x, old))
    assert cells.tolist() == [1, 5, 3]
    assert old.tolist() == [0, 5, 0, *([1, 5, 3] * 13)[:37]]


def test_packed_pairs_and_bf16():
    def run(operation: str, cell: int, operand: int) -> int:
        text = program("add", "b32", "global").replace("atom.global.add.b32", f"atom.global.{operation}")
        cells, x, old = np.array([cell, 0, 0], np.uint32), np.full(40, operand, np.uint32), np.zeros(40, np.uint32)
        run_text(text, launch_shape(1, 1), (cells, x, old))
        return int(cells[0])

    one_and_two = int(np.array([1.0, 2.0], np.float16).view(np.uint32)[0])
    sums = np.array([run("add.noftz.f16x2", one_and_two, one_and_two)], np.uint32).view(np.float16)
    assert sums.tolist() == [2.0, 4.0]
    assert run("add.noftz.bf16x2", 0x3F804000, 0x3F804000) == 0x40004080


def test_reduction_without_a_result():
    text = program("add", "s32", "global").replace(
        "atom.global.add.s32 %w, [%c], %v;", "red.global.add.s32 [%c], %v; mov.u32 %w, 0;"
    )
    cells, x, old = np.zeros(3, np.int32), np.ones(40, np.int32), np.zeros(40, np.int32)
    run_text(text, launch_shape(1, 40), (cells, x, old))
    assert cells.tolist() == [14, 13, 13]


def test_float32_subnormals_are_flushed_in_global_memory_only():
    for space, expected in (("global", 0.0), ("shared", 2.0**-139)):
        cells, x, old = np.full(3, 2.0**-140, np.float32), np.full(40, 2.0**-140, np.float32), np.zeros(40, np.float32)
        run_text(program("add", "f32", space), launch_shape(1, 1), (cells, x, old))
        assert cells[0] == expected

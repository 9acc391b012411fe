"""Tensor-core instructions and asynchronous copies: each shape against NumPy, then a kernel through inline PTX."""

import numpy as np
import pytest

from nanoeuler.simt import faults
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import run_ptx, run_text

G, T = np.arange(32) // 4, np.arange(32) % 4


def bf16_bits(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16)


def words(matrix: np.ndarray, kind: str) -> np.ndarray:
    """Return elements along the last axis packed into 32-bit words (64-bit for f64)."""
    if kind == "f64":
        return matrix.astype(np.float64).view(np.uint64)
    if kind in ("tf32", "f32"):
        return matrix.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return np.ascontiguousarray(bf16_bits(matrix)).view(np.uint32)
    dtype = {"f16": np.float16, "s8": np.int8, "u8": np.uint8, "s32": np.int32}[kind]
    return np.ascontiguousarray(matrix.astype(dtype)).view(np.uint32)


# For each shape the tables of the PTX ISA (9.7.14.5), written out: (row, first column) of each register of A, and
# first row of each register of B. A register holds consecutive columns of A, consecutive rows of B.
A_PLACES = {
    ("16x16", 2): [(G, 2 * T), (G + 8, 2 * T), (G, 2 * T + 8), (G + 8, 2 * T + 8)],
    ("16x8", 2): [(G, 2 * T), (G + 8, 2 * T)],
    ("16x8", 1): [(G, T), (G + 8, T), (G, T + 4), (G + 8, T + 4)],
    ("16x4", 1): [(G, T), (G + 8, T)],
    ("16x32", 4): [(G, 4 * T), (G + 8, 4 * T), (G, 4 * T + 16), (G + 8, 4 * T + 16)],
    ("16x16", 4): [(G, 4 * T), (G + 8, 4 * T)],
    ("8x4", 1): [(G, T)],
}
B_PLACES = {
    (16, 2): [2 * T, 2 * T + 8],
    (8, 2): [2 * T],
    (8, 1): [T, T + 4],
    (4, 1): [T],
    (32, 4): [4 * T, 4 * T + 16],
    (16, 4): [4 * T],
}
CASES = [
    ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k16", "f32", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "f16", "f16"),
    ("m16n8k8", "f32", "tf32", "tf32"),
    ("m16n8k4", "f32", "tf32", "tf32"),
    ("m16n8k32", "s32", "s8", "s8"),
    ("m16n8k32", "s32", "u8", "s8"),
    ("m16n8k16", "s32", "s8", "u8"),
    ("m8n8k4", "f64", "f64", "f64"),
]


@pytest.mark.parametrize(("shape", "sums", "a_kind", "b_kind"), CASES)
def test_mma(shape, sums, a_kind, b_kind):
    rows, depth = (8 if shape == "m8n8k4" else 16), int(shape.rpartition("k")[2])
    each = {"bf16": 2, "f16": 2, "tf32": 1, "f64": 1, "s8": 4, "u8": 4}[a_kind]
    generator = np.random.default_rng(6)

    def random(kind: str, *extent: int) -> np.ndarray:
        return generator.integers(0 if kind == "u8" else -8, 9, extent).astype(np.float64)

    a, b, c = random(a_kind, rows, depth), random(b_kind, depth, 8), random(sums, rows, 8)
    a_words = [
        words(np.stack([a[r, k + e] for e in range(each)], 1), a_kind)[:, 0]
        for r, k in A_PLACES[f"{rows}x{depth}", each]
    ]
    b_words = [words(np.stack([b[k + e, G] for e in range(each)], 1), b_kind)[:, 0] for k in B_PLACES[depth, each]]
    pairs = [(G, 2 * T), (G + 8, 2 * T)][: rows // 8]
    if sums == "f16":
        c_words = [words(np.stack([c[r, k], c[r, k + 1]], 1), sums)[:, 0] for r, k in pairs]
    else:
        c_words = [words(c[r, k + e][:, None], sums)[:, 0] for r, k in pairs for e in (0, 1)]
    groups = [len(c_words), len(a_words), len(b_words), len(c_words)]
    width = 8 if sums == "f64" else 4
    inputs = np.stack([*a_words, *b_words, *c_words])
    out = np.zeros((len(c_words), 32), inputs.dtype)
    run_text(mma_program(shape, sums, a_kind, b_kind, groups, width), launch_shape(1, 32), (inputs, out))
    expected = a @ b + c
    if sums == "f16":
        found = out.view(np.float16).reshape(len(pairs), 32, 2)
        for number, (r, k) in enumerate(pairs):
            np.testing.assert_array_equal(found[number], np.stack([expected[r, k], expected[r, k + 1]], 1))
        return
    found = out.view({"f32": np.float32, "s32": np.int32, "f64": np.float64}[sums])
    for number, (r, k, e) in enumerate((r, k, e) for r, k in pairs for e in (0, 1)):
        np.testing.assert_array_equal(found[number], expected[r, k + e])


def mma_program(shape: str, sums: str, a_kind: str, b_kind: str, groups: list[int], width: int) -> str:
    """Return a kernel of one warp: register r of lane t comes from word 32 r + t."""
    kind = f"b{8 * width}"
    d, a, b, c = ([f"%{name}{i}" for i in range(count)] for name, count in zip("dabc", groups, strict=True))
    load = [f"ld.global.{kind} {name}, [%p+{32 * width * i}];" for i, name in enumerate([*a, *b, *c])]
    store = [f"st.global.{kind} [%q+{32 * width * i}], {name};" for i, name in enumerate(d)]
    vectors = ", ".join("{" + ", ".join(group) + "}" for group in (d, a, b, c))
    return "\n".join(
        [
            ".version 9.0",
            ".target sm_90",
            ".address_size 64",
            ".visible .entry k(.param .u64 in, .param .u64 out) {",
            f".reg .{kind} {', '.join([*d, *a, *b, *c])}; .reg .u64 %p, %q, %o; .reg .u32 %t;",
            f"mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, {width};",
            "ld.param.u64 %p, [in]; ld.param.u64 %q, [out]; add.u64 %p, %p, %o; add.u64 %q, %q, %o;",
            *load,
            f"mma.sync.aligned.{shape}.row.col.{sums}.{a_kind}.{b_kind}.{sums} {vectors};",
            *store,
            "ret; }",
        ]
    )


def test_tf32_operands_lose_their_low_bits():
    shape, groups = "m16n8k4", [4, 2, 1, 4]
    inputs = np.zeros((7, 32), np.uint32)
    inputs[:2] = np.float32(1 + 2.0**-11).view(np.uint32)
    inputs[2] = np.float32(1.0).view(np.uint32)
    out = np.zeros((4, 32), np.uint32)
    run_text(mma_program(shape, "f32", "tf32", "tf32", groups, 4), launch_shape(1, 32), (inputs, out))
    assert (out.view(np.float32) == 4.0).all()


def test_mma_needs_a_whole_warp():
    text = mma_program("m16n8k4", "f32", "tf32", "tf32", [4, 2, 1, 4], 4)
    with pytest.raises(faults.KernelFaults, match="needs all 32 lanes"):
        run_text(text, launch_shape(1, 16), (np.zeros((7, 32), np.uint32), np.zeros((4, 32), np.uint32)))


def matrix_program(body: str) -> str:
    """Return a kernel of one warp that copies 256 uint16 to shared memory, runs ``body``, and stores %r0 to %r3."""
    return f""".version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 skew) {{
.shared .align 16 .b8 tile[512];
.reg .b32 %r<4>; .reg .u64 %p, %q, %o; .reg .u32 %t, %s, %a, %k; .reg .b32 %v<4>;
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16; ld.param.u64 %p, [in]; ld.param.u64 %q, [out]; ld.param.u32 %k, [skew];
add.u64 %p, %p, %o; add.u64 %q, %q, %o;
mov.u32 %s, tile; shl.b32 %a, %t, 4; add.u32 %a, %s, %a; add.u32 %a, %a, %k;
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
{body}
st.global.v4.b32 [%q], {{%r0, %r1, %r2, %r3}};
ret; }}"""


COPY = "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%p]; st.shared.v4.b32 [%a], {%v0, %v1, %v2, %v3}; bar.warp.sync -1;"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, transposed):
    targets = "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"
    trans = ".trans" if transposed else ""
    text = matrix_program(f"{COPY} ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {targets}, [%a];")
    matrices = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros((32, 4, 2), np.uint16)
    run_text(text, launch_shape(1, 32), (matrices, out, 0))
    for m in range(count):
        source = matrices[m].T if transposed else matrices[m]
        np.testing.assert_array_equal(out[:, m], np.stack([source[G, 2 * T], source[G, 2 * T + 1]], 1))
    assert not out[:, count:].any()


def test_stmatrix_and_movmatrix_undo_ldmatrix():
    load = f"{COPY} ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r0, %r1, %r2, %r3}}, [%a];"
    turn = " ".join(f"movmatrix.sync.aligned.m8n8.trans.b16 %r{i}, %r{i};" for i in range(4))
    store = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%a], {%r0, %r1, %r2, %r3}; bar.warp.sync -1;"
    read = "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%a];"
    matrices, out = np.arange(256, dtype=np.uint16).reshape(4, 8, 8), np.zeros((4, 8, 8), np.uint16)
    run_text(matrix_program(load + turn + store + read), launch_shape(1, 32), (matrices, out, 0))
    np.testing.assert_array_equal(out, matrices)


def test_ldmatrix_checks_alignment_and_what_was_written():
    text = matrix_program(COPY.replace("[%a]", "[%s]", 1) + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];")
    matrices, out = np.zeros((4, 8, 8), np.uint16), np.zeros((4, 8, 8), np.uint16)
    with pytest.raises(faults.KernelFaults) as caught:
        run_text(text, launch_shape(1, 32), (matrices, out, 0))
    (fault,) = caught.value.faults
    assert (fault.kind, fault.parties[0].thread) == (faults.UNINITIALISED, (1, 0, 0))
    with pytest.raises(faults.KernelFaults, match="misaligned"):
        run_text(text, launch_shape(1, 32), (matrices, out, 8))


READ = "bar.sync 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%a];"


@pytest.mark.parametrize(
    ("issue", "kept"),
    [
        ("cp.async.cg.shared.global [%a], [%p], 16;", 16),
        ("cp.async.ca.shared.global [%a], [%p], 16, 6;", 6),
        ("cp.async.ca.shared.global.L2::128B [%a], [%p], 16, 0;", 0),
        (" ".join(f"cp.async.ca.shared.global [%a+{k}], [%p+{k}], 4;" for k in range(0, 16, 4)), 16),
        ("cp.async.ca.shared::cta.global [%a], [%p], 8; cp.async.ca.shared::cta.global [%a+8], [%p+8], 8;", 16),
    ],
)
@pytest.mark.parametrize("wait", ["cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_asynchronous_copies(issue, kept, wait):
    source, out = np.arange(1, 257, dtype=np.uint16).reshape(32, 8), np.zeros((32, 8), np.uint16)
    run_text(matrix_program(issue + wait + READ), launch_shape(1, 32), (source, out, 0))
    expected = source.copy()
    expected.view(np.uint8)[:, kept:] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "wait",
    [
        "",
        "cp.async.commit_group;",
        "cp.async.commit_group; cp.async.wait_group 1;",
        "cp.async.wait_group 0;",
    ],
)
def test_a_copy_that_was_not_waited_for(wait):
    text = matrix_program("cp.async.cg.shared.global [%a], [%p], 16;" + wait + READ)
    with pytest.raises(faults.KernelFaults, match="was not waited for") as caught:
        run_text(text, launch_shape(1, 32), (np.zeros((32, 8), np.uint16), np.zeros((32, 8), np.uint16), 0))
    assert caught.value.faults[0].kind == faults.UNINITIALISED


def test_waiting_for_all_but_the_last_group():
    text = matrix_program(
        "cp.async.ca.shared.global [%a], [%p], 8; cp.async.commit_group;"
        "cp.async.ca.shared.global [%a+8], [%p+8], 8; cp.async.commit_group;"
        "cp.async.wait_group 1; ld.shared.v2.b32 {%r0, %r1}, [%a];"
        "cp.async.wait_group 0; ld.shared.v2.b32 {%r2, %r3}, [%a+8];"
    )
    source, out = np.arange(256, dtype=np.uint16).reshape(32, 8), np.zeros((32, 8), np.uint16)
    run_text(text, launch_shape(1, 32), (source, out, 0))
    np.testing.assert_array_equal(out, source)


def test_a_copy_from_outside_is_a_fault():
    text = matrix_program("cp.async.cg.shared.global [%a], [%p+16], 16; cp.async.wait_all;" + READ)
    with pytest.raises(faults.KernelFaults, match="out of bounds"):
        run_text(text, launch_shape(1, 32), (np.zeros((32, 8), np.uint16), np.zeros((32, 8), np.uint16), 0))


def test_tensor_core_kernel_through_inline_ptx(compiler):
    """C = A @ B.T of 16 x 16 and 8 x 16 bfloat16: copied asynchronously, read by ldmatrix, multiplied by mma."""
    from numba import cuda, float32, types, uint16

    copy_16, commit, wait_all, load_x4, multiply = intrinsics()

    def kernel(a, b, out):
        left = cuda.shared.array(256, uint16, alignment=16)
        right = cuda.shared.array(128, uint16, alignment=16)
        lane = cuda.laneid
        copy_16(left, lane * 8, a, lane * 8)
        if lane < 16:
            copy_16(right, lane * 8, b, lane * 8)
        commit()
        wait_all()
        cuda.syncwarp()
        a0, a1, a2, a3 = load_x4(left, (lane % 16) * 16 + (lane // 16) * 8)
        b0, b1, _, _ = load_x4(right, (lane % 8) * 16 + ((lane // 8) % 2) * 8)
        zero = float32(0)
        d0, d1, d2, d3 = multiply(a0, a1, a2, a3, b0, b1, zero, zero, zero, zero)
        row, column = lane // 4, 2 * (lane % 4)
        out[row, column], out[row, column + 1] = d0, d1
        out[row + 8, column], out[row + 8, column + 1] = d2, d3

    assert types.uint16.bitwidth == 16
    generator = np.random.default_rng(7)
    a, b = (bf16_bits(generator.standard_normal(shape)) for shape in ((16, 16), (8, 16)))
    out = np.zeros((16, 8), np.float32)
    run_ptx(kernel, launch_shape(1, 32), (a.ravel(), b.ravel(), out))
    wide = [(bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for bits in (a, b)]
    np.testing.assert_allclose(out, wide[0] @ wide[1].T, rtol=1e-6)


def intrinsics() -> tuple:
    """Return (copy 16 bytes, commit, wait, ldmatrix x4, mma) as inline PTX in Numba's way."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils  # noqa: F401 (its import registers what make_tuple needs)
    from numba.cuda.extending import intrinsic

    f32, i32, u64, void = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.VoidType()

    def pointer(context, builder, kind, array, index):
        data = context.make_array(kind)(context, builder, array).data
        return builder.ptrtoint(builder.gep(data, [index]), u64)

    def shared(builder, address):
        convert = ir.InlineAsm(ir.FunctionType(u64, [u64]), "cvta.to.shared.u64 $0, $1;", "=l,l")
        return builder.trunc(builder.call(convert, [address]), i32)

    def tuple_of(context, builder, kind, value, count):
        return context.make_tuple(builder, kind, [builder.extract_value(value, i) for i in range(count)])

    @intrinsic
    def copy_16(typing, to, to_index, source, source_index):
        def generate(context, builder, signature, arguments):
            target = shared(builder, pointer(context, builder, signature.args[0], *arguments[:2]))
            origin = pointer(context, builder, signature.args[2], *arguments[2:])
            kind = ir.FunctionType(void, [i32, u64])
            builder.call(
                ir.InlineAsm(kind, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}", side_effect=True),
                [target, origin],
            )
            return context.get_dummy_value()

        return types.void(to, types.int64, source, types.int64), generate

    def plain(text):
        @intrinsic
        def function(typing):
            def generate(context, builder, signature, arguments):
                builder.call(ir.InlineAsm(ir.FunctionType(void, []), text, "~{memory}", side_effect=True), [])
                return context.get_dummy_value()

            return types.void(), generate

        return function

    @intrinsic
    def load_x4(typing, array, index):
        def generate(context, builder, signature, arguments):
            address = shared(builder, pointer(context, builder, signature.args[0], *arguments))
            kind = ir.FunctionType(ir.LiteralStructType([i32] * 4), [i32])
            text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];"
            value = builder.call(ir.InlineAsm(kind, text, "=r,=r,=r,=r,r,~{memory}", side_effect=True), [address])
            return tuple_of(context, builder, signature.return_type, value, 4)

        return types.UniTuple(types.uint32, 4)(array, types.int64), generate

    @intrinsic
    def multiply(typing, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
        def generate(context, builder, signature, arguments):
            kind = ir.FunctionType(ir.LiteralStructType([f32] * 4), [i32] * 6 + [f32] * 4)
            text = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            text += "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
            value = builder.call(ir.InlineAsm(kind, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"), arguments)
            return tuple_of(context, builder, signature.return_type, value, 4)

        return types.UniTuple(types.float32, 4)(*[types.uint32] * 6, *[types.float32] * 4), generate

    return copy_16, plain("cp.async.commit_group;"), plain("cp.async.wait_group 0;"), load_x4, multiply

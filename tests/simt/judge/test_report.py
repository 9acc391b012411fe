import json
import math
from collections.abc import Callable
from dataclasses import asdict
from inspect import getsourcelines
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt import toolchain
from nanoeuler.simt.judge import report as report_module
from nanoeuler.simt.judge.report import ARCHITECTURES, compile_report, format_report, gate

pytest.importorskip("numba_cuda", reason=f"needs numba-cuda: {toolchain.INSTALL}")
try:
    toolchain.require_toolkit()
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

from numba import cuda, float32, float64, int32, types

VECTOR = float32[::1]
MATRIX = float32[:, ::1]
TILE = 16


@cuda.jit
def product(c, a, b):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[row, start + x]
        tile_b[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[row, column] = total


def plain(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + float32(1)


@cuda.jit(max_registers=24)
def spilling(a):
    i = cuda.grid(1)
    row = cuda.local.array(64, float32)
    for j in range(64):
        row[j] = a[i * 64 + j]
    cuda.syncthreads()
    for j in range(64):
        a[i * 64 + j] = row[j] * row[(j * 7 + 1) % 64]


@cuda.jit
def stacked(a, k):
    row = cuda.local.array(64, float32)
    i = cuda.grid(1)
    for j in range(4):
        row[(j * k) & 63] = a[i * 4 + j]
    a[i] = row[k & 63]


@cuda.jit(device=True)
def tenth(x):
    return x * 0.1


@cuda.jit
def leak_by_constant(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] = a[i] * 0.1  # leak


@cuda.jit
def leak_by_division(a, n):
    a[cuda.grid(1)] = 1 / n  # leak


@cuda.jit
def leak_in_device_function(a):
    i = cuda.grid(1)
    a[i] = a[i] + float32(1)
    a[i] = tenth(a[i])  # leak


@cuda.jit
def leak_in_sine(a):
    i = cuda.grid(1)
    a[i] = math.sin(a[i])  # leak


@cuda.jit
def harmless_double(a):
    i = cuda.grid(1)
    a[i] = a[i] * 0.5  # float64 for Python; exact in float32, so the compiler takes that


@cuda.jit
def copied_doubles(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def divided_integers(a, n):
    i = cuda.grid(1)
    a[i] = a[i] // n % 7


@cuda.jit
def dynamic(a):
    row = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    row[i] = a[i]
    cuda.syncthreads()
    a[i] = row[i ^ 1]


@cuda.jit
def large_shared(a):
    row = cuda.shared.array(12 * 1024, float32)
    i = cuda.threadIdx.x
    row[i] = a[i]
    cuda.syncthreads()
    a[i] = row[i ^ 1]


@cuda.jit
def too_large_shared(a):
    row = cuda.shared.array(12 * 1024 + 1, float32)
    i = cuda.threadIdx.x
    row[i] = a[i]
    cuda.syncthreads()
    a[i] = row[i ^ 1]


@cuda.jit(launch_bounds=(128, 4))
def bounded(a):
    a[cuda.grid(1)] += float32(1)


@pytest.fixture(autouse=True)
def no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read PTX, which is four times as fast, in the tests that do not ask for more."""
    monkeypatch.setattr(report_module, "disassemble", lambda code: None)


@pytest.fixture
def sass(no_disassembler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if toolchain.find_disassembler() is None:
        pytest.skip(f"no nvdisasm: {toolchain.INSTALL}")
    monkeypatch.setattr(report_module, "disassemble", toolchain.disassemble)


@pytest.fixture(params=["sass", "ptx"])
def text(request: pytest.FixtureRequest) -> str:
    """Run a test on both texts that the instructions can be read from."""
    if request.param == "sass":
        request.getfixturevalue("sass")
    return request.param


def line_of(kernel: Any, text: str) -> int:
    lines, first = getsourcelines(kernel.py_func)
    return next(first + i for i, line in enumerate(lines) if text in line)


def test_a_tiled_product_on_every_architecture(sass: None) -> None:
    report = gate(product, (MATRIX, MATRIX, MATRIX), block=(TILE, TILE))
    assert [one.architecture for one in report.architectures] == list(ARCHITECTURES)
    suffix = {"sm_90": "a", "sm_100": "a", "sm_120": "a"}  # a launch takes the architecture's own features there
    for one in report.architectures:
        assert one.target == one.architecture + suffix.get(one.architecture, "")
        assert f".target {one.target}" in one.ptx
        assert one.static_shared_bytes == 2 * TILE * TILE * 4
        assert (one.stack_bytes, one.spill_store_bytes, one.spill_load_bytes, one.float64) == (0, 0, 0, ())
        assert 24 <= one.registers <= 64
        assert one.occupancy.block_threads == 256
        assert one.instructions["float32"] >= TILE
        assert one.instructions["barrier"] == 2
        assert one.instructions["global memory"] == 3
        assert "float64" not in one.instructions
        assert "other" not in one.instructions
    assert (report.kernel, report.block_threads, report.dynamic_shared_bytes) == ("product", 256, 0)
    assert report.signature == "(array(float32, 2d, C), array(float32, 2d, C), array(float32, 2d, C))"
    assert report.file == __file__
    assert report.line == getsourcelines(product.py_func)[1]


def test_a_plain_function_and_example_arguments_do_as_well() -> None:
    array = np.zeros(4, np.float32)
    reports = [
        gate(plain, (array, array), "sm_80"),
        gate(cuda.jit(plain), (VECTOR, VECTOR), ["sm_80"]),
        gate(plain, "void(float32[::1], float32[::1])", "sm_80"),
        gate(plain, types.void(VECTOR, VECTOR), "sm_80"),
    ]
    figures = [(one.signature, one["sm_80"].registers, one["sm_80"].instructions) for one in reports]
    assert figures[1:] == figures[:1] * 3
    with pytest.raises(KeyError):
        reports[0]["sm_90"]


def test_a_spill_is_reported_with_its_bytes() -> None:
    report = compile_report(spilling, (VECTOR,), ["sm_75", "sm_80"])
    for one in report.architectures:
        assert one.registers == 24
        assert 256 < one.spill_store_bytes == one.spill_load_bytes < 1024
        assert one.stack_bytes > 256
    stored = report["sm_75"].spill_store_bytes
    with pytest.raises(UserError) as caught:
        report.require_clean()
    message = str(caught.value)
    assert message.startswith(f"kernel spilling (test_report.py:{report.line}) is not clean: spill, stack\n")
    assert f"sm_75: {stored} bytes spilled and {stored} loaded back" in message
    assert "max_registers" in message
    with pytest.raises(UserError, match="is not clean: stack\n"):
        report.require_clean(allow=["spill"])
    report.require_clean(allow=("spill", "stack"))


def test_an_option_goes_above_the_kernels_own() -> None:
    report = gate(spilling, (VECTOR,), "sm_80", max_registers=128)
    assert 64 <= report["sm_80"].registers <= 128


def test_a_stack_is_reported_with_its_bytes() -> None:
    report = compile_report(stacked, (VECTOR, int32), ["sm_75", "sm_90"])
    assert [one.stack_bytes for one in report.architectures] == [256, 256]
    assert [one.spill_store_bytes for one in report.architectures] == [0, 0]
    with pytest.raises(UserError, match="sm_75, sm_90: 256 bytes of stack per thread"):
        report.require_clean()
    report.require_clean(allow="stack")


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        (leak_by_constant, (VECTOR,)),
        (leak_by_division, (VECTOR, int32)),
        (leak_in_device_function, (VECTOR,)),
        (leak_in_sine, (VECTOR,)),
    ],
)
def test_float64_is_found_with_its_line(kernel: Any, signature: Any, text: str) -> None:
    report = compile_report(kernel, signature, "sm_80")
    line = line_of(kernel, "# leak")
    found = report["sm_80"].float64
    assert len(found) >= 3
    assert {(one.file, one.line) for one in found} == {(__file__, line)}
    assert (report["sm_80"].sass is None) == (text == "ptx")
    with pytest.raises(UserError) as caught:
        report.require_clean()
    assert f"at test_report.py:{line}: " in str(caught.value)
    assert "float32(0.1)" in str(caught.value)
    report.require_clean(allow={"float64"})


def test_float64_of_one_multiplication_is_two_conversions_and_it(text: str) -> None:
    opcodes = [one.opcode for one in compile_report(leak_by_constant, (VECTOR,), "sm_80")["sm_80"].float64]
    expected = {"sass": ["F2F.F64.F32", "DMUL", "F2F.F32.F64"], "ptx": ["cvt.f64.f32", "mul.f64", "cvt.rn.f32.f64"]}
    assert opcodes == expected[text]


def test_float64_arguments_are_seen_as_a_launch_would_type_them(text: str) -> None:
    def scaled(out, factor):
        out[cuda.grid(1)] *= factor

    array = np.zeros(4, np.float32)
    gate(scaled, (array, np.float32(0.1)), "sm_80")
    with pytest.raises(UserError, match="float64"):
        gate(scaled, (array, 0.1), "sm_80")


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        (harmless_double, (VECTOR,)),
        (copied_doubles, (float64[::1], float64[::1])),
        (divided_integers, (types.int64[::1], types.int64)),
    ],
)
def test_what_is_no_float64_arithmetic_is_clean(kernel: Any, signature: Any, text: str) -> None:
    assert gate(kernel, signature, "sm_80")["sm_80"].float64 == ()


def test_fastmath_takes_the_float64_out_of_sine(text: str) -> None:
    report = gate(leak_in_sine, (VECTOR,), "sm_80", fastmath=True)
    assert report["sm_80"].instructions["special function"] == 1


def test_shared_memory_limits_the_blocks() -> None:
    report = gate(large_shared, (VECTOR,), ["sm_75", "sm_80", "sm_90"], block=64)
    assert [one.static_shared_bytes for one in report.architectures] == [48 * 1024] * 3
    assert [one.occupancy.blocks for one in report.architectures] == [1, 3, 4]
    assert {one.occupancy.limited_by for one in report.architectures} == {"shared memory"}


def test_dynamic_shared_memory_counts_for_the_blocks() -> None:
    report = gate(dynamic, (VECTOR,), ["sm_80", "sm_86"], shared_bytes=32 * 1024, block=128)
    assert [one.static_shared_bytes for one in report.architectures] == [0, 0]
    assert [one.occupancy.blocks for one in report.architectures] == [4, 3]
    assert report.dynamic_shared_bytes == 32 * 1024


def test_a_block_that_does_not_fit_is_not_clean() -> None:
    report = compile_report(dynamic, (VECTOR,), ["sm_75", "sm_80"], shared_bytes=65 * 1024)
    with pytest.raises(UserError, match=r"is not clean: launch\n  sm_75: a block of 256 threads cannot start"):
        report.require_clean(allow=("spill", "stack", "float64"))


def test_too_much_static_shared_memory_does_not_compile() -> None:
    with pytest.raises(UserError, match=r"kernel too_large_shared for sm_80: .*0xc004 bytes, 0xc000 max.*48 KB"):
        compile_report(too_large_shared, (VECTOR,), "sm_80")


def test_launch_bounds_name_the_block() -> None:
    assert compile_report(bounded, (VECTOR,), "sm_80").block_threads == 128
    with pytest.raises(UserError, match="a block of 256 threads cannot start"):
        compile_report(bounded, (VECTOR,), "sm_80", block=256)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_without_link_time_optimisation_the_linkers_figures_count(architecture: str) -> None:
    report = gate(product, (MATRIX, MATRIX, MATRIX), architecture, lto=False)[architecture]
    assert report.static_shared_bytes == 2 * TILE * TILE * 4
    assert 24 <= report.registers <= 64
    one = compile_report(spilling, (VECTOR,), architecture, lto=False)[architecture]
    assert one.registers == 24
    assert 256 < one.stack_bytes < one.spill_store_bytes == one.spill_load_bytes


def test_a_kernel_for_debugging_is_read_too() -> None:
    report = compile_report(product, (MATRIX, MATRIX, MATRIX), "sm_80", debug=True, opt=False, lto=False)
    assert report["sm_80"].stack_bytes > 0
    assert report["sm_80"].static_shared_bytes == 2 * TILE * TILE * 4


def test_only_findings_can_be_allowed() -> None:
    report = compile_report(plain, (VECTOR, VECTOR), "sm_80")
    with pytest.raises(UserError, match=r"cannot allow 'spills' .did you mean 'spill'"):
        report.require_clean(allow=["spills"])
    with pytest.raises(UserError, match="cannot allow 'launch'"):
        report.require_clean(allow="launch")


def test_the_table_has_the_figures() -> None:
    report = compile_report(spilling, (VECTOR,), ["sm_75", "sm_90"])
    rows = [[cell.strip() for cell in row.split("│")] for row in format_report(report).splitlines() if "│" in row]
    one = report["sm_90"]
    spills = str(one.spill_store_bytes + one.spill_load_bytes)
    occupancy = [str(one.occupancy.blocks), f"{one.occupancy.fraction:.0%}", one.occupancy.limited_by]
    assert rows[1][1:-1] == ["sm_90a", "24", "0", str(one.stack_bytes), spills, "0", *occupancy]
    assert ["float32", *(str(each.instructions["float32"]) for each in report.architectures)] in [r[1:-1] for r in rows]


def test_a_report_can_be_written_as_json() -> None:
    report = compile_report(leak_by_constant, (VECTOR,), "sm_80")
    read = json.loads(json.dumps(asdict(report)))
    assert read["architectures"][0]["registers"] == report["sm_80"].registers
    assert read["architectures"][0]["float64"][0]["line"] == line_of(leak_by_constant, "# leak")


def test_compiling_leaves_the_kernel_as_it_was() -> None:
    kernel = cuda.jit(plain)
    compile_report(kernel, (VECTOR, VECTOR), "sm_80", fastmath=True)
    assert not kernel.overloads
    assert kernel.targetoptions["fastmath"] is False


def test_float64_beside_float16_is_found() -> None:
    """What has lines cannot be linked with float16's operators: such a finding has no line."""

    def halves(a, b):
        a[0] = a[0] * a[1]
        b[0] = b[0] * b[1]

    report = compile_report(halves, (np.ones(2, np.float16), np.ones(2)), "sm_90")
    assert report["sm_90"].float64
    with pytest.raises(UserError, match=r"float64 .* at line unknown"):
        report.require_clean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compile_report(3, (VECTOR,)), "3 is no kernel"),
        (lambda: compile_report(tenth, (float32,)), "tenth is a device function"),
        (lambda: compile_report(bounded, (VECTOR,), "sm_91"), "unknown architecture 'sm_91' .did you mean 'sm_90'"),
        (lambda: compile_report(bounded, "void(float32[::1]"), "is no signature"),
        (lambda: compile_report(bounded, "void(flaot32[::1])"), "flaot32"),
        (lambda: compile_report(bounded, (object(),)), "argument 'a' is of type object, which no kernel takes"),
        (lambda: compile_report(bounded, types.int32(VECTOR)), "returns int32"),
        (lambda: compile_report(bounded, (VECTOR, VECTOR)), "has 1 parameters, and the signature 2"),
        (lambda: compile_report(bounded, (VECTOR,), fastmat=True), "no option 'fastmat' .* .did you mean 'fastmath'"),
        (lambda: compile_report(bounded, (VECTOR,), block=2048), "2048"),
        (
            lambda: compile_report(bounded, (types.unicode_type,)),
            r"kernel bounded \(test_report.py:\d+\) does not compile",
        ),
    ],
)
def test_what_the_user_got_wrong_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_the_package_does_not_need_numba_to_import_the_judge() -> None:
    source = Path(report_module.__file__).read_text()
    assert "import numba" not in source
    assert "from numba" not in source

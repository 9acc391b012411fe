import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt import toolchain
from nanoeuler.simt.judge.report import ARCHITECTURES, compile_report
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import run_ptx
from nanoeuler.simt.toolchain import INSTALL, assemble, build, compile_ptx, make_dispatcher, require_toolkit

pytest.importorskip("numba_cuda", reason=f"needs numba-cuda: {INSTALL}")
try:
    require_toolkit()
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

from numba import cuda, float32, int32

SIGNATURE = (float32[::1],)


@cuda.jit(max_registers=32)
def kernel(a):
    row = cuda.local.array(64, float32)
    shared = cuda.shared.array(100, float32)
    i = cuda.grid(1)
    for j in range(4):
        row[(j * int(a[0])) & 63] = a[i * 4 + j]
    shared[cuda.threadIdx.x % 100] = row[int(a[1]) & 63]
    cuda.syncthreads()
    a[i] = shared[cuda.threadIdx.x % 99]


def attributes(cubin: bytes) -> dict[int, int]:
    """Return the per-function attributes of a cubin with one function: an independent reader of section .nv.info."""
    offset, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]
    table = sections[names][4]
    for name, _, _, _, start, length, *_ in sections:
        if cubin[table + name :].startswith(b".nv.info\0"):
            # each entry: a format (4: sized), an attribute, the size of what follows, a symbol and a number
            entries = [struct.unpack_from("<BBHII", cubin, start + i) for i in range(0, length, 12)]
            return {attribute: value for form, attribute, size, _, value in entries if (form, size) == (4, 8)}
    raise AssertionError("no .nv.info")


EIATTR_MIN_STACK_SIZE, EIATTR_REGCOUNT = 0x12, 0x2F


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_figures_are_those_in_the_binary(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build(kernel.py_func, SIGNATURE, kernel.targetoptions)
    found = attributes(assemble(built, architecture).cubin)
    monkeypatch.setattr("nanoeuler.simt.judge.report.disassemble", lambda code: None)
    report = compile_report(kernel, SIGNATURE, architecture)[architecture]
    assert (report.registers, report.stack_bytes) == (found[EIATTR_REGCOUNT], found[EIATTR_MIN_STACK_SIZE])
    assert report.stack_bytes >= 256
    assert report.static_shared_bytes == 400


@pytest.mark.parametrize("architecture", ["sm_80", "sm_120"])
def test_the_code_is_what_numba_cuda_itself_makes(architecture: str) -> None:
    built = build(kernel.py_func, SIGNATURE, kernel.targetoptions)
    code = assemble(built, architecture)
    number = int(architecture[3:])
    theirs = built.library.get_cubin((number // 10, number % 10, "a" if number >= 90 else "")).code
    assert instructions(code.cubin) == instructions(theirs)
    assert len(instructions(theirs)) > 256


def instructions(cubin: bytes) -> bytes:
    """Return the machine code: the contents of the sections that are executable."""
    offset, size, count, _ = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]
    return b"".join(cubin[start : start + length] for _, _, flags, _, start, length, *_ in sections if flags & 4)


def test_lines_change_no_instruction() -> None:
    plain = build(kernel.py_func, SIGNATURE, kernel.targetoptions)
    lined = build(kernel.py_func, SIGNATURE, {**kernel.targetoptions, "lineinfo": True})
    assert instructions(assemble(plain, "sm_80").cubin) == instructions(assemble(lined, "sm_80", lineinfo=True).cubin)


def test_no_gpu_is_left_behind() -> None:
    from numba.cuda import api
    from numba.cuda.cudadrv import devices

    before = api.current_context, devices.get_context
    with pytest.raises(UserError, match="does not compile"):
        build(kernel.py_func, (float32,), kernel.targetoptions)
    assert (api.current_context, devices.get_context) == before


def test_cpp_is_linked_without_link_time_optimisation_too() -> None:
    source = cuda.CUSource('extern "C" __device__ int triple(int *out, int x) { *out = 3 * x; return 0; }')
    triple = cuda.declare_device("triple", "int32(int32)", link=source)

    def linked(a):
        a[0] = triple(a[0])

    for lto in (True, False):  # to PTX numba-cuda compiles C++ only where the GPU's driver is
        assert compile_report(cuda.jit(lto=lto)(linked), (int32[::1],), "sm_80")["sm_80"].registers


@pytest.mark.parametrize("lto", [True, False])
def test_cpp_that_does_not_compile_is_shown(lto: bool) -> None:
    source = cuda.CUSource('extern "C" __device__ int broken(int *out, int x) { nonsense; }')
    broken = cuda.declare_device("broken", "int32(int32)", link=source)

    def linked(a):
        a[0] = broken(a[0])

    with pytest.raises(UserError, match=r'(?s)C\+\+ .* does not compile.*identifier "nonsense" is undefined'):
        compile_report(cuda.jit(lto=lto)(linked), (int32[::1],), "sm_80")


def test_missing_headers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.cuda.cuda_paths import get_cuda_paths

    monkeypatch.setitem(get_cuda_paths(), "include_dir", None)
    source = cuda.CUSource('extern "C" __device__ int zero(int *out) { *out = 0; return 0; }')
    zero = cuda.declare_device("zero", "int32()", link=source)

    def linked(a):
        a[0] = zero()

    for use in (
        lambda: compile_report(linked, (int32[::1],), "sm_80"),
        lambda: compile_ptx(linked, (int32[::1],), {}),
    ):
        with pytest.raises(UserError, match="needs the CUDA headers: in nanoeuler's folder, python -m pip install"):
            use()


HALVES = """
import sys
from nanoeuler.simt import toolchain
from numba import cuda, float64
from numba.cuda.types import float16
def impure(a, b):
    a[0] = a[0] * a[1]
    b[0] = b[0] * b[1]
def halves(a):
    a[0] = a[0] * a[1]
if sys.argv[1] == "lines of the judge":
    built = toolchain.build(impure, (float16[::1], float64[::1]), {"lineinfo": True, "lto": True})
else:
    toolchain.compile_ptx(halves, (float16[::1],), {})
toolchain.assemble(toolchain.build(halves, (float16[::1],), {"lto": True}), "sm_90")
"""


@pytest.mark.parametrize("before", ["lines of the judge", "the PTX executor"])
def test_lines_of_one_kernel_do_not_hinder_the_next(before: str) -> None:
    done = subprocess.run([sys.executable, "-c", HALVES, before], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_recursion_is_named() -> None:
    @cuda.jit(device=True)
    def down(n):
        if n < 2:
            return int32(1)
        return down(n - int32(1))

    def recursive(a):
        a[0] = down(a[0])

    line = down.py_func.__code__.co_firstlineno + 4
    with pytest.raises(UserError, match=rf"kernel recursive .*recursion at test_toolchain.py:{line}, which"):
        compile_report(recursive, (int32[::1],), "sm_80")


def test_device_functions_are_as_they_were_after_their_lines_were_asked_for() -> None:
    @cuda.jit(device=True)
    def doubled(x):
        return x + x

    def calling(a):
        a[0] = doubled(a[0])

    build(calling, SIGNATURE, {})
    before = doubled.overloads, dict(doubled.overloads), doubled.targetoptions
    first, *_ = compile_ptx(calling, SIGNATURE, {"fastmath": False, "opt": False})
    assert (doubled.overloads, dict(doubled.overloads), doubled.targetoptions) == before
    assert re.search(rf"\.loc\s+\d+ {doubled.py_func.__code__.co_firstlineno + 2} ", first)


def test_inner_names_of_numba_cuda_are_known_to_one_file_only() -> None:
    folder = Path(toolchain.__file__).parent
    inner = re.compile(
        r"numba_cuda\b(?!\.numba\.cuda\")|numba\.cuda\.(?:api|cuda|core|dispatcher|typing)|cuda\.(?:bindings|core)"
    )
    files = {path for path in folder.rglob("*.py") if inner.search(path.read_text("utf-8"))}
    assert files == {Path(toolchain.__file__)}


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise RuntimeError("libnvvm.so: cannot open shared object file")

    monkeypatch.setattr(toolchain, "_libraries", lambda: {"NVVM": missing, "NVRTC": lambda: 1, "nvJitLink": missing})
    with pytest.raises(
        UserError, match="NVVM and nvJitLink of the CUDA toolkit: in nanoeuler's folder, python -m pip install"
    ):
        compile_report(kernel, SIGNATURE)


def test_a_missing_numba_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    for use in (lambda: compile_report(kernel, SIGNATURE), lambda: run_ptx(kernel, launch_shape(1, 1), ())):
        with pytest.raises(UserError, match=r"needs numba-cuda .*python -m pip install"):
            use()


def test_the_simulator_compiles_nothing() -> None:
    code = (
        "import os; os.environ['NUMBA_ENABLE_CUDASIM'] = '1'\n"
        "from nanoeuler.simt.judge.report import compile_report\n"
        "compile_report(lambda a: None, ())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UserError: Numba's simulator is on" in result.stderr


def test_an_architecture_that_the_toolkit_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.cuda.cudadrv import nvrtc

    monkeypatch.setattr(nvrtc, "get_supported_ccs", lambda: [(7, 5), (8, 0)])
    with pytest.raises(UserError, match="cannot compile for sm_120"):
        compile_report(kernel, SIGNATURE, "sm_120")


def test_an_old_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_disassembler", lambda: "false")
    with pytest.raises(UserError, match="false cannot read code for sm_80"):
        compile_report(kernel, SIGNATURE, "sm_80")


def test_a_plain_function_gets_the_defaults_of_the_decorator() -> None:
    assert make_dispatcher(kernel.py_func).targetoptions == cuda.jit(kernel.py_func).targetoptions
    assert make_dispatcher(kernel) is kernel

import struct
import subprocess
import sys
from typing import Any

import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt import toolchain
from nanoeuler.simt.judge.report import ARCHITECTURES, compile_report
from nanoeuler.simt.toolchain import INSTALL, assemble, build, make_dispatcher, require_toolkit

pytest.importorskip("numba_cuda", reason=f"needs numba-cuda: {INSTALL}")
try:
    require_toolkit()
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

from numba import cuda, float32

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


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise RuntimeError("libnvvm.so: cannot open shared object file")

    monkeypatch.setattr(toolchain, "_libraries", lambda: {"NVVM": missing, "NVRTC": lambda: 1, "nvJitLink": missing})
    with pytest.raises(UserError, match="NVVM and nvJitLink of the CUDA toolkit: pip install 'nanoeuler"):
        compile_report(kernel, SIGNATURE)


def test_a_missing_numba_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    with pytest.raises(UserError, match=r"needs numba-cuda .*pip install 'nanoeuler"):
        compile_report(kernel, SIGNATURE)


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

"""Runs single PTX instructions: operands from arrays, one per lane, results to arrays."""

from collections.abc import Callable

import numpy as np
import pytest
from simt.kernels.toolkit import need_toolkit

from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import run_text

Evaluate = Callable[..., list[np.ndarray]]

_STORED = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32", "pred": "u32", "tf32": "b32"}
_DTYPES = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}


def _bits(kind: str) -> str:
    return "32" if kind == "pred" else {"f16x2": "32", "bf16x2": "32", "bf16": "16"}.get(kind, kind.lstrip("busft"))


def _dtype(kind: str) -> np.dtype:
    if kind == "f16":
        return np.dtype(np.float16)
    if kind in ("f32", "f64"):
        return np.dtype(f"f{int(kind[1:]) // 8}")
    if kind[0] == "s":
        return np.dtype(f"i{int(kind[1:]) // 8}")
    return np.dtype(_DTYPES[_bits(kind)])


def _program(text: str, inputs: list[str], outputs: list[str], prologue: str) -> str:
    names = "abcef"[: len(inputs)]
    results = [f"d{number}" for number in range(len(outputs))]
    parameters = ",\n".join(f".param .u64 p_{name}" for name in [*names, *results])
    lines = [".version 9.0", ".target sm_90", ".address_size 64", f".visible .entry single(\n{parameters})", "{"]
    lines += [".reg .u32 %t, %n, %c;", ".reg .u64 %o, %p;", "mov.u32 %t, %tid.x;", "mov.u32 %c, %ctaid.x;"]
    lines += ["mov.u32 %n, %ntid.x;", "mad.lo.u32 %t, %c, %n, %t;"]
    for name, kind in zip([*names, *results], [*inputs, *outputs], strict=True):
        stored = _STORED.get(kind, kind)
        lines.append(f".reg .{'pred' if kind == 'pred' else 'b16' if stored[1:] == '8' else stored} %{name};")
    lines.append(prologue)
    for name, kind in zip(names, inputs, strict=True):
        size = int(_bits(kind)) // 8
        lines += [f"ld.param.u64 %p, [p_{name}];", f"mul.wide.u32 %o, %t, {size};", "add.u64 %p, %p, %o;"]
        if kind == "pred":
            lines += ["ld.global.u32 %n, [%p];", f"setp.ne.u32 %{name}, %n, 0;"]
        else:
            lines.append(f"ld.global.{_STORED.get(kind, kind)} %{name}, [%p];")
    lines.append(text + ";")
    for name, kind in zip(results, outputs, strict=True):
        size = int(_bits(kind)) // 8
        lines += [f"ld.param.u64 %p, [p_{name}];", f"mul.wide.u32 %o, %t, {size};", "add.u64 %p, %p, %o;"]
        if kind == "pred":
            lines.append(f"selp.u32 %n, 1, 0, %{name};")
        lines.append(f"st.global.{_STORED.get(kind, kind)} [%p], %{'n' if kind == 'pred' else name};")
    return "\n".join([*lines, "ret;", "}"])


@pytest.fixture(scope="session")
def evaluate() -> Evaluate:
    """Return the function that runs one instruction on operands %a, %b, %c, %e, %f with results %d0, %d1."""

    def run(
        text: str, kinds: str, results: str, *operands: object, block: int | None = None, prologue: str = ""
    ) -> list[np.ndarray]:
        inputs, outputs = kinds.split(), results.split()
        arrays = [
            np.ascontiguousarray(np.array(value, _dtype(kind))) for value, kind in zip(operands, inputs, strict=True)
        ]
        count = arrays[0].size if arrays else block or 32
        block = block or min(count, 1024)
        grid = -(-count // block)
        pad = [np.resize(array, grid * block).copy() for array in arrays]
        out = [np.zeros(grid * block, _dtype(kind)) for kind in outputs]
        run_text(_program(text, inputs, outputs, prologue), launch_shape(grid, block), (*pad, *out))
        found = [array[:count] for array in out]
        return [array.astype(bool) if kind == "pred" else array for array, kind in zip(found, outputs, strict=True)]

    return run


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skip where numba-cuda or its compiler library is missing."""
    need_toolkit()

"""The front end: names of CUDA are found however they are written, and what is not known is refused with its line."""

import ast
import functools
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import cuda, float32
from numba.cuda import grid as where
from numba.cuda import libdevice, shared
from numba.cuda.libdevice import rsqrtf as inverse_root

from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.source import emulates, meaning, python_function, read

TILE = 8


@cuda.jit(device=True)
def shuffled(value):
    return cuda.shfl_down_sync(0xFFFFFFFF, value, 1)


@cuda.jit(device=True)
def doubled(value):
    return value + value


@cuda.jit
def many_names(out, x):
    tile = shared.array((TILE, TILE + 1), float32)
    i = where(1) + numba.cuda.blockIdx.y
    tile[0, 0] = np.float32(x[i]) * math.exp(float32(2)) + inverse_root(x[i]) + libdevice.expf(x[i])
    out[i] = shuffled(tile[0, 0])
    cuda.atomic.add(out, i, cuda.float32x4(1, 2, 3, 4).w)


def marks(function: Any) -> set[tuple[str, str]]:
    return {(m.kind, m.name) for n in ast.walk(read(function).tree) if (m := meaning(n)) is not None}


def test_names_are_found_however_they_are_written() -> None:
    assert marks(many_names) == {
        *(("cuda", "shared.array"), ("cuda", "grid"), ("cuda", "blockIdx.y"), ("cuda", "atomic.add")),
        *(("cast", "np.float32"), ("cast", "float32"), ("python", "math.exp"), ("vector", "float32x4")),
        *(("libdevice", "rsqrtf"), ("libdevice", "expf"), ("device", "shuffled")),
    }


def test_line_numbers_are_those_of_the_file() -> None:
    tree = read(many_names).tree
    assert tree.lineno == python_function(many_names).__code__.co_firstlineno + 1


def test_a_function_blocks_when_what_it_calls_does() -> None:
    def calls_doubled(out: Any) -> None:
        out[0] = doubled(out[0])

    def spins(lock: Any) -> None:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass

    assert read(many_names).blocks
    assert not read(calls_doubled).blocks
    assert read(spins).blocks
    assert [s.name for s in read(many_names).everything()] == ["many_names", "shuffled"]


def test_closures_are_part_of_the_namespace() -> None:
    width = 5

    def kernel(out: Any) -> None:
        out[0] = width

    assert read(kernel).namespace["width"] == 5


TABLE = np.arange(4)


def test_a_global_array_is_frozen_when_the_kernel_is_first_read() -> None:
    def kernel(out: Any) -> None:
        out[0] = TABLE[1]

    frozen = read(kernel).namespace["TABLE"]
    TABLE[1] = 9
    assert frozen.tolist() == [0, 1, 2, 3]
    assert not frozen.flags.writeable


@pytest.mark.skipif(not hasattr(cuda, "float32"), reason="types inside numba.cuda come with the package numba-cuda")
def test_a_type_of_numba_cuda_is_a_cast() -> None:
    def kernel(out: Any) -> None:
        out[0] = cuda.float32(2)

    assert marks(kernel) == {("cast", "cuda.float32")}


def uses_with(out):
    with out:
        pass


def uses_list(out):
    out[0] = [1, 2][0]


def uses_unknown_name(out):
    out[0] = nowhere  # noqa: F821


def uses_unknown_cuda(out):
    cuda.syncthread()


def uses_grid_group(out):
    cuda.cg.this_grid().sync()


def uses_lambda(out):
    out[0] = (lambda v: v)(1)


def uses_sorted(out):
    out[0] = sorted(out)


def uses_star(*out):
    out[0][0] = 1


def uses_try(out):
    try:
        out[0] = 1
    except ValueError:
        out[0] = 2


def uses_comprehension(out):
    out[0] = sum(v for v in out)


def uses_walrus(out):
    out[0] = (n := 3) + n


@pytest.mark.parametrize(
    ("kernel", "line", "text"),
    [
        (uses_walrus, 1, "(n := 3)"),
        (uses_with, 1, "with out:"),
        (uses_list, 1, "[1, 2]"),
        (uses_unknown_name, 1, "'nowhere'"),
        (uses_unknown_cuda, 1, "did you mean 'syncthreads'?"),
        (uses_grid_group, 1, "cuda.cg.this_grid cannot be run here: blocks run one after the other"),
        (uses_lambda, 1, "lambda"),
        (uses_sorted, 1, "builtin 'sorted'"),
        (uses_star, 0, "*args"),
        (uses_try, 1, "try:"),
        (uses_comprehension, 1, "for v in out"),
    ],
)
def test_what_is_not_known_is_named_with_its_line(kernel: Any, line: int, text: str) -> None:
    expected = kernel.__code__.co_firstlineno + line
    with pytest.raises(UnsupportedError) as caught:
        read(kernel)
    assert f"{__file__}:{expected}: " in str(caught.value)
    assert text in str(caught.value)


def test_what_has_no_source_is_refused() -> None:
    scope: dict[str, Any] = {}
    exec("def kernel(out): out[0] = 1", scope)
    with pytest.raises(UnsupportedError, match="source of kernel cannot be read"):
        read(scope["kernel"])
    with pytest.raises(UnsupportedError, match="is no kernel"):
        read(3)
    with pytest.raises(UnsupportedError, match="is a lambda"):
        read(lambda out: out)


def test_a_file_that_has_changed_since_its_import_is_refused(tmp_path: Path) -> None:
    """What would be run is not what the function does."""
    file = tmp_path / "changing.py"
    text = "def kernel(out):\n    out[0] = 1\n\n\ndef other(out):\n    out[0] = 3\n"
    file.write_text(text)
    scope: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), scope)
    assert read(scope["kernel"]).name == "kernel"
    file.write_text(text.replace("3", "4"))
    with pytest.raises(UnsupportedError, match="other is not what its file says now"):
        read(scope["other"])


def test_a_wrapper_is_itself(tmp_path: Path) -> None:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(out: Any) -> None:
            out[0] = 99

        return wrapper

    @doubled
    def kernel(out: Any) -> None:
        out[0] = 1

    assert "99" in ast.unparse(read(kernel).tree)


class _Intrinsic:
    """Stands for numba's intrinsics, which are told by the name of their type."""


def test_an_intrinsic_without_an_emulation_is_named_and_with_one_is_a_device_function() -> None:
    fetch = _Intrinsic()

    def kernel(out: Any) -> None:
        out[0] = fetch(out, 1)

    with pytest.raises(UnsupportedError, match=r"intrinsic 'fetch' .*@simt.emulates\(fetch\)"):
        read(kernel)

    @emulates(fetch)
    def fetch_emulated(array: Any, index: Any) -> Any:
        return array[index]

    assert ("device", "fetch") in marks(kernel)
    assert [s.name for s in read(kernel).devices] == ["fetch_emulated"]


@cuda.jit(device=True)
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


def test_recursion_is_read_once() -> None:
    source = read(factorial)
    assert [s.name for s in source.everything()] == ["factorial"]
    assert not source.blocks

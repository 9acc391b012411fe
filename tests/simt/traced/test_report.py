"""The report: what it says, and that it stays in its columns whatever the kernel is."""

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced import kernels
from simt.traced.hand_counted import CASES

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.report import WIDTH, report


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def rows(text: str) -> dict[int, list[str]]:
    """Return the cells of each line of source: times, lanes, sectors, used, banks, again, flop."""
    found = {}
    for line in text.partition(" line   times")[2].splitlines():
        numbers, bar, _ = line.partition(" | ")
        if bar and numbers.strip()[:1].isdigit():
            padded = numbers.ljust(60)
            starts = [(6, 13), (14, 19), (20, 27), (28, 33), (34, 39), (40, 45), (46, 53)]
            found[int(padded[:5])] = [padded[a:b].strip() for a, b in starts]
    return found


def test_a_tiled_product() -> None:
    x = floats(8, 8)
    trace = simt.trace(kernels.product, (2, 2), (4, 4), (x.copy(), x, x.copy()), blocks=[(0, 0), (1, 1)])
    text = report(trace, card="RTX 4090")
    first = kernels.product.py_func.__code__.co_firstlineno
    assert text.startswith(f"product (kernels.py:{first}), grid (2, 2, 1), block (4, 4, 1)\nran 2 blocks of 4: ")
    assert "\n\nin total\n" in text
    assert "!!!" not in text
    found = rows(text)
    assert min(found) == first
    assert max(found) == trace.last_line
    # 16 lanes read 4 rows of 16 bytes: 4 sectors of 32, half of each used; both blocks, two tiles
    assert found[first + 12] == ["4", "16", "4", "50%", "1", "", ""]
    # 2 blocks * 2 tiles * 4 rounds; 16 threads with 2 operations each
    assert found[first + 15] == ["16", "16", "", "", "1", "", "512"]
    assert "product on RTX 4090: 82.6 TFLOP/s, 1008 GB/s, ridge at 81.9 FLOP/byte" in text
    assert "memory-bound" in text
    assert "arithmetic      floating-point operations: 512 in float32" in text
    assert "ta     shared  4x4    float32" in text


def test_faults_come_first_and_the_numbers_all_the_same() -> None:
    text = report(simt.trace(kernels.unordered, 1, 64, (floats(64),)))
    head, _, rest = text.partition("!!! 1 FAULT: ")
    assert head.count("\n") <= 3
    assert "race in kernel unordered" in rest
    assert rest.index("race in kernel") < rest.index("times lanes") < rest.index("in total")


@cuda.jit(device=True)
def squared(x, i):
    return x[i] * x[i]


@cuda.jit(device=True)
def never(x):
    return x[0]


@cuda.jit
def calling(out, x):
    i = cuda.threadIdx.x
    out[i] = squared(x, i)
    if i > 100:
        out[i] = never(x)


def test_device_functions_are_listed_where_they_ran() -> None:
    text = report(simt.trace(calling, 1, 32, (floats(32), floats(32))))
    code = squared.py_func.__code__
    assert f"squared (test_report.py:{code.co_firstlineno})" in text
    assert rows(text)[code.co_firstlineno + 2] == ["1", "32", "4", "100%", "", "50%", "32"]
    assert "never (test_report.py" not in text


def test_what_was_recorded() -> None:
    args = floats(64), floats(64)
    assert "ran its one block; recorded the one warp of a block: 64 accesses" in report(
        simt.trace(kernels.copy, 1, 32, args)
    )
    part = report(simt.trace(kernels.copy, 2, 64, args, warps=1))
    assert "ran all 2 blocks; recorded of the 2 warps of a block only 1: " in part
    first = kernels.copy.py_func.__code__.co_firstlineno
    assert "only on 1 line: sums are of these" in report(simt.trace(kernels.copy, 1, 32, args, lines=first + 5))


def test_what_is_up_to_the_caller() -> None:
    trace = simt.trace(long_lines, 1, (4, 4), (floats(4, 4), floats(4, 4)))
    assert "how often a warp came to the line" in report(trace)
    text = report(trace, note="the third of four", width=160, legend=False)
    assert text.splitlines()[2:4] == ["the third of four", ""]
    assert "how often a warp came to the line" not in text
    assert "* float32(2) + " in text.partition(" line   times")[2]
    assert "* float32(2) + " not in report(trace).partition(" line   times")[2]
    assert max(map(len, text.splitlines())) in range(WIDTH + 1, 161)


def test_hints_are_in_words() -> None:
    case = CASES["tile"]
    text = report(simt.trace(case.kernel, 1, case.block, case.args()))
    first = case.kernel.py_func.__code__.co_firstlineno
    assert f"- line {first + 7}: tile: bank conflicts" in text
    assert rows(text)[first + 7] == ["32", "32", "4", "100%", "32", "", ""]


@cuda.jit
def nothing():
    pass


def test_nothing_to_report() -> None:
    text = report(simt.trace(nothing, 1, 1, ()), card="t4")
    assert "0 accesses" in text
    assert "T4: no roofline" in text


def test_an_unknown_card() -> None:
    with pytest.raises(UserError, match="no card 'voodoo'"):
        report(simt.trace(nothing, 1, 1, ()), card="voodoo")


# fmt: off
@cuda.jit
def long_lines(out, x):
	s = cuda.shared.array((4, 4), float32)  # noqa: W191
	s[cuda.threadIdx.x, cuda.threadIdx.y] = x[cuda.threadIdx.x, cuda.threadIdx.y] * float32(2) + float32(1)  # noqa: W191
	out[cuda.threadIdx.x, cuda.threadIdx.y] = s[cuda.threadIdx.y, cuda.threadIdx.x]  # noqa: W191
# fmt: on


KERNELS = {
    **{name: (case.kernel, case.block, case.args) for name, case in CASES.items()},
    "long lines": (long_lines, (4, 4), lambda: (floats(4, 4), floats(4, 4))),
    "ways": (kernels.ways, 40, lambda: (floats(41), floats(40))),
    "parted": (kernels.parted, 8, lambda: (floats(8),)),
    "exchanged": (kernels.exchanged, 32, lambda: (floats(32), floats(32))),
    "sliced": (kernels.sliced, 5, lambda: (floats(5, 3), floats(5, 3))),
    "table": (kernels.scaled_by_table, 33, lambda: (floats(33), floats(33))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_stays_in_its_columns(name: str) -> None:
    kernel, block, args = KERNELS[name]
    text = report(simt.trace(kernel, 1, block, args()), card="h100")
    assert max(map(len, text.splitlines())) <= WIDTH
    narrow = (
        report(simt.trace(kernel, 1, block, args()), width=80).partition(" line   times")[2].partition("\n\ntimes:")
    )
    assert max(map(len, narrow[0].splitlines())) <= 80
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert "\t" not in text
    assert len(rows(text)) >= 3

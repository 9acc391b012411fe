"""Tensors as rows for people: name, shape, dtype, statistics, a histogram as text; each row as soon as it is known.

On a terminal that is too narrow for one row the parts of it stand below each other.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from nanoeuler.console import encodable, is_terminal, plural, say
from nanoeuler.weights.statistics import REACH, Statistics, statistics
from nanoeuler.weights.tensors import Tensor

BINS = 24
#: What a bin is drawn with, from no number to the most; the second where the output cannot encode the first.
BLOCKS, ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
COLUMNS = ("min", "max", "mean", "std")
LEGEND = (
    f"The histogram goes from mean - {REACH} std to mean + {REACH} std, or to the extremes where they are nearer; its "
    "first and last bin have what lies beyond, too."
)


def show_tensors(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Statistics]]:
    """Print a row for every tensor, and give its name and statistics; one tensor at a time is in memory.

    Raises:
        UserError: a file cannot be read.
    """
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    names, shapes = (max(map(len, column)) for column in (tensors, map(_shape, tensors.values())))
    heading = f"{'tensor':<{names}}  {'shape':>{shapes}}  {'dtype':<8}  {_numbers(COLUMNS)}  histogram"
    wide = width is None or len(heading) + BINS <= width
    for line in wrap(LEGEND, width or 120) + (["", heading] if wide else [""]):
        say(line)
    for name, tensor in tensors.items():
        result = statistics(tensor.read(), BINS)
        numbers = [_number(x) for x in (result.minimum, result.maximum, result.mean, result.std)]
        picture, remarks = draw(result.histogram), "; ".join(_remarks(result))
        if wide:
            row = f"{name:<{names}}  {_shape(tensor):>{shapes}}  {tensor.dtype:<8}  {_numbers(numbers)}  {picture}"
            lines = [f"{row}  {remarks}".rstrip()]
        else:
            labelled = "  ".join(f"{column} {x}" for column, x in zip(COLUMNS, numbers, strict=True))
            lines = [name, f"  {_shape(tensor)}  {tensor.dtype}", f"  |{picture}|"]
            lines[2:2] = [
                f"  {line}" for part in (labelled, remarks) for line in wrap(part, max(20, (width or 80) - 2))
            ]
        for line in lines:
            say(line)
        sys.stdout.flush()
        yield name, result


def draw(histogram: tuple[int, ...]) -> str:
    """Return a histogram as one character for each bin; a bin with anything in it is never blank."""
    levels = BLOCKS if encodable(BLOCKS, sys.stdout) == BLOCKS else ASCII
    most = max(histogram) or 1
    return "".join(levels[-(-count * (len(levels) - 1) // most)] for count in histogram)


def _remarks(result: Statistics) -> list[str]:
    """Return what should not be missed."""
    remarks = []
    if result.nans:
        remarks.append(f"{result.nans:,} NaN")
    if result.infinities:
        remarks.append(plural(result.infinities, "infinity").replace("infinitys", "infinities"))
    if result.zeros:
        remarks.append("all zeros" if result.zeros == result.size else plural(result.zeros, "zero"))
    return remarks


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}"


def _numbers(columns: Any) -> str:
    return " ".join(f"{column:>9}" for column in columns)

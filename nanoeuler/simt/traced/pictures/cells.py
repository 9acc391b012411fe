"""Where the elements of an array lie in a picture: rows and columns of two axes, panels of more, one axis in lines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.traced.pictures.drawing import breadth, tag, text
from nanoeuler.simt.traced.pictures.region import Region
from nanoeuler.simt.traced.recorder import TracedArray

WIDTH = 1088.0  # pixels that it should not exceed by much
LARGEST, SMALLEST = 28, 9  # sides of an element, in pixels
COLUMNS, ROWS = 128, 64  # that stand side by side, or below each other where there is room at the side
FEW_ROWS, FEW_COLUMNS = 16, 64  # of so few rows only so many columns stand side by side, and are larger
GAP = 14.0  # between panels


@dataclass(frozen=True)
class Cells:
    """The elements of a region in a picture.

    Attributes:
        array: whose they are.
        region: which they are.
        side: of each element, in pixels.
        x, y: (elements,) their upper left corners.
        width, height: of all, with the labels.
        frame: SVG of the labels.
    """

    array: TracedArray
    region: Region
    side: float
    x: np.ndarray
    y: np.ndarray
    width: float
    height: float
    frame: str

    def __len__(self) -> int:
        return len(self.x)

    def index(self, number: int) -> tuple[int, ...]:
        """Return the index of an element in its array."""
        place = np.unravel_index(number, tuple(map(len, self.region)))
        return tuple(axis[int(i)] for axis, i in zip(self.region, place, strict=True))


def laid_out(array: TracedArray, region: Region, room: float = WIDTH) -> Cells:
    """Return where the elements of a region lie, in ``room`` pixels of width if they can."""
    axes = [axis for axis, r in enumerate(region) if len(r) > 1]
    if len(axes) > 1:
        return _panels(array, region, axes, room)
    return _lines(array, region, axes[0] if axes else None, room)


def _side(columns: int, room: float) -> float:
    return float(max(SMALLEST, min(LARGEST, room // columns)))


def _lines(array: TracedArray, region: Region, axis: int | None, room: float) -> Cells:
    """Return a single axis, wrapped."""
    values: Sequence[int] = region[axis] if axis is not None else (0,)
    count = len(values)
    columns = min(count, 32 if count <= 1024 else 64)
    side = _side(columns, room)
    wraps = count > columns
    left = float(math.ceil(breadth(str(values[-1]), 10) + 8)) if wraps else 0.0
    places = np.arange(count)
    x, y = left + places % columns * side, 14 + places // columns * side
    tops = [f"+{c}" for c in range(columns)] if wraps else [str(v) for v in values]
    frame = _tops(tops if axis is not None else [], left, 9, side)
    if wraps:
        frame += _lefts([str(v) for v in values[::columns]], left - 6, 14, side)
    return Cells(array, region, side, x, y, left + columns * side, 14 + -(-count // columns) * side, frame)


def _panels(array: TracedArray, region: Region, axes: Sequence[int], room: float) -> Cells:
    """Return a panel for each index of all axes but the last two that are longer than 1."""
    outer, (down, across) = axes[:-2], axes[-2:]
    rows, columns = len(region[down]), len(region[across])
    wide = min(columns, FEW_COLUMNS if rows <= FEW_ROWS else COLUMNS)
    side = _side(wide, room)
    tall = ROWS if rows > ROWS and wide * side < room / 2 else rows
    left = float(math.ceil(breadth(str(max(region[down])), 10) + 8))
    top = 14.0 + (16 if outer else 0)
    x, y = np.zeros((rows, columns)), np.zeros((rows, columns))
    xs, ys, frame = [], [], ""
    at_x, at_y, width, row_height = 0.0, 0.0, 0.0, 0.0
    for place in np.ndindex(*(len(region[a]) for a in outer)):
        for r, c in ((r, c) for r in range(0, rows, tall) for c in range(0, columns, wide)):
            high, broad = min(tall, rows - r), min(wide, columns - c)
            if at_x and at_x + left + broad * side > room + left:
                at_x, at_y, row_height = 0.0, at_y + row_height + GAP, 0.0
            x[r : r + high, c : c + broad] = at_x + left + np.arange(broad) * side
            y[r : r + high, c : c + broad] = (at_y + top + np.arange(high) * side)[:, None]
            if outer:
                frame += text(at_x + left, at_y + 11, _panel_name(array, region, axes, place), class_="n-ink n-small")
            names = [str(v) for v in region[across][c : c + broad]], [str(v) for v in region[down][r : r + high]]
            frame += _tops(names[0], at_x + left, at_y + top - 5, side)
            frame += _lefts(names[1], at_x + left - 6, at_y + top, side)
            row_height = max(row_height, top + high * side)
            at_x += left + broad * side + GAP
            width = max(width, at_x - GAP)
        xs.append(x.ravel().copy())
        ys.append(y.ravel().copy())
    return Cells(array, region, side, np.concatenate(xs), np.concatenate(ys), width, at_y + row_height, frame)


def _panel_name(array: TracedArray, region: Region, axes: Sequence[int], place: tuple[int, ...]) -> str:
    fixed = dict(zip(axes[:-2], place, strict=True))
    index = [str(r[fixed.get(a, 0)]) if a not in axes[-2:] else ":" for a, r in enumerate(region)]
    return f"{array.name}[{', '.join(index)}]"


def _tops(names: Sequence[str], x: float, y: float, side: float) -> str:
    """Return the labels of columns, as many as there is room for."""
    step = _every(max(map(len, names), default=0) * 6 + 3, side)
    made = [text(x + (n + 0.5) * side, y, name) for n, name in enumerate(names) if n % step == 0]
    return tag("g", *made, class_="n-dim", font_size=10, text_anchor="middle") if made else ""


def _lefts(names: Sequence[str], x: float, y: float, side: float) -> str:
    """Return the labels of rows."""
    step = _every(11, side)
    made = [text(x, y + (n + 0.5) * side + 3.5, name) for n, name in enumerate(names) if n % step == 0]
    return tag("g", *made, class_="n-dim", font_size=10, text_anchor="end") if made else ""


def _every(needed: float, side: float) -> int:
    """Return 1, 2, 4, ... so that a label has ``needed`` pixels."""
    return 1 << max(0, math.ceil(math.log2(needed / side)))

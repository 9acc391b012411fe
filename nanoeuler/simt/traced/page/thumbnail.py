"""A small image of who touches an array, a pixel for an element, for tables of pages."""

import base64
import struct
import zlib

import numpy as np

from nanoeuler.simt.traced.pictures.colours import ramp
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace

ROWS, COLUMNS = 16, 32  # elements, at most


def thumbnail(trace: Trace) -> tuple[str, str]:
    """Return a PNG as a ``data:`` address, and in words what it shows; ("", "") of a launch that touches nothing.

    The array is the largest one that is written in global memory, or else read. A pixel has the colour of the last
    thread that touched the element, from dark to light by its number in its block; what nobody touched is transparent.
    """
    array = _telling(trace)
    if array is None:
        return "", ""
    fits = trace.accesses["array"] == array.number
    index = array.index(trace.accesses["offset"][fits])
    row, column = _places(index, array.shape)
    shown = (row < ROWS) & (column < COLUMNS)
    pixels = np.zeros((int(row[shown].max(initial=0)) + 1, int(column[shown].max(initial=0)) + 1, 4), np.uint8)
    threads = trace.accesses["thread"][fits][shown]
    colours = np.array([[*bytes.fromhex(c[1:]), 255] for c in ramp(int(threads.max(initial=0)) + 1)], np.uint8)
    pixels[row[shown], column[shown]] = colours[threads]
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}", f"threads over {array.name}"


def _telling(trace: Trace) -> TracedArray | None:
    """Return the array that says most."""
    kinds = trace.accesses["kind"]
    for scope in ("global", "shared"):
        for numbers in (trace.accesses["array"][kinds != 0], trace.accesses["array"]):
            found = [trace.arrays[n] for n in np.unique(numbers) if trace.arrays[n].scope == scope]
            if found:
                return max(found, key=lambda a: (np.prod(a.shape), -a.number))
    return None


def _places(index: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of elements: the last axis runs along a row, and wraps where it is the only one."""
    if len(shape) < 2:
        flat = index[:, 0] if shape else np.zeros(len(index), np.int64)
        return flat // COLUMNS, flat % COLUMNS
    rows = np.zeros(len(index), np.int64)
    for axis, size in enumerate(shape[:-1]):
        rows = rows * size + index[:, axis]
    return rows, index[:, -1]


def png(pixels: np.ndarray) -> bytes:
    """Return (rows, columns, 4) uint8 red, green, blue, opacity as a PNG file (W3C, "Portable Network Graphics")."""
    rows, columns = pixels.shape[:2]
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: no filter
    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)

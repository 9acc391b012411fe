"""Which part of an array a picture shows, and which accesses touch it.

A *region* is a ``range`` for each axis. Its elements are numbered in C order.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.requests import itemsizes
from nanoeuler.simt.traced.result import Trace

MOST = 4096  # elements that a picture shows

Region = tuple[range, ...]


def shown_region(trace: Trace, array: TracedArray, accesses: np.ndarray, part: Any) -> Region:
    """Return the part of an array that is shown: ``part``, the whole of a small one, or where ``accesses`` are.

    Raises:
        UserError: ``part`` does not fit, or there is too much to show.
    """
    if math.prod(array.shape) == 0:
        raise UserError(f"{array.name} has shape {array.shape}: there is no element to draw")
    if part is not None:
        region = _given(array, part)
    else:
        region = tuple(map(range, array.shape))
        if math.prod(array.shape) > MOST:
            own = accesses[accesses["array"] == array.number]
            if not len(own):
                raise UserError(f"nothing that was chosen touches {array.name}, which is too large to be drawn whole")
            index = array.index(own["offset"])
            region = tuple(map(range, index.min(0).tolist(), (index.max(0) + 1).tolist()))
    count = math.prod(map(len, region))
    if count > MOST:
        example = ", ".join(f"{r.start}:{min(r.stop, r.start + 32)}" for r in region)
        raise UserError(
            f"{named(array, region)} has {count:,} elements, and a picture shows {MOST:,} at most: choose a part, "
            f"part=np.s_[{example}], or accesses of one line= or block="
        )
    return region


def _given(array: TracedArray, part: Any) -> Region:
    given = part if isinstance(part, tuple) else (part,)
    if len(given) > len(array.shape):
        raise UserError(f"part={part!r} has {len(given)} axes, and {array.name} has {len(array.shape)}")
    region = []
    for axis, size in enumerate(array.shape):
        one = given[axis] if axis < len(given) else slice(None)
        if isinstance(one, slice):
            found = range(*one.indices(size))
        elif isinstance(one, (int, np.integer)) and -size <= one < size:
            found = range(one % size, one % size + 1)
        else:
            raise UserError(f"part={part!r}: {one!r} is no index of an axis of {size}: give slices and integers")
        if not found:
            raise UserError(f"part={part!r} leaves nothing of {array.name}, which has shape {array.shape}")
        region.append(found)
    return tuple(region)


def named(array: TracedArray, region: Region) -> str:
    """Return how a region is written: ``a[0:32, 5]``; the array's name for all of it."""
    if all(len(r) == size for r, size in zip(region, array.shape, strict=True)):
        return array.name
    parts = []
    for r, size in zip(region, array.shape, strict=True):
        whole, step = len(r) == size, "" if r.step == 1 else f":{r.step}"
        parts.append(":" if whole else str(r.start) if len(r) == 1 else f"{r.start}:{r.stop}{step}")
    return f"{array.name}[{', '.join(parts)}]"


def touches(trace: Trace, array: TracedArray, region: Region, accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return who touches what: numbers of elements of the region, and of the accesses that touch them, int64.

    An access through another array that lies in the same memory counts too, and so do elements that overlap.

    Args:
        trace: what happened.
        array: whose elements they are.
        region: which of them.
        accesses: (accesses,) bool, those that count.
    """
    same = [a.number for a in trace.arrays if (a.memory, a.scope) == (array.memory, array.scope)]
    numbers = np.flatnonzero(accesses & np.isin(trace.accesses["array"], same))
    records = trace.accesses[numbers]
    starts = np.full(tuple(map(len, region)), array.lead, np.int64)
    for axis, (r, stride) in enumerate(zip(region, array.strides, strict=True)):
        along = np.arange(r.start, r.stop, r.step) * stride
        starts += along.reshape([-1 if a == axis else 1 for a in range(len(region))])
    order = np.argsort(starts, axis=None, kind="stable")
    in_memory = starts.ravel()[order]
    first = np.searchsorted(in_memory, records["offset"] - array.dtype.itemsize, "right")
    last = np.searchsorted(in_memory, records["offset"] + itemsizes(trace)[numbers], "left")
    count = last - first
    which = np.repeat(np.arange(len(numbers)), count)
    behind = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    return order[first[which] + behind], numbers[which]

"""The lanes of a warp in a row, as pictures of one warp's requests begin."""

from collections.abc import Iterator

import numpy as np

from nanoeuler.console import plural
from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.pictures.choice import WarpRequest
from nanoeuler.simt.traced.pictures.colours import SEVERAL, ink_on, ramp
from nanoeuler.simt.traced.pictures.drawing import tag, text, tooltip
from nanoeuler.simt.traced.pictures.wording import element, position, value
from nanoeuler.simt.traced.result import ACTIONS, Trace

SIDE, HIGH = 28.0, 22.0  # of a lane, in pixels
WIDTH = WARP_SIZE * SIDE
FILLS = ramp(WARP_SIZE)


def colour_of(lanes: np.ndarray) -> str:
    """Return the colour of what some lanes touch."""
    return FILLS[lanes[0]] if len(lanes) == 1 else SEVERAL


def name_of(lanes: np.ndarray) -> str:
    """Return what stands there: the lane, or how many there are."""
    return str(lanes[0]) if len(lanes) == 1 else f"×{len(lanes)}"


def lane_row(trace: Trace, request: WarpRequest, y: float) -> Iterator[str]:
    """Yield the lanes of a warp: those that take part in their colours, the others hollow."""
    told = dict(zip(request.lanes.tolist(), _told(trace, request), strict=True))
    for lane in range(request.exist):
        active = lane in told
        fill = FILLS[lane] if active else None
        box = tag(
            *("rect", tooltip(told.get(lane, f"lane {lane} takes no part"))),
            **{"x": lane * SIDE + 1, "y": y, "width": SIDE - 2, "height": HIGH, "rx": 3, "fill": fill},
            class_=None if active else "n-empty n-hair",
            stroke_dasharray=None if active else "3 2",
            **{"data-lane": lane, "data-active": int(active)},
        )
        ink = {"fill": ink_on(fill)} if fill else {"class_": "n-dim"}
        yield box + text((lane + 0.5) * SIDE, y + 15, lane, font_size=11, text_anchor="middle", **ink)


def _told(trace: Trace, request: WarpRequest) -> list[str]:
    """Return what each lane does."""
    records = trace.accesses[request.accesses]
    made = []
    for lane, record, size, shown in zip(request.lanes, records, request.sizes, trace.values(records), strict=True):
        array = trace.arrays[record["array"]]
        index = array.index(record["offset"][None])[0].tolist()
        thread = position(int(record["thread"]), trace.launch.block)
        what = f"{ACTIONS[request.kind]} {element(array, index)}"
        made.append(f"lane {lane}, thread {thread}\n{what}: {value(shown)}\n{plural(int(size), 'byte')}")
    return made


def subject(trace: Trace, request: WarpRequest) -> str:
    """Return which warp it is, and which time."""
    block = f" of block {position(request.block, trace.launch.grid)}" if trace.launch.blocks > 1 else ""
    made = f"warp {request.warp}{block}"
    if request.exist < WARP_SIZE:
        made += f", which has {plural(request.exist, 'lane')}"
    if request.turns > 1:
        made += f" · time {request.turn + 1:,} of {request.turns:,} (nth={request.turn})"
    return made


def heading(request: WarpRequest) -> str:
    """Return what the warp does, as the source has it."""
    part = f" ({request.part})" if request.part else ""
    return f"{ACTIONS[request.kind]} {request.instruction.text}{part}"

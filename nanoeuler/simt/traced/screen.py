"""What the stepper shows in a terminal, as lines of text with a style each: a step, a thread, arrays.

``#`` is a lane that runs the line, ``.`` one that does not, ``O`` and ``o`` are the chosen thread. In the picture of an
array that has too many elements for their values, ``#`` is known, ``+`` known in part, ``.`` never written; ``r`` and
``w`` are what the chosen warp reads and writes in the step. At an ``if`` or ``while`` ``T`` is a lane for which the
condition is true, ``f`` one for which it is false.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nanoeuler.console import visible
from nanoeuler.simt.launch import WARP_SIZE, coordinates
from nanoeuler.simt.traced.branches import Branches
from nanoeuler.simt.traced.contents import Leaf, leaves
from nanoeuler.simt.traced.recorder import READ, TracedArray, Wait
from nanoeuler.simt.traced.steps import Step, shown, warp

if TYPE_CHECKING:
    from nanoeuler.simt.traced.stepper import Stepper

Line = tuple[str, str]  # text, style of rich

AROUND = 3  # lines of source above and below the current one
VALUES = 64  # elements of a shared array whose values are shown
ROWS, COLUMNS = 8, 64  # of the picture of a larger one
MOST_ROWS = 24  # of an array that is printed
VERBS = (
    "reads {} == {}",
    "writes {} = {}",
    "changes {} atomically, to {} when its turn came",
)  # by the kind of an access
#: What is said of a kernel with faults, wherever it is shown.
OUTCOME = "What follows is what happened here, a GPU may do otherwise."
SHORT = 40  # characters of a variable's value


def step_lines(stepper: "Stepper", branches: Branches, width: int) -> Iterator[Line]:
    """Yield what is shown of the step at which a stepper is."""
    step = stepper.step
    yield from ((line, "bold") for line, _ in flow(headline(stepper), width, ", "))
    yield from source_lines(stepper, step.line - AROUND, step.line + AROUND, width)
    yield lanes_line(stepper)
    taken = branches.taken(step.number)
    if taken is not None:
        yield branch_line(stepper, taken)
    yield from thread_lines(stepper, width, taken)
    for array, leaf in shared_arrays(stepper):
        yield from picture(stepper, array, leaf, width)


def headline(stepper: "Stepper") -> list[str]:
    """Return the number of the step, the block, the function, and how many threads run it."""
    step, launch = stepper.step, stepper.trace.launch
    what = {"enter": " begins", "return": " goes on after the call"}.get(step.kind, "")
    block = [f"block {coordinates(step.block, launch.grid)}"] if launch.blocks > 1 else []
    words = [f"step {step.number} of {len(stepper.steps) - 1}", *block, f"{step.function}{what}"]
    return [*words, *(["barrier"] if step.barrier else []), f"{len(step.threads)} of {launch.block_threads} threads"]


def source_lines(stepper: "Stepper", first: int, last: int, width: int) -> Iterator[Line]:
    """Yield lines of the function that the step is in, the current one marked."""
    step = stepper.step
    start, end = extent(stepper, step)
    for number in range(max(first, start), min(last, end) + 1):
        here = number == step.line
        text = visible(stepper.trace.source_line(number, step.file)).expandtabs(4)
        yield f"{'->' if here else '  '} {number:>4} | {text}"[:width], "bold cyan" if here else ""


def extent(stepper: "Stepper", step: Step) -> tuple[int, int]:
    """Return the first and last line of the function that a step is in."""
    for source in stepper.trace.source.everything():
        if source.file == step.file and step.line in source.lines:
            return source.lines[0], source.lines[-1]
    return step.line, step.line


def lanes_line(stepper: "Stepper") -> Line:
    """Return which lanes of the chosen warp run the step."""
    number, chosen = divmod(stepper.thread, WARP_SIZE)
    lanes = warp(stepper.step, number)
    marks = ["#" if there else "." for there in lanes[: len(stepper.warp_threads)]]
    marks[chosen] = "O" if lanes[chosen] else "o"
    count = f"{int(lanes.sum())} of {len(marks)} lanes"
    return f"warp {number}  {''.join(marks)}  {count}", "green" if lanes.any() else "dim"


def branch_line(stepper: "Stepper", taken: np.ndarray) -> Line:
    """Return for which lanes of the chosen warp the condition of the step is true."""
    number, lanes = stepper.thread // WARP_SIZE, warp(stepper.step, stepper.thread // WARP_SIZE)
    true = lanes & np.isin(np.arange(WARP_SIZE) + number * WARP_SIZE, taken)
    count = len(stepper.warp_threads)
    marks = "".join("T" if t else "f" if there else "." for t, there in zip(true[:count], lanes[:count], strict=True))
    head = f"warp {number}"
    return f"{'true':<{len(head)}}  {marks}  {int(true.sum())} of {int(lanes.sum())}", ""


# A thread


def thread_lines(stepper: "Stepper", width: int, taken: np.ndarray | None) -> Iterator[Line]:
    """Yield what the chosen thread does in the step, and its variables: ``*`` marks those that it has just assigned."""
    step, thread = stepper.step, stepper.thread
    index = coordinates(thread, stepper.trace.launch.block)
    decides = taken is not None and thread in step.threads
    found = [f"finds it {str(thread in taken).lower()}"] if decides and taken is not None else []
    yield from flow([f"thread {index}{absence(stepper)}", *deeds(stepper), *found], width, "  ")
    new = {v.name for v in stepper.steps.assignments(step.number) if v.thread == thread}
    values = {name: value for name, value in stepper.variables.items() if not isinstance(value, str)}
    words = [f"{'*' if name in new else ''}{name} = {clipped(shown(value))}" for name, value in values.items()]
    for text, _ in flow(words, width, "  "):
        yield f"  {text}", "yellow" if new else ""


def absence(stepper: "Stepper") -> str:
    """Say where the chosen thread is, if it does not take part in the step; "" if it does."""
    last = stepper.steps.last(stepper.position, stepper.thread)
    if last == stepper.position:
        return ""
    if last is None:
        return " has not started"
    line = stepper.steps[last].line
    if any(wait.thread == stepper.thread and not wait.passed for wait in stepper.steps.waits(last)):
        return f" waits in vain, in line {line}"
    following = stepper.steps.next(last, [stepper.thread])
    if following is None or stepper.steps[following].block != stepper.step.block:
        return f" has ended, in line {line}"
    return f" waits: it has done line {line}"


def deeds(stepper: "Stepper") -> Iterator[str]:
    """Yield what the chosen thread reads, writes and waits for in the step."""
    accesses = stepper.trace.accesses
    which = stepper.steps.accesses(stepper.position)
    which = which[accesses["thread"][which] == stepper.thread]
    for n, value in zip(which, stepper.trace.values(accesses[which]), strict=True):
        yield VERBS[accesses["kind"][n]].format(touched(stepper, int(n)), shown(value))
    for wait in stepper.steps.waits(stepper.position):
        if wait.thread == stepper.thread:
            yield waited(wait)


def touched(stepper: "Stepper", access: int) -> str:
    """Return the name of what an access touches: ``tile[2, 3]``, ``points[3].mass``."""
    array = stepper.trace.arrays[stepper.trace.accesses["array"][access]]
    found = stepper.contents.touched(array, np.array([access]))
    leaf, element = leaves(array)[int(found.leaf[0])], int(found.element[0])
    index = ", ".join(map(str, np.unravel_index(max(element, 0), array.shape) if array.shape else ["()"]))
    return f"{array.name}[{index}]{leaf.name.removeprefix(array.name)}"


def waited(wait: Wait) -> str:
    """Say what a thread did at a barrier or warp operation."""
    if not wait.passed:
        return f"waits in vain at {wait.operation}"
    given = "" if wait.given is None else f", gives {shown(wait.given)}"
    got = "" if wait.got is None else f", gets {shown(wait.got)}"
    source = "" if wait.source is None else f" from lane {wait.source}"
    return f"passes {wait.operation}{given}{got}{source}"


def clipped(text: str) -> str:
    """Return text of at most ``SHORT`` characters, with nothing in it that moves a cursor."""
    text = visible(text).replace("\n", " ")
    return text if len(text) <= SHORT else text[: SHORT - 3] + "..."


def flow(words: Iterable[str], width: int, gap: str) -> Iterator[Line]:
    """Yield words on as few lines as they fit."""
    line = ""
    for word in words:
        if line and len(line) + len(gap) + len(word) > width - 2:
            yield line, ""
            line = ""
        line += f"{gap if line else ''}{word}"[: width - 2]
    if line:
        yield line, ""


def lane_table(stepper: "Stepper") -> tuple[list[str], list[list[str]]]:
    """Return the local variables of all lanes of the chosen warp in the function of its thread: names, and rows."""
    last = stepper.steps.last(stepper.position, stepper.thread)
    frame = 0 if last is None else stepper.steps.frame_of[stepper.steps[last].execution]
    lanes = warp(stepper.step, stepper.thread // WARP_SIZE)
    of_lanes = {t: stepper.steps.variables(stepper.position, t, frame) for t in stepper.warp_threads}
    names = dict.fromkeys(n for found in of_lanes.values() for n, value in found.items() if not isinstance(value, str))
    rows = []
    for thread, found in of_lanes.items():
        mark = "#" if lanes[thread % WARP_SIZE] else "."
        values = [clipped(shown(found[name])) if name in found else "-" for name in names]
        rows.append([f"{mark} {thread % WARP_SIZE}", *values])
    return ["lane", *names], rows


def columns(head: list[str], rows: list[list[str]], width: int) -> Iterator[Line]:
    """Yield a table; columns that do not fit beside the others come below, with the first one again."""
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    start = 1
    while start < len(head) or start == 1:
        taken, end = widths[0], start
        while end < len(head) and (end == start or taken + 2 + widths[end] <= width):
            taken, end = taken + 2 + widths[end], end + 1
        shown_ = [0, *range(start, end)]
        for row in [head, *rows]:
            yield "  ".join(row[n].rjust(widths[n]) for n in shown_)[:width], "bold" if row is head else ""
        start = max(end, start + 1)


# Arrays


def shared_arrays(stepper: "Stepper") -> list[tuple[TracedArray, Leaf]]:
    """Return the shared arrays that the shown block uses, field by field."""
    pairs = [(array, leaf) for array in stepper.trace.arrays if array.scope == "shared" for leaf in leaves(array)]
    return [pair for pair in pairs if (stepper.step.block,) in stepper.contents.history(*pair).owners]


def picture(stepper: "Stepper", array: TracedArray, leaf: Leaf, width: int) -> Iterator[Line]:
    """Yield a shared array: the values of a small one, the map of a large one."""
    values, known = stepper.contents.history(array, leaf).at(stepper.position, stepper.owner(array))
    reads, writes = marked(stepper, array, leaf)
    much = "all" if known.all() else f"{int(known.sum())} of {known.size}" if known.any() else "nothing"
    yield f"shared {leaf.name}, {leaf.dtype} {list(array.shape)}: {much} written", "bold"
    if known.size <= VALUES and known.any():
        yield from table(np.ma.MaskedArray(values, ~known), width)
    elif known.any() != known.all() or reads.any() or writes.any():
        yield from ((f"  {row}", "") for row in array_map(known, reads, writes))


def marked(stepper: "Stepper", array: TracedArray, leaf: Leaf) -> tuple[np.ndarray, np.ndarray]:
    """Return which elements the chosen warp reads and which it writes in the step, each in the array's shape, bool."""
    accesses, which = stepper.trace.accesses, stepper.steps.accesses(stepper.position)
    mine = accesses["thread"][which] // WARP_SIZE == stepper.thread // WARP_SIZE
    which = which[mine & (accesses["array"][which] == array.number)]
    found = stepper.contents.touched(array, which)
    here = (found.element >= 0) & (found.leaf == leaves(array).index(leaf))
    reads = accesses["kind"][which] == READ
    made = np.zeros((2, int(np.prod(array.shape))), np.bool_)
    made[0, found.element[here & reads]] = True
    made[1, found.element[here & ~reads]] = True
    return made[0].reshape(array.shape), made[1].reshape(array.shape)


def array_map(known: np.ndarray, reads: np.ndarray, writes: np.ndarray) -> list[str]:
    """Return a picture of an array: a character for an element, or for several neighbours of a large one.

    >>> array_map(np.array([True, True, False, False]), np.array([True, *[False] * 3]), np.zeros(4, bool))
    ['r#..']
    """
    last = known.shape[-1] if known.ndim > 1 else min(known.size, COLUMNS)
    rows = -(-known.size // last)
    padded = np.zeros((4, rows * last), np.bool_)
    padded[:, : known.size] = [part.reshape(-1) for part in (known, ~known, reads, writes)]
    grid = padded.reshape(4, rows, last)
    down, right = -(-rows // ROWS), -(-last // COLUMNS)
    return [
        "".join(_character(grid[:, top : top + down, left : left + right]) for left in range(0, last, right))
        for top in range(0, rows, down)
    ]


def _character(part: np.ndarray) -> str:
    some, none, read, written = (bool(p.any()) for p in part)
    if written or read:
        return "w" if written else "r"
    return "+" if some and none else "#" if some else "." if none else " "


def table(array: Any, width: int) -> Iterator[Line]:
    """Yield the values of an array, with the index of each row."""
    cells = np.array(["." if np.ma.is_masked(v) else number(v) for v in array.reshape(-1)], object)
    cells = cells.reshape(array.shape if array.ndim else (1,))
    size = max(map(len, cells.reshape(-1)), default=1)
    fit = max(1, (width - 12) // (size + 1))
    lines = 0
    for index in np.ndindex(*cells.shape[:-1]):
        row = cells[index]
        for start in range(0, len(row), fit):
            if lines == MOST_ROWS:
                yield "  ... give a part of it to see more, such as [4:8]", "dim"
                return
            label = ", ".join(map(str, [*index, start] if len(row) > fit else index))
            text = " ".join(cell.rjust(size) for cell in row[start : start + fit])
            yield f"{f'[{label}]' if label else '':>10}  {text}"[:width], ""
            lines += 1


def number(value: Any) -> str:
    """Return a value in a few characters.

    >>> number(np.float32(0.123456)), number(np.int64(12)), number(np.bool_(True))
    ('0.1235', '12', 'True')
    """
    value = value.item() if isinstance(value, np.generic) else value
    return f"{value:.4g}" if isinstance(value, (float, complex)) else str(value)

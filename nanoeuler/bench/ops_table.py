"""The report of the benchmark of the ops, as it is printed: a table of all ops, and one for each ladder."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from nanoeuler.bench.contender import EAGER, OURS
from nanoeuler.bench.ops_measure import KERNEL
from nanoeuler.bench.ops_roofs import COPY, PRODUCT
from nanoeuler.bench.train import milliseconds
from nanoeuler.console import format_count, format_duration

Result = dict[str, Any]
Column = tuple[str, Callable[[Result, Result], str]]  # its head, and what it says of (op, contender)

#: Before a time that is an upper bound.
AT_MOST = "≤ "
UNITS = {COPY: "B/s", PRODUCT: "FLOP/s"}


def print_tables(report: Result, console: Console) -> None:
    """Print all ops, and the ladders of those that have one; then who is not in them, and why."""
    rates = ", ".join(f"{name} {format_count(rate)}{UNITS[name]}" for name, rate in report["roofs"].items())
    title = f"{report['device']}, size {report['size']['name']}, {report['dtype']}" + (f" ({rates})" if rates else "")
    rows = [
        (name_of(op) + (f": {name}" if name == KERNEL else ""), op, contender)
        for op in report["ops"]
        for name, contender in op["contenders"].items()
        if name in (OURS, KERNEL)
    ]
    compiled = [] if report["device"] == "cpu" else _FIRST
    console.print(_table(title, "op", rows, [*_COLUMNS, *compiled, *_PYTORCH]))
    for op in report["ops"]:
        simpler = [name for name in op["contenders"] if name not in (OURS, KERNEL, EAGER)]
        if simpler:
            names = [*simpler, *(name for name in (KERNEL, OURS) if name in op["contenders"])]
            rows = [("in use" if name == OURS else name, op, op["contenders"][name]) for name in names]
            console.print(_table(f"the ladder of {name_of(op)}", "version", rows, [*_COLUMNS, *_FIRST, *_LADDER]))
    for name, reason in report["skipped"].items():
        console.print(f"without {name}: {reason}", soft_wrap=True)
    for op in report["ops"]:
        for name, reason in op["skipped"].items():
            console.print(f"{name_of(op)} without {name}: {reason}", soft_wrap=True)
    for line in _about_times(report):
        console.print(line, soft_wrap=True)
    if report["device"] == "sim":
        console.print("These kernels ran on the CPU: their times say nothing about a GPU.")


def _about_times(report: Result) -> Iterator[str]:
    """Yield a line on each thing that the times need to be understood, and on what compiling took."""
    ours = [op["contenders"][name] for op in report["ops"] for name in (OURS, KERNEL) if name in op["contenders"]]
    reasons = Counter(numbers["without_graph"] for numbers in ours if numbers["graph"] is False)
    for reason, count in reasons.items():
        yield f"launched one by one, {count} of {len(ours)}: {reason}"
    if any(numbers["launches_hidden"] is False for op in report["ops"] for numbers in op["contenders"].values()):
        yield f"{AT_MOST.strip()}: not launched in time, so the GPU may have waited for the host"
    late = sum(op["roof"] is not None and op["roof"]["launches_hidden"] is False for op in report["ops"])
    if late:
        yield f"roofs not launched in time: of {late} of {len(report['ops'])} ops, whose shares may be too high"
    if report["smallest"]:
        shortest = _time(report["smallest"]["seconds"], report["smallest"])
        yield f"a launch that sets one number takes {shortest}: about so much of every time is the clock's"
    if report["first_calls"]:
        setup, calls = report["first_calls"]["setup_seconds"], report["first_calls"]["our_seconds"]
        kept = "compiled in every process" if report["device"] == "gpu" else "kept on disk once compiled"
        yield (
            f"first calls: {format_duration(calls)} for {len(report['ops'])} ops, and before them "
            f"{format_duration(setup)} for clock and roofs; kernels are {kept}"
        )


def first_calls(ops: Iterable[Result], setup: float) -> dict[str, float]:
    """Return the seconds of the first calls of the ops in use together, beside those that went before them.

    >>> first_calls([{"contenders": {"nanoeuler": {"first_seconds": 2.0}}}, {"contenders": {}}], 1.0)
    {'setup_seconds': 1.0, 'our_seconds': 2.0}
    """
    ours = (op["contenders"][OURS]["first_seconds"] for op in ops if OURS in op["contenders"])
    return {"setup_seconds": setup, "our_seconds": sum(ours)}


def name_of(op: Result) -> str:
    """Return the op and its case."""
    return f"{op['op']}, {op['case']}" if op["case"] else op["op"]


def roof_rates(ops: Iterable[Result]) -> dict[str, float]:
    """Return what the machine reached at each roof: the medians over all ops.

    >>> roof_rates([{"roof": {"name": "copy", "per_second": rate}} for rate in (3.0, 1.0, 2.0)] + [{"roof": None}])
    {'copy': 2.0}
    """
    found: dict[str, list[float]] = {}
    for roof in (op["roof"] for op in ops if op["roof"]):
        found.setdefault(roof["name"], []).append(roof["per_second"])
    return {name: sorted(rates)[len(rates) // 2] for name, rates in sorted(found.items())}


def format_time(seconds: float) -> str:
    """Return a duration as people read it: µs, ms or s.

    >>> [format_time(seconds) for seconds in (2.34e-6, 45e-6, 0.0123, 2)]
    ['2.3 µs', '45 µs', '12.3 ms', '2.00 s']
    """
    if seconds < 1e-3:
        return f"{1e6 * seconds:.{1 if seconds < 9.95e-6 else 0}f} µs"
    return milliseconds(seconds)


def _table(title: str, first: str, rows: list[tuple[str, Result, Result]], columns: list[Column]) -> Table:
    """Return a table with those of the columns that say something."""
    cells = [[text(op, contender) for _, op, contender in rows] for _, text in columns]
    table = Table(title=title)
    table.add_column(first)
    used = [i for i, column in enumerate(cells) if any(column)]
    for i in used:
        idea = columns[i][0] == "idea"
        table.add_column(columns[i][0], justify="left" if idea else "right", no_wrap=not idea)
    for number, (name, _, _) in enumerate(rows):
        table.add_row(name, *(cells[i][number] for i in used))
    return table


def _quartiles(op: Result, contender: Result) -> str:
    seconds = contender["run_seconds"]
    return f"{format_time(seconds['lower_quartile'])}, {format_time(seconds['upper_quartile'])}"


def _time(seconds: float, numbers: Result) -> str:
    return (AT_MOST if numbers["launches_hidden"] is False else "") + format_time(seconds)


def _rate(op: Result, contender: Result) -> str:
    if "share" not in contender:
        return ""
    unit = UNITS[op["roof"]["name"]]
    return format_count(contender["bytes_per_second" if unit == "B/s" else "flops_per_second"]) + unit


def _share(op: Result, contender: Result) -> str:
    return f"{contender['share']:.0%} of {op['roof']['name']}" if "share" in contender else ""


def _launch(op: Result, contender: Result) -> str:
    return "" if contender["launch_seconds"] is None else format_time(contender["launch_seconds"])


def _pytorch(op: Result, contender: Result) -> str:
    theirs = op["contenders"].get(EAGER)
    return _time(theirs["run_seconds"]["median"], theirs) if theirs else ""


def _against_pytorch(op: Result, contender: Result) -> str:
    theirs = op["contenders"].get(EAGER)
    return f"{contender['run_seconds']['median'] / theirs['run_seconds']['median']:.2f}" if theirs else ""


def _ratio(op: Result, contender: Result) -> str:
    ratio = contender["our_time"]["of_medians"]
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2g}"


_COLUMNS: list[Column] = [
    ("time", lambda _, contender: _time(contender["run_seconds"]["median"], contender)),
    ("quartiles", _quartiles),
    ("rate", _rate),
    ("share", _share),
    ("launch", _launch),
]
_FIRST: list[Column] = [("first call", lambda _, contender: format_duration(contender["first_seconds"]))]
_LADDER: list[Column] = [("in use / this", _ratio), ("idea", lambda _, contender: contender["idea"])]
_PYTORCH: list[Column] = [("PyTorch", _pytorch), ("ours / its", _against_pytorch)]

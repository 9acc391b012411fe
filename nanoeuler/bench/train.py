"""``python -m nanoeuler.bench train``: our training step beside PyTorch's, on the same model, in one run.

Both sides start from the same weights, see the same batches, and clip and update by the same rule; before anything is
timed their first losses and gradient norms must agree, for a race between two different models says nothing.
"""

import json
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from nanoeuler.bench import measure, memory
from nanoeuler.bench.contender import COMPILED, EAGER, OURS, Contender, build
from nanoeuler.bench.workload import NANOGPT, SIZES, Workload, recipe
from nanoeuler.config import Parser, number
from nanoeuler.console import format_bytes, format_count, format_duration
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError, nearest

#: Steps whose losses must agree: the first checks the forward, the later ones backward and update.
CHECK_STEPS = 3
#: Largest relative difference of a loss.
LOSS_TOLERANCE = 1e-5
#: Largest relative difference of the first gradient norm. PyTorch sums it in float32, which over 39 million elements
#: of an embedding is wrong by nearly as much (8e-4 at size gpt2); later norms also show what Adam makes of rounding.
NORM_TOLERANCE = 1e-3
#: Runnable processes for each core, a minute's mean, above which a warning is given.
BUSY = 0.25

ABOUT = (
    "Time our training step (forward, backward, clip, AdamW) beside PyTorch's on the same model, weights, batches and "
    "number of threads. Run it on a machine with nothing else to do."
)

Tell = Callable[[str], None]
Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure every size, print a table for each and write the JSON file after each.

    Raises:
        UserError: an option is wrong, the file cannot be written, or two contenders turn out to differ.
    """
    options = _parse(arguments)
    console = Console(stderr=True, highlight=False)
    report: Result = {"machine": describe_machine(options.workers, "torch"), "sizes": []}
    more = ": the ratios will mean little, for threads that wait for each other, as PyTorch's do, suffer more than ours"
    warn_if_busy(report["machine"], console, more)
    write_json(options.json, report)
    for name in options.sizes:
        result = measure_size(name, workloads(name, options.workers, options.compile), options.steps, console)
        report["sizes"].append(result)
        write_json(options.json, report)
        print_tables(result, Console(highlight=False))


def _parse(arguments: list[str]) -> Any:
    known = (*SIZES, "nanogpt")
    parser = Parser(prog="python -m nanoeuler.bench train", description=ABOUT)
    parser.add_argument(
        "--sizes",
        default="S,M",
        metavar="LIST",
        help="which models, with commas: S, M, L, gpt2 (the same on both sides); nanogpt (the recipe of "
        "configs/shakespeare-char.json beside nanoGPT's own model) [S,M]",
    )
    parser.add_argument("--steps", type=number(int, 1), default=30, metavar="N", help="timed steps of each [30]")
    parser.add_argument("--workers", type=number(int, 0), default=0, metavar="N", help="threads; 0 is one per core [0]")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    options.sizes = [size.strip() for size in options.sizes.split(",")]
    for size in options.sizes:
        if size not in known:
            raise UserError(f"unknown size '{size}'{nearest(size, known)}; sizes are {', '.join(known)}")
    options.workers = options.workers or available_cores()
    return options


def workloads(name: str, workers: int, compiled: bool) -> dict[str, Workload]:
    """Return who takes part in a size and what each one trains."""
    if name == "nanogpt":
        sides = {OURS: recipe(), EAGER: NANOGPT}
    else:
        sides = dict.fromkeys((OURS, EAGER, COMPILED) if compiled else (OURS, EAGER), SIZES[name])
    return {
        side: replace(work, training=work.training.model_copy(update={"workers": workers}))
        for side, work in sides.items()
    }


def measure_size(name: str, sides: dict[str, Workload], steps: int, console: Console) -> Result:
    """Profile, check, time and weigh one size; see :func:`_contender_result` for what is kept of each contender."""

    def tell(text: str) -> None:
        console.print(f"{name}: {text}", soft_wrap=True)

    tell("profile of the ops")
    ours = sides[OURS]
    profile = measure.profile(ours)
    contenders, seconds, skipped = _start(sides, tell)

    count = measure.rounds(steps)
    turn = sum((measure.TURN_STEPS + 1) * t + measure.PAUSE for t in seconds)
    names = ", ".join(contender.name for contender in contenders)
    tell(f"{count} x {measure.TURN_STEPS} timed steps of {names}: about {format_duration(count * turn)}")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=count * len(contenders))
        times, rates = measure.time_in_turns(contenders, steps, lambda: progress.advance(task))
    rate = float(np.median(rates))

    tell("peak memory, each in a process of its own")
    results = {c.name: _contender_result(c, times[c.name], rate, memory.measure_peak(c)) for c in contenders}
    for contender in contenders:
        result = results[contender.name]
        result["our_time"] = measure.compare(times[OURS], times[contender.name])
        if name == "nanogpt":
            result["run_steps"] = contender.workload.training.total_steps
            result["run_seconds"] = result["run_steps"] * result["step_seconds"]["median"]
    return {"name": name, "sgemm_flops_per_second": rate, "contenders": results, "skipped": skipped, "profile": profile}


def _start(sides: dict[str, Workload], tell: Tell) -> tuple[list[Contender], list[float], dict[str, str]]:
    """Build everybody and check that they agree; return them, the seconds of a step of each, and who cannot run why."""
    contenders: list[Contender] = []
    seconds: list[float] = []
    skipped: dict[str, str] = {}
    reference: list[tuple[float, float]] = []
    for name, workload in sides.items():
        optimizer = contenders[-1].optimizer if name == COMPILED and len(contenders) > 1 else None
        tell(f"first steps of {name}")
        try:
            contender, first, spent = _first_steps(name, workload, optimizer)
        except ImportError:
            skipped[name] = "PyTorch is not installed (pip install torch)"
        except Exception as error:
            if name != COMPILED:
                raise
            skipped[name] = f"it failed here: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        else:
            contenders.append(contender)
            seconds.append(spent)
            reference = reference or first
            if workload == sides[OURS]:
                check_agreement(name, reference, first)
        if name in skipped:
            tell(f"without {name}: {skipped[name]}")
    return contenders, seconds, skipped


def _first_steps(
    name: str, workload: Workload, optimizer: str | None
) -> tuple[Contender, list[tuple[float, float]], float]:
    contender = build(name, workload, optimizer)
    with contender.turn():
        first = [contender.step(i) for i in range(CHECK_STEPS)]
        spent = measure.seconds_of(contender.step, CHECK_STEPS)
    return contender, first, spent


def check_agreement(name: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> None:
    """Compare (loss, gradient norm) of the first steps: every loss, the first norm.

    Raises:
        UserError: a relative difference is above its tolerance.
    """
    pairs = [
        (f"loss of step {i}", a, b, LOSS_TOLERANCE)
        for i, ((a, _), (b, _)) in enumerate(zip(ours, theirs, strict=True), 1)
    ]
    pairs.append(("first gradient norm", ours[0][1], theirs[0][1], NORM_TOLERANCE))
    for what, a, b, tolerance in pairs:
        if not abs(a - b) <= tolerance * abs(b):  # not a number does not agree either
            raise UserError(
                f"the {what} is {a:.7g} for {OURS} and {b:.7g} for {name}: they do not train the same model, so their "
                "times are not compared. This is a bug; please report it"
            )


def _contender_result(contender: Contender, times: measure.Rounds, rate: float, peak: dict[str, int] | None) -> Result:
    """Return the numbers of one contender: times in seconds, memory in bytes, FLOPs that its model asks for."""
    workload, step_seconds = contender.workload, measure.summary(times)
    flops = workload.flops / step_seconds["median"]
    return {
        "model": workload.model.model_dump(),
        "parameters": workload.parameters,
        "tokens_per_step": workload.tokens,
        "flops_per_step": workload.flops,
        "optimizer": contender.optimizer,
        "step_seconds": step_seconds,
        "tokens_per_second": workload.tokens / step_seconds["median"],
        "flops_per_second": flops,
        "share_of_sgemm": flops / rate,
        "memory_bytes": peak,
    }


def describe_machine(workers: int, *packages: str) -> Result:
    """Return what the numbers were measured on, with the versions of the packages that take part."""
    return {
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": available_cores(),
        "workers": workers,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **{package: version_of(package) for package in packages},
    }


def warn_if_busy(machine: Result, console: Console, more: str = "") -> None:
    """Print a warning, with what more there is to say, where others are at work on the machine."""
    if machine["load"] and machine["load"] > BUSY * machine["cores"]:
        line = f"warning: others are at work on this machine (load {machine['load']:.1f}){more}"
        console.print(line, soft_wrap=True)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def version_of(package: str) -> str | None:
    """Return the version of a package that is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path | None, report: Result) -> None:
    """Write the report whole: beside its place first, so that an interrupted run leaves the last size's."""
    if path is None:
        return
    try:
        beside = path.with_name(path.name + ".partial")
        beside.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UserError(f"--json {path}: cannot write it: {error.strerror}") from None


def print_tables(result: Result, console: Console) -> None:
    """Print who took how long, and where our own time goes."""
    rate = format_count(result["sgemm_flops_per_second"])
    table = Table(title=f"{result['name']} (sgemm alone reaches {rate}FLOP/s here)")
    columns = [_column(name, contender) for name, contender in result["contenders"].items()]
    table.add_column("")
    for name in result["contenders"]:
        table.add_column(name, justify="right")
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    console.print(table)
    for name, reason in result["skipped"].items():
        console.print(f"without {name}: {reason}", soft_wrap=True)
    console.print(_profile_table(result["profile"]))


def _column(name: str, c: Result) -> dict[str, str]:
    """Return a contender's numbers as they are printed, by the names of the rows."""
    t, ratio, peak = c["step_seconds"], c["our_time"], c["memory_bytes"]
    column = {
        "model": c["model"]["preset"],
        "parameters": format_count(c["parameters"]),
        "tokens in a step": str(c["tokens_per_step"]),
        "AdamW": c["optimizer"],
        "step": milliseconds(t["median"]),
        "step, quartiles": f"{milliseconds(t['lower_quartile'])}, {milliseconds(t['upper_quartile'])}",
        "tokens/s": format_count(c["tokens_per_second"]),
        "FLOP/s": format_count(c["flops_per_second"]),
        "of sgemm": f"{c['share_of_sgemm']:.0%}",
        "peak memory": format_bytes(peak["peak"]) if peak else "unknown",
    }
    if "run_steps" in c:
        column["whole run"] = f"{c['run_steps']} steps, {format_duration(c['run_seconds'])}"
    own = name == OURS
    column["ours / its"] = "" if own else f"{ratio['of_medians']:.3f}"
    column["ours / its, quartiles"] = "" if own else f"{ratio['lower_quartile']:.3f}, {ratio['upper_quartile']:.3f}"
    return column


def _profile_table(profile: list[Result]) -> Table:
    table = Table(title="where our step spends its time (one thread)")
    table.add_column("op")
    for column in ("forward", "backward", "share"):
        table.add_column(column, justify="right")
    for entry in profile:
        backward = milliseconds(entry["backward"]) if entry["backward"] else ""
        table.add_row(entry["op"], milliseconds(entry["forward"]), backward, f"{entry['share']:.1%}")
    return table


def milliseconds(seconds: float) -> str:
    """Return a duration as people read it: ms, or s where it is long."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.{0 if seconds >= 0.1 else 1}f} ms"

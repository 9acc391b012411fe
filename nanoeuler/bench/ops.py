"""``python -m nanoeuler.bench ops``: every op by itself, and how near it comes to what the machine can do.

Most ops wait for memory: they are judged by the bytes that they cannot avoid to move, against a plain copy. Products
and attention compute, and are judged against a large matrix product. Both roofs are measured in turns with the op. On a
GPU PyTorch's time stands beside ours, and with ``--ladder`` that of the simpler versions of four ops.

The kernels on the CPU (``--device sim``) are an emulation: they are timed, and no rate is claimed.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from nanoeuler.bench.ops_entries import DEFAULT_SIZE, OP_BENCHES, SIZES, OpBench
from nanoeuler.bench.ops_measure import measure_op, prepare, with_pytorch
from nanoeuler.bench.ops_table import first_calls, print_tables, roof_rates
from nanoeuler.bench.train import describe_machine, warn_if_busy, write_json
from nanoeuler.config import Parser, number
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.device import DEVICES, HELP, op_table
from nanoeuler.errors import UserError, nearest
from nanoeuler.precision import GPU_DTYPES

__all__ = ["OP_BENCHES", "main", "select"]

ABOUT = (
    "Time each op by itself, and what share it reaches of this machine's bandwidth or rate of products. Run it on a "
    "machine with nothing else to do."
)

Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure every op, write the JSON file after each, and print the tables.

    Raises:
        UserError: an option is wrong, the device cannot be used, or the file cannot be written.
    """
    options = _parse(arguments)
    console = Console(stderr=True, highlight=False)
    ops, size = op_table(options.device, options.dtype), SIZES[options.size]
    machine = _machine(options.device, options.workers)
    warn_if_busy(machine, console)
    report: Result = {
        "machine": machine,
        "device": options.device,
        "dtype": options.dtype,
        "size": {"name": options.size, **{letter: size.extents[letter] for letter in "BTCHKDFVP"}},
        "roofs": {},  # what the machine reached: the medians over all ops
        "smallest": None,  # what the clock says of the smallest launch, on a GPU
        "first_calls": {},  # in which kernels are compiled
        "ops": [],
        "skipped": {},
    }
    write_json(options.json, report)
    with ops.Team(options.workers):
        started = perf_counter()
        bench = prepare(options.device, options.dtype, size, ops, options.workers, options.ladder)
        setup, report["smallest"] = perf_counter() - started, bench.smallest
        if options.device == "gpu" and options.torch:
            bench, report["skipped"] = with_pytorch(bench)
        for number, entry in enumerate(options.ops, 1):
            console.print(f"{number}/{len(options.ops)} {entry.name}", soft_wrap=True)
            report["ops"].append(measure_op(entry, bench, options.steps))
            report["roofs"] = roof_rates(report["ops"])
            if options.device != "cpu":
                report["first_calls"] = first_calls(report["ops"], setup)
            write_json(options.json, report)
    print_tables(report, Console(highlight=False))


def _parse(arguments: list[str]) -> Any:
    sizes = "; ".join(f"{name} ({size.about})" for name, size in SIZES.items())
    parser = Parser(prog="python -m nanoeuler.bench ops", description=ABOUT)
    parser.add_argument("--device", default="cpu", metavar="NAME", help=HELP)
    parser.add_argument("--size", metavar="NAME", help=f"of the arrays: {sizes} [by device]")
    parser.add_argument("--ops", metavar="LIST", help="which ops, with commas: linear, adamw, rope_forward ... [all]")
    parser.add_argument("--ladder", action="store_true", help="the simpler versions of four ops too (gpu, sim)")
    parser.add_argument("--dtype", default="float32", metavar="NAME", help=f"{', '.join(GPU_DTYPES)} [float32]")
    parser.add_argument("--steps", type=number(int, 1), default=12, metavar="N", help="timed samples of each [12]")
    parser.add_argument("--workers", type=number(int, 0), default=0, metavar="N", help="threads; 0 is one per core [0]")
    parser.add_argument("--no-torch", dest="torch", action="store_false", help="leave PyTorch out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    _require("device", options.device, DEVICES)
    options.size = options.size or DEFAULT_SIZE[options.device]
    _require("size", options.size, SIZES)
    _require("dtype", options.dtype, GPU_DTYPES)
    if options.device == "cpu" and options.dtype != "float32":
        raise UserError(f"--device cpu computes in float32: --dtype {options.dtype} takes --device gpu or sim")
    if options.ladder and (options.device == "cpu" or options.dtype == "bf16"):
        raise UserError("the ladders are of kernels in float32: --ladder takes --device gpu or sim, and not bf16")
    options.ops = list(OP_BENCHES) if options.ops is None else select(options.ops)
    options.workers = options.workers or available_cores()
    return options


def _require(option: str, word: str, known: Any) -> None:
    if word not in known:
        raise UserError(f"unknown {option} '{word}'{nearest(word, known)}; --{option} takes {', '.join(known)}")


def select(words: str) -> list[OpBench]:
    """Return the entries of some ops, named with commas; ``linear`` is its forward and its backward.

    Raises:
        UserError: there is no such op.
    """
    chosen: list[OpBench] = []
    for word in (word.strip() for word in words.split(",")):
        found = [entry for entry in OP_BENCHES if word in (entry.op, entry.family)]
        if not found:
            families = list(dict.fromkeys(entry.family for entry in OP_BENCHES))
            hint = nearest(word, [*families, *(entry.op for entry in OP_BENCHES)])
            raise UserError(f"unknown op '{word}'{hint}; ops are {', '.join(families)}")
        chosen += [entry for entry in found if entry not in chosen]
    return chosen


def _machine(device: str, workers: int) -> Result:
    """Return what the numbers are measured on."""
    packages = {"cpu": (), "sim": ("numba", "numba-cuda"), "gpu": ("torch", "numba", "numba-cuda")}
    machine = describe_machine(workers, *packages[device])
    if device == "gpu":
        from nanoeuler.system.driver import ask_driver

        driver = ask_driver(contexts=0)
        machine["driver"] = ".".join(map(str, driver.release or ()))  # the newest CUDA that it knows
        for gpu in driver.gpus[:1]:
            machine["gpu"] = {"name": gpu.name, "capability": ".".join(map(str, gpu.capability)), "bytes": gpu.total}
    return machine

"""The judge: what a kernel becomes on each GPU, found with no GPU, and a gate that tests put before their kernels.

The kernel is compiled as a launch would (toolchain.py). Registers, shared memory, stack and spills are read from what
assembler and linker say about that very link (``ptxas -v``): the binary tells all of these but the spills, which
nothing else tells from other local memory. Instructions are read from SASS where ``nvdisasm`` is at hand, else from
the PTX that was assembled. SASS is the truth: the assembler drops some of what PTX says, and puts in what PTX hides.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import StringIO
from linecache import getline
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.judge.assembly import FAMILIES, Instruction, family, is_float64, read_ptx, read_sass
from nanoeuler.simt.judge.occupancy import LIMITS, Occupancy, occupancy
from nanoeuler.simt.launch import Dimensions, Launch, launch_shape
from nanoeuler.simt.toolchain import (
    Build,
    MachineCode,
    argument_types,
    assemble,
    build,
    disassemble,
    make_dispatcher,
    require_toolkit,
)

ARCHITECTURES = tuple(LIMITS)
BLOCK = 256  # threads, where neither the caller nor the kernel's launch bounds name a block

ADVICE = {
    "spill": "keep fewer values alive at once (smaller tiles, less unrolling), or let a thread have more registers "
    "(max_registers, launch_bounds)",
    "stack": "index local arrays by constants only (loops of fixed length are unrolled), or put them into shared "
    "memory; spilled registers are in the stack too",
    "float64": "write float32(0.1) and float32(1) / n: a bare 0.1, -math.inf or 1 / n is float64; the float32 "
    "math.sin, cos and tan have some inside unless fastmath=True",
    "launch": "launch smaller blocks, or use less of what limits them",
}
MAY_BE_ALLOWED = ("spill", "stack", "float64")


@dataclass(frozen=True)
class ArchitectureReport:
    """One kernel on one architecture; registers and stack are per thread, shared memory per block."""

    architecture: str  # "sm_90"
    target: str  # what a launch compiles for there: "sm_90a"
    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    occupancy: Occupancy
    instructions: dict[str, int]  # how many of each family that there is, in the order of assembly.FAMILIES
    float64: tuple[Instruction, ...]  # with file and line where the compiler knows them
    ptx: str  # what was assembled
    sass: str | None  # None where no disassembler is at hand


@dataclass(frozen=True)
class CompileReport:
    """A kernel on every architecture asked for. ``dataclasses.asdict`` makes it ready for JSON."""

    kernel: str
    file: str
    line: int
    signature: str
    block_threads: int
    dynamic_shared_bytes: int
    architectures: tuple[ArchitectureReport, ...]

    def __getitem__(self, architecture: str) -> ArchitectureReport:
        return {report.architecture: report for report in self.architectures}[architecture]

    def require_clean(self, allow: str | Collection[str] = ()) -> None:
        """Do nothing if no architecture has a spill, a stack, float64 or a block that cannot be launched.

        ``allow`` names what this kernel may have after all: "spill", "stack", "float64". A list of such kernels is a
        dictionary in the test that walks them: ``gate(kernel, signature, allow=ALLOWED.get(kernel.__name__, ()))``.

        Raises:
            UserError: the message has each finding with its architectures and lines, and says what to change.
        """
        allow = (allow,) if isinstance(allow, str) else allow
        for name in allow:
            if name not in MAY_BE_ALLOWED:
                raise UserError(
                    f"cannot allow {name!r}{nearest(name, MAY_BE_ALLOWED)}: only {', '.join(MAY_BE_ALLOWED)}"
                )
        found: dict[tuple[str, str], list[str]] = {}  # architectures with the very same finding share a line
        for report in self.architectures:
            for name, text in _findings(report):
                if name not in allow:
                    found.setdefault((name, text), []).append(report.architecture)
        if found:
            raise UserError(f"kernel {self.kernel} ({Path(self.file).name}:{self.line}) {_complaint(found)}")


def compile_report(
    kernel: Any,
    signature: Any,
    architectures: str | Sequence[str] = ARCHITECTURES,
    *,
    block: Dimensions | None = None,
    shared_bytes: int = 0,
    sass: Collection[str] | None = None,
    **options: Any,
) -> CompileReport:
    """Compile a kernel for each architecture along the path of a launch, with no GPU, and report what it became.

    Args:
        kernel: A plain function, or what ``@cuda.jit`` made of it.
        signature: A Numba signature, its text, or a tuple of types or of example arguments (arrays, numbers). The
            latter are typed as a launch types them: a Python float is float64, an int is int64.
        architectures: One or more names such as "sm_90".
        block: The block that it is launched with, for the occupancy; if left out, the kernel's launch bound or 256.
        shared_bytes: The dynamic shared memory of a block. Above 48 KB, static and dynamic together, the function
            needs an attribute before its launch, which numba-cuda does not set.
        sass: Architectures whose instructions are read from SASS, which takes a third of a second each; those of the
            others are read from PTX. None reads all from SASS.
        **options: Options of ``cuda.jit`` (fastmath, max_registers, opt ...), above the kernel's own.

    Raises:
        UserError: numba-cuda or the toolkit is missing, or the kernel does not compile; the message says why.
    """
    require_toolkit()
    architectures = (architectures,) if isinstance(architectures, str) else architectures
    for name in architectures:
        if name not in LIMITS:
            raise UserError(f"unknown architecture {name!r}{nearest(name, LIMITS)}: known are {', '.join(LIMITS)}")
    dispatcher = make_dispatcher(kernel)
    function = dispatcher.py_func
    types = argument_types(dispatcher, signature)
    options = {**dispatcher.targetoptions, **options}
    launch = launch_shape(1, _block(function.__name__, block, options.get("launch_bounds")), shared_bytes)
    built = build(function, types, options)
    listings = _compile(built, architectures, architectures if sass is None else sass)
    if any(listing.float64 for listing in listings):
        listings = _with_lines(listings, build(function, types, {**options, "lineinfo": True, "debug": False}))
    return CompileReport(
        kernel=function.__name__,
        file=function.__code__.co_filename,
        line=function.__code__.co_firstlineno,
        signature=f"({', '.join(str(t) for t in types)})",
        block_threads=launch.block_threads,
        dynamic_shared_bytes=shared_bytes,
        architectures=tuple(_report(listing, built.entry, launch) for listing in listings),
    )


def gate(
    kernel: Any,
    signature: Any,
    architectures: str | Sequence[str] = ARCHITECTURES,
    *,
    allow: str | Collection[str] = (),
    **how: Any,
) -> CompileReport:
    """Return ``compile_report(kernel, signature, architectures, **how)`` if it is clean (``require_clean``).

    Raises:
        UserError: it is not, or it does not compile.
    """
    report = compile_report(kernel, signature, architectures, **how)
    report.require_clean(allow)
    return report


@dataclass(frozen=True)
class _Listing:
    """The code of one architecture and the instructions that count: those of SASS, or of PTX where there is none."""

    architecture: str
    code: MachineCode
    sass: str | None
    instructions: list[Instruction]
    float64: list[Instruction]


def _compile(
    built: Build, architectures: Sequence[str], sass: Collection[str], lineinfo: bool = False
) -> list[_Listing]:
    codes = [assemble(built, architecture, lineinfo) for architecture in architectures]
    with ThreadPoolExecutor() as pool:  # a disassembler, a process of its own, takes longer than all the rest
        wanted = [
            code if architecture in sass else None for architecture, code in zip(architectures, codes, strict=True)
        ]
        texts = list(pool.map(lambda code: None if code is None else disassemble(code), wanted))
    listings = []
    for architecture, code, text in zip(architectures, codes, texts, strict=True):
        instructions = read_ptx(code.ptx) if text is None else read_sass(text)
        float64 = [instruction for instruction in instructions if is_float64(instruction.opcode)]
        listings.append(_Listing(architecture, code, text, instructions, float64))
    return listings


def _with_lines(listings: list[_Listing], built: Build) -> list[_Listing]:
    """Return the listings with lines on the float64 of those that have some.

    A launch keeps no lines, so they come from a second compilation, and only where that gave the same instructions.
    What has lines cannot be linked with C++ (float16's operators are some): then there are none.
    """
    impure = [listing.architecture for listing in listings if listing.float64]
    try:
        located = {listing.architecture: listing.float64 for listing in _compile(built, impure, impure, lineinfo=True)}
    except UserError:
        return listings
    result = []
    for listing in listings:
        candidates = located.get(listing.architecture, [])
        same = [i.opcode for i in candidates] == [i.opcode for i in listing.float64]
        result.append(replace(listing, float64=candidates) if same else listing)
    return result


def _report(listing: _Listing, entry: str, launch: Launch) -> ArchitectureReport:
    counts = Counter(family(instruction.opcode) for instruction in listing.instructions)
    usage = _usage(listing.code, entry)
    shared_bytes = usage["static_shared_bytes"] + launch.shared_bytes
    return ArchitectureReport(
        architecture=listing.architecture,
        target=listing.code.target,
        **usage,
        occupancy=occupancy(listing.architecture, launch.block, usage["registers"], shared_bytes),
        instructions={kind: counts[kind] for kind in FAMILIES if counts[kind]},
        float64=tuple(listing.float64),
        ptx=listing.code.ptx,
        sass=listing.sass,
    )


def _usage(code: MachineCode, entry: str) -> dict[str, int]:
    """Return what a kernel uses, the functions that it calls included.

    The assembler's figures are final where it saw the whole program, as after link-time optimisation; else the linker
    gives its own, in nearly the same words.
    """
    log = code.log
    assembled = log.partition(f"Compiling entry function '{entry}'")[2].partition("Compiling entry function")[0]
    linked = log.partition(f"Function properties for '{entry}'")[2].partition("Function properties")[0]
    registers = _numbers(r"[Uu]sed (\d+) registers", linked or assembled)
    if not registers:
        raise UserError(f"this CUDA toolkit's assembler did not say what the kernel uses; it said: {log!r}")
    shared_bytes = sum(_numbers(r"(\d+) bytes smem", linked or assembled))
    if linked and shared_bytes and code.target.startswith("sm_90"):
        shared_bytes -= LIMITS["sm_90"].reserved_bytes  # only here the linker counts the system's part as well
    return {
        "registers": registers[0],
        "static_shared_bytes": shared_bytes,
        "stack_bytes": max(_numbers(r"(\d+) (?:bytes )?(?:cumulative )?stack", linked or assembled), default=0),
        "spill_store_bytes": sum(_numbers(r"(\d+) bytes spill stores", log)),
        "spill_load_bytes": sum(_numbers(r"(\d+) bytes spill loads", log)),
    }


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text)]


def _block(name: str, block: Dimensions | None, launch_bounds: int | Sequence[int] | None) -> Dimensions:
    """Return the block to reckon with; one that the kernel's launch bounds forbid is refused."""
    bound = launch_bounds[0] if isinstance(launch_bounds, Sequence) else launch_bounds
    if block is None:
        return BLOCK if bound is None else bound
    threads = launch_shape(1, block).block_threads
    if bound is not None and threads > bound:
        raise UserError(f"kernel {name} has launch_bounds={launch_bounds}: a block of {threads} threads cannot start")
    return block


def _findings(report: ArchitectureReport) -> Iterator[tuple[str, str]]:
    """Yield what is wrong as a name (a key of ``ADVICE``) and words."""
    if report.spill_store_bytes or report.spill_load_bytes:
        yield "spill", f"{report.spill_store_bytes} bytes spilled and {report.spill_load_bytes} loaded back"
    if report.stack_bytes:
        yield "stack", f"{report.stack_bytes} bytes of stack per thread"
    places: dict[tuple[str | None, int | None], dict[str, None]] = {}  # opcodes in order, each once
    for instruction in report.float64:
        place = instruction.file, instruction.line
        places.setdefault(place, {})[instruction.opcode.split(".")[0]] = None
    for (file, line), opcodes in places.items():
        where = f"{Path(file).name}:{line}: {getline(file, line).strip()}" if file and line else "line unknown"
        yield "float64", f"float64 ({', '.join(opcodes)}) at {where}"
    if not report.occupancy.blocks:
        threads, limit = report.occupancy.block_threads, report.occupancy.limited_by
        yield "launch", f"a block of {threads} threads cannot start, for its {limit}"


def _complaint(found: dict[tuple[str, str], list[str]]) -> str:
    """Return the findings as lines, those of one kind together, with what to do about it."""
    lines = [f"is not clean: {', '.join(kind for kind in ADVICE if any(name == kind for name, _ in found))}"]
    for kind, advice in ADVICE.items():
        of_kind = [f"  {', '.join(names)}: {text}" for (name, text), names in found.items() if name == kind]
        lines += [*of_kind, f"    what to do: {advice}"] if of_kind else []
    return "\n".join(lines)


def format_report(report: CompileReport) -> str:
    """Return two tables for people: what the kernel uses on each architecture, and its instructions by family."""
    shared = f"{report.dynamic_shared_bytes} bytes of dynamic shared memory"
    usage = Table(title=f"{report.kernel}, blocks of {report.block_threads} threads, {shared}")
    for column in ("", "registers", "shared", "stack", "spills", "float64", "blocks/SM", "occupancy", "limited by"):
        usage.add_column(column, justify="left" if column in ("", "limited by") else "right")
    mix = Table("instructions")
    for one in report.architectures:
        mix.add_column(one.architecture, justify="right")
        usage.add_row(
            one.target,
            str(one.registers),
            str(one.static_shared_bytes),
            str(one.stack_bytes),
            str(one.spill_store_bytes + one.spill_load_bytes),
            str(len(one.float64)),
            str(one.occupancy.blocks),
            f"{one.occupancy.fraction:.0%}",
            one.occupancy.limited_by,
        )
    for kind in FAMILIES:
        counts = [one.instructions.get(kind, 0) for one in report.architectures]
        if any(counts):
            mix.add_row(kind, *(str(count) for count in counts))
    text = StringIO()
    console = Console(file=text, width=110)
    console.print(usage, mix)
    return text.getvalue()

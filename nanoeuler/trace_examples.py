"""Example launches of every kernel of ours, small enough to be traced in about a second each.

An op's arguments are made as the benchmark of the ops makes them (:mod:`nanoeuler.bench.ops_entries`), at sizes that
letters name: B batch, T sequence, N = B T, C channels, H query heads, K key/value heads, D = C / H, F feed-forward,
V vocabulary, P parameters. What an op launches is recorded and not run, as each launch is to be traced in its turn.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import nanoeuler.cpu
import nanoeuler.gpu
from nanoeuler import simt
from nanoeuler.bench.ops_arguments import make_arguments
from nanoeuler.bench.ops_entries import OP_BENCHES, OpBench, Size
from nanoeuler.bench.ops_measure import find_ladders
from nanoeuler.console import format_bytes
from nanoeuler.errors import UserError, nearest
from nanoeuler.gpu import column_sums, linear
from nanoeuler.gpu.bfloat16 import BFLOAT16, from_bfloat16, to_bfloat16
from nanoeuler.gpu.launch import Launch, launch, recording
from nanoeuler.gpu.memory import scratch_from
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.traced.part import SMALL, Part, Traced, trace_part

DTYPES = ("float32", "bf16")
MOST_BYTES = 1 << 29  # of an op's arrays; a trace keeps a second copy, and pictures need far smaller ones
#: Sizes that are taken where nobody says: a row is not a multiple of a warp, a vector not one of a block.
LETTERS = {"B": 2, "T": 6, "C": 40, "H": 4, "K": 2, "F": 48, "V": 65, "P": 600}
#: The same for ops that need others: less work, or enough for all of their kernels to be launched.
FAMILIES = {
    "attention": {"B": 1, "T": 7, "C": 16, "H": 2, "K": 1},
    "cross_entropy": {"B": 1},  # a block for each row
    "embedding": {"T": 40, "C": 24, "V": 12},  # more places than a block sums
    "linear": {"C": 16, "F": 20, "V": 24},
}


@dataclass(frozen=True, eq=False)
class Example:
    """A function that launches kernels, with the shapes of its arguments."""

    module: str
    name: str
    bench: OpBench
    run: Callable[..., None]
    letters: dict[str, int] = field(default_factory=dict)  # sizes that differ from its family's
    about: str = ""  # of a version of a ladder: its idea

    @property
    def label(self) -> str:
        """The function, with the module if it is a version of a ladder."""
        short = self.module.removeprefix("nanoeuler.gpu.")
        return f"{short}.{self.name}" if short.startswith("ladder.") else self.name

    @property
    def title(self) -> str:
        """The label and the case."""
        return f"{self.label}, {self.bench.case}" if self.bench.case else self.label

    @property
    def address(self) -> str:
        """What it is called on the command line."""
        return f"{self.module}:{self.name}"


def _repeat_row(out: Any, row: Any) -> None:
    """Launch what writes a bias to every row before cuBLAS adds a product: no op does so on a CPU."""
    launch(linear.repeat_row, (out.shape[0], -(-out.shape[1] // linear.FLAT)), linear.FLAT, out, row)


def _add_column_sums(dbias: Any, dout: Any) -> None:
    """Add the gradient of a bias; by these names the arguments are made, float32 and whatever activations are."""
    column_sums.add_column_sums(dbias, dout)


@functools.cache
def examples() -> tuple[Example, ...]:
    """Return one example for each op and case, for what ops do on other machines or at other sizes, and each ladder."""
    ops = {name: getattr(nanoeuler.gpu, name) for name in nanoeuler.gpu.__all__}
    found = [Example(ops[b.op].__module__, b.op, b, ops[b.op]) for b in OP_BENCHES]
    few = next(b for b in OP_BENCHES if b.op == "linear_forward")
    heads, flat = "B T H D", "P"
    for bench, run, letters in (
        (OpBench(few.op, few.written, few.read, case="few rows"), ops[few.op], {"B": 1, "T": 3}),
        (OpBench("copy", {"out": heads}, {"x": heads}, case="heads"), ops["copy"], {"B": 1, "T": 3, "H": 2}),
        (OpBench("copy", {"out": flat}, {"x": flat}, case="flat"), ops["copy"], {}),
        (OpBench("repeat_row", {"out": "N C"}, {"row": "C"}), _repeat_row, {}),
        (OpBench("add_column_sums", {}, {"dout": "N C"}, {"dbias": "C"}), _add_column_sums, {}),
    ):
        module = {_repeat_row: linear.__name__, _add_column_sums: column_sums.__name__}.get(run, run.__module__)
        found.append(Example(module, bench.op, bench, run, letters))
    for op, versions in find_ladders().items():
        bench = next(b for b in OP_BENCHES if b.op == op)
        plain = OpBench(op, bench.written, bench.read, bench.added, bench.constants)
        found += [Example(v.run.__module__, v.run.__name__, plain, v.run, {}, v.idea) for v in versions[:-1]]
    return tuple(found)


# Sizes ----------------------------------------------------------------------------------------------------------------


#: What the letters of shapes mean.
MEANINGS = {
    "B": "batch", "T": "sequence", "C": "channels", "H": "query heads", "K": "key/value heads",
    "F": "feed-forward", "V": "vocabulary", "P": "parameters", "N": "B T", "D": "C / H",
}  # fmt: skip


def letters_of(example: Example) -> dict[str, str]:
    """Return the letters that an example's shapes are made of, and what each is."""
    words = _words(example.bench)
    if {"tokens", "targets"} & set(example.bench.shapes):
        words.add("V")
    letters = {word.strip("2/") for word in words}  # of 2F and D/2
    letters |= {"B", "T"} if "N" in letters else set()
    letters |= {"C", "H"} if "D" in letters else set()
    return {letter: meaning for letter, meaning in MEANINGS.items() if letter in letters}


def _words(bench: OpBench) -> set[str]:
    return {word for shape in bench.shapes.values() for word in shape.split()}


def sizes(example: Example, shape: str = "") -> Size:
    """Return the sizes that ``shape`` names, ``B=2,T=3``, and for other letters those of the example.

    Raises:
        UserError: a letter is unknown, or none of the op's; a size is no positive integer, or does not fit another.
    """
    letters = LETTERS | FAMILIES.get(example.bench.family, {}) | example.letters
    given = _parsed(example, shape)
    if "N" in given:
        N, B = given["N"], given.get("B", 1)
        if N % B or given.get("T", N // B) != N // B:
            raise UserError(f"--shape: N is B T, and {N} is not {B} times a whole T: leave some of them out")
        given |= {"B": B, "T": N // B}
    used, D = letters_of(example), given.get("D")
    if D is not None:
        H = given.get("H") or (given["C"] // D if "C" in given else letters["H"])
        if given.get("C", H * D) != H * D:
            raise UserError(f"--shape: C is H D, and {given['C']} is not {H} times {D}: leave some of them out")
        given |= {"H": H, "C": H * D}
    letters |= {letter: size for letter, size in given.items() if letter not in ("N", "D")}
    if "K" in used and letters["H"] % letters["K"] and "K" not in given:
        letters["K"] = 1
    size = Size("", **letters)
    _require_heads(size, used, _words(example.bench))
    needed = sum(math.prod(size.shape(w)) * 4 for w in example.bench.shapes.values())
    if needed > MOST_BYTES:
        raise UserError(
            f"--shape: the arrays of {example.name} would take {format_bytes(needed)}, too much for a trace: a few "
            "hundred elements a side show the same"
        )
    return size


def _parsed(example: Example, shape: str) -> dict[str, int]:
    """Return the letters of ``B=2,T=3`` with their sizes."""
    found, known = {}, letters_of(example)
    for part in filter(None, (p.strip() for p in shape.split(","))):
        letter, equals, size = (s.strip() for s in part.partition("="))
        if letter not in known:
            has = ", ".join(f"{name} ({about})" for name, about in known.items())
            raise UserError(f"--shape: {example.name} has no '{letter}'{nearest(letter, known)}; its letters are {has}")
        if not equals or not size.isdecimal() or int(size) < 1:
            raise UserError(f"--shape: '{part}' is no size: write {letter}=8")
        found[letter] = int(size)
    return found


def _require_heads(size: Size, used: dict[str, str], words: set[str]) -> None:
    """Raise a UserError where heads do not fit the channels or each other."""
    if "D" in used and size.C % size.H:
        raise UserError(f"--shape: C={size.C} is not a multiple of H={size.H}, the heads that share the channels")
    if "K" in used and size.H % size.K:
        raise UserError(f"--shape: H={size.H} is not a multiple of K={size.K}, as each key/value head serves as many")
    if "D/2" in words and size.C // size.H % 2:
        raise UserError(f"--shape: RoPE turns pairs of channels, and D = C / H is {size.C // size.H}: make it even")


# Launches -------------------------------------------------------------------------------------------------------------


def launches(example: Example, size: Size, dtype: str = "float32") -> list[Launch]:
    """Return what an example launches, in order; nothing has run yet, so a later launch waits for what earlier write.

    Raises:
        UserError: the kernels do not take these sizes, or the example has no such dtype.
    """
    if dtype != "float32" and example.about:
        raise UserError(f"--dtype: {example.address} is a version of a ladder, and these are in float32 only")
    with scratch_from(np.zeros):
        arguments = make_arguments(example.bench, _OPS, size, dtype)
        given = [arguments[name] for name in inspect.signature(example.run).parameters]
        with recording(execute=False) as work:
            example.run(*given)
    return [each for each in work if isinstance(each, Launch)]


def _by_numpy(function: Callable[..., None]) -> Callable[..., None]:
    """Return an op in NumPy that also takes bfloat16: what a forward leaves to its backward needs no kernel."""

    def run(*given: Any) -> None:
        wide = [from_bfloat16(a) if getattr(a, "dtype", None) == BFLOAT16 else a for a in given]
        function(*wide)
        for array, result in zip(given, wide, strict=True):
            if result is not array:
                array[...] = to_bfloat16(result)

    return run


#: What makes arguments: memory that starts as zeros, so that two traces are alike, and the ops that ``prepare`` calls.
_OPS = SimpleNamespace(
    empty=np.zeros,
    from_numpy=nanoeuler.gpu.from_numpy,
    **{
        name: _by_numpy(getattr(nanoeuler.cpu, name))
        for name in ("attention_forward", "head_rmsnorm_forward", "layernorm_forward", "rmsnorm_forward")
    },
)


def launches_of(work: list[Launch], kernel: str | None) -> list[int]:
    """Return which launches are of a kernel, by its address; None: all.

    Raises:
        UserError: none is.
    """
    found = [n for n, each in enumerate(work) if kernel in (None, address_of(each.kernel))]
    if not found:
        launched = ", ".join(dict.fromkeys(address_of(each.kernel) for each in work))
        raise UserError(f"{kernel} is not launched at this shape and dtype, but {launched}: choose another --shape")
    return found


def trace_launches(work: list[Launch], part: Part, wanted: Sequence[int] | None = None) -> Iterator[Traced]:
    """Trace launches in their order, or those of them whose numbers are wanted; the others run.

    Raises:
        UserError: one is too large.
    """
    wanted = range(len(work)) if wanted is None else wanted
    for number, each in enumerate(work[: max(wanted, default=-1) + 1]):
        whole = functools.partial(run_launch, each)
        if number in wanted:
            how: dict[str, Any] = {"shared_bytes": each.shared_bytes, "whole": whole if number < max(wanted) else None}
            yield trace_part(each.kernel, each.grid, each.block, each.args, part, **how)
        else:
            whole()


def run_launch(each: Launch) -> None:
    """Run a launch for what it writes: compiling a kernel takes longer than watching a small launch."""
    launch = launch_shape(each.grid, each.block)
    executor: simt.Executor = "checked" if launch.blocks * launch.block_threads <= SMALL else "compiled"
    simt.run(each.kernel, each.grid, each.block, each.args, shared_bytes=each.shared_bytes, executor=executor)


# Names ----------------------------------------------------------------------------------------------------------------


def address_of(kernel: Any) -> str:
    """Return what a kernel is called on the command line."""
    return f"{kernel.py_func.__module__}:{kernel.py_func.__name__}"


@functools.cache
def kernels() -> dict[str, tuple[Example, ...]]:
    """Return by the address of each kernel the examples that launch it, those of its own file first."""
    found: dict[str, list[Example]] = {}
    for example in examples():
        for address in {address_of(each.kernel): None for each in launches(example, sizes(example))}:
            found.setdefault(address, []).append(example)
    return {a: tuple(sorted(e, key=lambda e: e.module != a.split(":")[0])) for a, e in found.items()}


@functools.cache
def _known() -> dict[str, tuple[Example, str | None]]:
    """Return by address each example, the first of several cases, and what launches each kernel, with its address."""
    known: dict[str, tuple[Example, str | None]] = {}
    for example in examples():
        known.setdefault(example.address, (example, None))
    for address, launching in kernels().items():
        known.setdefault(address, (launching[0], address))
    return known


def short_name(address: str) -> str:
    """Return the name of an op or a kernel, with its module's where another module has the same name."""
    module, name = address.split(":")
    alone = sum(other.endswith(f":{name}") for other in _known()) == 1
    return name if alone else f"{module.removeprefix('nanoeuler.gpu.')}.{name}"


def resolve(target: str) -> tuple[Example, str | None]:
    """Return the example that a name means, and the address of the kernel if it names one.

    A name is ``nanoeuler.gpu.rmsnorm:rmsnorm_forward``, or the end of it: ``rmsnorm:rmsnorm_forward``,
    ``rmsnorm_forward``.

    Raises:
        UserError: there is none, or there are several.
    """
    known = _known()
    fitting = [address for address in known if address == target or address.endswith((f":{target}", f".{target}"))]
    if len(fitting) == 1:
        return known[fitting[0]]
    if fitting:
        raise UserError(f"'{target}' may be {' or '.join(fitting)}: give the whole name")
    raise UserError(f"no op or kernel '{target}'{_hint(target, list(known))}; --list names all, a script ends in .py")


def _hint(target: str, known: list[str]) -> str:
    """Return what may have been meant: something of the module that is named, else the nearest name of all."""
    module, _, name = target.rpartition(":")
    modules: dict[str, list[str]] = {}
    for address in known:
        there, of_module = address.split(":")
        if f".{there}".endswith(f".{module or name}"):
            modules.setdefault(there, []).append(of_module)
    if modules:
        close = nearest(name, [n for names in modules.values() for n in names]) if module else ""
        return close or ": " + "; ".join(f"{there} has {', '.join(names)}" for there, names in modules.items())
    return nearest(target, [*known, *(address.split(":")[1] for address in known)])

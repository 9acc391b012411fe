"""The types of a kernel's variables, before it runs: where ways through it meet, a variable has one type.

Numba gives each assignment a version of the variable, and where versions meet (behind an ``if``, at the head of a loop
and behind it) one type, to which each is cast on its way there: the phi of static single assignment. ``a = x[0]`` and
then ``if n > 0: a = 0.1`` make ``a`` float64 from there on, whichever way a thread took.

The casts are found by a rehearsal. Every way is taken, each expression evaluated on samples, numbers whose type alone
counts, a loop as often as types change.
"""

import ast
import functools
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import numpy as np
from numba.np.numpy_support import as_dtype

from nanoeuler.simt.checked import accesses, functions, memory, scalars
from nanoeuler.simt.checked.block import Block, Thread
from nanoeuler.simt.checked.memory import Record, View
from nanoeuler.simt.checked.operators import OPERATORS
from nanoeuler.simt.checked.races import Monitor
from nanoeuler.simt.checked.scalars import KINDS, SCALARS, UNASKED, Literal, Unified, UntypedError
from nanoeuler.simt.checked.translate import Cast, Site, Writer, printed, site, stands_in
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.source import ON_EMULATION, Source, read

Environment = dict[str, Any] | None  # a sample for each variable; None where no way leads
Way = tuple[Site, Environment]  # where a way ends that meets others, and what variables are there
ROUNDS = 8  # of a loop: types only widen, and int8 becomes complex128 in fewer


class _Unknown:
    """A value of a type that is known only when the kernel runs."""


UNKNOWN = _Unknown()


def casts(kernel: FunctionType, arguments: Iterable[Any]) -> tuple[Cast, ...]:
    """Return the casts that a launch with ``arguments`` (NumPy arrays, typed scalars) needs where ways meet.

    Where a type is not known before the run, and in a device function that is called with several types of arguments
    which need different casts, a variable keeps the type that it was assigned.
    """
    return _casts(kernel, tuple(map(_kind, arguments)))


@functools.lru_cache(maxsize=1024)
def _casts(kernel: FunctionType, kinds: tuple) -> tuple[Cast, ...]:
    run = _Run()
    with np.errstate(all="ignore"), scalars.listening(None):
        run.call(kernel, [run.sample(kind) for kind in kinds], {})
    return tuple(sorted(run.agreed(), key=lambda cast: cast[:2]))


ON_EMULATION.append(_casts.cache_clear)


def _kind(value: Any) -> Any:
    """Return what makes samples alike: a number's type, an array's dtype and axes."""
    if isinstance(value, View):
        return _kind(value.array)
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    return type(value)


def _common(values: list[Any]) -> Any:
    """Return the sample of the type that values which meet have in common; UNKNOWN where there is none.

    A float64 is marked where nobody asked for it, but for one that all ways give.
    """
    kinds = {_kind(value) for value in values}
    if len(kinds) == 1:
        return values[0]
    if kinds <= set(UNASKED):
        return Literal(1)
    if not all(kind in KINDS for kind in kinds):
        return UNKNOWN
    try:
        target = SCALARS[scalars.unify(tuple(KINDS[kind] for kind in kinds))]
    except UntypedError:
        return UNKNOWN
    return Unified(1) if target is np.float64 and np.float64 not in kinds else target(1)


class _Run:
    """One rehearsal of a kernel and all that it calls."""

    def __init__(self) -> None:
        launch = launch_shape(1, 1)
        self.monitor = Monitor(launch, "", False, False)
        block = Block(launch, 0, 0, self.monitor, np.random.default_rng(0), {})
        self.thread: Thread = block.threads[0]
        self.functions: dict[FunctionType, _Function] = {}
        self.results: dict[tuple, Any] = {}

    def sample(self, kind: Any) -> Any:
        """Return a value of a kind."""
        if isinstance(kind, tuple) and isinstance(kind[0], np.dtype):
            array = np.ones((1,) * kind[1], kind[0]) if kind[0].names is None else np.zeros((1,) * kind[1], kind[0])
            return memory.wrap_arguments(self.monitor, {"": array})[""]
        if isinstance(kind, tuple):
            parts = [self.sample(k) for k in kind[1:]]
            return kind[0](parts) if kind[0] is tuple else kind[0](*parts)
        if kind in KINDS:
            return kind(1)
        return None if kind is type(None) else UNKNOWN

    def call(self, function: FunctionType, values: Iterable[Any], named: dict[str, Any]) -> Any:
        """Return the sample of what a function returns; one that is being rehearsed returns what is not known."""
        given = inspect.signature(function).bind(*values, **named)
        written = dict(given.arguments)
        given.apply_defaults()
        arguments = {n: written[n] if n in written else scalars.literal(v) for n, v in given.arguments.items()}
        key = function, tuple(map(_kind, arguments.values()))
        if key not in self.results:
            self.results[key] = UNKNOWN
            if function not in self.functions:
                self.functions[function] = _Function(self, read(function))
            self.results[key] = self.functions[function].rehearse(arguments)
        return self.results[key]

    def agreed(self) -> Iterable[Cast]:
        """Yield the casts that all calls of a function need alike."""
        for function in self.functions.values():
            first, *others = function.found
            for (where, name), target in first.items():
                if all(other.get((where, name)) is target for other in others):
                    yield where, name, target


class _Function:
    """One function in a rehearsal."""

    def __init__(self, run: _Run, source: Source) -> None:
        self.run, self.source = run, source
        self.writer = _Writer(source, self)
        self.writer.namespace |= {"__t": run.thread, "__place": (source.file, 0)}
        self.codes: dict[ast.AST, Any] = {}
        self.found: list[dict[tuple[Site, str], type]] = []  # the casts of each call
        self.needed: dict[tuple[Site, str], type] = {}
        self.loops: list[tuple[list[Way], list[Way]]] = []  # the breaks and the continues of each
        self.returns: list[tuple[Site, Any]] = []

    def rehearse(self, arguments: dict[str, Any]) -> Any:
        """Take every way through the function; return the sample of its result."""
        outer = self.needed, self.loops, self.returns
        self.needed, self.loops, self.returns = {}, [], []
        self.found.append(self.needed)
        end = self.body(self.source.tree.body, dict(arguments))
        result = self.meet(self.returns, "") if end is None and self.returns else None
        self.needed, self.loops, self.returns = outer
        return result

    # Where ways meet

    def meet(self, ways: list[tuple[Site, Any]], name: str) -> Any:
        """Return the sample of a variable whose versions meet, and note the casts on the ways there."""
        common = _common([value for _, value in ways])
        for where, value in ways:
            self.needed.pop((where, name), None)
            if type(value) in KINDS and type(common) not in (type(value), _Unknown, Literal):
                self.needed[where, name] = type(common)
        return common

    def merge(self, ways: list[Way]) -> Environment:
        """Return the variables where ways meet."""
        open_ = [(where, found) for where, found in ways if found is not None]
        if not open_:
            return None
        merged: dict[str, Any] = {}
        for name in dict.fromkeys(name for _, found in open_ for name in found):
            merged[name] = self.meet([(where, found[name]) for where, found in open_ if name in found], name)
        return merged

    # Expressions

    def value(self, node: ast.expr | ast.AugAssign, here: dict[str, Any]) -> Any:
        """Return the sample of an expression, or of ``a + b`` for ``a += b``."""
        try:
            code = self.codes.get(node)
            if code is None:
                code = self.codes[node] = self.compiled(node)
            return eval(code, self.writer.namespace, dict(here))  # what it names for itself goes no further
        except Exception:  # the run will say what is wrong, if a thread comes there
            return UNKNOWN

    def compiled(self, node: ast.expr | ast.AugAssign) -> Any:
        """Return the code of an expression on samples."""
        if isinstance(node, ast.AugAssign):
            assert isinstance(node.target, ast.Name)
            old = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
            node = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
        made = ast.fix_missing_locations(ast.Expression(self.writer.expression(node)))
        self.writer.namespace |= dict.fromkeys(self.writer.locals_made)
        self.writer.namespace |= {name: self.caller(device) for name, device in self.writer.devices.items()}
        return compile(made, self.source.file, "eval")

    def caller(self, function: FunctionType) -> Callable:
        """Return what stands for a device function in an expression."""
        hidden = 2 if stands_in(function) else 1
        return lambda *values, **named: self.run.call(function, values[hidden:], named)

    # Statements

    def body(self, statements: list[ast.stmt], here: Environment) -> Environment:
        """Take all ways through statements; return the variables behind them."""
        for statement in statements:
            if here is None:
                break
            here = getattr(self, f"do_{type(statement).__name__.lower()}", self.do_nothing)(statement, here)
        return here

    def do_nothing(self, node: ast.stmt, here: dict[str, Any]) -> Environment:
        return here

    def do_expr(self, node: ast.Expr, here: dict[str, Any]) -> Environment:
        self.value(node.value, here)
        return here

    def do_assert(self, node: ast.Assert, here: dict[str, Any]) -> Environment:
        self.value(node.test, here)
        return here

    def do_raise(self, node: ast.Raise, here: dict[str, Any]) -> Environment:
        return None

    def do_return(self, node: ast.Return, here: dict[str, Any]) -> Environment:
        self.returns.append((site(self.source, node, "value"), self.value(node.value, here) if node.value else None))
        return None

    def do_break(self, node: ast.Break, here: dict[str, Any]) -> Environment:
        self.loops[-1][0].append((site(self.source, node, "before"), here))
        return None

    def do_continue(self, node: ast.Continue, here: dict[str, Any]) -> Environment:
        self.loops[-1][1].append((site(self.source, node, "before"), here))
        return None

    def do_assign(self, node: ast.Assign, here: dict[str, Any]) -> Environment:
        value = self.value(node.value, here)
        for target in node.targets:
            self.bind(target, value, here)
        return here

    def do_annassign(self, node: ast.AnnAssign, here: dict[str, Any]) -> Environment:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, here), here)
        return here

    def do_augassign(self, node: ast.AugAssign, here: dict[str, Any]) -> Environment:
        if isinstance(node.target, ast.Name):
            here[node.target.id] = self.value(node, here)
        else:
            self.value(node.value, here)
            self.bind(node.target, UNKNOWN, here)
        return here

    def bind(self, target: ast.expr, value: Any, here: dict[str, Any]) -> None:
        """Assign a sample."""
        if isinstance(target, ast.Name):
            here[target.id] = value
        elif isinstance(target, ast.Tuple):
            known = isinstance(value, tuple) and len(value) == len(target.elts)
            parts = value if known else [UNKNOWN] * len(target.elts)
            for part, element in zip(target.elts, parts, strict=True):
                self.bind(part, element, here)
        elif isinstance(target, ast.Subscript):
            self.value(target.slice, here)

    def do_if(self, node: ast.If, here: dict[str, Any]) -> Environment:
        self.value(node.test, here)
        ways = [("body", self.body(node.body, dict(here))), ("orelse", self.body(node.orelse, dict(here)))]
        return self.merge([(site(self.source, node, where), end) for where, end in ways])

    def do_while(self, node: ast.While, here: dict[str, Any]) -> Environment:
        return self.loop(node, here, lambda inside: self.value(node.test, inside))

    def do_for(self, node: ast.For, here: dict[str, Any]) -> Environment:
        try:
            first = next(iter(self.value(node.iter, here)))
        except (TypeError, StopIteration):
            first = UNKNOWN
        return self.loop(node, here, lambda inside: self.bind(node.target, first, inside))

    def loop(
        self, node: ast.For | ast.While, here: dict[str, Any], begin: Callable[[dict[str, Any]], Any]
    ) -> Environment:
        """Take a loop's ways until no type changes at its head; each round begins with its test, or its target."""
        head: Environment = here
        breaks: list[Way] = []
        for _ in range(ROUNDS):
            assert head is not None
            continues: list[Way] = []
            breaks = []
            self.loops.append((breaks, continues))
            inside = dict(head)
            begin(inside)
            end = self.body(node.body, inside)
            self.loops.pop()
            before = {name: _kind(value) for name, value in head.items()}
            ways = [(site(self.source, node, "before"), here), (site(self.source, node, "body"), end), *continues]
            head = self.merge(ways)
            assert head is not None
            if before == {name: _kind(value) for name, value in head.items()}:
                break
        done = self.body(node.orelse, head)
        return self.merge([(site(self.source, node, "orelse"), done), *breaks])


class _Writer(Writer):
    """Rewrites expressions into those on samples."""

    def __init__(self, source: Source, function: _Function) -> None:
        super().__init__(source)
        self.sides = lambda test, one, one_site, two, two_site: function.meet([(one_site, one), (two_site, two)], "")

    def call(self, at: ast.AST, function: Callable, *arguments: ast.expr) -> ast.expr:
        return super().call(at, ON_SAMPLES.get(function, function), *arguments)

    def delegated(self, called: ast.expr) -> ast.expr:
        return called

    def wait(self, node: ast.AST, operation: str, arguments: list[ast.expr]) -> ast.expr:
        return self.call(node, _waited, ast.Constant(operation), ast.Tuple(arguments, ast.Load()))

    def of_ifexp(self, node: ast.IfExp) -> ast.expr:
        parts = [self.expression(node.test)]
        for side, where in ((node.body, "body"), (node.orelse, "orelse")):
            place: Any = site(self.source, node, where)
            parts += [self.expression(side), ast.Constant(place)]
        return self.call(node, self.sides, *parts)

    def of_boolop(self, node: ast.BoolOp) -> ast.expr:
        return self.call(node, lambda *values: _common(list(values)), *(self.expression(v) for v in node.values))


# What stands for the functions of a translated kernel ---------------------------------------------------------------


def _nothing(*values: Any) -> None:
    """Do nothing: a rehearsal changes no memory."""


def _load(view: Any, index: Any, place: Any = None) -> Any:
    if isinstance(view, Record):
        return _load(view.view.field(index), view.index)
    if isinstance(view, tuple):
        return view[index]
    if not isinstance(view, View):
        raise UntypedError("it cannot be indexed")
    part = view.part(_first(index), ("", 0), "")
    return view.scalar(1) if part is view else part


def _first(index: Any) -> Any:
    """Return an index that is inside every array: 0 for a number, all for a slice."""
    if isinstance(index, tuple):
        return tuple(map(_first, index))
    return slice(None) if isinstance(index, slice) else 0 if isinstance(index, np.integer | int) else index


def _element(view: Any, *operands: Any) -> Any:
    if not isinstance(view, View):
        raise UntypedError("it has no elements")
    return view.scalar(1)


def _elements(value: Any, place: Any) -> Any:
    return (_load(value, 0),) if isinstance(value, View) else value


def _attribute(value: Any, name: str, place: Any) -> Any:
    return _load(value, name) if isinstance(value, Record) else accesses.attribute(value, name, place)


def _method(value: Any, name: str, arguments: tuple, place: Any) -> Any:
    if not isinstance(value, View) or name == "transpose":
        return accesses.method(value, name, arguments, place)
    dtype = as_dtype(scalars.dtype_kind(arguments[0])) if name == "view" else value.dtype
    shape = arguments[0] if name == "reshape" and isinstance(arguments[0], tuple) else arguments
    axes = {"view": len(value.sizes), "ravel": 1, "reshape": len(shape)}[name]
    return memory.wrap_arguments(value.monitor, {"": np.ones((1,) * axes, dtype)})[""]


def _numbers(*bounds: Any) -> Any:
    return (functions.range_type(tuple(map(type, bounds)))(1),)


def _waited(operation: str, operands: tuple) -> Any:
    """Return the sample of what a barrier or warp operation gives."""
    if operation.startswith("shfl"):
        return operands[1]
    return WAITED.get(operation)


WAITED: dict[str, Any] = {
    **dict.fromkeys(("syncthreads_count", "syncthreads_and", "syncthreads_or"), np.int32(1)),
    **dict.fromkeys(("all_sync", "any_sync", "eq_sync"), np.bool_(True)),
    **dict.fromkeys(("ballot_sync", "match_any_sync"), np.int32(1)),
    **{"match_all_sync": (np.int32(1), np.bool_(True)), "activemask": np.uint32(1)},
}


def _marked(function: Callable) -> Callable:
    """Return an operation whose float64 result is marked where nobody asked for it."""

    def operate(*values: Any) -> Any:
        crept: list[str] = []
        with scalars.listening(crept.append):
            result = function(*values)
        return Unified(1) if crept and type(result) is np.float64 else result

    return operate


ON_SAMPLES: dict[Callable, Callable] = {
    **{accesses.load: _load, accesses.store: _nothing, accesses.swap: _element, accesses.aligned: _nothing},
    **{accesses.atomic: lambda name, *operands: _element(*operands), accesses.elements: _elements},
    **{accesses.attribute: _attribute, accesses.method: _method, printed: _nothing, functions.numbers: _numbers},
    **{f: _marked(f) for f in (*OPERATORS.values(), functions.call, *functions.CUDA_FUNCTIONS.values())},
}

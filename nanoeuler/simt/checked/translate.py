"""A kernel's source made into Python in which each access and each operation is a call, with its line.

``a[i] = x * b[j]`` becomes ``store(multiply(x, load(b, j, place)), a, i, place)``, a number its NumPy scalar, a barrier
or warp operation a ``yield`` that says what the thread waits for. Line numbers stay those of the kernel's file.
"""

import ast
import builtins
import functools
from collections import namedtuple
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba.core import types

from nanoeuler.simt import faults, names
from nanoeuler.simt.checked import accesses, debugger, functions, memory, scalars
from nanoeuler.simt.checked.block import ENDLESS, KERNEL, PAUSE, Ended, Thread
from nanoeuler.simt.checked.operators import OPERATORS
from nanoeuler.simt.checked.races import Place
from nanoeuler.simt.checked.scalars import Literal, UntypedError
from nanoeuler.simt.source import EMULATIONS, ON_EMULATION, Source, meaning, python_function, read, unsupported, waits

# What a translated kernel calls -------------------------------------------------------------------------------------


def raised(thread: Thread, place: Place, what: str) -> None:
    """End a thread that raised."""
    thread.block.monitor.report(faults.RAISED, what, place)
    raise Ended


def endless(thread: Thread, place: Place) -> None:
    """End the launch: a loop has run for too long."""
    monitor = thread.block.monitor
    party = monitor.party(monitor.now, place, "loops")
    monitor.stop(faults.DEADLOCK, f"this loop has gone round {ENDLESS:,} times without an end", place, (party,))


def printed(*values: Any) -> None:
    """Print what a kernel prints."""
    print(*(v.item() if isinstance(v, np.generic) else v for v in values))


def returned(value: Any, kinds: tuple[Any, ...]) -> Any:
    """Return what a function of libdevice returns, in the types that it declares."""
    if isinstance(value, tuple):
        return tuple(scalars.cast(v, kind) for v, kind in zip(value, kinds, strict=True))
    return scalars.cast(value, kinds[0])


def vector(name: str, values: tuple) -> tuple:
    """Return a vector value made of numbers and smaller vectors."""
    component, width = names.VECTORS[name]
    flat = [n for value in values for n in (value if isinstance(value, tuple) else (value,))]
    if len(flat) != width:
        raise UntypedError(f"cuda.{name} takes {width} numbers, and was given {len(flat)}")
    kind = getattr(types, component)
    return VECTORS[width](*(scalars.cast(v, kind) for v in flat))


_make: Any = namedtuple  # mypy follows it only where the names are written out
VECTORS = {n: _make(f"Vector{n}", tuple("xyzw"[:n])) for n in (1, 2, 3, 4)}


# Translation --------------------------------------------------------------------------------------------------------

Site = tuple[str, int, int, str]  # file, line and column of a node, and where: before it, at the end of its body, ...
Cast = tuple[Site, str, type]  # what the variable, or with no name the value, is there made: a type of NumPy scalars


def site(source: Source, node: ast.AST, where: str) -> Site:
    """Return a place on the way through a function at which a cast may be needed."""
    return source.file, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), where


@functools.lru_cache(maxsize=256)
def translate(kernel: FunctionType, casts: tuple[Cast, ...]) -> Callable:
    """Return the Python function that runs ``kernel``. Its first parameter is the thread; one that waits yields."""
    return made(read(kernel), by_site(casts), {}, Writer)


ON_EMULATION.append(translate.cache_clear)
Casts = dict[Site, list[tuple[str, type]]]


def by_site(casts: tuple[Cast, ...]) -> Casts:
    """Return the casts that each place needs."""
    needed: Casts = {}
    for where, name, target in casts:
        needed.setdefault(where, []).append((name, target))
    return needed


def made(
    source: Source, casts: Casts, known: dict[FunctionType, Callable], write: Callable[[Source, Casts], "Writer"]
) -> Callable:
    """Return the function made of ``source``, and of those that it calls where they are not yet ``known``."""
    writer = write(source, casts)
    try:
        code = compile(ast.fix_missing_locations(ast.Module([writer.function()], [])), source.file, "exec")
    except RecursionError:
        raise unsupported(writer.at, source.file, "an expression so deep", "split it over several lines") from None
    exec(code, writer.namespace)
    function = known[source.function] = writer.namespace[source.tree.name]
    for name, target in writer.devices.items():
        writer.namespace[name] = known[target] if target in known else made(read(target), casts, known, write)
    return function


def narrowed(left: Any, right: Any, operate: Callable, single: np.float32) -> Any:
    """Return what an operator gives whose result becomes float32 at once; ``single`` is the number on the right.

    Numba's types make it float64, but the compiler computes it in float32, and exactly so: to round a sum, difference,
    product or quotient of two float32 to float64 first changes nothing (Figueroa, "When is double rounding
    innocuous?", 1995). So it is no float64 that creeps in.
    """
    return operate(left, single if type(left) is np.float32 else right)


def narrowed_left(left: Any, right: Any, operate: Callable, single: np.float32) -> Any:
    """Do what ``narrowed`` does, for a number on the left."""
    return operate(single if type(right) is np.float32 else left, right)


def stands_in(function: FunctionType) -> bool:
    """Whether a function stands for an instruction or for one of NVIDIA's: what it does, its caller's line does.

    It is given the place of its call. That its arithmetic is float64 is no fault: the GPU's is not this.
    """
    ours = (function.__module__ or "").startswith(("nanoeuler.simt.functions.", "nanoeuler.simt.cuda.random"))
    return ours or any(function is emulation for _, emulation in EMULATIONS.values())


class Writer:
    """Rewrites one function."""

    def __init__(self, source: Source, casts: Casts | None = None) -> None:
        self.source, self.casts = source, casts or {}
        self.stands_in = stands_in(source.function)
        self.at: ast.AST = source.tree  # the statement that is being rewritten
        self.namespace: dict[str, Any] = debugger.names_at_the_prompt(source)
        self.namespace |= {KERNEL: not self.stands_in, "__builtins__": builtins}
        self.devices: dict[str, FunctionType] = {}
        self.locals_made: list[str] = []
        self.count = 0

    # Building blocks

    def new(self, prefix: str) -> str:
        """Return a name that no kernel has."""
        self.count += 1
        return f"__{prefix}{self.count}"

    def constant(self, value: Any) -> ast.expr:
        """Return the name of a value that is made once."""
        name = self.new("k")
        self.namespace[name] = value
        return ast.Name(name, ast.Load())

    def call(self, at: ast.AST, function: Callable, *arguments: ast.expr) -> ast.expr:
        """Return a call of one of this package's functions."""
        name = f"__{function.__module__.rpartition('.')[2]}_{id(function)}"
        self.namespace[name] = function
        return at_place(ast.Call(at_place(ast.Name(name, ast.Load()), at), list(arguments), []), at)

    def place(self, node: ast.AST) -> ast.expr:
        """Return file and line of a node, as a constant; in a function that stands for another, those of its call."""
        if self.stands_in:
            return at_place(ast.Name("__place", ast.Load()), node)
        place: Any = self.source.file, getattr(node, "lineno", 0)
        return at_place(ast.Constant(place), node)

    def thread(self, name: str, at: ast.AST) -> ast.expr:
        """Return an attribute of the thread."""
        return at_place(ast.Attribute(at_place(ast.Name("__t", ast.Load()), at), name, ast.Load()), at)

    def cast(self, node: ast.AST, where: str) -> list[ast.stmt]:
        """Return the casts of variables at a place where ways end that meet others."""
        made: list[ast.stmt] = []
        for name, target in self.casts.get(site(self.source, node, where), []):
            old = at_place(ast.Name(name, ast.Load()), node)
            new = self.call(node, scalars.convert, old, self.constant(target))
            change = at_place(ast.Assign([ast.Name(name, ast.Store())], new), node)
            unbound = ast.ExceptHandler(ast.Name("UnboundLocalError", ast.Load()), None, [ast.Pass()])
            made.append(at_place(ast.Try([change], [unbound], [], []), node))
        return made

    def cast_value(self, node: ast.AST, where: str, value: ast.expr) -> ast.expr:
        """Return the value of one of several ways, cast to the type that it has with the others."""
        for _, target in self.casts.get(site(self.source, node, where), []):
            value = self.call(node, scalars.convert, value, self.constant(target))
        return value

    # Functions

    def function(self) -> ast.FunctionDef:
        """Return the function, rewritten."""
        tree, function = self.source.tree, self.source.function
        body = self.body(tree.body)
        start = [at_place(ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)), tree) for n in self.locals_made]
        given = tree.args
        defaults = [self.constant(scalars.literal(v)) for v in function.__defaults__ or ()]
        hidden = ("__t", "__place") if self.stands_in else ("__t",)
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(a) for a in (*hidden, *(a.arg for a in (*given.posonlyargs, *given.args)))],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=defaults,
        )
        made = ast.parse(f"def {tree.name}(): pass").body[0]  # with all fields that this version of Python has
        assert isinstance(made, ast.FunctionDef)
        made.args, made.body = arguments, [*start, *body] or [ast.Pass()]
        return ast.copy_location(made, tree)

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements, rewritten."""
        return [new for old in statements for new in self.statement(old)] or [ast.Pass()]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what one statement becomes."""
        self.at = node
        made = getattr(self, f"do_{type(node).__name__.lower()}")(node)
        return [at_place(m, node) for m in (made if isinstance(made, list) else [made])]

    def do_pass(self, node: ast.Pass) -> ast.stmt:
        return node

    def do_break(self, node: ast.Break | ast.Continue) -> list[ast.stmt]:
        return [*self.cast(node, "before"), node]

    do_continue = do_break

    def do_expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Constant):
            return ast.Pass()
        known = meaning(node.value.func) if isinstance(node.value, ast.Call) else None
        if known is not None and known.kind == "breakpoint":
            stopped = self.call(node, debugger.stop, ast.Name("__t", ast.Load()))
            hook = at_place(ast.Call(ast.Name("breakpoint", ast.Load()), [], []), node)
            return ast.Expr(ast.BoolOp(ast.Or(), [stopped, hook]))
        return ast.Expr(self.expression(node.value))

    def do_return(self, node: ast.Return) -> ast.stmt:
        return ast.Return(self.cast_value(node, "value", self.expression(node.value)) if node.value else None)

    def do_if(self, node: ast.If) -> ast.stmt:
        return ast.If(self.expression(node.test), *self.ways(node))

    def ways(self, node: ast.If | ast.For | ast.While) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return body and else, rewritten."""
        body = [*self.body(node.body), *self.cast(node, "body")]
        return body, [*(self.body(node.orelse) if node.orelse else []), *self.cast(node, "orelse")]

    def do_while(self, node: ast.While) -> list[ast.stmt]:
        """A loop counts its rounds, and lets other threads take their turns where it may be waiting for them."""
        rounds = self.new("rounds")
        stuck = self.call(node, endless, ast.Name("__t", ast.Load()), self.place(node))
        count = ast.parse(f"{rounds} += 1\nif {rounds} > {ENDLESS}: pass").body
        assert isinstance(count[1], ast.If)
        count[1].body = [ast.Expr(stuck)]
        if waits(node):
            count = [ast.Expr(self.wait(node, PAUSE, []))]
        count = [at_place(c, node) for c in count]
        start = ast.parse(f"{rounds} = 0").body
        body, orelse = self.ways(node)
        return [*self.cast(node, "before"), *start, ast.While(self.test(node), [*count, *body], orelse)]

    def test(self, node: ast.While) -> ast.expr:
        """Return the condition of a loop."""
        return self.expression(node.test)

    def do_for(self, node: ast.For) -> list[ast.stmt]:
        target, unpack = self.target(node.target)
        values = self.iterated(node.iter)
        body, orelse = self.ways(node)
        return [*self.cast(node, "before"), ast.For(target, values, [*unpack, *body], orelse)]

    def iterated(self, node: ast.expr) -> ast.expr:
        """Return what a loop runs over: the elements of an array are loads."""
        known = meaning(node.func) if isinstance(node, ast.Call) else None
        value = self.expression(node)
        if known is not None and known.target in OWN_BUILTINS:
            return value
        return self.elements(node, value)

    def elements(self, node: ast.expr, value: ast.expr) -> ast.expr:
        """Return what a loop runs over that is given ``value``."""
        return self.call(node, accesses.elements, value, self.place(node))

    def do_assign(self, node: ast.Assign) -> list[ast.stmt]:
        stored = all(isinstance(target, ast.Subscript) for target in node.targets)
        value = self.rounded_at_once(node.value) if stored else self.named(node.targets[0], node.value)
        if len(node.targets) > 1:
            kept = self.new("v")
            first = at_place(ast.Assign([ast.Name(kept, ast.Store())], value), node)
            return [first, *(s for t in node.targets for s in self.assign(t, ast.Name(kept, ast.Load()), node))]
        return self.assign(node.targets[0], value, node)

    def named(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Return what is assigned, rewritten; an array that is made there has the name of its variable."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            parts = [self.named(t, v) for t, v in zip(target.elts, value.elts, strict=True)]
            return at_place(ast.Tuple(parts, ast.Load()), value)
        return self.expression(value, target.id if isinstance(target, ast.Name) else None)

    def do_annassign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is None:
            return [ast.Pass()]
        return self.assign(node.target, self.named(node.target, node.value), node)

    def assign(self, target: ast.expr, value: ast.expr, at: ast.stmt) -> list[ast.stmt]:
        """Return the assignment of a value that is already rewritten."""
        if isinstance(target, ast.Name):
            return [at_place(ast.Assign([target], value), at)]
        if isinstance(target, ast.Subscript):
            parts = self.expression(target.value), self.index(target.slice), self.place(target)
            return [at_place(ast.Expr(self.call(target, accesses.store, value, *parts)), at)]
        if isinstance(target, ast.Attribute):
            parts = self.expression(target.value), at_place(ast.Constant(target.attr), at), self.place(target)
            return [at_place(ast.Expr(self.call(target, accesses.store, value, *parts)), at)]
        new, unpack = self.target(target)
        return [at_place(ast.Assign([new], value), at), *unpack]

    def target(self, target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
        """Return a target made of plain names, and the statements that bring their values where they belong."""
        if isinstance(target, ast.Name):
            return target, []
        if isinstance(target, ast.Tuple):
            parts = [self.target(t) for t in target.elts]
            names_ = at_place(ast.Tuple([p[0] for p in parts], ast.Store()), target)
            return names_, [s for p in parts for s in p[1]]
        kept = self.new("v")
        value = at_place(ast.Name(kept, ast.Load()), target)
        statement = at_place(ast.Pass(), target)
        return at_place(ast.Name(kept, ast.Store()), target), self.assign(target, value, statement)

    def do_augassign(self, node: ast.AugAssign) -> list[ast.stmt]:
        operate = OPERATORS[type(node.op)]
        if isinstance(node.target, ast.Name):
            old: ast.expr = at_place(ast.Name(node.target.id, ast.Load()), node)
            return self.assign(node.target, self.call(node, operate, old, self.expression(node.value)), node)
        assert isinstance(node.target, (ast.Subscript, ast.Attribute))
        keep, where = self.new("v"), self.new("v")
        array = self.expression(node.target.value)
        index = (
            self.index(node.target.slice)
            if isinstance(node.target, ast.Subscript)
            else at_place(ast.Constant(node.target.attr), node)
        )
        parts = [at_place(ast.Name(n, ast.Load()), node) for n in (keep, where)]
        old = self.call(node.target, accesses.load, *parts, self.place(node.target))
        single = self.single(node.op, node.value)
        more = () if single is None else (self.constant(operate), self.constant(single))
        new = self.call(node, operate if single is None else narrowed, old, self.expression(node.value), *more)
        return [
            ast.Assign([ast.Name(keep, ast.Store())], array),
            ast.Assign([ast.Name(where, ast.Store())], index),
            ast.Expr(self.call(node.target, accesses.store, new, *parts, self.place(node.target))),
        ]

    def do_assert(self, node: ast.Assert) -> ast.stmt:
        failed = self.call(
            node, raised, ast.Name("__t", ast.Load()), self.place(node), ast.Constant(f"`{ast.unparse(node)}` failed")
        )
        return ast.If(self.expression(node.test), [ast.Pass()], [ast.Expr(failed)])

    def do_raise(self, node: ast.Raise) -> ast.stmt:
        what = ast.Constant(f"`{ast.unparse(node)}`")
        return ast.Expr(self.call(node, raised, ast.Name("__t", ast.Load()), self.place(node), what))

    # Expressions

    def expression(self, node: ast.expr, name: str | None = None) -> ast.expr:
        """Return an expression, rewritten; ``name`` is the variable that it is assigned to."""
        known, value = self.folded(node)
        if known:
            return at_place(self.constant(value), node)
        if isinstance(node, ast.Call):
            return at_place(self.of_call(node, name), node)
        return at_place(getattr(self, f"of_{type(node).__name__.lower()}")(node), node)

    def folded(self, node: ast.expr) -> tuple[bool, Any]:
        """Return whether an expression is a number known before the run, and the number."""
        if isinstance(node, ast.Constant):
            value = node.value
            return isinstance(value, (bool, int, float, complex)), scalars.literal(value)
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = self.value(node)
            return _is_number(value), scalars.literal(value) if _is_number(value) else None
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
            return self.computed(OPERATORS[type(node.op)], operands)
        known = meaning(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and known and not node.keywords and node.args:
            if known.kind == "cast":
                return self.computed(lambda value: scalars.cast(value, known.target), node.args)
            if known.kind == "python" and getattr(known.target, "__module__", "") == "math":
                return self.computed(lambda *values: functions.call(known.target, values), node.args)
        return False, None

    def computed(self, function: Callable, operands: list[ast.expr]) -> tuple[bool, Any]:
        """Return what a function gives for numbers that are known before the run."""
        parts = [self.folded(o) for o in operands]
        if not all(known for known, _ in parts):
            return False, None
        try:
            with np.errstate(all="ignore"):
                value = function(*(v for _, v in parts))
        except (UntypedError, ArithmeticError, ValueError):
            return False, None
        wide = type(value) is np.float64 and not any(type(v) is np.float64 for _, v in parts)
        return True, Literal(value) if wide and function in OPERATORS.values() else value

    def value(self, node: ast.expr) -> Any:
        """Return what a dotted global name stands for, None where it is local or means something to CUDA."""
        if isinstance(node, ast.Attribute):
            parent = self.value(node.value)
            return getattr(parent, node.attr, None) if parent is not None and meaning(node) is None else None
        if isinstance(node, ast.Name) and node.id not in self.source.locals:
            return self.source.namespace.get(node.id)
        return None

    def of_constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(node.value)

    def of_name(self, node: ast.Name) -> ast.expr:
        if node.id in self.source.locals:
            return ast.Name(node.id, ast.Load())
        return self.global_value(node)

    def of_attribute(self, node: ast.Attribute) -> ast.expr:
        if self.value(node) is not None or meaning(node) is not None:
            return self.global_value(node)
        return self.call(
            node, accesses.attribute, self.expression(node.value), ast.Constant(node.attr), self.place(node)
        )

    def global_value(self, node: ast.Name | ast.Attribute) -> ast.expr:
        """Return an index of CUDA, a global array, a type, or whatever else a global name is."""
        known = meaning(node)
        if known is not None and known.kind == "cuda":
            return self.thread(known.name.replace(".", "_"), node)
        value = self.value(node)
        if isinstance(value, np.ndarray):
            name = at_place(ast.Constant(ast.unparse(node)), node)
            return ast.Call(self.thread("constant", node), [self.constant(value), name], [])
        return self.constant(scalars.literal(value))

    def of_tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple([self.expression(e) for e in node.elts], ast.Load())

    def of_slice(self, node: ast.Slice) -> ast.expr:
        bounds = [self.expression(b) if b else ast.Constant(None) for b in (node.lower, node.upper, node.step)]
        return self.call(node, slice, *bounds)

    def rounded_at_once(self, node: ast.expr) -> ast.expr:
        """Return an expression whose value is stored, or cast to float32, at once."""
        if isinstance(node, ast.BinOp):
            operate = self.constant(OPERATORS[type(node.op)])
            left, right = self.expression(node.left), self.expression(node.right)
            if (single := self.single(node.op, node.right)) is not None:
                return self.call(node, narrowed, left, right, operate, self.constant(single))
            if (single := self.single(node.op, node.left)) is not None:
                return self.call(node, narrowed_left, left, right, operate, self.constant(single))
        return self.expression(node)

    def single(self, operation: ast.operator, node: ast.expr) -> np.float32 | None:
        """Return a number that is known before the run as float32, if it is one exactly, for + - * /."""
        known, value = self.folded(node)
        if not known or not isinstance(operation, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            return None
        if not isinstance(value, (np.integer, np.floating)) or not np.isfinite(value) or np.float32(value) != value:
            return None
        return np.float32(value)

    def of_binop(self, node: ast.BinOp) -> ast.expr:
        return self.call(node, OPERATORS[type(node.op)], self.expression(node.left), self.expression(node.right))

    def of_unaryop(self, node: ast.UnaryOp) -> ast.expr:
        return self.call(node, OPERATORS[type(node.op)], self.expression(node.operand))

    def of_boolop(self, node: ast.BoolOp) -> ast.expr:
        return ast.BoolOp(node.op, [self.expression(v) for v in node.values])

    def of_ifexp(self, node: ast.IfExp) -> ast.expr:
        test = self.expression(node.test)  # written in the order in which it runs, by which a trace sorts
        one = self.cast_value(node, "body", self.expression(node.body))
        two = self.cast_value(node, "orelse", self.expression(node.orelse))
        return ast.IfExp(test, one, two)

    def of_compare(self, node: ast.Compare) -> ast.expr:
        """``a < b < c`` evaluates b once, and c only if it must."""
        left = self.expression(node.left)
        tests = []
        for n, (operation, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            value = self.expression(right)
            following: ast.expr = value
            if n < len(node.ops) - 1:
                name = self.new("v")
                value = at_place(ast.NamedExpr(at_place(ast.Name(name, ast.Store()), right), value), right)
                following = at_place(ast.Name(name, ast.Load()), right)
            operate = OPERATORS.get(type(operation))
            tests.append(
                self.call(node, operate, left, value)
                if operate
                else at_place(ast.Compare(left, [operation], [value]), node)
            )
            left = following
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)

    def index(self, node: ast.expr) -> ast.expr:
        """Return an index: one of numbers that are known is one constant."""
        if isinstance(node, ast.Tuple):
            parts = [self.folded(e) for e in node.elts]
            if all(known for known, _ in parts):
                return self.constant(tuple(v for _, v in parts))
        return self.expression(node)

    def of_subscript(self, node: ast.Subscript) -> ast.expr:
        value = self.expression(node.value)
        if isinstance(node.value, ast.Attribute) and node.value.attr in ("shape", "strides"):
            return ast.Subscript(value, self.index(node.slice), ast.Load())
        return self.call(node, accesses.load, value, self.index(node.slice), self.place(node))

    # Calls

    def of_call(self, node: ast.Call, name: str | None) -> ast.expr:
        known = meaning(node.func)
        if known is None:
            assert isinstance(node.func, ast.Attribute)
            arguments = ast.Tuple([self.expression(a) for a in node.args], ast.Load())
            value = self.expression(node.func.value)
            return self.call(node, accesses.method, value, ast.Constant(node.func.attr), arguments, self.place(node))
        return getattr(self, f"call_{known.kind}")(node, known.name, known.target, name)

    def arguments(self, node: ast.Call) -> list[ast.expr]:
        """Return all arguments, those by keyword last."""
        return [self.expression(a) for a in (*node.args, *(k.value for k in node.keywords))]

    def call_device(self, node: ast.Call, name: str, target: FunctionType, _: str | None) -> ast.expr:
        if target is memory.require_alignment:
            return self.call(node, accesses.aligned, *self.arguments(node), self.place(node))
        given = [self.expression(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.expression(k.value)) for k in node.keywords]
        called = self.invoke(node, target, given, keywords)
        blocks = target is not self.source.function and read(target).blocks
        return self.delegated(called) if blocks else called

    def delegated(self, called: ast.expr) -> ast.expr:
        """Return the call of a function that may wait."""
        return ast.YieldFrom(called)

    def invoke(
        self, node: ast.Call, target: FunctionType, arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> ast.expr:
        """Return the call of a function that is rewritten as well."""
        alias = self.new("device")
        self.devices[alias] = target
        hidden: list[ast.expr] = [at_place(ast.Name("__t", ast.Load()), node)]
        hidden += [self.place(node)] if stands_in(target) else []
        return at_place(ast.Call(at_place(ast.Name(alias, ast.Load()), node), [*hidden, *arguments], keywords), node)

    def call_libdevice(self, node: ast.Call, name: str, _: Any, __: str | None) -> ast.expr:
        from nanoeuler.simt.functions import libdevice  # takes long to import, and few kernels need it

        emulation = libdevice.FUNCTIONS.get(name)
        if emulation is None:
            raise unsupported(node, self.source.file, f"cuda.libdevice.{name}", "the runner does not have it")
        arguments = [
            self.call(node, scalars.convert, argument, self.constant(getattr(np, kind)))
            for argument, kind in zip(self.arguments(node), emulation.arguments, strict=True)
        ]
        called = self.invoke(node, python_function(emulation.function), arguments, [])
        returns = self.constant(tuple(getattr(types, kind) for kind in emulation.returns))
        return self.call(node, returned, called, returns)

    def call_breakpoint(self, node: ast.Call, name: str, target: Any, _: str | None) -> ast.expr:
        raise unsupported(node, self.source.file, "breakpoint() within an expression", "give it a line of its own")

    def call_cast(self, node: ast.Call, name: str, target: Any, _: str | None) -> ast.expr:
        scalar = scalars.SCALARS.get(target)
        if scalar is None:
            raise unsupported(node, self.source.file, f"a cast to {target}", "use a type of numbers")
        if scalar is np.float32 and len(node.args) == 1:
            return self.call(node, scalars.convert, self.rounded_at_once(node.args[0]), self.constant(scalar))
        return self.call(node, scalars.convert, *self.arguments(node), self.constant(scalar))

    def call_vector(self, node: ast.Call, name: str, target: Any, _: str | None) -> ast.expr:
        return self.call(node, vector, ast.Constant(name), ast.Tuple(self.arguments(node), ast.Load()))

    def call_python(self, node: ast.Call, name: str, target: Any, _: str | None) -> ast.expr:
        arguments = self.arguments(node)
        if target in (enumerate, zip):
            arguments = [self.elements(node, a) for a in arguments]
        if target in OWN_BUILTINS:
            return self.call(node, OWN_BUILTINS[target], *arguments)
        return self.call(node, functions.call, self.constant(target), ast.Tuple(arguments, ast.Load()))

    def call_cuda(self, node: ast.Call, name: str, target: Any, variable: str | None) -> ast.expr:
        if name in names.BLOCKING:
            return self.wait(node, name, self.arguments(node))
        if name in names.ARRAYS:
            return self.array(node, name, variable)
        if name in names.ATOMICS:
            return self.atomic(node, name.removeprefix("atomic."))
        if name in names.FENCES:
            device = ast.Constant(name != "threadfence_block")
            return ast.Call(self.thread("fence", node), [at_place(device, node)], [])
        if name in names.CACHE_LOADS:
            return self.call(node, accesses.load, *self.arguments(node), self.place(node))
        if name in names.CACHE_STORES:
            array, index, value = self.arguments(node)
            return self.call(node, accesses.store, value, array, index, self.place(node))
        if name in functions.CUDA_FUNCTIONS:
            return self.call(node, functions.CUDA_FUNCTIONS[name], *self.arguments(node))
        if name == "nanosleep":
            return self.call(node, _nothing, *self.arguments(node))
        return ast.Call(self.thread(name, node), self.arguments(node), [])  # grid, gridsize, lanemask_lt

    def wait(self, node: ast.AST, operation: str, arguments: list[ast.expr]) -> ast.expr:
        """Return the yield of a thread that waits: what for, where, and with which operands."""
        spot: Any = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        parts = [ast.Constant(operation), self.place(node), ast.Constant(spot), ast.Tuple(arguments, ast.Load())]
        return at_place(ast.Yield(at_place(ast.Tuple([at_place(p, node) for p in parts], ast.Load()), node)), node)

    def array(self, node: ast.Call, name: str, variable: str | None) -> ast.expr:
        if name == "const.array_like":
            return self.expression(node.args[0])
        site: Any = self.source.file, node.lineno, node.col_offset
        first: list[ast.expr] = [ast.Constant(site), ast.Constant(variable or ast.unparse(node))]
        if name != "shared.array":
            kept = self.new("local")
            self.locals_made.append(kept)
            first.insert(0, ast.Name(kept, ast.Load()))
        keywords = [ast.keyword(k.arg, self.expression(k.value)) for k in node.keywords]
        arguments = [*first, *(self.expression(a) for a in node.args)]
        made = ast.Call(self.thread(name.replace(".", "_"), node), arguments, keywords)
        return made if name == "shared.array" else ast.NamedExpr(ast.Name(kept, ast.Store()), made)

    def atomic(self, node: ast.Call, name: str) -> ast.expr:
        arguments = self.arguments(node)
        if name == "compare_and_swap":
            arguments.insert(1, self.constant(np.int64(0)))
        if name in ("cas", "compare_and_swap"):
            return self.call(node, accesses.swap, *arguments, self.place(node))
        return self.call(node, accesses.atomic, at_place(ast.Constant(name), node), *arguments, self.place(node))


OWN_BUILTINS: dict[Any, Callable] = {
    **{range: functions.numbers, enumerate: functions.numbered, print: printed, zip: zip}
}


def _nothing(*values: Any) -> None:
    """Do nothing: ``nanosleep`` has no effect on what is computed."""


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_is_number(v) for v in value)
    return isinstance(value, (bool, int, float, complex, np.number, np.bool_))


def at_place(node: Any, where: ast.AST) -> Any:
    """Return ``node`` at the place of ``where``, unless it has one."""
    return node if hasattr(node, "lineno") else ast.copy_location(node, where)

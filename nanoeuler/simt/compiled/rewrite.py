"""From a kernel's source to what CPU Numba compiles: every barrier and warp operation becomes a ``yield``.

A kernel that never waits stays a plain function; one that does becomes a generator, one per CUDA thread. Device
functions that wait are written out where they are called (Numba has no ``yield from``); the others are compiled by
themselves. Names of ``numba.cuda`` become the functions of the modules beside this one.
"""

import ast
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numba.core.types import Type
from numba.np.numpy_support import as_dtype, from_dtype

from nanoeuler.simt import names
from nanoeuler.simt.compiled import arithmetic, atomics, generators, math_functions
from nanoeuler.simt.compiled.scheduler import KIND_BITS, KINDS, PAUSE
from nanoeuler.simt.source import Meaning, Source, meaning, python_function, read, refuse_results, unsupported, waits

DIMS, MEMORY = "__dims", "__memory"  # hidden parameters: see `build`
TRIPLES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
AXES = {f"{triple}.{axis}": 3 * i + j for i, triple in enumerate(TRIPLES) for j, axis in enumerate("xyz")}
ALIGNMENT = 16
MAX_ITEMSIZE = 16
ROUNDS, WAITING_ROUNDS = 100_000_000, 1_000_000  # after which a `while` loop is taken to be endless
ENDLESS = "a while loop has gone round more often than"

HELPERS: dict[str, Any] = {
    **{f"__{f.__name__}": f for f in (generators.array_at, generators.offer, generators.taken)},
    **{
        f"__{f.__name__}": f
        for f in (generators.taken_int32, generators.taken_uint32, generators.taken_bool, generators.taken_match)
    },
    **{f"__{f.__name__}": f for f in (arithmetic.smaller, arithmetic.larger, arithmetic.laneid, arithmetic.store)},
    **{f"__{name}": getattr(arithmetic, name) for name in ("shift_left", "shift_right", "lanemask_lt", "fma", "selp")},
    **{f"__{name}": getattr(arithmetic, name) for name in ("popc", "clz", "ffs", "brev", "cbrt")},
    **{f"__{name}_{n}": getattr(arithmetic, f"{name}_{n}") for name in ("grid", "gridsize") for n in (1, 2, 3)},
    **{f"__math_{name}": function for name, function in math_functions.FUNCTIONS.items()},
    **{f"__vector_{name}": make for name, make in arithmetic.VECTORS.items()},
    **{f"__atomic_{name}": function for name, function in atomics.FUNCTIONS.items()},
    **{"__atomic_cas": atomics.cas, "__atomic_compare_and_swap": atomics.compare_and_swap},
    **{f"__{f.__name__}": f for f in (generators.offer_shuffle, generators.offer_predicate, generators.offer_count)},
}
RESULTS = {
    **{"syncthreads_count": "__taken_int32", "syncthreads_and": "__taken_int32", "syncthreads_or": "__taken_int32"},
    **{"all_sync": "__taken_bool", "any_sync": "__taken_bool", "eq_sync": "__taken_bool"},
    **{"ballot_sync": "__taken_int32", "match_any_sync": "__taken_int32", "match_all_sync": "__taken_match"},
    **{"activemask": "__taken_uint32"},
}


@dataclass(frozen=True)
class Place:
    """Where a thread can wait."""

    file: str
    line: int
    column: int
    operation: str


@dataclass
class Function:
    """One function to be compiled: its tree, and the values of the names in it that are not its own."""

    tree: ast.FunctionDef
    file: str
    namespace: dict[str, Any]
    devices: dict[str, "Function"]  # by the name they are called by


@dataclass
class Program:
    """A kernel ready for Numba: the kernel, where its threads wait, and the memory that a block and a thread need."""

    kernel: Function
    is_generator: bool
    places: list[Place]
    shared_bytes: int
    local_bytes: int


@dataclass
class _Plan:
    """What the functions of one program share."""

    places: list[Place] = field(default_factory=list)
    functions: dict[Any, Function] = field(default_factory=dict)
    storage: dict[tuple[Any, int, int], int] = field(default_factory=dict)  # by call site: (function, line, column)
    shared_bytes: int = 0
    local_bytes: int = 0
    recursive: bool = False
    count: int = 0

    def unique(self, prefix: str) -> str:
        """Return a name that nothing else has."""
        self.count += 1
        return f"__{prefix}{self.count}"

    def place(self, place: Place) -> int:
        """Return the number of a place."""
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place)


def rewrite(kernel: Any) -> Program:
    """Return the program of a kernel.

    Raises:
        UnsupportedError: the kernel uses something that the compiled executor does not know.
    """
    source, plan = read(kernel), _Plan()
    plan.recursive = any(s.recursive for s in source.everything())
    refuse_results(source)
    function = _function(source, plan)
    waits_somewhere = any(isinstance(n, ast.Yield) for n in ast.walk(function.tree))
    if waits_somewhere:  # a yield that Numba cannot prune, should all others stand behind `if` of a constant
        function.tree.body.insert(0, _at(ast.parse(f"if {DIMS}[6] < 0: yield {PAUSE}").body[0], function.tree))
    return Program(function, waits_somewhere, plan.places, plan.shared_bytes, plan.local_bytes)


def _function(source: Source, plan: _Plan) -> Function:
    """Return one function, rewritten, with what it calls."""
    if source.function in plan.functions:
        return plan.functions[source.function]
    tree = copy.deepcopy(source.tree)
    tree.decorator_list, tree.returns = [], None
    result = plan.functions[source.function] = Function(tree, source.file, {}, {})
    rewriter = _Rewriter(source, plan)
    tree.body = rewriter.statements(tree.body) or [ast.Pass()]
    for argument in tree.args.args:
        argument.annotation = None
    tree.args.args[:0] = [ast.arg(DIMS), ast.arg(MEMORY)]
    tree.args.defaults = []
    ast.fix_missing_locations(tree)
    result.devices.update(rewriter.devices)
    result.namespace.update(rewriter.values)
    for name in _free_names(tree):
        if name in HELPERS:
            result.namespace[name] = HELPERS[name]
        elif name in source.namespace:
            result.namespace.setdefault(name, source.namespace[name])
    return result


def _free_names(tree: ast.FunctionDef) -> list[str]:
    """Return the names that a function reads and does not store, in the order of their first use."""
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    stored |= {a.arg for a in tree.args.args}
    return list(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in stored))


class _Rewriter(ast.NodeTransformer):
    """Rewrites the statements of one function."""

    def __init__(self, source: Source, plan: _Plan) -> None:
        self.source, self.plan = source, plan
        self.before: list[ast.stmt] = []  # statements that the one being rewritten needs before it
        self.devices: dict[str, Function] = {}
        self.values: dict[str, Any] = {}  # of names that this rewriting made up

    # Statements ---------------------------------------------------------------------------------------------------

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block, rewritten."""
        return [done for statement in body for done in self.statement(statement)]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what one statement becomes."""
        if isinstance(node, ast.While):
            return self.while_loop(node)
        self.before = []
        if isinstance(node, ast.AugAssign):
            node = self.augmented(node)
        if (
            isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return))
            and node.value is not None
        ):
            node.value = self.flat(node.value)
            if isinstance(node, ast.Assign) and any(self.inlined(target) for target in node.targets):
                node.value = self.stash(node.value)  # Python works out the value before the places that it goes to
                node.targets = [self.settled(target) for target in node.targets]
        elif isinstance(node, ast.If):
            node.test = self.flat(node.test)
        elif isinstance(node, ast.For):
            node.iter = self.flat(node.iter)
        before, self.before = self.before, []
        if isinstance(node, ast.AnnAssign):
            if node.value is None:
                return before
            node = ast.copy_location(ast.Assign([node.target], node.value), node)
        if isinstance(node, (ast.If, ast.For)):
            node.body, node.orelse = self.statements(node.body), self.statements(node.orelse)
            header = "test" if isinstance(node, ast.If) else "iter"
            setattr(node, header, self.visit(getattr(node, header)))
            if isinstance(node, ast.For):
                node.target = self.visit(node.target)
        elif not isinstance(node, ast.Raise):
            node = self.visit(node)
        return [*before, node]

    def while_loop(self, node: ast.While) -> list[ast.stmt]:
        """Rewrite a loop. One that waits for other threads gives them a turn in each round; any other is counted.

        Native code cannot be interrupted, so a loop that has no end must be found by its number of rounds.
        """
        self.before = []
        turn = waits(node)
        test = self.flat(node.test)
        before, self.before = self.before, []
        test = self.visit(test)
        body, orelse = self.statements(node.body), self.statements(node.orelse)
        if turn:
            pause = ast.Yield(ast.Constant(self.code(PAUSE, node, "waiting loop")))
            body.insert(0, _at(ast.Expr(pause), node))
        rounds = self.plan.unique("rounds")
        start: list[ast.stmt] = []
        if not turn:
            waiting = any(isinstance(n, ast.Yield) for statement in (*before, *body) for n in ast.walk(statement))
            limit = WAITING_ROUNDS if waiting else ROUNDS
            start = _statements(f"{rounds} = 0", node)
            body[:0] = _statements(
                f"{rounds} += 1\nif {rounds} > {limit}: raise RuntimeError('{ENDLESS} {limit:,}')", node
            )
        if before:
            leave = ast.If(ast.UnaryOp(ast.Not(), test), [*orelse, ast.Break()], [])
            test, body, orelse = ast.Constant(True), [*before, leave, *body], []
        return [*start, ast.copy_location(ast.While(test, body, orelse), node)]

    def settled(self, target: ast.expr) -> ast.expr:
        """Return the place that is assigned to, with its waiting calls made before the statement."""
        if not self.inlined(target):
            return target
        if not isinstance(target, ast.Subscript):
            raise unsupported(target, self.source.file, "a waiting call in this target", "work it out before")
        value, index = self.stash(self.flat(target.value)), self.stash(self.flat(target.slice))
        return _at(ast.Subscript(value, index, ast.Store()), target)

    def augmented(self, node: ast.AugAssign) -> Any:
        """Return ``a[i] op= value`` as an assignment where the value has to be worked out before it, or is a shift."""
        shift = isinstance(node.op, (ast.LShift, ast.RShift))
        if not shift and not (isinstance(node.target, ast.Subscript) and self.inlined(node)):
            return node
        target: Any = node.target
        if isinstance(target, ast.Subscript):
            value, index = self.stash(self.flat(target.value)), self.stash(self.flat(target.slice))
            target = ast.Subscript(value, index, ast.Store())
        old = copy.deepcopy(target)
        old.ctx = ast.Load()
        if self.inlined(node.value):
            old = self.stash(old)
        return _at(ast.Assign([target], ast.BinOp(old, node.op, node.value)), node)

    # Calls that wait: written out before the statement that they are part of ----------------------------------------
    # What Numba holds on its evaluation stack over a yield becomes part of a thread's state; nothing should be.

    def inlined(self, node: ast.AST) -> bool:
        """Whether a call that waits, of a device function or of CUDA's own, is inside ``node``."""
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        return any(self.operation(n) is not None or self.waiting(n) is not None for n in calls)

    def operation(self, call: ast.Call) -> str | None:
        """Return the name of the barrier or warp operation that ``call`` is."""
        known = meaning(call.func)
        return known.name if known is not None and known.kind == "cuda" and known.name in names.BLOCKING else None

    def waiting(self, call: ast.Call) -> Source | None:
        """Return the source of a device function that waits, if ``call`` calls one."""
        known = meaning(call.func)
        if known is None or known.kind != "device":
            return None
        source = read(known.target)
        return source if source.blocks else None

    def flat(self, node: ast.expr) -> ast.expr:
        """Return ``node`` with its calls that wait made before it, and what comes before them too."""
        if not self.inlined(node):
            return node
        if isinstance(node, ast.Call) and (name := self.operation(node)) is not None:
            return self.write_wait(node, name)
        if isinstance(node, ast.Call) and (source := self.waiting(node)) is not None:
            return self.write_out(source, node)
        if isinstance(node, ast.IfExp):
            return self.choice(node, self.flat(node.test), node.body, node.orelse)
        if isinstance(node, ast.BoolOp):
            return self.short_circuit(node)
        parts = [(holder, key, part) for holder, key, part in _operands(node)]
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            raise unsupported(node, self.source.file, "a waiting call in a chained comparison", "compare one by one")
        for position, (holder, key, part) in enumerate(parts):
            later = any(self.inlined(other) for _, _, other in parts[position + 1 :])
            part = self.flat(part)
            _put(holder, key, self.stash(part) if later else part)
        return node

    def stash(self, node: ast.expr) -> ast.expr:
        """Work ``node`` out now; return the name that holds it."""
        if isinstance(node, (ast.Constant, ast.Name)):
            return node
        if isinstance(node, ast.Slice):
            raise unsupported(node, self.source.file, "a waiting call beside a slice", "take the slice before it")
        name = self.plan.unique("v")
        self.before.append(_at(ast.Assign([ast.Name(name, ast.Store())], self.visit(node)), node))
        return _at(ast.Name(name, ast.Load()), node)

    def choice(self, node: ast.expr, test: ast.expr, yes: ast.expr, no: ast.expr) -> ast.expr:
        """Work out ``yes if test else no`` before the statement, each side in its own branch."""
        name, outer = self.plan.unique("v"), self.before
        branches = []
        for side in (yes, no):
            self.before = []
            value = self.visit(self.flat(side))
            branches.append([*self.before, ast.Assign([ast.Name(name, ast.Store())], value)])
        self.before = outer
        self.before.append(_at(ast.If(self.visit(test), branches[0], branches[1]), node))
        return _at(ast.Name(name, ast.Load()), node)

    def short_circuit(self, node: ast.BoolOp) -> ast.expr:
        """Work out ``a and b and …`` before the statement: each value only where those before it ask for it."""
        first, *others = node.values
        if not others:
            return self.flat(first)
        left = self.stash(self.flat(first))
        rest: ast.expr = others[0] if len(others) == 1 else _at(ast.BoolOp(node.op, others), node)
        if isinstance(node.op, ast.And):
            return self.choice(node, left, rest, left)
        return self.choice(node, left, left, rest)

    def write_out(self, source: Source, call: ast.Call) -> ast.expr:
        """Put the body of a waiting device function before the statement; return what it returns."""
        if source.function is self.source.function:
            raise unsupported(call, self.source.file, "recursion through a barrier", "write it as a loop")
        bound = _bind(source, call, self.source.file)
        given: dict[str, ast.expr] = {}
        for position, (parameter, value) in enumerate(bound.items()):
            later = any(isinstance(v, ast.expr) and self.inlined(v) for v in list(bound.values())[position + 1 :])
            if isinstance(value, ast.expr):
                value = self.flat(value)
                given[parameter] = self.stash(value) if later else self.visit(value)
            else:  # a default
                name = self.plan.unique("default")
                self.values[name] = value.value
                given[parameter] = ast.Name(name, ast.Load())
        inner = _Rewriter(source, self.plan)
        body = inner.statements(copy.deepcopy(source.tree.body))
        prefix = self.plan.unique("i")
        body, result = _single_exit(body, prefix)
        free = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)} - source.locals
        outside = free & set(source.namespace)
        self.values.update({f"{prefix}_{name}": source.namespace[name] for name in outside})
        renamed = {name: f"{prefix}_{name}" for name in source.locals | outside}
        self.values.update(inner.values)
        self.devices.update(inner.devices)
        for statement in body:
            for n in ast.walk(statement):
                if isinstance(n, ast.Name) and n.id in renamed:
                    n.id = renamed[n.id]
        for parameter, argument in given.items():
            self.before.append(_at(ast.Assign([ast.Name(f"{prefix}_{parameter}", ast.Store())], argument), call))
        self.before += [_at(s, call) if not hasattr(s, "lineno") else ast.fix_missing_locations(s) for s in body]
        return _at(ast.Name(result, ast.Load()) if result else ast.Constant(None), call)

    # Expressions --------------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """An index of CUDA, or an attribute like any other."""
        rewritten: Any = self.index(node) or self.generic_visit(node)
        return rewritten

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """As for an attribute: ``from numba.cuda import laneid``."""
        return self.index(node) or node

    def index(self, node: ast.expr) -> ast.expr | None:
        """Return what an index of CUDA becomes."""
        known = meaning(node)
        if known is None or known.kind != "cuda":
            return None
        if known.name in AXES:
            return _parse(f"{DIMS}[{AXES[known.name]}]", node)
        if known.name == "laneid":
            return _parse(f"__laneid({DIMS})", node)
        if known.name == "warpsize":
            return self.constant(np.int32(32), node)
        return None

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Shifts clamp their counts."""
        self.generic_visit(node)
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            name = "__shift_left" if isinstance(node.op, ast.LShift) else "__shift_right"
            return _at(ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], []), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A function of CUDA, a device function, a cast, or a call like any other."""
        known = meaning(node.func)
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        if known is None:
            node.func = self.visit(node.func)
            return node
        return getattr(self, f"call_{known.kind}")(node, known)

    def call_python(self, node: ast.Call, known: Meaning) -> ast.expr:
        """Builtins that differ on a GPU."""
        if getattr(known.target, "__module__", "") == "math":
            name = known.target.__name__
            if name not in math_functions.FUNCTIONS:
                raise unsupported(node, self.source.file, f"math.{name}", "Numba's CUDA kernels do not have it")
            return _call(f"__math_{name}", node.args, node)
        if known.target in (min, max) and len(node.args) == 2:  # of more, numba.cuda makes comparisons
            return _call("__smaller" if known.target is min else "__larger", node.args, node)
        return ast.fix_missing_locations(node)

    def call_breakpoint(self, node: ast.Call, known: Meaning) -> ast.expr:
        instead = 'native code does not stop: use simt.run(..., executor="checked"), simt.trace or simt.step'
        raise unsupported(node, self.source.file, "breakpoint()", instead)

    def call_cast(self, node: ast.Call, known: Meaning) -> ast.expr:
        """A cast to a number type: the NumPy type of it, since Numba asks for one before ``.view``."""
        name = f"__type_{known.target}"
        self.values[name] = as_dtype(known.target).type
        return _call(name, node.args, node)

    def call_vector(self, node: ast.Call, known: Meaning) -> ast.expr:
        """The constructor of a vector type."""
        return _call(f"__vector_{known.name}", node.args, node)

    def call_libdevice(self, node: ast.Call, known: Meaning) -> ast.expr:
        """A function of libdevice: a device function of ours on arguments cast to its types."""
        from nanoeuler.simt.functions import libdevice

        emulation = libdevice.FUNCTIONS.get(known.name)
        if emulation is None:
            raise unsupported(node, self.source.file, f"libdevice.{known.name}", "the runner does not have it")
        node.args = [
            self.call_cast(_at(ast.Call(node.func, [a], []), node), Meaning("cast", kind, _type(kind)))
            for a, kind in zip(node.args, emulation.arguments, strict=True)
        ]
        return self.call_device(node, Meaning("device", known.name, python_function(emulation.function)))

    def call_device(self, node: ast.Call, known: Meaning) -> ast.expr:
        """A device function that never waits is compiled by itself, and knows its thread by the hidden arguments."""
        source = read(known.target)
        name = f"__device_{len(self.plan.functions)}_{source.name}"
        for called, function in self.devices.items():
            if function is self.plan.functions.get(source.function):
                name = called
        self.devices[name] = _function(source, self.plan)
        arguments = []
        for value in _bind(source, node, self.source.file).values():
            if isinstance(value, ast.expr):
                arguments.append(value)
            else:
                default = self.plan.unique("default")
                self.values[default] = value.value
                arguments.append(ast.Name(default, ast.Load()))
        hidden: list[ast.expr] = [ast.Name(DIMS, ast.Load()), ast.Name(MEMORY, ast.Load())]
        return _call(name, [*hidden, *arguments], node)

    def call_cuda(self, node: ast.Call, known: Meaning) -> ast.expr:
        """A function of numba.cuda."""
        name = known.name
        if name in names.FENCES or name == "nanosleep":
            return _at(ast.Constant(None), node)
        if name in ("shared.array", "local.array"):
            return self.array(node, name)
        if name == "const.array_like":
            return node.args[0]
        if name in ("grid", "gridsize"):
            dimensions = self.evaluated(node.args[0])
            if dimensions not in (1, 2, 3):
                raise unsupported(node, self.source.file, f"cuda.{name}({dimensions})", "it takes 1, 2 or 3")
            return _parse(f"__{name}_{dimensions}({DIMS})", node)
        if name == "lanemask_lt":
            return _parse(f"__lanemask_lt({DIMS})", node)
        if name in names.CACHE_LOADS:
            return _at(ast.Subscript(node.args[0], node.args[1], ast.Load()), node)
        if name in names.CACHE_STORES:
            return _call("__store", node.args, node)
        return _call(f"__{name.replace('.', '_')}", node.args, node)

    def write_wait(self, node: ast.Call, name: str) -> ast.expr:
        """Put a barrier or warp operation before the statement: hand in the operands, yield, take the result."""
        arguments = self.operands(node, name)
        text = {key: ast.unparse(self.stash(self.flat(value))) for key, value in arguments.items()}
        code, slot, mask = self.code(KINDS[name], node, name), f"{MEMORY}[4]", text.get("mask", "0xFFFFFFFF")
        if name == "syncthreads":
            offered = f"{code}"
        elif name.startswith("shfl"):
            offered = f"__offer_shuffle({code}, {slot}, {text['value']}, {text['operand']}, {mask})"
        elif name.startswith("match") or name in ("syncwarp", "activemask"):
            offered = f"__offer({code}, {slot}, {text.get('value', '0')}, 0, {mask})"
        else:
            offer = "__offer_count" if name in names.BARRIERS else "__offer_predicate"
            offered = f"{offer}({code}, {slot}, {text['predicate']}, {mask})"
        self.before.append(_at(ast.Expr(ast.Yield(_parse(offered, node))), node))
        if name in ("syncthreads", "syncwarp"):
            return _at(ast.Constant(None), node)
        taken = f"__taken({slot}, {text['value']})" if name.startswith("shfl") else f"{RESULTS[name]}({slot})"
        return self.stash(_parse(taken, node))

    def operands(self, node: ast.Call, name: str) -> dict[str, ast.expr]:
        """Return the operands of a waiting call by name."""
        parameters = {
            **dict.fromkeys(("syncthreads_count", "syncthreads_and", "syncthreads_or"), ("predicate",)),
            **dict.fromkeys(("all_sync", "any_sync", "eq_sync", "ballot_sync"), ("mask", "predicate")),
            **dict.fromkeys((k for k in KINDS if k.startswith("shfl")), ("mask", "value", "operand")),
            **dict.fromkeys(("match_any_sync", "match_all_sync"), ("mask", "value")),
            **{"syncwarp": ("mask",)},
        }.get(name, ())
        optional = name == "syncwarp"
        if node.keywords or (len(node.args) != len(parameters) and not (optional and not node.args)):
            raise unsupported(
                node, self.source.file, f"cuda.{name} with {len(node.args)} arguments", f"it takes {len(parameters)}"
            )
        return dict(zip(parameters, node.args, strict=False))

    def code(self, kind: int, node: ast.expr | ast.stmt, operation: str) -> int:
        """Return what a thread yields when it waits here."""
        place = Place(self.source.file, node.lineno, node.col_offset, operation)
        return self.plan.place(place) << KIND_BITS | kind

    def array(self, node: ast.Call, name: str) -> ast.expr:
        """A shared or local array: memory of the block's or the thread's own, at a place fixed here."""
        given = {**dict(zip(("shape", "dtype", "alignment"), node.args, strict=False))}
        given |= {k.arg: k.value for k in node.keywords if k.arg}
        if "shape" not in given or "dtype" not in given:
            raise unsupported(node, self.source.file, f"cuda.{name} without shape and dtype", "give both")
        shape = self.evaluated(given["shape"])
        alignment = max(ALIGNMENT, self.evaluated(given["alignment"]) if "alignment" in given else 0)
        if name == "local.array" and self.plan.recursive:
            raise unsupported(node, self.source.file, "a local array beside recursion", "write the recursion as a loop")
        itemsize, dtype = self.element(given["dtype"])
        if name == "shared.array" and shape in (0, (0,)):
            return _parse(f"__array_at({MEMORY}[1], {MEMORY}[2] // {itemsize}, {dtype})", node)
        start = self.storage(node, name, int(np.prod(shape)) * itemsize, alignment)
        base = f"{MEMORY}[0]" if name == "shared.array" else f"{MEMORY}[3]"
        return _parse(f"__array_at({base} + {start}, {shape!r}, {dtype})", node)

    def storage(self, node: ast.Call, name: str, size: int, alignment: int) -> int:
        """Return the offset of the array made at this call; it is the same each time the call is made."""
        site = (self.source.function, node.lineno, node.col_offset)
        if site not in self.plan.storage:
            total = self.plan.shared_bytes if name == "shared.array" else self.plan.local_bytes
            start = -(-total // alignment) * alignment
            self.plan.storage[site] = start
            if name == "shared.array":
                self.plan.shared_bytes = start + size
            else:
                self.plan.local_bytes = start + size
        return self.plan.storage[site]

    def element(self, node: ast.expr) -> tuple[int, str]:
        """Return the bytes of an element and the name of its type; ``a.dtype`` is not known yet: the most it can be."""
        if isinstance(node, ast.Attribute) and meaning(node) is None and node.attr == "dtype":
            return MAX_ITEMSIZE, ast.unparse(node)
        dtype = self.evaluated(node)
        try:
            kind = dtype if isinstance(dtype, Type) else from_dtype(np.dtype(dtype))
            itemsize = as_dtype(kind).itemsize
        except (TypeError, NumbaError) as error:
            raise unsupported(
                node, self.source.file, f"an array of {ast.unparse(node)}", "use a number type"
            ) from error
        name = f"__type_{kind}" if str(kind).isidentifier() else self.plan.unique("type")
        self.values[name] = kind
        return itemsize, name

    def evaluated(self, node: ast.expr) -> Any:
        """Return the value of an expression that must be known before the launch."""
        local = sorted(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.source.locals)
        if local:
            raise unsupported(node, self.source.file, f"a size given by '{local[0]}'", "use a number or a global name")
        code = compile(ast.Expression(ast.fix_missing_locations(node)), self.source.file, "eval")
        return eval(code, self.source.namespace)

    def constant(self, value: Any, node: ast.AST) -> ast.expr:
        """Return a name that stands for ``value``."""
        name = self.plan.unique("c")
        self.values[name] = value
        return _at(ast.Name(name, ast.Load()), node)


def _bind(source: Source, call: ast.Call, file: str) -> dict[str, Any]:
    """Return each parameter's argument: an expression, or an inspect.Parameter's default wrapped in ``_Default``."""
    signature = inspect.signature(source.function)
    try:
        bound = signature.bind(*call.args, **{k.arg: k.value for k in call.keywords if k.arg})
    except TypeError as error:
        raise unsupported(call, file, f"this call of {source.name}", f"{error}") from error
    return {
        name: bound.arguments.get(name, _Default(parameter.default)) for name, parameter in signature.parameters.items()
    }


@dataclass(frozen=True)
class _Default:
    """The default value of a parameter."""

    value: Any


def _single_exit(body: list[ast.stmt], prefix: str) -> tuple[list[ast.stmt], str | None]:
    """Return a function's body with its returns as assignments, and the name of the result; None where it has none."""
    returns = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Return)]
    result = f"{prefix}_result" if any(r.value is not None for r in returns) else None
    if not returns:
        return body, None
    if len(returns) == 1 and body[-1] is returns[0]:
        return [*body[:-1], *_leave(returns[0], result, None)[:-1]], result
    done = f"{prefix}_done"
    inside = _exits(body, result, done, 0)
    start = _at(ast.Assign([ast.Name(done, ast.Store())], ast.Constant(False)), body[0])
    return [start, _at(ast.While(ast.Constant(True), [*inside, ast.Break()], []), body[0])], result


def _exits(body: list[ast.stmt], result: str | None, done: str, depth: int) -> list[ast.stmt]:
    """Replace the returns of a block inside the one-round loop; ``depth`` counts the loops between."""
    made: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Return):
            made += _leave(statement, result, done if depth else None)
            continue
        loop = isinstance(statement, (ast.For, ast.While))
        returning = loop and any(isinstance(n, ast.Return) for n in ast.walk(statement))
        for part in ("body", "orelse"):
            if getattr(statement, part, None):
                inner = depth + 1 if loop and part == "body" else depth
                setattr(statement, part, _exits(getattr(statement, part), result, done, inner))
        made.append(statement)
        if returning:
            made.append(_at(ast.If(ast.Name(done, ast.Load()), [ast.Break()], []), statement))
    return made


def _leave(node: ast.Return, result: str | None, done: str | None) -> list[ast.stmt]:
    """Return the statements that a ``return`` becomes; the last is the break."""
    made: list[ast.stmt] = []
    if result is not None and node.value is not None:
        made.append(_at(ast.Assign([ast.Name(result, ast.Store())], node.value), node))
    if done is not None:
        made.append(_at(ast.Assign([ast.Name(done, ast.Store())], ast.Constant(True)), node))
    return [*made, _at(ast.Break(), node)]


def _operands(node: ast.expr) -> Iterator[tuple[Any, Any, ast.expr]]:
    """Yield (holder, key, expression) of each operand of ``node``, in the order in which Python evaluates them."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr) and not (isinstance(node, ast.Call) and name == "func"):
            yield node, name, value
        elif isinstance(value, list):
            for position, item in enumerate(value):
                if isinstance(item, ast.expr):
                    yield value, position, item
                elif isinstance(item, ast.keyword):
                    yield item, "value", item.value


def _put(holder: Any, key: Any, value: ast.expr) -> None:
    """Put ``value`` where ``_operands`` found an operand."""
    if isinstance(holder, list):
        holder[key] = value
    else:
        setattr(holder, key, value)


def _at(node: Any, place: ast.AST) -> Any:
    """Return ``node`` at the position of ``place``."""
    return ast.fix_missing_locations(ast.copy_location(node, place))


def _parse(text: str, place: ast.AST) -> ast.expr:
    """Return the expression that ``text`` is, at the position of ``place``."""
    expression = ast.parse(text, mode="eval").body
    for node in ast.walk(expression):
        if hasattr(node, "lineno"):
            ast.copy_location(node, place)
    return expression


def _statements(text: str, place: ast.AST) -> list[ast.stmt]:
    """Return the statements that ``text`` is, at the position of ``place``."""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                ast.copy_location(node, place)
    return statements


def _call(name: str, arguments: list[ast.expr], place: ast.AST) -> ast.expr:
    """Return the call ``name(*arguments)``."""
    return _at(ast.Call(ast.Name(name, ast.Load()), arguments, []), place)


def _type(name: str) -> Any:
    """Return the numba type of this name."""
    from numba import types

    return getattr(types, name)

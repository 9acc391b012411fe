"""The front end of the two executors that run Python source: a kernel's AST in which every name of CUDA is resolved.

``read`` parses a function and marks each node that means something to CUDA with what it means (``meaning``). What the
runner does not know is refused here, with its line, before anything runs.
"""

import ast
import builtins
import functools
import inspect
import linecache
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

import numpy as np
from numba.core.types import Type
from numba.np.numpy_support import from_dtype

from nanoeuler.errors import nearest
from nanoeuler.simt import names
from nanoeuler.simt.faults import UnsupportedError

Kind = Literal["cuda", "device", "libdevice", "cast", "vector", "python", "breakpoint"]


@dataclass(frozen=True)
class Meaning:
    """What a name stands for. ``name`` is dotted, without the module: ``syncthreads``, ``atomic.add``, ``expf``.

    ``target`` is the function called ("device"), or the numba type cast to ("cast").
    """

    kind: Kind
    name: str
    target: Any = None


@dataclass(frozen=True)
class Source:
    """One function, parsed. ``tree`` has the file's line numbers; ``devices`` are the functions that it calls."""

    function: FunctionType
    file: str
    tree: ast.FunctionDef
    namespace: dict[str, Any]
    locals: frozenset[str]
    blocks: bool  # a barrier, a warp operation or a waiting loop inside it, or inside what it calls
    recursive: bool  # calls itself, or what calls it
    devices: tuple["Source", ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def lines(self) -> range:
        """The lines of the file that it stands on, its decorators included."""
        first = min([self.tree.lineno, *(d.lineno for d in self.tree.decorator_list)])
        return range(first, (self.tree.end_lineno or first) + 1)

    def everything(self) -> Iterator["Source"]:
        """This function and all that it calls, each once."""
        seen: dict[FunctionType, Source] = {}
        stack = [self]
        while stack:
            source = stack.pop()
            if source.function not in seen:
                seen[source.function] = source
                stack.extend(source.devices)
        yield from seen.values()


ON_EMULATION: list[Callable[[], None]] = []  # what must forget the functions that it has seen
EMULATIONS: dict[int, tuple[Any, Callable]] = {}  # by identity: an intrinsic need not be hashable


def emulates(intrinsic: Any) -> Callable[[Callable], Callable]:
    """Register the decorated device function as what ``intrinsic`` (inline PTX) does, for the runs from source.

    The emulation has the intrinsic's parameters and is written in the kernel language: its array accesses are watched
    like any other, and one that concerns the whole warp exchanges values by ``cuda.shfl_sync``.
    """

    def register(function: Callable) -> Callable:
        EMULATIONS[id(intrinsic)] = intrinsic, python_function(function)
        for forget in (_parse.cache_clear, *ON_EMULATION):
            forget()
        return function

    return register


def python_function(kernel: Any) -> FunctionType:
    """Return the plain function of a kernel or device function, decorated or not.

    Raises:
        UnsupportedError: it is neither.
    """
    function = getattr(kernel, "py_func", None) or getattr(kernel, "_device_py_func", None) or kernel
    if not isinstance(function, FunctionType):
        raise UnsupportedError(f"{kernel!r} is no kernel: give a Python function, plain or decorated with @cuda.jit")
    return function


def read(kernel: Any) -> Source:
    """Return the source of a kernel or device function, with all device functions that it reaches.

    Raises:
        UnsupportedError: there is no source to be read, or it uses something that the runner does not know.
    """
    with _reading:
        return _parse(python_function(kernel))


def refuse_results(kernel: Source) -> None:
    """Refuse a kernel that returns a value: only its device functions may.

    Raises:
        UnsupportedError: it does.
    """
    for node in ast.walk(kernel.tree):
        value = node.value if isinstance(node, ast.Return) else None
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            raise unsupported(node, kernel.file, "a kernel that returns a value", "write it into an array")


def meaning(node: ast.AST) -> Meaning | None:
    """Return what ``read`` found that ``node`` stands for; for a call, ask its ``func``."""
    return vars(node).get("meaning")


def _mark(node: ast.AST, known: Meaning) -> None:
    vars(node)["meaning"] = known


_reading = threading.RLock()
_open: list[FunctionType] = []  # functions being parsed: a device function that calls itself is met again


@functools.lru_cache(maxsize=1024)
def _parse(function: FunctionType) -> Source:
    _open.append(function)
    try:
        file, tree = _tree(function)
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        parameters = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
        if tree.args.kwonlyargs:
            raise unsupported(tree, file, "keyword-only parameters", "a launch gives its arguments in order")
        if tree.args.vararg or tree.args.kwarg:
            raise unsupported(tree, file, "*args and **kwargs", "give the parameters one by one")
        namespace = _namespace(function, {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})
        resolver = _Resolver(file, namespace, frozenset(stored | set(parameters)))
        resolver.statements(tree.body)
        devices = [_parse(d) for d in resolver.devices if d not in _open]
        blocks = resolver.blocks or any(d.blocks for d in devices)
        recursive = any(d in _open for d in resolver.devices)
        if blocks and recursive:
            raise unsupported(tree, file, f"recursion through a barrier in {tree.name}", "write it as a loop")
        return Source(function, file, tree, namespace, resolver.locals, blocks, recursive, tuple(devices))
    finally:
        _open.pop()


def _tree(function: FunctionType) -> tuple[str, ast.FunctionDef]:
    """Return the file and the AST of ``function``, at the line numbers of the file."""
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as error:
        raise UnsupportedError(
            f"the source of {function.__name__} cannot be read ({error}): kernels must be defined by `def` in a file "
            "or a notebook cell, not at the prompt"
        ) from error
    if not isinstance(tree, ast.FunctionDef) or not _is_of(code, tree):
        if code.co_name == "<lambda>":
            what, instead = "is a lambda", "the runner reads the source of functions defined by `def` only"
        else:
            what, instead = (
                "is not what its file says now",
                "the file has changed since its import: import it anew",
            )
        raise UnsupportedError(f"{code.co_filename}:{first}: {function.__name__} {what}: {instead}")
    ast.increment_lineno(tree, first - 1)
    return code.co_filename, tree


def _is_of(code: CodeType, tree: ast.FunctionDef) -> bool:
    """Whether a function was compiled from what its file holds now. One with an assert may be another's (pytest's)."""
    if any(isinstance(n, ast.Assert) for n in ast.walk(tree)):
        return tree.name == code.co_name
    return any(_alike(code, other) for other in _codes("".join(linecache.getlines(code.co_filename))))


@functools.lru_cache(maxsize=64)
def _codes(text: str) -> tuple[CodeType, ...]:
    """Return the code of every function in a file."""
    found: list[CodeType] = []
    stack = [compile(text, "file", "exec", dont_inherit=True)]
    while stack:
        inner = [c for c in stack.pop().co_consts if isinstance(c, CodeType)]
        found += inner
        stack += inner
    return tuple(found)


def _alike(one: CodeType, two: CodeType) -> bool:
    """Whether two functions do the same, wherever they stand."""
    parts = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    constants = [[repr(c) for c in code.co_consts if not isinstance(c, CodeType)] for code in (one, two)]
    return all(getattr(one, p) == getattr(two, p) for p in parts) and constants[0] == constants[1]


def _namespace(function: FunctionType, used: set[str]) -> dict[str, Any]:
    """Return what the ``used`` global and enclosing names stand for. Numba freezes arrays among them; so is it here."""
    enclosing = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # where it is not bound yet
            enclosing[name] = cell.cell_contents
    everything = {**vars(builtins), **function.__globals__, **enclosing}
    return {name: _frozen(everything[name]) for name in used if name in everything}


def _frozen(value: Any) -> Any:
    """Return an array as it is now, and anything else itself."""
    if not isinstance(value, np.ndarray):
        return value
    copied = value.copy(order="K")
    copied.flags.writeable = False
    return copied


def unsupported(node: ast.AST, file: str, what: str, instead: str) -> UnsupportedError:
    """Return the error that names what a kernel uses, its line, and what to write instead."""
    return UnsupportedError(f"{file}:{getattr(node, 'lineno', '?')}: {what} cannot be run here: {instead}")


def _how_to_use(name: str) -> str:
    """Return what is missing behind a name of numba.cuda that is no value by itself."""
    if f"{name}.x" in names.INDICES:
        return f"it is no value, but has three: cuda.{name}.x, .y and .z"
    return "it is a function: call it, with () behind it" if name in names.CALLS else "it is no value"


STATEMENTS = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Return),
    *(ast.Break, ast.Continue, ast.Pass, ast.Assert, ast.Raise),
)
EXPRESSIONS = (
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Constant),
    *(ast.Attribute, ast.Subscript, ast.Name, ast.Tuple, ast.Slice),
)
BUILTINS = {
    *("abs", "bool", "complex", "divmod", "enumerate", "float", "int", "len", "max", "min", "pow", "print"),
    *("range", "round", "slice", "sum", "tuple", "zip"),
}


_MAKERS_OF_ARRAYS: list[Any] = [
    *(np.zeros, np.ones, np.empty, np.full, np.array, np.arange, np.linspace, np.asarray),
    *(np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.copy, np.eye),
]


class _Resolver:
    """Walks one function: marks names, collects device functions, refuses what is not known."""

    def __init__(self, file: str, namespace: dict[str, Any], local: frozenset[str]) -> None:
        self.file, self.namespace, self.locals = file, namespace, local
        self.devices: list[FunctionType] = []
        self.blocks = False

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if not isinstance(statement, STATEMENTS):
                raise unsupported(statement, self.file, _spelled(statement), "Numba's CUDA kernels have no such thing")
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.expr) and not isinstance(statement, ast.Raise):
                    self.expression(child)
                    if isinstance(statement, ast.Assert):
                        break  # its message is no part of the kernel
            for part in ("body", "orelse"):
                self.statements(getattr(statement, part, []))
            if isinstance(statement, ast.While) and waits(statement):
                self.blocks = True

    def expression(self, node: ast.expr) -> None:
        if not isinstance(node, EXPRESSIONS):
            raise unsupported(node, self.file, _spelled(node), "Numba's CUDA kernels have no such thing")
        if isinstance(node, ast.Call):
            self.call(node)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            self.name(node)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.expression(child)

    def call(self, node: ast.Call) -> None:
        """Resolve the function called and its arguments."""
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                raise unsupported(argument, self.file, "*arguments in a call", "give the arguments one by one")
            self.expression(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise unsupported(node, self.file, "**arguments in a call", "give the arguments one by one")
            self.expression(keyword.value)
        found = self.resolve(node.func)
        if found is _LOCAL:  # a method of a local value: an array's, a vector's
            if isinstance(node.func, ast.Attribute):
                self.expression(node.func.value)
                return
            called = f"a call of the local name '{ast.unparse(node.func)}'"
            raise unsupported(node, self.file, called, "call a function of the module by its name")
        known = self.called(node, *found)
        _mark(node.func, known)
        if known.kind == "cuda" and known.name in names.BLOCKING:
            self.blocks = True
        if known.kind == "device" and known.target not in self.devices:
            self.devices.append(known.target)

    def called(self, node: ast.Call, name: str | None, value: Any) -> Meaning:
        """Return the meaning of a function that is called."""
        builtin: Any = vars(builtins).get(getattr(value, "__name__", ""))
        spelled = ast.unparse(node.func)
        if id(value) in EMULATIONS:
            return Meaning("device", spelled, EMULATIONS[id(value)][1])
        if isinstance(value, Type):
            return Meaning("cast", spelled, value)
        if name is not None:
            return self.cuda(node, name)
        if isinstance(value, type) and issubclass(value, np.number | np.bool_):
            return Meaning("cast", spelled, from_dtype(np.dtype(value)))
        if isinstance(value, ModuleType) or value is None:
            raise unsupported(node, self.file, f"a call of '{spelled}'", "it is no function")
        if value in _MAKERS_OF_ARRAYS:
            raise unsupported(node, self.file, f"'{spelled}'", "use cuda.local.array or cuda.shared.array")
        if isinstance(value, np.ufunc) or getattr(value, "__module__", "") in ("math", "numpy", "operator", "cmath"):
            return Meaning("python", spelled, value)
        if value is builtins.breakpoint:
            return Meaning("breakpoint", spelled)
        if builtin is value:
            if builtin.__name__ not in BUILTINS:
                raise unsupported(node, self.file, f"the builtin '{spelled}'", "Numba's CUDA kernels do not have it")
            return Meaning("python", builtin.__name__, value)
        if type(value).__name__ == "_Intrinsic":
            raise unsupported(
                node, self.file, f"the intrinsic '{spelled}'", f"register what it does with @simt.emulates({spelled})"
            )
        if isinstance(getattr(value, "py_func", value), FunctionType):
            return Meaning("device", spelled, python_function(value))
        raise unsupported(node, self.file, f"a call of '{spelled}', {type(value).__name__}", "call a device function")

    def cuda(self, node: ast.AST, name: str) -> Meaning:
        """Return the meaning of a name of numba.cuda."""
        if name.startswith("libdevice."):
            return Meaning("libdevice", name.removeprefix("libdevice."))
        if name in names.VECTORS:
            return Meaning("vector", name)
        if name in names.CALLS or name in names.INDICES:
            return Meaning("cuda", name)
        if name.split(".")[0] == "cg":
            instead = "blocks run one after the other here; where all must be done, end the kernel and launch another"
        else:
            instead = "the runner does not know it" + nearest(name, names.CALLS | names.INDICES)
        raise unsupported(node, self.file, f"cuda.{name}", instead)

    def name(self, node: ast.Name | ast.Attribute) -> None:
        """Resolve a name that is read: an index of CUDA, or a value."""
        found = self.resolve(node)
        if found is _LOCAL:
            if isinstance(node, ast.Attribute):
                self.expression(node.value)
            return
        name, value = found
        if name in names.INDICES:
            _mark(node, Meaning("cuda", name))
        elif name in names.VECTORS:
            _mark(node, Meaning("vector", name))
        elif name is not None and not isinstance(value, Type):
            what = f"cuda.{name}" if name else f"'{ast.unparse(node)}'"
            raise unsupported(node, self.file, what, _how_to_use(name))

    def resolve(self, node: ast.expr) -> Any:
        """Return (name inside numba.cuda or None, value) of a dotted name; _LOCAL where its root is a local value."""
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return _LOCAL
            if node.id not in self.namespace:
                raise unsupported(node, self.file, f"the name '{node.id}'", "it is not defined")
            value = self.namespace[node.id]
            return names.cuda_name(value), value
        if not isinstance(node, ast.Attribute):
            self.expression(node)
            return _LOCAL
        found = self.resolve(node.value)
        if found is _LOCAL:
            return _LOCAL
        prefix, parent = found
        value = getattr(parent, node.attr, None)
        if prefix is not None:
            return (f"{prefix}.{node.attr}" if prefix else node.attr), value
        if value is None and not hasattr(parent, node.attr):
            raise unsupported(node, self.file, f"'{ast.unparse(node)}'", "there is no such attribute")
        return names.cuda_name(value), value


_LOCAL = object()


def waits(loop: ast.While) -> bool:
    """Whether a loop may be waiting for another thread: its test asks an atomic, or it takes or hands over by one."""
    return _calls(loop.test, names.ATOMICS) or _calls(loop, names.WAITING_ATOMICS)


def _calls(tree: ast.AST, wanted: set[str]) -> bool:
    """Whether one of these functions of CUDA is called in ``tree``."""
    found = [meaning(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return any(known is not None and known.kind == "cuda" and known.name in wanted for known in found)


def _spelled(node: ast.AST) -> str:
    """Return the first line of a node's source, for a message."""
    return f"`{ast.unparse(node).splitlines()[0]}`"

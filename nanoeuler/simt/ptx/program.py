"""One kernel made flat: device functions inlined, every register numbered, every variable given its place in memory.

A call is replaced by the body of the called function with registers of its own; its ``.param`` variables become local
memory of the lane, so that caller and callee pass values through it. Recursion is not supported (Numba has none).
"""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.ptx.kinds import DTYPES, storage
from nanoeuler.simt.ptx.memory import MODULE_BASE
from nanoeuler.simt.ptx.parse import Function, Module, Variable, parse_variable, split_operands

GUARD_BYTES = 64  # kept free between variables of shared and local memory, so that an overrun meets no neighbour
DYNAMIC = -1  # the address of the shared array whose size the launch gives, until all others have their places
_INSTRUCTION = re.compile(r"(?:@(!?[\w%$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
_SHARED_ARRAY = re.compile(r"_cudapy_smem_\d+_(\w+)")  # toolchain.py puts the Python variable into the name
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+(\d+)\s+(\d+))?")


@dataclass(frozen=True)
class Location:
    """A line of Python; ``caller`` is the line from which the function there was inlined."""

    file: str | None
    line: int
    caller: "Location | None" = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", inlined from {self.caller}" if self.caller else "")


@dataclass(frozen=True)
class Register:
    """A register: its number in the program and the dtype it is kept in."""

    index: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Symbol:
    """A variable's place: the space, and the address in it. Constant variables lie in global memory."""

    space: str
    address: int
    name: str


Names = dict[str, "Register | Symbol | str"]  # a string: the unique name of a label


class Scope:
    """The names that a pair of braces declares, and those around it."""

    def __init__(self, outer: "Scope | None" = None) -> None:
        self.names: Names = {}
        self.outer = outer

    def lookup(self, name: str) -> "Register | Symbol | str | None":
        """Return what ``name`` means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction: ``parts`` is its opcode split at the dots, ``scope`` gives its operands a meaning."""

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str | None  # "%p1" or "!%p1"
    scope: Scope
    location: Location | None
    text: str

    @property
    def opcode(self) -> str:
        """The opcode with its modifiers."""
        return ".".join(self.parts)


@dataclass
class Layout:
    """The variables of one space, one after the other with guards between: (start, end, name) of each."""

    size: int = 0
    places: list[tuple[int, int, str]] = field(default_factory=list)

    def place(self, variable: Variable, size: int, alignment: int) -> int:
        """Return the address given to ``variable``, of ``size`` bytes."""
        start = -(-self.size // alignment) * alignment
        named = _SHARED_ARRAY.fullmatch(variable.name)
        self.places.append((start, start + size, named[1] if named else variable.name))
        self.size = start + size + GUARD_BYTES
        return start


@dataclass
class Program:
    """A kernel ready to be decoded: its instructions, and what must be set up before the first of them."""

    name: str
    parameters: list[Variable]
    parameter_offsets: dict[str, int]
    variables: dict[int, Variable]  # the global and constant ones, by address
    globals: Layout
    shared: Layout
    local: Layout
    registers: list[np.dtype[Any]]
    specials: dict[str, Register]  # special registers that are read, "%tid.x"
    instructions: list[Instruction]
    labels: dict[str, int]  # unique label -> number of the instruction that follows
    tables: dict[str, tuple[str, ...]]  # label of a .branchtargets -> the labels it lists

    @property
    def dynamic_shared(self) -> int:
        """Where the dynamic shared array begins: after the static ones."""
        return -(-self.shared.size // 128) * 128


def flatten(module: Module) -> Program:
    """Return the kernel of ``module`` with its calls inlined.

    Raises:
        UnsupportedError: a call of a function that the text does not define, or of itself.
    """
    return _Flattener(module).program


class _Flattener:
    def __init__(self, module: Module) -> None:
        self.module = module
        entry = module.entry()
        self.program = Program(
            entry.name, entry.parameters, {}, {}, Layout(MODULE_BASE), Layout(), Layout(), [], {}, [], {}, {}
        )
        self.calls = 0
        self.location: Location | None = None
        self.files: dict[int, str] = {}
        self.top = Scope()
        for variable in module.variables.values():
            self.top.names[variable.name] = self.declare(variable)
        self.top.names["%cc"] = self.register("pred")  # the carry of add.cc and its kind
        scope = Scope(self.top)
        offset = 0
        for parameter in entry.parameters:
            offset = -(-offset // parameter.alignment) * parameter.alignment
            self.program.parameter_offsets[parameter.name] = offset
            scope.names[parameter.name] = Symbol("param", offset, parameter.name)
            offset += parameter.size
        self.expand(entry, scope, (entry.name,))

    def register(self, kind: str) -> Register:
        self.program.registers.append(storage(kind))
        return Register(len(self.program.registers) - 1, storage(kind))

    def declare(self, variable: Variable) -> Symbol:
        """Give ``variable`` its place in memory."""
        program = self.program
        if variable.space in ("global", "const"):
            address = program.globals.place(variable, variable.size, max(variable.alignment, 16))
            program.variables[address] = variable
            return Symbol("global", address, variable.name)
        if variable.space == "shared" and variable.size == 0:
            return Symbol("shared", DYNAMIC, variable.name)
        space = "shared" if variable.space == "shared" else "local"
        layout = program.shared if space == "shared" else program.local
        alignment = max(variable.alignment, 8 if variable.space == "param" else 1)
        return Symbol(space, layout.place(variable, variable.size, alignment), variable.name)

    def expand(self, function: Function, scope: Scope, stack: tuple[str, ...]) -> None:
        """Append the instructions of ``function``; names of its parameters are already in ``scope``."""
        self.calls += 1
        self.files = function.files
        label = ""
        prefix, end = f"{self.calls}:", f"{self.calls}/end"  # no label of the text can be like the latter
        for statement in function.body or ():
            if statement.endswith(":"):
                label = prefix + statement[:-1].strip()
                self.program.labels[label] = len(self.program.instructions)
            elif statement.startswith(".branchtargets"):
                targets = split_operands(statement.removeprefix(".branchtargets"))
                self.program.tables[label] = tuple(prefix + target for target in targets)
            elif statement == "{":
                scope = Scope(scope)
            elif statement == "}":
                scope = scope.outer or scope
            elif statement.startswith("."):
                self.directive(statement, scope)
            else:
                self.instruction(statement, scope, stack, prefix, end)
        self.program.labels[end] = len(self.program.instructions)
        if function.is_entry:
            self.append("ret", (), None, scope, "ret")

    def directive(self, statement: str, scope: Scope) -> None:
        word = re.split(r"(?<=\w)[\s.]", statement, maxsplit=1)[0]
        if word == ".loc":
            self.location = self.read_location(statement)
        elif word == ".reg":
            self.declare_registers(statement, scope)
        elif word in (".local", ".shared", ".param", ".global", ".const"):
            variable = parse_variable(statement)
            scope.names[variable.name] = self.declare(variable)
        elif word not in (".pragma", ".file"):
            raise UnsupportedError(self.where(f"the PTX directive '{statement[:80]}'"))

    def read_location(self, statement: str) -> Location | None:
        match = _LOCATION.match(statement)
        if match is None or int(match[2]) == 0:  # line 0: the compiler's own; the line before is the nearest to it
            return self.location
        caller = Location(self.files.get(int(match[3])), int(match[4])) if match[3] else None
        return Location(self.files.get(int(match[1])), int(match[2]), caller)

    def declare_registers(self, statement: str, scope: Scope) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", statement)
        if match is None or match[1] not in DTYPES:
            raise UnsupportedError(self.where(f"the PTX declaration '{statement[:80]}'"))
        for name in split_operands(match[2]):
            if ranged := re.match(r"([\w%$]+)<(\d+)>", name):
                for number in range(int(ranged[2])):
                    scope.names[f"{ranged[1]}{number}"] = self.register(match[1])
            else:
                scope.names[name] = self.register(match[1])

    def instruction(self, statement: str, scope: Scope, stack: tuple[str, ...], prefix: str, end: str) -> None:
        match = _INSTRUCTION.match(statement)
        if match is None:
            raise UnsupportedError(self.where(f"the PTX statement '{statement[:80]}'"))
        guard, opcode, operands = match[1], match[2], split_operands(match[3])
        if opcode.split(".")[0] == "call":
            self.call(operands, guard, scope, stack, statement)
        elif opcode.split(".")[0] in ("bra", "brx"):
            self.append(opcode, (*operands[:-1], prefix + operands[-1]), guard, scope, statement)
        elif opcode.split(".")[0] == "ret" and len(stack) > 1:
            self.append("bra", (end,), guard, scope, statement)
        else:
            self.append(opcode, operands, guard, scope, statement)

    def append(self, opcode: str, operands: tuple[str, ...], guard: str | None, scope: Scope, text: str) -> None:
        # "a.b::c.d" keeps "b::c" as one modifier
        parts = tuple(re.split(r"\.(?=\w)", opcode))
        self.program.instructions.append(Instruction(parts, operands, guard, scope, self.location, text))

    def call(
        self, operands: tuple[str, ...], guard: str | None, scope: Scope, stack: tuple[str, ...], text: str
    ) -> None:
        """Inline the function called; its formal parameters are other names for the caller's ``.param`` variables."""
        name = next((operand for operand in operands if not operand.startswith("(")), "")
        at = operands.index(name)
        results = split_operands(operands[0].strip("() ")) if at else ()
        arguments = split_operands(operands[at + 1].strip("() ")) if len(operands) > at + 1 else ()
        function = self.module.functions.get(name)
        if name == "vprintf":
            self.append("vprintf", results + arguments, guard, scope, text)
            return
        if function is None or function.body is None:
            raise UnsupportedError(self.where(f"a call of '{name}', which the compiler leaves to be linked"))
        if name in stack or guard:
            raise UnsupportedError(self.where(f"a recursive or predicated call of '{name}'"))
        inner = Scope(self.top)
        for formal, actual in zip(function.results + function.parameters, results + arguments, strict=True):
            meaning = scope.lookup(actual)
            if meaning is None:
                raise UnsupportedError(self.where(f"the argument '{actual}' of '{text[:80]}'"))
            inner.names[formal.name] = meaning
        location, files = self.location, self.files
        self.expand(function, inner, (*stack, name))
        self.location, self.files = location, files

    def where(self, what: str) -> str:
        place = f" (at {self.location})" if self.location else ""
        return f"the PTX executor does not know {what}{place}"

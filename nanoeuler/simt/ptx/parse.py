"""PTX text to its parts: variables, functions, and the statements of each as strings (PTX ISA 9.0, chapter 4)."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.ptx.kinds import DTYPES

_COMMENT = re.compile(r'("[^"]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LINE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size|file|loc|section)\b[^\n]*")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(entry|func)\b")
_PARAMETER_LIST = re.compile(r"\(([^()]*)\)")
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?(?:\.ptr\s+)?"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[\w\s.]*?\s)?([\w$%.]+)\s*((?:\[\s*\d*\s*\])*)"
    r"\s*(?:=\s*(.*))?$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Variable:
    """A variable in memory: its space, alignment and bytes. ``size`` is 0 for an array of unknown length."""

    name: str
    space: str
    kind: str
    alignment: int
    size: int
    data: bytes = b""
    addresses: tuple[tuple[int, str], ...] = ()  # offsets at which the address of another variable stands


@dataclass
class Function:
    """A kernel or a device function. ``body`` is None where it is only declared."""

    name: str
    is_entry: bool
    results: list[Variable]
    parameters: list[Variable]
    body: list[str] | None
    files: dict[int, str]  # what the numbers in its .loc directives mean


@dataclass
class Module:
    """What one PTX text defines."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)

    def entry(self) -> Function:
        """Return the module's kernel (the first, if there are several).

        Raises:
            UnsupportedError: there is none.
        """
        for function in self.functions.values():
            if function.is_entry and function.body is not None:
                return function
        raise UnsupportedError("the PTX text has no kernel (.entry): give that of a kernel, not of a device function")


def merged(modules: list[Module]) -> Module:
    """Return one module with what ``modules`` define; the kernel is that of the first, as when they are linked."""
    whole = Module()
    for module in modules:
        for name, variable in module.variables.items():
            if name not in whole.variables or variable.size:
                whole.variables[name] = variable
        for name, function in module.functions.items():
            if name not in whole.functions or whole.functions[name].body is None:
                whole.functions[name] = function
    return whole


def parse(text: str) -> Module:
    """Return the variables and functions of PTX ``text``.

    Raises:
        UnsupportedError: something at the top level that is no variable, function or known directive.
    """
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    module = Module()
    position = 0
    while (position := _skip_space(text, position)) < len(text):
        if match := _LINE_DIRECTIVE.match(text, position):
            position = _section_end(text, match) if match[0].startswith(".section") else match.end()
            _note_file(module, match[0])
        elif match := _HEADER.match(text, position):
            position = _read_function(module, text, match)
        else:
            end = text.find(";", position)
            if end < 0:
                raise UnsupportedError(f"PTX that is not known: '{text[position : position + 60].strip()}'")
            statement = text[position:end].strip()
            position = end + 1
            if statement and not statement.startswith(".pragma"):
                variable = parse_variable(statement)
                module.variables[variable.name] = variable
    return module


def parse_variable(statement: str) -> Variable:
    """Return the variable that ``statement`` declares.

    >>> parse_variable(".shared .align 4 .b8 tile[256]").size
    256

    Raises:
        UnsupportedError: it has another form.
    """
    match = _VARIABLE.match(statement)
    if match is None or match[4] not in DTYPES:
        raise UnsupportedError(f"PTX declaration that is not known: '{statement[:80]}'")
    space, kind, name, dimensions, initialiser = match[1], match[4], match[5], match[6], match[7]
    count = 1
    for extent in re.findall(r"\[\s*(\d*)\s*\]", dimensions):
        count *= int(extent or 0)
    element = DTYPES[kind].itemsize
    data, addresses = _initial_bytes(kind, initialiser) if initialiser else (b"", ())
    alignment = int(match[2] or match[3] or element)
    return Variable(name, space, kind, alignment, max(count * element, len(data)), data, addresses)


def _initial_bytes(kind: str, text: str) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """Return the bytes of an initialiser such as ``{1, 2}``, and where addresses of other variables must be put."""
    dtype = DTYPES[kind]
    data, addresses = bytearray(), []
    for item in re.sub(r"[{}\s]", " ", text).replace(",", " ").split():
        name = item.removeprefix("generic(").rstrip(")")
        if item[:2] in ("0f", "0F"):
            data += struct.pack("<I", int(item[2:], 16))
        elif item[:2] in ("0d", "0D"):
            data += struct.pack("<Q", int(item[2:], 16))
        elif re.fullmatch(r"-?\d\w*", item):
            data += (parse_integer(item) % (1 << 8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little")
        elif re.fullmatch(r"[\w$%]+", name) and dtype.itemsize == 8:
            addresses.append((len(data), item))
            data += bytes(8)
        else:
            raise UnsupportedError(f"initial value '{item}' of a PTX variable")
    return bytes(data), tuple(addresses)


def parse_integer(text: str) -> int:
    """Return the value of a PTX integer literal: decimal, 0x, 0b or octal, perhaps negative, perhaps with a U.

    >>> parse_integer("-0x10"), parse_integer("017"), parse_integer("5U")
    (-16, 15, 5)
    """
    digits = text.rstrip("U").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas that stand outside brackets and braces.

    >>> split_operands("{%f1, %f2}, [%rd1+4], 3")
    ('{%f1, %f2}', '[%rd1+4]', '3')
    """
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return (*parts, last) if last else tuple(parts)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _section_end(text: str, match: re.Match[str]) -> int:
    """Return the position after a section of debug information, which is not read."""
    return text.index("}", match.start()) + 1


def _note_file(module: Module, directive: str) -> None:
    if match := re.match(r'\.file\s+(\d+)\s+"([^"]*)"', directive):
        module.files[int(match[1])] = match[2]


def _read_function(module: Module, text: str, header: re.Match[str]) -> int:
    """Add the function whose header starts at ``header``; return the position after it."""
    end = header.end()
    while text[end] not in "{;":
        end = text.index(")", end) + 1 if text[end] == "(" else end + 1
    declaration = text[header.end() : end]
    name_match = re.match(r"\s*(?:\([^()]*\)\s*)?([\w$]+)", declaration)
    if name_match is None:
        raise UnsupportedError(f"PTX function that is not known: '{declaration.strip()[:80]}'")
    results = _parameters(declaration[: name_match.start(1)])
    parameters = _parameters(declaration[name_match.end(1) :])
    body = None
    if text[end] == "{":
        body, end = _read_body(text, end + 1)
    name = name_match[1]
    if body is not None or name not in module.functions:
        module.functions[name] = Function(name, header[1] == "entry", results, parameters, body, module.files)
    for statement in body or ():
        _note_file(module, statement)
    return end + 1


def _parameters(text: str) -> list[Variable]:
    match = _PARAMETER_LIST.search(text)
    return [parse_variable(item) for item in split_operands(match[1])] if match else []


def _read_body(text: str, position: int) -> tuple[list[str], int]:
    """Return the statements up to the brace that closes the function, and that brace's position.

    A statement is ``{``, ``}``, a label with its colon, a directive, or an instruction without its semicolon.
    """
    statements: list[str] = []
    depth = 1
    for statement, end in _statements(text, position):
        depth += {"{": 1, "}": -1}.get(statement, 0)
        if depth == 0:
            return statements, end - 1
        statements.append(statement)
    raise UnsupportedError("the PTX text ends inside a function")


def _statements(text: str, position: int) -> Iterator[tuple[str, int]]:
    while (position := _skip_space(text, position)) < len(text):
        if text[position] in "{}":
            position += 1
            yield text[position - 1], position
        elif match := _LINE_DIRECTIVE.match(text, position) or _LABEL.match(text, position):
            position = match.end()
            yield match[0].strip(), position
        else:
            end = text.find(";", position)
            if end < 0:
                return
            statement = " ".join(text[position:end].split())
            position = end + 1
            if statement:
                yield statement, position

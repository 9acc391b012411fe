"""Blanks: what of a solution the learner is to write, how it looks while it is open, and which are open still.

A line that ends in ``# blank 1: what to do`` has its right side taken out; lines between ``# blank 1: what to do`` and
``# end`` are taken out altogether. What is left is ``...``, with the words.

>>> print(opened("i = cuda.grid(1)  # blank 1: the thread's number"))
i = ...  # 1: the thread's number
"""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

from nanoeuler.errors import UserError

MARK = re.compile(r"(.*?)\s*# blank (\d+)(?::\s*(.*))?$")
END = re.compile(r"\s*# end$")


def opened(code: str) -> str:
    """Return a solution with its blanks open."""
    return "\n".join(_walk(code, leave_out=True))


def filled(code: str) -> str:
    """Return a solution whole: the words of its blanks stay as comments."""
    return "\n".join(_walk(code, leave_out=False))


def _walk(code: str, leave_out: bool) -> Iterator[str]:
    inside = False
    for line in code.splitlines():
        mark = MARK.match(line)
        if inside and END.match(line):
            inside = False
        elif mark:
            before, words = mark[1], f"# {mark[2]}: {mark[3]}" if mark[3] else f"# {mark[2]}"
            if before.strip():
                yield f"{_emptied(before) if leave_out else before}  {words}"
            else:
                inside, indent = True, before or line[: len(line) - len(line.lstrip())]
                yield f"{indent}{words}"
                if leave_out:
                    yield f"{indent}..."
        elif not (inside and leave_out):
            yield line
    if inside:
        raise UserError(f"a blank of several lines is not closed by '# end':\n{textwrap.indent(code, '    ')}")


def _emptied(line: str) -> str:
    """Return a statement with ``...`` in the place of what the learner is to find."""
    code = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    bare = code.removeprefix("el") if code.startswith("elif ") else code
    try:
        statement = ast.parse(f"{bare} pass" if code.endswith(":") else bare).body[0]
    except SyntaxError:
        raise UserError(f"a blank on a line is a whole statement, and this is none: {code}") from None
    if isinstance(statement, ast.If | ast.While):
        return f"{indent}{code.split()[0]} ...:"
    hidden = statement.iter if isinstance(statement, ast.For) else getattr(statement, "value", None)
    if not isinstance(statement, ast.For | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return) or hidden is None:
        return f"{indent}..."
    before = code.encode()[: hidden.col_offset].decode().rstrip("(")  # brackets around a value are no part of it
    return f"{indent}{before}...{':' if code.endswith(':') else ''}"


# What is open still ---------------------------------------------------------------------------------------------------


def open_blanks(thing: Any, source: str | None = None) -> list[str]:
    """Return the words of the blanks that are still open in a function, a kernel or a value, in order.

    ``source`` is its source, where that cannot be found by itself. A blank whose words the learner has removed is told
    by its line.
    """
    if thing is ...:
        return [""]
    code = source if source is not None else source_of(thing)
    if code is None:
        return []
    try:
        at = sorted(_ellipses(ast.parse(code)))
    except SyntaxError:
        return []
    lines, words = code.splitlines(), comments(code)
    return [words.get(n) or words.get(n - 1) or lines[n - 1].strip() for n in at]


def source_of(thing: Any) -> str | None:
    """Return the source of a function or kernel, from its first column; None where it has none."""
    function: Callable | None = getattr(thing, "py_func", thing)
    try:
        return textwrap.dedent(inspect.getsource(function)) if function is not None else None
    except (OSError, TypeError):
        return None


def _ellipses(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of ``...``, but for those in an index, which mean all the axes that are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            yield node.lineno
        elif isinstance(node, ast.Subscript):
            yield from _ellipses(node.value)
        else:
            yield from _ellipses(node)


def comments(code: str) -> dict[int, str]:
    """Return the numbered comments of a code, ``# 2: what to do``, by line: ``2: what to do``."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and (words := re.match(r"# (\d+(?::.*)?)$", token.string)):
            found[token.start[0]] = words[1]
    return found

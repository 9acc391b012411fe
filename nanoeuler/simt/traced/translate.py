"""The checked executor's translation of a kernel, with what a trace needs: where each thread is, and what it computes.

The body of a function, of a branch and of a loop begins with ``enter``, and so does what follows a statement in which a
thread may leave early, for fewer lanes may come there. Each access hands on the number of its place in the source. An
operator counts itself, by the type of its result.
"""

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from nanoeuler.simt.checked import functions
from nanoeuler.simt.checked.memory import require_alignment
from nanoeuler.simt.checked.operators import OPERATORS
from nanoeuler.simt.checked.translate import Casts, Writer, at_place, narrowed, narrowed_left, stands_in
from nanoeuler.simt.source import Source
from nanoeuler.simt.traced.recorder import BasicBlock, Recorder, Statement

BRANCHING = (ast.If, ast.For, ast.While, ast.Assert)
LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Assert)
SYMBOLS: dict[type[ast.AST], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
    **{ast.USub: "negate", ast.UAdd: "plus", ast.Invert: "~", ast.Not: "not"},
}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!=", "not"}
NAMES: dict[Callable, str] = {
    **{operate: SYMBOLS[kind] for kind, operate in OPERATORS.items()},
    **{operate: name for name, operate in functions.CUDA_FUNCTIONS.items()},
}
TWO_OPERANDS = {OPERATORS[kind] for kind in SYMBOLS if not issubclass(kind, ast.unaryop)}
NO_ARITHMETIC: set[Any] = {int, float, bool, complex, len, tuple, slice, round}


class TracedWriter(Writer):
    """Rewrites one function of a traced kernel."""

    def __init__(self, source: Source, casts: Casts, recorder: Recorder) -> None:
        super().__init__(source, casts)
        self.recorder = recorder
        self.order = 0
        self.block: BasicBlock  # the one that is being written
        self.execution = ""  # the variable that holds its execution
        self.counter, self.loop_order = "", 0  # of the loop that is being written: its rounds, its turn
        self.round: BasicBlock | None = None  # the body of a ``for`` while what it runs over is being written

    def turn(self) -> int:
        """Return the next number in the order of what the function does."""
        self.order += 1
        return self.order

    # Where a thread is

    def function(self) -> ast.FunctionDef:
        """Return the function, rewritten."""
        if self.stands_in:
            return super().function()
        tree = self.source.tree
        block = self.basic_block("function", self.turn())
        start = [self.begin(tree, block, self.thread("execution", tree), ast.Constant(0))]
        parameters = [ast.Name(a.arg, ast.Store()) for a in (*tree.args.posonlyargs, *tree.args.args)]
        start += self.noted(tree, *parameters)
        made = super().function()
        made.body = [*start, *made.body]
        return made

    def basic_block(self, kind: str, order: int) -> BasicBlock:
        """Return a new basic block of this function."""
        return self.recorder.basic_block(self.source.file, self.source.function.__name__, kind, order)

    def begin(self, at: ast.AST, block: BasicBlock, parent: ast.expr, turn: ast.expr) -> ast.stmt:
        """Return the statement that begins a basic block, and let it be the one that is written from here on."""
        self.block, self.execution = block, self.new("x")
        entered = self.entering(at, block, parent, turn)
        return at_place(ast.Assign([ast.Name(self.execution, ast.Store())], entered), at)

    def entering(self, at: ast.AST, block: BasicBlock, parent: ast.expr, turn: ast.expr) -> ast.expr:
        """Return the call by which a thread enters a basic block."""
        arguments = [ast.Constant(block.number), parent, turn]
        return at_place(ast.Call(self.thread("enter", at), [at_place(a, at) for a in arguments], []), at)

    def current(self) -> ast.expr:
        """Return the execution of the basic block that is being written."""
        return ast.Name(self.execution, ast.Load())

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements, rewritten; behind one that branches, threads are back in the block around it."""
        if self.stands_in:
            return super().body(statements)
        made: list[ast.stmt] = []
        for statement, following in zip(statements, [*statements[1:], None], strict=True):
            made += self.statement(statement)
            if following is not None and isinstance(statement, BRANCHING):
                made.append(self.behind(statement, following))
        return made or [ast.Pass()]

    def behind(self, statement: ast.stmt, following: ast.stmt) -> ast.stmt:
        """Return what brings a thread from a statement that branches to the next: in a new block if some may not come.

        It has the line of the next: a debugger is to go on to it, not back to the ``if``.
        """
        if any(isinstance(node, LEAVING) for node in ast.walk(statement)):
            return self.begin(following, self.basic_block("after", self.turn()), self.current(), ast.Constant(0))
        target = at_place(ast.Attribute(ast.Name("__t", ast.Load()), "execution", ast.Store()), following)
        return at_place(ast.Assign([target], self.current()), following)

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what one statement becomes."""
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not self.stands_in and not docstring and not isinstance(node, (ast.While, ast.Pass)):
            self.block.statements.append(Statement(node.lineno, self.turn()))
        return super().statement(node)

    # Branches and loops

    def branch(self, at: ast.stmt, statements: list[ast.stmt], block: BasicBlock, turn: ast.expr) -> list[ast.stmt]:
        """Return the statements of a branch, in a basic block of their own."""
        around = self.block, self.execution
        made = [self.begin(at, block, self.current(), turn)]
        if isinstance(at, ast.For) and block.kind == "loop":
            made += self.noted(at, at.target)
        made += self.body(statements)
        self.block, self.execution = around
        return made

    def ways(self, node: ast.If | ast.For | ast.While) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return body and else, rewritten."""
        if self.stands_in:
            return super().ways(node)
        if isinstance(node, ast.If):
            block, turn = self.basic_block("if", self.turn()), "0"
        elif self.round is not None:
            block, turn = self.round, f"({self.counter} := {self.counter} + 1) * 2 + 1"
            block.order, self.round = self.turn(), None  # behind what the loop runs over
        else:
            block, turn = self.basic_block("loop", self.loop_order), f"{self.counter} * 2 + 1"
        body = self.branch(node, node.body, block, ast.parse(turn, mode="eval").body)
        orelse: list[ast.stmt] = []
        if node.orelse:
            orelse = self.branch(node, node.orelse, self.basic_block("else", self.turn()), ast.Constant(0))
        return [*body, *self.cast(node, "body")], [*orelse, *self.cast(node, "orelse")]

    def test(self, node: ast.While) -> ast.expr:
        """Return the condition of a loop, in a basic block of its own: turn 0, 2, 4 ... before rounds 1, 3, 5 ..."""
        if self.stands_in:
            return super().test(node)
        around = self.block
        self.block = self.recorder.basic_block(self.source.file, around.function, "test", self.loop_order)
        self.block.statements.append(Statement(node.lineno, self.turn()))
        turn = ast.parse(f"({self.counter} := {self.counter} + 1) * 2", mode="eval").body
        entered = self.entering(node, self.block, self.current(), turn)
        made = at_place(ast.BoolOp(ast.And(), [entered, super().test(node)]), node)
        self.block = around
        return made

    def do_while(self, node: ast.While) -> list[ast.stmt]:
        return self.counted_rounds(node, super().do_while)

    def do_for(self, node: ast.For) -> list[ast.stmt]:
        return self.counted_rounds(node, super().do_for)

    def counted_rounds(self, node: Any, write: Callable[[Any], list[ast.stmt]]) -> list[ast.stmt]:
        """Return a loop whose rounds are counted."""
        if self.stands_in:
            return write(node)
        around = self.counter, self.loop_order
        self.counter, self.loop_order = self.new("round"), self.turn()
        start = at_place(ast.parse(f"{self.counter} = -1").body[0], node)
        made = [start, *write(node)]
        self.counter, self.loop_order = around
        return made

    def iterated(self, node: ast.expr) -> ast.expr:
        if not self.stands_in:
            self.round = self.basic_block("loop", 0)
            self.round.statements.append(Statement(node.lineno, self.turn()))
        return super().iterated(node)

    def elements(self, node: ast.expr, value: ast.expr) -> ast.expr:
        """Return what a loop runs over: each element is loaded in the round that it is for."""
        if self.round is None:
            return super().elements(node, value)
        around, self.block = self.block, self.round
        parts = [value, self.place(node), ast.Constant(self.round.number), self.current()]
        self.block = around
        return at_place(ast.Call(self.thread("elements", node), [at_place(p, node) for p in parts], []), node)

    # Calls

    def call_device(self, node: ast.Call, name: str, target: FunctionType, variable: str | None) -> ast.expr:
        called = super().call_device(node, name, target, variable)
        return called if self.hidden(target) else ast.Call(self.thread("left", node), [at_place(called, node)], [])

    def invoke(
        self, node: ast.Call, target: FunctionType, arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> ast.expr:
        """Return the call of a function that is rewritten as well; what it does is in a basic block of its own."""
        called = super().invoke(node, target, arguments, keywords)
        if self.hidden(target):
            return called
        block = self.recorder.basic_block(self.source.file, target.__name__, "call", self.turn())
        into = ast.Call(self.thread("into", node), [at_place(ast.Constant(block.number), node)], [])
        assert isinstance(called, ast.Call)
        called.keywords = [*keywords, ast.keyword(None, at_place(into, node))]  # done last: f(a, b=c, **into)
        return called

    def hidden(self, target: FunctionType) -> bool:
        """Whether what a called function does is part of the line that calls it."""
        return self.stands_in or stands_in(target) or target is require_alignment

    # Accesses, arithmetic, variables

    def place(self, node: ast.AST) -> ast.expr:
        """Return file and line of a node with the number of a new instruction."""
        if self.stands_in:
            return super().place(node)
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        made = self.recorder.instruction(self.source.file, line, column, text, self.turn(), self.block.number)
        return at_place(self.constant(made), node)

    def call(self, at: ast.AST, function: Callable, *arguments: ast.expr) -> ast.expr:
        """Return a call of one of this package's functions; one that computes counts itself."""
        name = None if self.stands_in else self.operation(function, arguments)
        if name is not None:
            tally = self.recorder.operations[self.source.file, getattr(at, "lineno", 0), name]
            function = _counting(function, tally, by_operand=name in COMPARISONS)
        return super().call(at, function, *arguments)

    def operation(self, function: Callable, arguments: tuple[ast.expr, ...]) -> str | None:
        """Return the name of the arithmetic that a function does; None where it does none."""
        if function in (narrowed, narrowed_left):
            function = self.known(arguments[2])
        elif function is functions.call:
            function = self.known(arguments[0])
            return None if function in NO_ARITHMETIC else getattr(function, "__name__", str(function))
        return NAMES.get(function)

    def known(self, constant: ast.expr) -> Any:
        """Return the value of a constant that this writer made."""
        assert isinstance(constant, ast.Name)
        return self.namespace[constant.id]

    def call_libdevice(self, node: ast.Call, name: str, target: Any, variable: str | None) -> ast.expr:
        called = super().call_libdevice(node, name, target, variable)
        if self.stands_in:
            return called
        tally = self.recorder.operations[self.source.file, node.lineno, name]
        return super().call(node, _counting(_itself, tally, by_operand=False), called)

    def assign(self, target: ast.expr, value: ast.expr, at: ast.stmt) -> list[ast.stmt]:
        """Return the assignment of a value that is already rewritten."""
        return [*super().assign(target, value, at), *self.noted(at, target)]

    def noted(self, at: ast.AST, *targets: ast.AST) -> list[ast.stmt]:
        """Return the statements that take down what the variables of ``targets`` are now."""
        if self.stands_in or not self.recorder.variables:
            return []
        made = []
        for name in dict.fromkeys(name for target in targets for name in _assigned(target)):
            parts = [ast.Constant(self.turn()), ast.Constant(name), ast.Name(name, ast.Load())]
            call = ast.Call(self.thread("assigned", at), [at_place(p, at) for p in parts], [])
            made.append(at_place(ast.Expr(at_place(call, at)), at))
        return made


def _assigned(target: ast.AST) -> list[str]:
    """Return the variables that an assignment to ``target`` changes."""
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _itself(value: Any) -> Any:
    return value


def _counting(function: Callable, tally: dict[type, int], by_operand: bool) -> Callable:
    """Return ``function``, counted by the type of its result, or of its first operand."""

    def operate(*values: Any) -> Any:
        value = function(*values)
        tally[type(value)] += 1
        return value

    def operate_on_two(a: Any, b: Any) -> Any:
        value = function(a, b)
        tally[type(value)] += 1
        return value

    def compare(*values: Any) -> Any:
        tally[type(values[0])] += 1
        return function(*values)

    if by_operand:
        return compare
    return operate_on_two if function in TWO_OPERANDS else operate

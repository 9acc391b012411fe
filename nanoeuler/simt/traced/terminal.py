"""The stepper in a terminal: a prompt like that of Python's debugger, for all lanes of a warp at once.

It reads commands from a pipe as well, and keeps to 80 columns. ``screen`` says what the marks mean.
"""

import ast
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.launch import WARP_SIZE, coordinates
from nanoeuler.simt.traced.branches import Branches
from nanoeuler.simt.traced.contents import leaves
from nanoeuler.simt.traced.screen import OUTCOME, Line, columns, lane_table, source_lines, step_lines, table
from nanoeuler.simt.traced.steps import Step, shown

if TYPE_CHECKING:
    from nanoeuler.simt.traced.stepper import Stepper

WIDTH = 80

HELP = """\
n, s, next [COUNT]      the next step, or so many on
b, back [COUNT]         back a step, or so many
n thread, n warp        on to where the chosen thread or warp takes part; or b
barrier, barrier back   on or back to where the whole block waits
to STEP                 go to a step by its number
play [SECONDS]          step by step to the end, so far apart; Ctrl-C stops it
an empty line           the last move again
thread X[,Y[,Z]]        look at this thread of the block
warp W                  look at the first thread of this warp
p, print NAME           a variable or array: p tile, p tile[2, :8], p tile[row]
locals                  the variables of all lanes of the warp
l, list                 the whole function
w, bt, where            the functions that the thread is in
q, quit                 leave

A step shows what there is when its line, marked ->, has been done. All threads
of a block go side by side. warp: # is a lane that runs the line, . one that
does not, O or o the chosen thread. true: T is a lane for which the condition of
an if or while is true, f one for which it is false. *name has just been
assigned. The map of a large array: # known, + partly known, . never written,
r and w what the chosen warp reads and writes in this step."""

SHORT = {
    **{"n": "next", "s": "next", "step": "next", "b": "back", "t": "thread"},
    **{"p": "print", "l": "list", "w": "where", "bt": "where", "?": "help"},
}


class Terminal:
    """Reads commands, and shows where the stepper is."""

    def __init__(self, stepper: "Stepper") -> None:
        self.stepper, self.branches = stepper, Branches(stepper.steps)
        self.console = Console(file=sys.stdout, highlight=False)
        self.width = max(40, min(WIDTH, self.console.width)) if self.console.is_terminal else WIDTH
        self.ended, self.again = False, ""
        self.commands: dict[str, Callable[[str], None]] = {
            **{"next": self.next, "back": self.back, "barrier": self.barrier, "to": self.to, "play": self.play},
            **{"thread": self.thread, "warp": self.warp, "print": self.print, "locals": self.locals},
            **{"list": self.list, "where": self.where, "help": self.help, "quit": self.quit},
        }

    def run(self) -> None:
        """Read commands until ``quit`` or the end of the input."""
        self.greet()
        self.show()
        while not self.ended:
            try:
                line = self.read()
            except (EOFError, KeyboardInterrupt):
                self.say("")
                return
            with suppress(KeyboardInterrupt):  # it ends a command, not the prompt
                self.do(line)

    def read(self) -> str:
        """Return the next line of input; one that comes from a pipe is shown."""
        if sys.stdin.isatty():
            return input("(step) ")
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        self.say(f"(step) {line.strip()}")
        return line

    def say(self, text: str, style: str = "") -> None:
        """Print a line, in colour where there is any."""
        self.console.print(Text(text, style), soft_wrap=True)

    def tell(self, sentence: str, style: str = "") -> None:
        """Print a sentence, on several lines if it is long."""
        self.say(textwrap.fill(sentence, self.width, subsequent_indent="  ", break_on_hyphens=False), style)

    def lines(self, lines: Iterable[Line]) -> None:
        """Print several lines."""
        for text, style in lines:
            self.say(text, style)

    def greet(self) -> None:
        """Say what is followed, and what is wrong with the kernel."""
        trace, count = self.stepper.trace, len(self.stepper.steps)
        blocks = f"block {coordinates(trace.blocks[0], trace.launch.grid)}" if len(trace.blocks) == 1 else ""
        blocks = blocks or f"{len(trace.blocks)} blocks"
        self.tell(f"{trace.kernel}: {blocks} of {trace.launch.blocks}, {count} steps. help lists the commands.")
        for fault in trace.faults:
            self.tell(f"{fault.kind}, line {fault.line}: {fault.message}", "red")
        if trace.faults:
            self.tell(OUTCOME, "red")

    def show(self) -> None:
        """Show the current step."""
        self.say("")
        self.lines(step_lines(self.stepper, self.branches, self.width))

    # Commands

    def do(self, line: str) -> None:
        """Do one command; what is wrong with it is said."""
        name, _, rest = (line.strip() or self.again).partition(" ")
        try:
            command = self.command(name) if name else None
            if command in (self.next, self.back, self.barrier):
                self.again = f"{name} {rest}"
            if command is not None:
                command(rest.strip())
        except UserError as error:
            self.tell(str(error), "red")

    def command(self, name: str) -> Callable[[str], None]:
        """Return a command by its name, or the start of it.

        Raises:
            UserError: there is none, or there are several.
        """
        named = SHORT.get(name, name)
        fits = [known for known in self.commands if known.startswith(named)]
        if named not in self.commands and len(fits) != 1:
            hint = f": {' or '.join(fits)}?" if fits else nearest(name, self.commands)
            raise UserError(f"no command '{name}'{hint}; help lists them")
        return self.commands[named if named in self.commands else fits[0]]

    def next(self, rest: str) -> None:
        """Go forward."""
        self.move(rest, self.stepper.next, self.stepper.next_of)

    def back(self, rest: str) -> None:
        """Go back."""
        self.move(rest, self.stepper.back, self.stepper.previous_of)

    def move(self, rest: str, by: Callable[[int], Step], of: Callable[..., Step]) -> None:
        """Go by a number of steps, or to where the chosen thread or warp takes part."""
        if rest and "thread".startswith(rest):
            self.go(of)
        elif rest and "warp".startswith(rest):
            self.go(lambda: of(warp=self.stepper.thread // WARP_SIZE))
        else:
            count = whole(rest or "1", "a number of steps, or 'thread', or 'warp'")
            self.go(lambda: by(count))

    def barrier(self, rest: str) -> None:
        """Go to a barrier."""
        if rest and not "back".startswith(rest):
            raise UserError(f"barrier {rest}: it is 'barrier' or 'barrier back'")
        self.go(self.stepper.previous_barrier if rest else self.stepper.next_barrier)

    def to(self, rest: str) -> None:
        """Go to a step."""
        step = whole(rest, f"the number of a step, 0 to {len(self.stepper.steps) - 1}")
        self.go(lambda: self.stepper.to(step))

    def go(self, move: Callable[[], Step]) -> None:
        """Move, and show where that leads; say so where it leads nowhere."""
        before = self.stepper.position
        move()
        if self.stepper.position != before:
            self.show()
        else:
            self.say(f"this is step {before} of {len(self.stepper.steps) - 1} already", "yellow")

    def play(self, rest: str) -> None:
        """Show step after step."""
        seconds = delay(rest or "0.5")
        while self.stepper.position < len(self.stepper.steps) - 1:
            self.stepper.next()
            if self.console.is_terminal:
                self.console.clear()
            self.show()
            time.sleep(seconds)

    def thread(self, rest: str) -> None:
        """Choose a thread."""
        parts = rest.strip("()").replace(",", " ").split() or [""]
        numbers = tuple(whole(part, "a thread's x, or x, y, z: thread 5, thread 5,1,0") for part in parts)
        self.stepper.choose(numbers)
        self.show()

    def warp(self, rest: str) -> None:
        """Choose a warp."""
        chosen = whole(rest, "the number of a warp: 0 has threads 0 to 31")
        count = -(-self.stepper.trace.launch.block_threads // WARP_SIZE)
        if not 0 <= chosen < count:
            raise UserError(f"there is no warp {chosen}: the block has 0 to {count - 1}")
        self.stepper.choose(chosen * WARP_SIZE)
        self.show()

    def print(self, rest: str) -> None:
        """Print a variable or an array."""
        name, bracket, index = rest.partition("[")
        name = name.strip()
        known = self.visible_variables()
        if not bracket and name in known and not isinstance(known[name], str):
            self.tell(f"{name} = {shown(known[name])}")
            return
        names = [leaf.name for array in self.stepper.trace.arrays for leaf in leaves(array)]
        found = [leaf for leaf in dict.fromkeys(names) if leaf == name or leaf.startswith(f"{name}.")]
        if not found:
            there = ", ".join(dict.fromkeys([*known, *names]))
            raise UserError(f"what is '{name}'?{nearest(name, [*known, *names])} There is {there}")
        for leaf in found:
            part = selected(self.stepper.array(leaf), bracket + index, known)
            if not part.shape:
                unknown = np.all(np.ma.getmaskarray(part))
                self.tell(f"{leaf}{bracket}{index} = {'not written yet' if unknown else shown(part[()])}")
                continue
            self.say(f"{leaf}{bracket}{index}: {part.dtype} {list(part.shape)}", "bold")
            self.lines(table(part, self.width))

    def visible_variables(self) -> dict[str, Any]:
        """Return the chosen thread's variables, those of the functions around where their names are not taken."""
        found: dict[str, Any] = {}
        for frame in self.stepper.steps.stack(self.stepper.position, self.stepper.thread):
            found |= self.stepper.steps.variables(self.stepper.position, self.stepper.thread, frame.execution)
        return found

    def locals(self, rest: str) -> None:
        """Print the variables of all lanes of the chosen warp."""
        self.lines(columns(*lane_table(self.stepper), self.width))

    def list(self, rest: str) -> None:
        """Print the function that the step is in."""
        self.lines(source_lines(self.stepper, 0, sys.maxsize, self.width))

    def where(self, rest: str) -> None:
        """Print the functions that the chosen thread is in, the kernel first."""
        frames = self.stepper.steps.stack(self.stepper.position, self.stepper.thread)
        for depth, frame in enumerate(frames):
            text = self.stepper.trace.source_line(frame.line, frame.file).strip()
            self.say(f"{'  ' * depth}{frame.function}, line {frame.line}: {text}"[: self.width])
        if not frames:
            self.say("the chosen thread has not started", "yellow")

    def help(self, rest: str) -> None:
        """Print what the commands do."""
        self.say(HELP)

    def quit(self, rest: str) -> None:
        """Leave."""
        self.ended = True


def whole(text: str, wanted: str) -> int:
    """Return a whole number.

    Raises:
        UserError: it is none; ``wanted`` says what belongs there.
    """
    try:
        return int(text)
    except ValueError:
        given = f"'{text}' is no whole number: " if text else ""
        raise UserError(f"{given}give {wanted}") from None


def delay(text: str) -> float:
    """Return the seconds between two steps.

    Raises:
        UserError: it is no number of seconds.
    """
    with suppress(ValueError):
        if 0 <= float(text) <= 3600:
            return float(text)
    raise UserError(f"play {text}: give the seconds from step to step, as in play 0.2")


IN_INDEX = (
    *(ast.Expression, ast.Subscript, ast.Tuple, ast.Slice, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub),
)


def selected(array: Any, index: str, variables: dict[str, Any]) -> Any:
    """Return ``array[index]``, with the thread's variables in the index: ``[row, tx + 1]``; "" is the whole array.

    Raises:
        UserError: the index is outside, or no index.
    """
    if not index:
        return array
    try:
        tree = ast.parse(f"array{index}", mode="eval")
        if not isinstance(tree.body, ast.Subscript) or not all(isinstance(n, IN_INDEX) for n in ast.walk(tree)):
            raise UserError(f"{index} is no index: use numbers, slices and variables, as in [2, :8] or [row, tx + 1]")
        part = eval(compile(tree, "index", "eval"), {"__builtins__": {}}, {**variables, "array": array})
    except (SyntaxError, IndexError, TypeError, NameError, ValueError, ZeroDivisionError) as error:
        raise UserError(f"{index}: {error}") from None
    return np.ma.masked_all((), array.dtype) if part is np.ma.masked else part

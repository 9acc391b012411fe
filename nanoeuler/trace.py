"""What a kernel does, thread by thread: ``python -m nanoeuler.trace NAME``, with no GPU.

A launch runs on the CPU with every access watched. What was counted is printed, and a page is written that shows it:
the source with its numbers, pictures, and the launch to step through. NAME is an op or a kernel of ours, or a script
that launches kernels of its own.
"""

import os
import re
import shutil
import sys
from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from nanoeuler.config import Parser, number
from nanoeuler.console import visible
from nanoeuler.errors import UserError, run_command
from nanoeuler.simt import needing_numba

if TYPE_CHECKING:
    from nanoeuler.simt.traced.part import Part, Traced
    from nanoeuler.simt.traced.result import Trace
    from nanoeuler.trace_examples import Example

EXAMPLES = """examples:
  python -m nanoeuler.trace rmsnorm_forward                                      an op of ours, at a small shape
  python -m nanoeuler.trace nanoeuler.gpu.rmsnorm:normalise_rows --shape B=2,T=3,C=40     one of its kernels
  python -m nanoeuler.trace script.py --kernel add --launch 3 -- --size 100      the third launch of a script's kernel
  python -m nanoeuler.trace --gallery pages                                      every kernel of ours, and an index
  python -m nanoeuler.trace --list norm                                          what there is with that in its name

breakpoint() in a kernel stops in the launches that are traced.
exit code: 0 no fault, 1 a kernel has faults or the script fails, 2 it cannot be traced"""
CARD = "RTX 4090"
#: Options that only one of the ways to say what is traced takes.
ONLY = {"script": ("kernel", "launch"), "ours": ("shape", "dtype"), "gallery": ("again",)}
PART = ("block", "warp", "lines", "out", "step")  # of ours and of a script's


def main(arguments: list[str]) -> int:
    """Trace what the arguments name; return 0 if no kernel has a fault.

    Raises:
        UserError: an option or a name is wrong, or something cannot be traced.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:end])
    if options.list:
        return _list(options.name)
    way = _way(options)
    if end < len(arguments) and way != "script":
        raise UserError("what follows -- is for a script, a file that ends in .py")
    _refuse(options, way)
    _require_writable(options)
    needing_numba("source")
    from nanoeuler.simt.traced.cards import card

    card(options.card)
    if way == "gallery":
        from nanoeuler.trace_gallery import write_gallery

        how = options.dtype or "float32", options.card, options.again
        return write_gallery(Path(options.gallery), *how, only=options.name)
    return _script(options, arguments[end + 1 :]) if way == "script" else _ours(options)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m nanoeuler.trace",
        usage="%(prog)s [options] NAME | FILE.py [-- arguments of FILE.py] | --gallery FOLDER [NAME] | --list [WORD]",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="module:op, module:kernel, the end of one, or FILE.py")
    parser.add_argument("--shape", metavar="B=2,T=3,C=40", help="sizes of an op of ours, by letters; others: small")
    parser.add_argument("--dtype", choices=("float32", "bf16"), help="of an op of ours; default: float32")
    parser.add_argument("--kernel", metavar="NAME", help="the kernel of a script; default: each")
    parser.add_argument(
        "--launch", metavar="N", type=number(int, 1), help="which launch of a script's kernel; default: 1"
    )
    parser.add_argument(
        "--block",
        metavar="X[,Y[,Z]]",
        type=_block,
        help="only this block; default: all if few, else the first",
    )
    parser.add_argument("--warp", metavar="N", type=number(int, 0), help="only this warp of a block; default: all")
    parser.add_argument("--lines", metavar="A-B", type=_lines, help="only accesses on these lines of the kernel's file")
    parser.add_argument("--card", metavar="NAME", default=CARD, help=f"the GPU of the roofline; default: {CARD}")
    parser.add_argument("--out", metavar="FILE", type=_file, help="the page that is written; default: trace-NAME.html")
    parser.add_argument("--step", action="store_true", help="step through the launch in the terminal, no report")
    parser.add_argument(
        "--gallery", metavar="FOLDER", help="a page for every kernel of ours, or of NAME, and index.html"
    )
    parser.add_argument("--again", action="store_true", help="with --gallery: write pages anew that are up to date")
    parser.add_argument(
        "--list", action="store_true", help="ops and kernels of ours, all or by a word; letters of shapes"
    )
    return parser


def _block(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\(?\d+(, *\d+){0,2}\)?", text):
        raise ArgumentTypeError(f"'{text}' is no block: write X, X,Y or X,Y,Z, counted from 0")
    return tuple(int(n) for n in re.findall(r"\d+", text))


def _file(text: str) -> Path:
    if Path(text).is_dir():  # so is what is empty
        raise ArgumentTypeError(f"'{text}' is a folder: give a file")
    return Path(text)


def _lines(text: str) -> range:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if not 1 <= first <= last:
        raise ArgumentTypeError(f"'{text}' are no lines: write A-B, such as 12-20")
    return range(first, last + 1)


def _way(options: Namespace) -> str:
    """Return how it is said what to trace: "gallery", "script" or "ours"."""
    if options.gallery is not None:
        return "gallery"
    if options.name is None:
        raise UserError("what to trace? Give an op, a kernel or a script, or --gallery FOLDER; see --help")
    return "script" if _is_script(options.name) else "ours"


def _is_script(name: str) -> bool:
    return name.endswith((".py", ".ipynb"))


def _refuse(options: Namespace, way: str) -> None:
    """Raise a UserError where an option is given that does not go with what is traced."""
    meant = {"script": "a script's kernels", "ours": "our own ops", "gallery": "--gallery"}
    allowed = {*ONLY[way], "dtype"} if way == "gallery" else {*ONLY[way], *PART}
    for name in (*ONLY["script"], *ONLY["ours"], *ONLY["gallery"], *PART):
        given = getattr(options, name)
        if name not in allowed and given is not None and given is not False:
            owner = next((meant[w] for w, names in ONLY.items() if name in names), "a single launch")
            raise UserError(f"--{name} is for {owner}")
    if way == "gallery" and options.name and _is_script(options.name):
        raise UserError(f"--gallery takes an op or a kernel of ours; for a script: nanoeuler.trace {options.name}")
    for name in ("lines", "out") if options.step else ():
        if getattr(options, name) is not None:
            raise UserError(f"--{name} does not go with --step, which shows all lines and writes no page")


def _require_writable(options: Namespace) -> None:
    """Raise a UserError, before anything has run, where it is known that no page can be written.

    Raises:
        UserError: it is no HTML file, or its folder is none or closed.
    """
    path = Path("trace.html") if options.out is None else options.out
    if options.gallery is not None:
        path = Path(options.gallery) / "index.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out: {path} is to be a page for a browser: give a name that ends in .html")
    folder = next(parent for parent in path.parents if parent.exists())  # the others are made
    if not folder.is_dir():
        raise UserError(f"{path}: cannot write it: {folder} is a file: give a folder")
    if not options.step and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{path}: cannot write it: the folder {folder} is closed to you: choose another")


def _list(word: str | None) -> int:
    """Print every op and kernel of ours, or those with a word in their names.

    Raises:
        UserError: there is none.
    """
    needing_numba("source")
    from nanoeuler.trace_examples import MEANINGS, examples, launches, letters_of, sizes

    table, used = Table("name", "letters of --shape", "kernels"), set[str]()
    for address in dict.fromkeys(example.address for example in examples()):
        same = [example for example in examples() if example.address == address]
        launched = dict.fromkeys(each.kernel.py_func.__name__ for e in same for each in launches(e, sizes(e)))
        if word is None or any(word.lower() in name.lower() for name in (address, *launched)):
            letters = letters_of(same[0])
            table.add_row(address, " ".join(letters), ", ".join(launched))
            used.update(letters)
    if not table.row_count:
        raise UserError(f"nothing of ours has '{word}' in its name: --list alone shows all")
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)
    told = (f"{a} {'= ' * (a in 'ND')}{meaning}" for a, meaning in MEANINGS.items() if a in used)
    print(f"letters: {', '.join(told)}; those that --shape leaves out are small")
    return 0


def _part(options: Namespace) -> "Part":
    from nanoeuler.simt.traced.part import Part

    return Part(options.block, options.warp, options.lines)


class Shown:
    """The launches that this run has traced: each is printed when it comes, and all go into one page."""

    def __init__(self, card: str) -> None:
        self.card = card
        self.launches: list[Traced] = []

    def add(self, traced: "Traced", note: str = "") -> None:
        """Print the report of a launch, with a note below its head, and keep it for the page."""
        from nanoeuler.simt.traced.report import report

        width = max(shutil.get_terminal_size((120, 24)).columns, 80 if sys.stdout.isatty() else 120)
        text = report(traced.trace, self.card, note=note, width=width, legend=not self.launches)
        self.launches.append(traced)
        print(f"{visible(text)}\n", flush=True)
        if len(traced.trace.blocks) < traced.trace.launch.blocks:
            print(f"traced: {traced.part}; --block X,Y,Z takes another block\n", flush=True)

    def save(self, path: Path, title: str, about: str | None = None) -> None:
        """Write the page, and say where it is."""
        from nanoeuler.simt.traced.page import save_page

        save_page(path, self.launches, title=title, card=self.card, about=about)
        print(f"page: {path}", flush=True)

    @property
    def code(self) -> int:
        """The exit code: 1 if a kernel has faults."""
        return int(any(each.trace.faults for each in self.launches))


def _ours(options: Namespace) -> int:
    """Trace an op or a kernel of ours."""
    from nanoeuler.trace_examples import launches, launches_of, run_launch, short_name, sizes, trace_launches

    example, kernel = _resolve(options.name)
    work = launches(example, sizes(example, options.shape or ""), options.dtype or "float32")
    part, called = _part(options), launches_of(work, kernel)
    wanted = [n for n in called if part.has(work[n].kernel)]
    if not wanted:
        raise part.elsewhere([work[n].kernel for n in called])
    if options.step:
        for each in work[: wanted[0]]:
            run_launch(each)
        one = work[wanted[0]]
        return int(bool(_step(one.kernel, one.grid, one.block, one.args, one.shared_bytes, options).faults))
    shown = Shown(options.card)
    for traced in trace_launches(work, part, wanted):
        shown.add(traced)
    name = short_name(kernel or example.address)
    title = example.title if kernel is None else f"{name} · {example.title}"
    shown.save(options.out or Path(f"trace-{name}.html"), title, example.run.__doc__)
    return shown.code


def _resolve(name: str) -> tuple["Example", str | None]:
    """Return the example and the kernel that a name means.

    Raises:
        UserError: there is none; a file may have been meant.
    """
    from nanoeuler.trace_examples import resolve

    try:
        return resolve(name)
    except UserError:
        if Path(name).exists():
            raise UserError(f"{name} is no op or kernel of ours, and no script: a script ends in .py") from None
        raise


def _step(kernel: Any, grid: Any, block: Any, args: tuple, shared_bytes: int, options: Namespace) -> "Trace":
    """Step through a launch in the terminal: a block of it, or a warp. Return what was stepped through."""
    from nanoeuler.simt.traced.execute import trace
    from nanoeuler.simt.traced.stepper import Stepper

    how = {"blocks": options.block or (0, 0, 0), "warps": options.warp, "shared_bytes": shared_bytes}
    stepper = Stepper(trace(kernel, grid, block, args, variables=True, **how))
    stepper.interact()
    return stepper.trace


def _script(options: Namespace, arguments: list[str]) -> int:
    """Trace launches of a script."""
    from nanoeuler.simt.check import script_path
    from nanoeuler.simt.traced.part import trace_part
    from nanoeuler.simt.traced.script import Tracing, trace_script

    path, shown, part, number = script_path(options.name), Shown(options.card), _part(options), options.launch or 1
    codes: list[int] = []
    elsewhere: list[Any] = []  # kernels that have none of the lines

    def take(kernel: Any, launch: Any, args: tuple, run: Callable[[], None]) -> None:
        shape = kernel, launch.grid, launch.block, args
        note = f"launch {number} of {kernel.py_func.__name__} (--launch N takes another)"
        if not part.has(kernel):
            elsewhere.append(kernel)
            run()
        elif options.step:
            print(note)
            kept = [(a, a.copy()) for a in args if hasattr(a, "flags") and a.flags.writeable]
            stepped = _step(*shape, launch.shared_bytes, options)
            codes.append(int(bool(stepped.faults)))
            if len(stepped.blocks) < launch.blocks:
                for array, before in kept:
                    array[...] = before
                run()
        else:
            shown.add(trace_part(*shape, part, shared_bytes=launch.shared_bytes, whole=run), note)

    tracing = Tracing(options.kernel, number, take)
    try:
        code = trace_script(path, arguments, tracing)
    finally:
        if shown.launches:
            print(f"launched: {tracing.told()}")
            shown.save(options.out or _page_of(path.stem, options), path.name)
    if elsewhere and not shown.launches and not code:
        raise part.elsewhere(elsewhere)
    return code or max([shown.code, *codes])


def _page_of(script: str, options: Namespace) -> Path:
    """Return the name of a script's page: another for each kernel and launch that is asked for."""
    asked = (options.kernel, options.launch and f"launch-{options.launch}")
    return Path(f"trace-{'-'.join([script, *filter(None, asked)])}.html")


if __name__ == "__main__":
    raise SystemExit(run_command(main))

"""``python -m nanoeuler.simt check FILE.py``: a script's kernel launches on the CPU, watched, with no change to it.

The script runs as ``__main__`` with the stand-in for ``numba.cuda`` in place. Each launch goes to the checked executor;
what is wrong is printed when it is found, each fault once, and the script goes on.
"""

import argparse
import os
import re
import runpy
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nanoeuler.errors import UserError
from nanoeuler.simt import needing_numba
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.launch import ORDERS

if TYPE_CHECKING:
    from nanoeuler.simt.cuda.dispatch import Runner

LIMIT = 10  # watched launches of a kernel with the same shapes: what is wrong is as a rule wrong in the first
EXECUTORS = ("checked", "compiled", "ptx")


def main(arguments: list[str]) -> int:
    """Run the script that the arguments name; return 0 if no kernel has a fault, 1 if one has or the script fails.

    Raises:
        UserError: the file cannot be run at all, or it uses what the executors do not have.
    """
    options = _parser().parse_args(arguments)
    path = script_path(options.file)
    needing_numba("watch")  # with Numba, which takes a while: not for --help
    from nanoeuler.simt.cuda.dispatch import Runner
    from nanoeuler.simt.watch import Watch

    watch = Watch(options)
    try:
        code = run_script(path, options.arguments, Runner(watch.launch, watch.kernels.append))
    except KeyboardInterrupt:
        watch.partial = True
        watch.show("\ninterrupted: this is what was found so far")
        code = 130
    except UserError:
        watch.show(watch.summary())
        raise
    watch.partial |= bool(code)
    watch.show(watch.summary())
    if watch.refused:  # and the script went on
        raise watch.refused[0]
    return code or int(bool(watch.faults or watch.elsewhere()["fault"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nanoeuler.simt check",
        description="Run a script with its CUDA kernels on the CPU and report what is wrong with them.",
        epilog="exit code: 0 no fault, 1 faults or an exception of the script, 2 it cannot be run here",
        allow_abbrev=False,
    )
    parser.add_argument("--executor", choices=EXECUTORS, default="checked", help="default: checked")
    parser.add_argument("--order", choices=ORDERS, default="forward", help="of blocks, warps, lanes; default: forward")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for --order random; default: 0")
    parser.add_argument(
        "--limit",
        type=_limit,
        default=LIMIT,
        metavar="N",
        help=f"launches of one kernel with the same shapes that are watched; later ones only run; default: {LIMIT}; "
        "'all' for all of them",
    )
    parser.add_argument("--allow-float64", action="store_true", help="float64 arithmetic is meant: do not report it")
    parser.add_argument("file", metavar="FILE.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments")
    return parser


def _limit(text: str) -> int:
    if text == "all":
        return sys.maxsize
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number from 1 nor 'all'")
    return int(text)


def script_path(name: str) -> Path:
    """Return the path of a script that can be run.

    Raises:
        UserError: it is not there, or no Python.
    """
    path = Path(name)
    if path.suffix == ".ipynb":
        raise UserError(f"{name} is a notebook: make a script of it first, with jupyter nbconvert --to script {name}")
    if path.is_dir():
        raise UserError(f"{name} is a folder: give a Python file")
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{name}: there is no such file") from None
    try:
        compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        shown = f"\n    {error.text.strip()}" if error.text else ""
        raise UserError(f"{name}{line}: not Python: {error.msg}{shown}") from None
    except ValueError as error:
        raise UserError(f"{name}: not a Python file: {error}") from None
    return path


# Running the script ---------------------------------------------------------------------------------------------------


def run_script(path: Path, arguments: list[str], runner: "Runner") -> int:
    """Run a script whose launches go to ``runner``; return its exit code, 1 if an exception ends it, which is shown.

    Raises:
        UserError: it uses what the executors do not have.
    """
    from nanoeuler.simt.cuda.dispatch import launches_go_to
    from nanoeuler.simt.cuda.install import installed
    from nanoeuler.simt.watch import CannotRunError

    with installed(), _as_main(path, arguments), launches_go_to(runner):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            return _exit_code(end)
        except (UnsupportedError, CannotRunError) as error:
            raise UserError(_with_place(error)) from error
        except Exception as error:
            sys.stdout.flush()
            print(script_traceback(error), file=sys.stderr, end="", flush=True)
            return 1
    return 0


@contextmanager
def _as_main(path: Path, arguments: list[str]) -> Iterator[None]:
    """Let the script find its arguments, and the modules beside it, as ``python FILE`` does."""
    argv, paths = sys.argv, sys.path
    sys.argv = [str(path), *arguments]
    sys.path = [str(path.resolve().parent), *paths]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, paths


def _exit_code(end: SystemExit) -> int:
    """Return the exit code of a script that ended itself; a text is shown, as Python does."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stdout.flush()
    print(end.code, file=sys.stderr, flush=True)
    return 1


HIDDEN = (str(Path(__file__).parent) + os.sep, "<frozen runpy>", runpy.__file__)


def _of_script(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(HIDDEN)


def script_traceback(error: BaseException) -> str:
    """Return the traceback of an exception with the script's own frames only."""
    return "".join(_visible_frames(traceback.TracebackException.from_exception(error)).format())


def _visible_frames(told: traceback.TracebackException) -> traceback.TracebackException:
    """Take this package's frames out, of the causes as well."""
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if _of_script(frame)])
    for cause in (told.__cause__, told.__context__):
        if cause is not None:
            _visible_frames(cause)
    return told


def _with_place(error: Exception) -> str:
    """Return an error's message; one that names no line of a kernel gets the line of the script."""
    libraries = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _of_script(frame) and not frame.filename.startswith(libraries)
    ]
    named = re.match(r"\S.*?:(\d+|\?): ", str(error))
    return str(error) if named or not frames else f"{frames[-1].filename}:{frames[-1].lineno}: {error}"

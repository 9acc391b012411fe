"""Errors of a notebook's cells that say little to a learner: a blank above is open, a cell above was not run."""

import sysconfig
import traceback
from types import TracebackType
from typing import Any

LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def explain_errors() -> None:
    """Let the notebook that this runs in say what is behind such errors; do nothing where there is no notebook."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((Exception,), _show)


def _show(
    shell: Any, kind: type[BaseException], error: Any, trace: TracebackType | None, tb_offset: int | None = None
) -> None:
    """Show an error as the notebook would, but for those that have words."""
    if (told := words(error)) is not None:
        error._render_traceback_ = lambda: [told]
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def words(error: BaseException) -> str | None:
    """Return what to tell a learner instead of a traceback; None where the traceback is of more use.

    >>> print(words(TypeError("unsupported operand type(s) for +: 'int' and 'ellipsis'")))
    A blank above is still open: something here is "...". Fill it in, run its cell, then this one.
    (TypeError: unsupported operand type(s) for +: 'int' and 'ellipsis')
    """
    text = f"({type(error).__name__}: {error})"
    if "ellipsis" in str(error).lower() or "dtype('O')" in str(error):  # NumPy makes an array of objects of it
        opened = 'A blank above is still open: something here is "...". Fill it in, run its cell, then this one.'
        return f"{opened}\n{text}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, NameError) and frames and not frames[-1].filename.startswith(LIBRARIES):
        missing = f"'{error.name}' is not there yet" if getattr(error, "name", None) else "Something is not there yet"
        return f"{missing}: the cell above that makes it was not run, or stopped. Run the cells from the top.\n{text}"
    return None

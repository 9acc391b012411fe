"""What stands in the way of a device, as it is told to people: what is wrong, and what mends it.

Only the standard library is imported here and in what asks the system (:mod:`nanoeuler.system.packages`,
:mod:`nanoeuler.system.driver`, :mod:`nanoeuler.system.toolkit`): they can speak where everything else is broken.
"""

import sys
from typing import NamedTuple

Release = tuple[int, int]

IN_FOLDER = "in nanoeuler's folder, python -m pip install -e"
WITHOUT = "use --device cpu, or --device sim for the same kernels on the CPU"
DRIVERS = "https://www.nvidia.com/drivers"


class Trouble(NamedTuple):
    """What is wrong, and the command or step that mends it."""

    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}: {self.mend}"


def dotted(numbers: tuple[int, ...]) -> str:
    """Return a version in its usual form.

    >>> dotted((13, 0))
    '13.0'
    """
    return ".".join(map(str, numbers))


def first_line(error: BaseException | str, kind: bool = True) -> str:
    """Return an error's type and the first line that it says, cut to what fits a message.

    >>> first_line(ValueError("too short\\nsecond line"))
    'ValueError: too short'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if kind:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def set_to(variable: str, value: str) -> str:
    """Return the command that sets an environment variable in this system's shell."""
    return f"set {variable}={value}" if sys.platform == "win32" else f"export {variable}={value}"


def unset(variable: str) -> str:
    """Return the command that removes an environment variable in this system's shell."""
    return f"set {variable}=" if sys.platform == "win32" else f"unset {variable}"

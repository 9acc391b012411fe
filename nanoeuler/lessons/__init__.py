"""The course's machinery: what notebooks call, checks of the exercises, and how the notebooks are made.

A notebook begins with

    from nanoeuler.lessons import start
    lesson = start(4)

and has everything else from ``lesson``. ``python -m nanoeuler.lessons`` lists the lessons with what is done, opens and
resets them; the sources are in ``lessons/source``, their format is told in ``nanoeuler.lessons.source``.
"""

from typing import TYPE_CHECKING

from nanoeuler.simt import needing_numba

if TYPE_CHECKING:
    from nanoeuler.lessons.running import Running

__all__ = ["start"]


def start(number: int, keep: bool = True) -> "Running":
    """Begin a lesson: verify the versions, let kernels run here, and return what its cells call.

    ``keep`` is whether what is done is remembered: in a solved notebook it is not.

    Raises:
        UserError: something that the lessons need is not installed; the message has the command that mends it.
    """
    needing_numba("source")
    from nanoeuler.lessons.running import begin

    return begin(number, keep)

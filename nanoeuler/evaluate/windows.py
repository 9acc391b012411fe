"""A long text cut into overlapping windows, so that every token is predicted once and with enough before it.

A window's inputs are up to ``length`` neighbouring tokens, and each input predicts the token after it. Only those that
no window before has predicted are scored: all of the first window's, then ``stride`` of each. The last window is
moved back until it is full. With ``stride == length`` the windows lie side by side; with 1 every token is predicted
from all the context that the model can have::

    tokens   0 1 2 3 4 5 6 7 8 9          length 4, stride 2
    scored     1 2 3 4                    inputs 0 to 3
                       5 6                inputs 2 to 5
                           7 8            inputs 4 to 7
                               9          inputs 5 to 8

Transformers' documentation measures perplexity like that ("strided"), but its windows leave out their own first token.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Inputs ``begin`` to ``end - 1``, of which the tokens ``first`` to ``end`` are scored."""

    begin: int
    first: int
    end: int


def sliding_windows(count: int, length: int, stride: int, first: int = 1) -> Iterator[Window]:
    """Yield windows that score each of the tokens ``first`` to ``count - 1`` once.

    A scored token has at least ``length - stride + 1`` tokens before it in its window, or all that there are. All
    windows have ``length`` inputs, unless there is but one.

    Args:
        count: tokens of the text, with what stands in front of it.
        length: inputs of a window.
        stride: tokens that a window scores, from 1 to ``length``.
        first: the first token to score, at least 1: nothing predicts token 0.
    """
    end = min(max(length, first), count - 1)  # where a window's last target is
    while first <= end:
        yield Window(max(0, end - length), first, end)
        first, end = end + 1, min(end + stride, count - 1)

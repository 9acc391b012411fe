"""Several corpora in one run, each with a weight: ``data/fineweb-edu=0.7,data/tinystories=0.3``.

Which of them a window comes from is a function of the window's number alone.
"""

from collections.abc import Sequence
from fractions import Fraction

from nanoeuler.errors import UserError


class Mixture:
    """Deals the windows of a run to corpora in fixed shares.

    The first corpus has floor(m r) of the first m windows, r being its share; what is left over is dealt to the others
    in the same way, with their shares of the rest. So after any number of windows the first corpus is less than one
    window off its share, the k-th less than k, and nothing needs to be remembered: m says it all.
    """

    def __init__(self, weights: Sequence[Fraction]) -> None:
        """Take the corpora's weights, all above 0; their sum may be anything."""
        self.shares = [weight / sum(weights) for weight in weights]
        self._splits = [weight / sum(weights[i:]) for i, weight in enumerate(weights)]  # of what those before leave

    def place(self, window: int) -> tuple[int, int]:
        """Return which corpus a window, from 0 on, comes from, and how many of that corpus were dealt before it.

        >>> mixture = Mixture([Fraction(2), Fraction(1)])
        >>> [mixture.place(m) for m in range(6)]
        [(1, 0), (0, 0), (0, 1), (1, 1), (0, 2), (0, 3)]
        """
        for corpus, split in enumerate(self._splits):
            before = window * split.numerator // split.denominator
            if (window + 1) * split.numerator // split.denominator > before:
                return corpus, before
            window -= before
        raise AssertionError("the last split is 1")

    def counts(self, windows: int) -> list[int]:
        """Return how many of the first so many windows come from each corpus.

        >>> Mixture([Fraction(2), Fraction(1)]).counts(100)
        [66, 34]
        """
        counts = []
        for split in self._splits:
            counts.append(windows * split.numerator // split.denominator)
            windows -= counts[-1]
        return counts


def parse_mixture(dataset: str) -> list[tuple[str, Fraction]]:
    """Return the corpora that a mixture names, with their shares, which add up to 1.

    >>> parse_mixture("data/fineweb-edu=3,stories.txt=1")
    [('data/fineweb-edu', Fraction(3, 4)), ('stories.txt', Fraction(1, 4))]

    Raises:
        UserError: a part has no weight above 0, or a corpus is there twice.
    """
    weights: dict[str, Fraction] = {}
    for item in dataset.split(","):
        name, _, text = (word.strip() for word in item.rpartition("="))
        try:
            weight = Fraction(text)
        except (ValueError, ZeroDivisionError):
            weight = Fraction(0)
        if not name or weight <= 0:
            raise UserError(
                f"data.dataset: '{item}' is no corpus with a weight above 0: a mixture is such as "
                "data/fineweb-edu=0.7,data/tinystories=0.3"
            )
        if name in weights:
            raise UserError(f"data.dataset: {name} is there twice: add its weights up")
        weights[name] = weight
    total = sum(weights.values())
    return [(name, weight / total) for name, weight in weights.items()]

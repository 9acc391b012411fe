"""A made-up text as large as wanted, the same every time: for measuring what a large corpus costs without one at hand.

Words are made of syllables of six scripts, and their frequencies follow Zipf's law, as those of a language do: a text
of 100 MB has several hundred thousand different words, half of them only a few times. There are numbers, punctuation
and lines.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

#: Script -> share of all words, first letters of a syllable, last letters of it.
SCRIPTS = {
    "Latin": (0.70, "b c d f g h k l m n p qu r s t v w ch st th tr", "a e i o u y ai ea ou er on in"),
    "Latin with accents": (0.10, "b ç d f g l m ñ p r s š t v z", "á é è ü ö ä õ ão ië"),
    "Cyrillic": (0.10, "б в г д ж з к л м н п р с т ч ш", "а е и о у я ы ой ов ать"),
    "Greek": (0.04, "β γ δ θ κ λ μ ν π ρ σ τ φ", "α ε η ι ο ου ας ος"),
    "Devanagari": (0.03, "क ग च ज त द न प ब म र ल स", "ा ि ी ु े ो ं"),
    "Han": (0.03, " ".join(map(chr, range(0x4E00, 0x4E80))), " ".join(map(chr, range(0x5200, 0x5280)))),
}
#: What stands after a word, and how often.
AFTER = {
    " ": 0.84,
    ", ": 0.06,
    ". ": 0.04,
    ".\n": 0.02,
    "\n": 0.015,
    "\n\n": 0.005,
    "'s ": 0.01,
    " - ": 0.005,
    "! ": 0.005,
}
#: Shares of the words that are numbers, and that begin with a capital.
NUMBERS, CAPITALS = 0.02, 0.1
MOST_SYLLABLES = 6
#: Words that can occur, and words that are written at a time.
WORDS, BLOCK = 800_000, 200_000


def made_up_text(size: int, words: int = WORDS) -> Iterator[str]:
    """Give a text of ``size`` UTF-8 bytes or up to a few MB more, in parts, with so many words that can occur."""
    rng = np.random.default_rng(0)
    known = np.array(made_up_words(rng, words), object)
    zipf = np.cumsum(1 / np.arange(3, words + 3))
    after, shares = np.array(list(AFTER), object), np.cumsum(list(AFTER.values()))
    written = 0
    while written < size:
        drawn = known[np.searchsorted(zipf, rng.random(BLOCK) * zipf[-1])]
        between = after[np.searchsorted(shares, rng.random(BLOCK) * shares[-1])]
        part = "".join(chain.from_iterable(zip(drawn, between, strict=True)))
        written += len(part.encode())
        yield part


def made_up_words(rng: np.random.Generator, count: int) -> list[str]:
    """Return different words, the more frequent shorter; some begin with a capital, and some are numbers."""
    shares = [share for share, *_ in SCRIPTS.values()]
    syllables = [[a + b for a in first.split() for b in last.split()] for _, first, last in SCRIPTS.values()]
    sizes = np.array([len(of_script) for of_script in syllables])
    words: dict[str, None] = {}
    while len(words) < count:
        more = min(BLOCK, max(100, len(words)))  # words grow longer step by step
        scripts = rng.choice(len(sizes), more, p=shares)
        lengths = 1 + np.minimum(rng.poisson(np.log10(10 + len(words)) / 2, more), MOST_SYLLABLES - 1)
        picks = rng.random((more, MOST_SYLLABLES)) ** 2 * sizes[scripts, None]  # squared: some syllables are frequent
        drawn = zip(
            scripts.tolist(), lengths.tolist(), picks.astype(int).tolist(), rng.random(more).tolist(), strict=True
        )
        for script, length, pick, kind in drawn:
            word = "".join(map(syllables[script].__getitem__, pick[:length]))
            if kind < NUMBERS:
                word = str(int(10 ** (8 * kind / NUMBERS)))
            words[word.capitalize() if kind > 1 - CAPITALS else word] = None
    return list(words)[:count]

"""Byte pair encodings for the tests of several files, and texts that are hard to cut."""

from collections import Counter
from itertools import pairwise

from hypothesis import strategies as st

from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.patterns import PATTERNS, split

TEXT = (
    "The tokenizer's merges, the merges' tokens; they'll be there THEN.  Then the naïve café in 東京 and 東京都 🚀🚀 "
    "1234 12345 0.5\n\n\tdef the(self):\r\n        return the + 'the'\n        # ----------------\n"
) * 3

AWKWARD = [
    "",
    " ",
    "Hello, world!",
    "<|endoftext|>",
    "a<|endoftext|>\n<|endoftext|> b",
    "I'll don't we've he'd they're O'S 'S ''s",
    "   leading and trailing   ",
    "\n\n\n  \n\t\r\n tabs\t\tand\r\nlines\n",
    "x\u00a0y\u2003z\u3000\u2028\u0085w \x1c\x1f x",
    "naïve café e\u0301 ﬁ ß İ",
    "日本語のテキスト 한국어 العربية हिन्दी",
    "😀👩‍👩‍👧‍👦🇪🇺 \U0010ffff\ufeff\ufffd",
    "1234567890 ½ ² ⅷ ١٢٣ 3.14e-10",
    "\0\x01\x7f\x80",
    "a" * 300,
    "!" * 300 + " " * 300,
    " " * 300 + "x",
    "def f(x):\n        return x  # comment\n",
]

#: Texts in which the merges of :data:`TEXT` have something to do, and any texts.
texts = st.text(st.sampled_from(" \n\t\r\x1c\u00a0ethnrs'THN1.-é東京🚀")) | st.text()


def learn(text: str, count: int, pattern: str = "gpt2") -> list[tuple[int, int]]:
    """Return merges learned from a text, in the plainest way there is."""
    words = [[BYTES.index(bytes([byte])) for byte in word.encode()] for word in split(PATTERNS[pattern], text)]
    merges: list[tuple[int, int]] = []
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        words = [merged(word, best, 256 + len(merges)) for word in words]
        merges.append(best)
    return merges


def merged(ids: list[int], pair: tuple[int, int], made: int) -> list[int]:
    """Return ids with a pair replaced from left to right."""
    out: list[int] = []
    for i in ids:
        if out and (out[-1], i) == pair:
            out[-1] = made
        else:
            out.append(i)
    return out

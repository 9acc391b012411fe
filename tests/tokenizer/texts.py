"""Texts that are hard to cut, for the tests of tokenizers."""

from hypothesis import strategies as st

#: What patterns, white space, upper and lower case, and versions of Unicode are about.
PIECES = [
    *"abBz09 .,!_-'/\"\n\r\t\v\f\x00\x1c\x1f\x85\xa0\u200b\u200d\u2028\u3000\ufeff²½Ⅷ",
    *"éßſKµªǅʰאबि中가\u0301\u0345\U0001d7d8\U0001f600",
    *"\u0295\u0558\u088f\ua7ce\u05c8\u20c1\U00011de0\U000323b0\U0003d000\U000e0fff\U0010ffff\ue000",  # new, or none yet
    *("'s", "'S", "'ſ", "'LL", "'re", "'Ve", "'d", "'t", "'M", "\r\n", "\n\n", "  ", "   x", "\t \n", " \n b", "a\n  "),
    *(
        "👩‍👩‍👧",
        "🇩🇪",
        "e\u0301",
        "the ",
        " Hello",
        "x=1;",
        "12345",
        "aaaaaaaaaa",
        "----------",
        "привет ",
        "नमस्ते",
        "中文字",
    ),
]

#: A text to learn from.
TEXT = (
    "The tokenizer's merges, the merges' tokens; they'll be there THEN.  Then the naïve café in 東京 and 東京都 🚀🚀 "
    "1234 12345 0.5\n\n\tdef the(self):\r\n        return the + 'the'\n        # ----------------\n"
) * 3

#: Whole texts, to be named in tests.
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

#: What merges learned from :data:`TEXT` have something to do with.
LETTERS = [*" ethnrs'THN1.-é東京🚀", "the", " then", "12"]


def texts(size: int = 30) -> st.SearchStrategy[str]:
    """Return a strategy of texts of up to ``size`` of those pieces, letters, or single characters of all Unicode."""
    piece = st.sampled_from(PIECES) | st.sampled_from(LETTERS) | st.characters(exclude_categories=["Cs"])
    return st.lists(piece, max_size=size).map("".join)

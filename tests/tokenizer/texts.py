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


def texts(size: int = 30) -> st.SearchStrategy[str]:
    """Return a strategy of texts of up to ``size`` such pieces or single characters of all Unicode."""
    characters = st.characters(exclude_categories=["Cs"])
    return st.lists(st.one_of(st.sampled_from(PIECES), characters), max_size=size).map("".join)

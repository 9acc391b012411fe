r"""How text is cut into pre-tokens, within which bytes are merged: published patterns by name, or a regular expression.

Encoding cuts by tiktoken's regular expressions, training by those of Python's ``regex``, and both must cut alike. They
are made from different versions of Unicode: a character that one of them calls a letter may be unassigned to the
other. tiktoken is right by definition. We ask both once in a process what they think of each character, and where a
text has one that they disagree on, a stand-in takes its place while ``regex`` cuts: a character that both class as
tiktoken classes the first.
"""

import re
import sys
from functools import cache
from typing import NamedTuple

import numpy as np
import regex
import tiktoken

from nanoeuler.errors import UserError, nearest

#: By name, as published. Any engine reads them alike, tokenizers' Oniguruma too.
PATTERNS = {
    # openai/gpt-2, src/encoder.py; the contractions are one group here
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # openai/tiktoken, tiktoken_ext/openai_public.py, cl100k_base as first published. Its later form, made for speed,
    # takes white space with line ends in it at the end of a text as one piece, and Oniguruma misreads it.
    "gpt4": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # the same file, o200k_base
    "gpt4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
# meta-llama/llama3, llama/tokenizer.py: the same text
PATTERNS["llama3"] = PATTERNS["gpt4"]
# HuggingFaceTB/SmolLM, tokenizer.json: digits are cut out one by one first, and GPT-2's pattern cuts what is between
# them. In one pattern: \p{N} stands alone, with no space before it; and white space before a digit is at the end of a
# part, where \s+(?!\S) takes all of it, so it may be followed by a digit too.
PATTERNS["smollm"] = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
# QwenLM/Qwen2, tokenizer.json: each digit alone
PATTERNS["qwen2"] = PATTERNS["gpt4"].replace(r"\p{N}{1,3}", r"\p{N}")

#: What tiktoken's regular expressions and Python's read each in a way of its own, or only one of them reads.
UNLIKE = re.compile(r"&&|--|~~|\|\||\[\[|\\[GhKXZz]")
#: The parts of a regular expression in which a dollar sign is no end of the text, and that sign.
DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)
#: What stands for a set of characters that depends on the version of Unicode.
CLASS = re.compile(r"\\[pP]\{\^?([^{}^]+)\}|\\[pP](\w)|\\([sSwWdDbB])")

LETTER_THEN_SPACE = r"(?<=\p{L})(?=\s)"

_BYTES = {bytes([byte]): byte for byte in range(256)}


def resolve(pattern: str) -> str:
    """Return the regular expression that a name, or a regular expression itself, stands for.

    Raises:
        UserError: the name is unknown; or the expression is none, means something else to tiktoken than to Python's
            ``regex``, matches nothing at all somewhere, or leaves some characters out.
    """
    if pattern in PATTERNS or pattern in PATTERNS.values():
        return PATTERNS.get(pattern, pattern)
    if re.fullmatch(r"[\w.-]*", pattern):
        raise UserError(
            f"unknown pattern '{pattern}'{nearest(pattern, PATTERNS)}; patterns are {', '.join(PATTERNS)}, "
            "or a regular expression of your own"
        )
    _check(pattern)
    return pattern


@cache
def _check(pattern: str) -> None:
    """Raise a UserError unless a regular expression of the user's own can cut text."""
    if found := UNLIKE.search(pattern):
        raise UserError(f"the pattern {pattern!r} cannot be used: {found[0]!r} is read in different ways")
    try:
        compiled = _compiled(pattern)
        _encoding(pattern)
    except (regex.error, ValueError) as error:
        raise UserError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    for character in map(chr, (*range(0x20, 0x300), *range(0x20), 0x4E2D, 0x1F600, 0xE000)):
        match = compiled.match(character)
        if not match or not match[0]:
            raise UserError(
                f"the pattern {pattern!r} leaves {character!r} out, and every character of a text must be in some "
                "pre-token; let it end in |[\\s\\S], which takes one at a time"
            )


def split(pattern: str, text: str) -> list[str]:
    """Return the pre-tokens of a text, which are all of it, as tiktoken cuts them.

    >>> split(PATTERNS["gpt2"], "I can't, 42  times")
    ['I', ' can', "'t", ',', ' 42', ' ', ' times']

    Args:
        pattern: a regular expression as :func:`resolve` returns it.
        text: any text.

    Raises:
        UserError: the pattern leaves a part of this text out.
    """
    compiled, seen = _compiled(pattern), as_tiktoken_sees(pattern, text)
    if seen is text and not compiled.groups:
        pieces = compiled.findall(text)
    else:
        pieces = [text[slice(*match.span())] for match in compiled.finditer(seen)]
    if sum(map(len, pieces)) != len(text):
        raise UserError(f"the pattern {pattern!r} leaves out parts of the text {text[:100]!r}")
    return pieces


def as_tiktoken_sees(pattern: str, text: str) -> str:
    """Return a text of the same length that ``regex`` matches where tiktoken matches the text itself."""
    unlike = None if text.isascii() else _unlike(pattern)
    return text.translate(unlike.stand_ins) if unlike and unlike.in_text(text) else text


def safe_place(text: str, start: int, end: int) -> int | None:
    """Return the first place between two in a text at which any published pattern cuts; None if we know of none.

    It is where a letter is followed by white space: no match of theirs goes across, and none looks back over it. Both
    sides may be cut by themselves.

    >>> safe_place("To be, or not", 1, 13), safe_place("To be, or not", 3, 13)
    (2, 9)
    """
    for begin in range(max(start, 1), end + 1, 4096):
        window = text[begin - 1 : min(begin + 4096, end + 1)]  # with the letter before its first place
        if found := _compiled(LETTER_THEN_SPACE).search(as_tiktoken_sees(LETTER_THEN_SPACE, window)):
            return begin - 1 + found.start()
    return None


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    """Return the expression with tiktoken's dollar, which is the end of the text and not before a last line end."""
    return regex.compile(DOLLAR.sub(lambda found: found[1] or r"\Z", pattern))


class Unlike(NamedTuple):
    """The characters that tiktoken and Python's ``regex`` do not both put in the same classes of a pattern."""

    known: np.ndarray  # (0x110000,) bool, True for each of them
    stand_ins: dict[int, int]  # for str.translate

    def in_text(self, text: str) -> bool:
        """Return whether a text has one of them."""
        return bool(self.known[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)].any())


@cache
def _unlike(pattern: str) -> Unlike | None:
    """Compare the two on every character, by all classes that a pattern names.

    Any character of the right classes can stand in; we take the last one, which no pattern is likely to name by itself.
    """
    _, codes = characters()
    ours, tiktokens = np.zeros((2, len(codes)), np.int64)
    for bit, name in enumerate(sorted(_classes(pattern))):
        ours |= _members(name, "regex") << bit
        tiktokens |= _members(name, "tiktoken") << bit
    alike = ours == tiktokens
    last = dict(zip(ours[alike].tolist(), codes[alike].tolist(), strict=True))  # by its classes
    unlike = zip(codes[~alike].tolist(), tiktokens[~alike].tolist(), strict=True)
    stand_ins = {code: last[classes] for code, classes in unlike if classes in last}
    if not stand_ins:
        return None
    known = np.zeros(sys.maxunicode + 1, bool)
    known[list(stand_ins)] = True
    return Unlike(known, stand_ins)


def _classes(pattern: str) -> set[str]:
    r"""Return the classes that a pattern names, each as an expression of its own.

    >>> sorted(_classes(r"\p{Lu}+[^\s\pN]|\P{^Lu}|\W"))
    ['\\p{Lu}', '\\p{N}', '\\s', '\\w']
    """
    found = CLASS.findall(pattern)
    return {
        rf"\p{{{name or letter}}}" if name or letter else rf"\{short.lower()}".replace("b", "w")
        for name, letter, short in found
    }


@cache
def characters() -> tuple[str, np.ndarray]:
    """Return every character that is assigned, room for more to come, and some for private use; and their numbers."""
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))))
    return text, np.frombuffer(text.encode("utf-32-le"), np.uint32)


@cache
def _members(name: str, engine: str) -> np.ndarray:
    """Return which of the :func:`characters` an engine puts in a class, (N,) int64 of 0 and 1."""
    text, codes = characters()
    if engine == "regex":
        members = "".join(regex.findall(name, text))
    else:  # it leaves out what does not match
        members = bytes(_encoding(name).encode_to_numpy(text).astype(np.uint8)).decode()
    return np.isin(codes, np.frombuffer(members.encode("utf-32-le"), np.uint32), assume_unique=True).astype(np.int64)


def _encoding(pattern: str) -> tiktoken.Encoding:
    """Return tiktoken's encoder with a pattern and with no tokens but the bytes.

    Raises:
        ValueError: tiktoken cannot read the pattern.
    """
    return tiktoken.Encoding("bytes", pat_str=pattern, mergeable_ranks=_BYTES, special_tokens={})

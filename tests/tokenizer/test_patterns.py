"""How text is cut: as tokenizers and tiktoken cut it, whatever version of Unicode each is made from."""

import itertools

import numpy as np
import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import PIECES, texts

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import patterns
from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.patterns import PATTERNS, as_tiktoken_sees, characters, resolve, safe_place, split

NAMES = st.sampled_from(list(PATTERNS))
OWN = [r"(?s:.)", r"\w+|(?s:.)", r"(?i:k|s+)|[^\S\n]+$|(\d)\1|(?s:.)", r"\b\p{Ll}+|\P{L}|\p{^Lu}|(?s:.)"]


def cut_by_tiktoken(pattern: str, text: str) -> list[str]:
    """Return tiktoken's pieces: in a vocabulary of all that could be one, each is encoded as one token."""
    places = itertools.combinations(range(len(text) + 1), 2)
    tokens = list(dict.fromkeys([*BYTES, *(text[i:j].encode() for i, j in places)]))
    encoding = tiktoken.Encoding(
        "all", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={}
    )
    return [tokens[i].decode() for i in encoding.encode_ordinary(text)]


def cut_by_tokenizers(name: str, text: str) -> list[str]:
    """Return the pieces that Hugging Face's tokenizers cuts by a published pattern."""
    tokenizers = pytest.importorskip("tokenizers", reason="the oracle: python -m pip install -e '.[oracles]'")
    cutter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "isolated")
    return [text[start:end] for _, (start, end) in cutter.pre_tokenize_str(text)]


@settings(deadline=None)  # the first call compares all of Unicode
@given(NAMES, texts())
def test_tiktoken_cuts_alike(name: str, text: str) -> None:
    """Published patterns, on anything."""
    assert split(PATTERNS[name], text) == cut_by_tiktoken(PATTERNS[name], text)


@settings(deadline=None)
@given(NAMES, texts(100))
def test_tokenizers_cuts_alike(name: str, text: str) -> None:
    """Published patterns, on anything."""
    assert split(PATTERNS[name], text) == cut_by_tokenizers(name, text)


@settings(deadline=None)
@given(texts(100))
def test_gpt2_is_what_tokenizers_calls_byte_level(text: str) -> None:
    """Its ByteLevel has the pattern built in."""
    tokenizers = pytest.importorskip("tokenizers", reason="the oracle: python -m pip install -e '.[oracles]'")
    cutter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert split(PATTERNS["gpt2"], text) == [text[start:end] for _, (start, end) in cutter.pre_tokenize_str(text)]


@settings(deadline=None)
@given(st.sampled_from(OWN), texts())
def test_tiktoken_cuts_alike_by_patterns_of_the_users_own(pattern: str, text: str) -> None:
    """Dollar signs, groups, classes in every form."""
    assert split(resolve(pattern), text) == cut_by_tiktoken(pattern, text)


@pytest.mark.parametrize("name", ["gpt2", "gpt4o"])
def test_stand_ins_are_of_tiktokens_classes(name: str) -> None:
    """Every character there is; without stand-ins this fails wherever the two are of different Unicode."""
    text, _ = characters()
    seen = as_tiktoken_sees(PATTERNS[name], text)
    for one_class in sorted(patterns._classes(PATTERNS[name])):
        encoding = patterns._encoding(one_class)
        theirs = bytes(encoding.encode_to_numpy(text).astype("uint8")).decode()
        assert "".join(text[m.start()] for m in regex.finditer(one_class, seen)) == theirs


@pytest.mark.parametrize("name", PATTERNS)
def test_ascii_needs_no_stand_ins(name: str) -> None:
    """It is not even looked at for them."""
    unlike = patterns._unlike(PATTERNS[name])
    assert unlike is None or min(unlike.stand_ins) >= 0x80


def test_stand_ins_if_regex_knew_less_than_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round: letters of tiktoken's that regex has never heard of are cut as letters."""
    unlike = {ord("é"), ord("²")}
    members = patterns._members.__wrapped__

    def of_old_regex(name: str, engine: str) -> np.ndarray:
        found = members(name, engine).copy()
        if engine == "regex":
            found[np.isin(characters()[1], list(unlike))] = 0
        return found

    monkeypatch.setattr(patterns, "_members", of_old_regex)
    made = patterns._unlike.__wrapped__(PATTERNS["gpt2"])
    assert made.stand_ins.keys() >= unlike
    assert regex.fullmatch(r"\p{L}", chr(made.stand_ins[ord("é")]))
    assert regex.fullmatch(r"\p{N}", chr(made.stand_ins[ord("²")]))


@settings(deadline=None)
@given(texts(40), texts(40))
def test_text_may_be_cut_in_safe_places(before: str, after: str) -> None:
    """Each side cut by itself gives the pieces of the whole, by every published pattern."""
    text = before + after
    place = safe_place(text, len(before), len(text))
    if place is None:
        assert not regex.search(r"[a-z]\s", text[max(len(before) - 1, 0) :])
        return
    assert place >= len(before)
    for pattern in PATTERNS.values():
        assert split(pattern, text[:place]) + split(pattern, text[place:]) == split(pattern, text)


def test_safe_place_looks_as_far_as_it_is_told() -> None:
    """Over any distance; not before the start, not beyond the end."""
    text = "a " + "-" * 10_000 + "b "
    assert safe_place(text, 1, len(text)) == 1
    assert safe_place(text, 2, len(text)) == len(text) - 1
    assert safe_place(text, 2, len(text) - 2) is None
    assert safe_place("", 0, 0) is None


@settings(deadline=None)
@given(NAMES, texts(60))
def test_nothing_is_lost(name: str, text: str) -> None:
    """The pieces are the text, lone surrogates too."""
    assert "".join(split(PATTERNS[name], text + "\ud800 a")) == text + "\ud800 a"


def test_names_and_expressions() -> None:
    """A name gives its pattern; a pattern gives itself."""
    assert resolve("gpt2") == resolve(PATTERNS["gpt2"]) == PATTERNS["gpt2"]
    assert [resolve(own) for own in OWN] == OWN
    assert split(resolve("qwen2"), "1234 5") == ["1", "2", "3", "4", " ", "5"]
    assert split(resolve("llama3"), "1234 I'LL") == ["123", "4", " I", "'LL"]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("gpt-2", "did you mean 'gpt2'"),
        ("", "unknown pattern ''"),
        ("(a", "no regular expression"),
        (r"\w+|\s+", "leaves '!' out"),
        (r"\w+|.", r"leaves '\\n' out"),
        (r"\d*|(?s:.)", "leaves '"),
        (r"[a&&b]|(?s:.)", "'&&' is read in different ways"),
        (r"(?(1)a|b)|(?s:.)", "no regular expression"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, says: str) -> None:
    """Each error says why."""
    with pytest.raises(UserError, match=says):
        resolve(pattern)


def test_text_that_a_pattern_leaves_out() -> None:
    """Where the first look did not show it."""
    pattern = resolve(r"xy?|(?<!x)(?s:.)")
    assert split(pattern, "abxy") == ["a", "b", "xy"]
    with pytest.raises(UserError, match="leaves out parts of the text 'xab'"):
        split(pattern, "xab")


def test_hard_pieces_are_hard() -> None:
    """The texts of these tests have characters that the two engines class differently, if any do."""
    unlike = patterns._unlike(PATTERNS["gpt2"])
    assert unlike is None or unlike.in_text("".join(PIECES))

"""BPE training: the definition followed by hand, the quick form against it, and both against Hugging Face's trainer."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import texts

from nanoeuler.bench.tokenizer_text import made_up_text
from nanoeuler.errors import UserError
from nanoeuler.tokenizer.alphabet import BYTES, to_bytes
from nanoeuler.tokenizer.merges import Pair, first_misplaced, tokens_of
from nanoeuler.tokenizer.patterns import PATTERNS, split
from nanoeuler.tokenizer.pretokens import count_pretokens
from nanoeuler.tokenizer.training import MOST_IDS, train_bpe, train_bpe_definition

A, B, C = (BYTES.index(letter) for letter in (b"a", b"b", b"c"))

#: Many languages, emoji, CRLF, long runs of one character, digits, and code.
MIXED = (
    "The quick brown fox jumps over the lazy dog.\r\nIt isn't over, we'll SEE!\r\n\r\n"
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. "
    "いろはにほへと ちりぬるを 色は匂へど 散りぬるを。天地玄黃宇宙洪荒。다람쥐 헌 쳇바퀴에 타고파. "
    "ऋषियों को सताने वाले दुष्ट राक्षसों "
    "צקצוק קטן. نص حكيم له سر قاطع. Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl. Voix ambiguë d'un cœur.\n"
    "👩‍👩‍👧 👍🏽 🇩🇪🇫🇷 😀😀😀😀 e\u0301e\u0301 \u0558\u088f\U00011de0\U000323b0 "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbb ababababababab -----------------======== ........"
    "        \t\t\t\t\n\n\n\n\n 0 1 12 123 1234 12345 3.14159 1e-10 2024-01-01 ²³ ½ Ⅷ\n"
    "def f(x, *args):\n    if x == 0:\n        return [f(y) for y in args]\n\n    # nothing\n    return {'a': x != 1}\n"
    "\x00\x01\x7f\x80\xa0\u200b\u2028\u3000\ufeff"
)


def by_hugging_face(
    documents: list[str], vocab_size: int, name: str = "gpt2", min_frequency: int = 0
) -> list[tuple[bytes, bytes]]:
    """Return the merges that the tokenizers library learns, as bytes."""
    tokenizers = pytest.importorskip("tokenizers", reason="the oracle: python -m pip install -e '.[oracles]'")
    cutters, trainers = tokenizers.pre_tokenizers, tokenizers.trainers
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = cutters.Sequence(
        [cutters.Split(tokenizers.Regex(PATTERNS[name]), "isolated"), cutters.ByteLevel(False, use_regex=False)]
        if name != "gpt2"
        else [cutters.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=cutters.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(documents, trainer)
    merges = json.loads(learner.to_str())["model"]["merges"]
    return [tuple(map(to_bytes, pair.split(" ") if isinstance(pair, str) else pair)) for pair in merges]


def as_bytes(merges: list[Pair]) -> list[tuple[bytes, bytes]]:
    """Return pairs of ids as pairs of tokens."""
    tokens = tokens_of(merges)
    return [(tokens[a], tokens[b]) for a, b in merges]


def check(documents: list[str], vocab_size: int, name: str = "gpt2", min_frequency: int = 0) -> int:
    """Check our merges against the library's; return how many there are."""
    merges = train_bpe(count_pretokens(documents, name, workers=1), vocab_size - 257, min_frequency)
    assert as_bytes(merges) == by_hugging_face(documents, vocab_size, name, min_frequency)
    assert first_misplaced(merges) is None
    return len(merges)


# By hand.


@pytest.mark.parametrize("train", [train_bpe, train_bpe_definition])
def test_by_hand(train) -> None:
    """Counts of pre-tokens weigh; of equal pairs the smallest ids are first; a run is merged from the left."""
    assert train({b"ab": 2, b"bc": 3}, 2) == [(B, C), (A, B)]
    assert train({b"bc": 2, b"ab": 2}, 1) == [(A, B)]
    assert train({b"aaa": 1, b"bc": 1}, 9) == [(A, A), (B, C), (256, A)]  # a a is twice in it
    assert train({b"aaaaa": 2, b"ab": 1}, 3) == [(A, A), (256, A), (256, 257)]  # aa aa a; aa aaa
    assert train({b"ab": 1, b"cb": 5}, 9, 2) == [(C, B)]
    assert train({b"ab": 0}, 9) == train({}, 9) == train({b"a": 9, b"": 9}, 9) == train({b"ab": 9}, 0) == []


def test_ids_and_limits() -> None:
    """Bytes in the order of GPT-2's characters; ids beyond a character's number are refused."""
    assert train_bpe({b" \n": 1}, 1) == [(BYTES.index(b" "), BYTES.index(b"\n"))]
    with pytest.raises(UserError, match="there can be 1113856"):
        train_bpe({b"ab": 1}, MOST_IDS - 255)


def test_progress() -> None:
    """It is told each merge, and can stop the training."""
    told: list[tuple[int, int]] = []
    train_bpe({b"abcd": 1}, 10, progress=lambda *state: told.append(state))
    assert told == [(1, 10), (2, 10), (3, 10)]

    def stop(done: int, wanted: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bpe({b"abcd": 1}, 10, progress=stop)


# The quick form against the definition.

WORDS = st.dictionaries(st.text("abc", max_size=12).map(str.encode), st.integers(0, 3), max_size=12)


@settings(deadline=None, max_examples=300)
@given(WORDS, st.integers(0, 40), st.integers(0, 4))
def test_few_letters(counts: dict[bytes, int], merges: int, min_frequency: int) -> None:
    """Many ties, many runs, many repeats, and an end of all pairs."""
    assert train_bpe(counts, merges, min_frequency) == train_bpe_definition(counts, merges, min_frequency)


@settings(deadline=None, max_examples=50)
@given(texts(60))
def test_any_text(text: str) -> None:
    """Bytes of all kinds."""
    counts = Counter(piece.encode() for piece in split(PATTERNS["gpt2"], text))
    assert train_bpe(counts, 50) == train_bpe_definition(counts, 50)


def test_order_of_pretokens_does_not_matter() -> None:
    """Only the counts do."""
    counts = list(count_pretokens([MIXED]).items())
    merges = train_bpe(dict(counts), 400)
    random.Random(0).shuffle(counts)
    assert train_bpe(dict(counts), 400) == merges


# Against the library.


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text("ab c", max_size=40), max_size=4), st.sampled_from([257, 258, 300]), st.integers(0, 3))
def test_library_on_few_letters(documents: list[str], vocab_size: int, min_frequency: int) -> None:
    """Many ties; often there are no pairs left."""
    check(documents, vocab_size, min_frequency=min_frequency)


@settings(deadline=None, max_examples=50)
@given(st.lists(texts(60), max_size=4), st.sampled_from(list(PATTERNS)))
def test_library_on_any_text(documents: list[str], name: str) -> None:
    """All Unicode, all patterns."""
    check(documents, 320, name)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("vocab_size", [257, 258, 300, 1000])
def test_library_on_languages_and_code(name: str, vocab_size: int) -> None:
    """The last size is more than there are pairs."""
    made = check([MIXED, MIXED[::-1]], vocab_size, name)
    assert made == vocab_size - 257 or vocab_size == 1000


def test_definition_on_languages_and_code() -> None:
    """The readable form is held against the library too."""
    counts = count_pretokens([MIXED])
    assert as_bytes(train_bpe_definition(counts, 100)) == by_hugging_face([MIXED], 357)


@pytest.mark.skipif("NANOEULER_DATA" not in os.environ, reason="NANOEULER_DATA does not name a folder with the text")
@pytest.mark.parametrize("name", ["gpt2", "gpt4o"])
def test_library_on_tinyshakespeare(name: str) -> None:
    """4096 tokens, as people train them."""
    text = Path(os.environ["NANOEULER_DATA"], "tinyshakespeare.txt").read_text(encoding="utf-8")
    assert check([text], 4096, name) == 4096 - 257


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size", [4096, 32768])
def test_library_on_a_large_vocabulary(vocab_size: int) -> None:
    """A text of several scripts, with enough pairs for the largest vocabulary."""
    text = next(made_up_text(1, words=50_000))
    assert check([text], vocab_size) == vocab_size - 257


def test_a_word_of_a_megabyte() -> None:
    """Its pair is there in half a million places, and it must be looked through once and not as many times."""
    assert train_bpe({b"a" * 2**20: 1}, 100) == [(A, A), *((i, i) for i in range(256, 275))]


def test_library_stops_where_we_do() -> None:
    """A text that runs out of pairs gives fewer merges than were wanted."""
    assert check(["to be or not to be, that is the question " * 3], 4096) < 50

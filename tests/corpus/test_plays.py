"""The plays: what they look like, and that the floor under them is exact and cannot be beaten."""

import bz2
import hashlib
import itertools
import lzma
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from nanoeuler.corpus import plays
from nanoeuler.errors import UserError

SPEECH = re.compile(r"([A-Z]+):\n")


@pytest.fixture(scope="module")
def text() -> str:
    return plays.generate(600_000, seed=1)


# ---- the text ----


def test_length_is_exact_and_shorter_texts_are_prefixes() -> None:
    long = plays.generate(5000, seed=3)
    for characters in (0, 1, 4999, 5000):
        assert plays.generate(characters, seed=3) == long[:characters]
        assert len(long[:characters]) == characters


def test_a_seed_gives_the_same_text_everywhere() -> None:
    assert (
        hashlib.sha256(plays.generate(100_000, seed=0).encode()).hexdigest()
        == "2fde684e85da6c3e61dafb9bb86ae2a3d036ec88a4497648632ba030e7847672"
    )
    assert plays.generate(1000, seed=1) != plays.generate(1000, seed=2)


@pytest.mark.parametrize(("characters", "seed"), [(-1, 0), (10, -1)])
def test_negative_numbers_are_refused(characters: int, seed: int) -> None:
    with pytest.raises(UserError, match="must be 0 or more"):
        plays.generate(characters, seed)


def test_looks_like_a_play(text: str) -> None:
    assert text.startswith("Enter ")
    assert text.isascii()
    assert set(text) - {"\n"} <= set(map(chr, range(32, 127)))
    assert max(map(len, text.split("\n"))) < 70
    assert "\n\n\n" not in text
    assert len(SPEECH.findall(text)) > 3000
    assert {name.upper() for name in plays.PEOPLE} == set(SPEECH.findall(text))


def test_speakers_are_of_the_cast_and_take_turns(text: str) -> None:
    scenes = text.split("Enter ")[1:]
    assert len(scenes) > 200
    for scene in scenes[:-1]:
        cast = re.findall(r"[A-Z]\w+", re.split(r", (?:in|late for) the ", scene)[0])
        speakers = [name.title() for name in SPEECH.findall(scene)]
        assert 2 <= len(cast) == len(set(cast)) <= 4
        assert set(speakers) <= set(cast)
        assert all(a != b for a, b in itertools.pairwise([cast[-1], *speakers]))


# ---- the floor: a reader that recovers every draw ----
#
# It shares the grammar's tables with the generator, and nothing else: its own reading of who may speak, who may be
# named, what agrees with what, and its own account of probabilities.

Facts = dict[str, Any]
Reading = tuple[int, float, Facts]  # where it ends, -log2 of the probability of its draws, what is known then


@cache
def alternatives(rule: str) -> list[tuple[float, list[str]]]:
    total = sum(weight for weight, _ in plays.FORMS[rule])
    return [(math.log2(total / weight), re.split(r"[{}]", form)) for weight, form in plays.FORMS[rule]]


@cache
def vocabulary(slot: str) -> tuple[set[str], list[int], float]:
    words = plays.WORDS[slot.lower()].split()
    chosen = {word if slot.islower() else word.title() for word in words}
    return chosen, sorted({len(word) for word in words}), math.log2(len(words))


def read_form(parts: list[str], text: str, at: int, facts: Facts) -> Iterator[Reading]:
    if text.startswith(parts[0], at):
        at += len(parts[0])
        if len(parts) == 1:
            yield at, 0.0, facts
        else:
            for middle, bits, known in read_slot(parts[1], text, at, facts):
                for end, more, final in read_form(parts[2:], text, middle, known):
                    yield end, bits + more, final


def read_slot(slot: str, text: str, at: int, facts: Facts) -> Iterator[Reading]:
    if slot in plays.FORMS:
        for cost, parts in alternatives(slot):
            for end, bits, known in read_form(parts, text, at, facts):
                yield end, cost + bits, known
    elif slot.lower() in plays.WORDS:
        words, lengths, bits = vocabulary(slot)
        for length in lengths:
            if text[at : at + length] in words:
                yield at + length, bits, facts
    else:
        for word, bits, news in read_choice(slot, text, at, facts):
            if text.startswith(word, at):
                yield at + len(word), bits, facts | news


def read_choice(slot: str, text: str, at: int, facts: Facts) -> Iterator[tuple[str, float, Facts]]:
    """Yield what the story so far allows in a slot: the word, its bits, and what it tells."""
    if slot == "company":
        company = re.compile(r"(?:[A-Z]\w+, )*[A-Z]\w+ and [A-Z]\w+").match(text, at)
        if company:
            cast = re.findall(r"[A-Z]\w+", company[0])
            assert len(set(cast)) == len(cast)
            assert set(cast) <= set(plays.PEOPLE)
            share = plays.SIZES.count(len(cast)) / len(plays.SIZES)
            yield (
                company[0],
                -math.log2(share / math.perm(len(plays.PEOPLE), len(cast))),
                {"cast": cast, "last": cast[-1]},
            )
    elif slot == "item":
        for brought in plays.PROPERTIES:
            yield brought["item"], math.log2(len(plays.PROPERTIES)), {"brought": brought}
    elif slot in ("thing", "is", "them"):
        yield facts["brought"][slot], 0.0, {}
    elif slot == "REPLY":
        yield facts["named"].upper(), 0.0, {"last": facts["named"]}
    elif slot in ("SPEAKER", "other"):
        present = set(facts["cast"]) - {facts["last"]}
        for name in present:
            if slot == "other":
                yield name, math.log2(len(present)), {"named": name}
            else:
                yield name.upper(), math.log2(len(present)), {"last": name}
    elif slot == "oath":
        yield plays.PEOPLE[facts["last"]], 0.0, {}
    elif slot == "topic":
        words, _, bits = vocabulary("noun")
        for word in words:
            yield word, bits, {"topic": word}
    elif slot == "same":
        yield facts["topic"], 0.0, {}
    elif slot == "rhyme":
        for family in plays.RHYMES:
            for word in family.split():
                yield word, math.log2(sum(len(row.split()) for row in plays.RHYMES)), {"family": family, "rhyme": word}
    elif slot == "echo":
        rest = set(facts["family"].split()) - {facts["rhyme"]}
        for word in rest:
            yield word, math.log2(len(rest)), {}
    else:
        raise AssertionError(f"the reader does not know the slot {slot}")


def read_scene(text: str, at: int) -> tuple[int, float]:
    """Return where the scene that starts at `at` ends and -log2 of its probability; each part has one reading only."""
    [(at, bits, facts)] = read_slot("opening", text, at, {})
    [(at, more, facts)] = read_slot("exchange", text, at, facts)
    bits += more
    while not text.startswith("Exeunt", at):
        [(at, more, facts)] = read_slot("exchange", text, at, facts)
        bits += more - math.log2(1 - 1 / plays.EXCHANGES)
    [(at, more, _)] = read_slot("ending", text, at, facts)
    return at, bits + more - math.log2(1 / plays.EXCHANGES)


def read_scenes(text: str) -> np.ndarray:
    """Return [bits, characters] of each whole scene of a text."""
    costs, at, last = [], 0, text.rindex("Enter ")
    while at < last:
        end, bits = read_scene(text, at)
        costs.append((bits, end - at))
        at = end
    assert at == last
    return np.array(costs)


def check_rate(text: str, spread_below: float) -> float:
    """Hold -log2 P(text) / length against the floor, within three standard errors; return the relative error."""
    rate = plays.entropy_per_character()
    bits, characters = (scenes := read_scenes(text)).T
    error = bits.sum() / characters.sum() / rate - 1
    spread = (bits / rate - characters).std() / characters.mean() / math.sqrt(len(scenes))  # of a ratio of two means
    assert spread < spread_below
    assert abs(error) < 3 * spread
    return error


def test_probability_of_a_text_gives_the_floor() -> None:
    check_rate(plays.generate(200_000, seed=2), spread_below=0.01)


@pytest.mark.slow
def test_probability_of_a_long_text_gives_the_floor() -> None:
    assert abs(check_rate(plays.generate(1_200_000, seed=3), spread_below=0.003)) < 0.005


def test_floor_is_where_it_is_meant_to_be() -> None:
    assert 1.0 < plays.entropy_per_character() < 1.1


SCENE = """Enter Maud, Toby and Felix, in the attic.
They have several bees.

MAUD:
Toby, where are the bees?

TOBY:
Well, butter me, under the boat!

FELIX:
Ants are bold, and so are the bees.

Exeunt, with the bees.

"""


def test_reader_adds_up_a_scene_by_hand() -> None:
    sizes, casts, brought, opening, place = 9 / 4, 10 * 9 * 8, 8, 4 / 3, 14
    start = sizes * casts * brought * opening * place
    exchanges = sum(weight for weight, _ in plays.FORMS["exchange"])
    question = 2 * exchanges * 2 * 16 * (6 / 2) * 128  # who speaks, what kind, to whom, under each, one's form, noun
    line = 2 * (exchanges / 30) * 10 * (sum(weight for weight, _ in plays.FORMS["line"]) / 2) * 128 * 128 * (4 / 3)
    end = 12 / 11 * 12 * 4
    assert read_scene(SCENE, 0) == (len(SCENE), pytest.approx(math.log2(start * question * line * end)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("FELIX:", "TOBY:"),  # speaks twice running
        ("FELIX:", "DORA:"),  # is not in the cast
        ("Toby, where", "Maud, where"),  # asks herself
        ("TOBY:", "FELIX:"),  # was not asked
        ("Well, butter me", "If I may"),  # another's oath
        ("so are the bees", "so is the bees"),  # number
        ("so are the bees", "so are the boots"),  # another property
        ("Ants are", "Ant are"),
        ("MAUD:", "FELIX:"),  # the last named does not begin
        ("Maud, Toby and Felix", "Maud, Maud and Felix"),
    ],
)
def test_reader_refuses_what_the_grammar_cannot_say(right: str, wrong: str) -> None:
    assert SCENE.count(right) == 1
    with pytest.raises((ValueError, AssertionError)):
        read_scene(SCENE.replace(right, wrong), 0)


# ---- the floor: every outcome of a small grammar ----


def outcomes(say: Callable[[plays.Draw], str]) -> dict[str, float]:
    """Run the generator's own code through every sequence of draws; return each text with its probability."""
    distribution: dict[str, float] = defaultdict(float)
    paths: list[list[int]] = [[]]  # which of the different options each draw takes; the first where a path ends
    while paths:
        path, shares = paths.pop(), [1.0]

        def draw(options: Any, path: list[int] = path, shares: list[float] = shares) -> Any:
            different = [option for i, option in enumerate(options) if option not in options[:i]]
            drawn = len(shares) - 1
            if drawn == len(path):
                if math.prod(shares) > 1e-12:  # the tail of a geometric law has to end somewhere
                    paths.extend([*path, other] for other in range(1, len(different)))
                path.append(0)
            option = different[path[drawn]]
            shares.append(options.count(option) / len(options))
            return option

        distribution[say(draw)] += math.prod(shares)
    assert sum(distribution.values()) == pytest.approx(1, abs=1e-9)
    return distribution


def bits_and_characters(distribution: dict[str, float]) -> np.ndarray:
    return sum(p * np.array([-math.log2(p), len(text)]) for text, p in distribution.items())


@pytest.fixture
def small_grammar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cut the tables down until every text can be listed; words and names keep different lengths."""
    words = {name: " ".join(text.split()[5:6]) for name, text in plays.WORDS.items()}
    words |= {"noun": "ant dragon", "verb": "eat admire", "adjective": "bald golden"}
    lines = [form for form in plays.FORMS["line"] if form[1].count("{") < 6]
    forms = plays.FORMS | {"lines": [(1, "{line}")], "line": lines, "verse": plays.FORMS["verse"][1:2]}
    monkeypatch.setattr(plays, "WORDS", words)
    monkeypatch.setattr(plays, "FORMS", forms)
    monkeypatch.setattr(plays, "RULES", plays._compile())
    monkeypatch.setattr(plays, "NOUNS", words["noun"].split())
    monkeypatch.setattr(plays, "PEOPLE", {name: plays.PEOPLE[name] for name in ("Gus", "Maud", "Leonhard")})
    monkeypatch.setattr(plays, "PROPERTIES", [plays.PROPERTIES[2], plays.PROPERTIES[5]])
    monkeypatch.setattr(plays, "ECHOES", {"stew": ["glue", "dew"], "glue": ["stew", "dew"], "dew": ["stew", "glue"]})
    plays._expected.cache_clear()
    yield
    plays._expected.cache_clear()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("slot", ["opening", "exchange", "line", "verse", "ending"])
def test_expectation_is_that_over_every_outcome(small_grammar: None, slot: str, size: int) -> None:
    casts = list(itertools.permutations(plays.PEOPLE, size))
    settings = itertools.product(casts, range(size), plays.PROPERTIES)
    scenes = [{"cast": cast, "speaker": cast[last]} | brought for cast, last, brought in settings]
    means = [bits_and_characters(outcomes(lambda draw, s=s: plays._say(slot, dict(s), draw))) for s in scenes]
    np.testing.assert_allclose(plays._expected(slot, size), np.mean(means, axis=0), rtol=1e-12)


def test_rate_is_that_over_every_scene(small_grammar: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who, what, how long, in a grammar that has little else to say."""
    monkeypatch.setattr(plays, "FORMS", plays.FORMS | {"exchange": [(1, "Ah, the {thing}.\n\n")]})
    monkeypatch.setattr(plays, "RULES", plays._compile())
    monkeypatch.setattr(plays, "SIZES", [2, 3, 3])
    monkeypatch.setattr(plays, "CASTS", {n: list(itertools.permutations(plays.PEOPLE, n)) for n in (2, 3)})
    monkeypatch.setattr(plays, "EXCHANGES", 2)
    bits, characters = bits_and_characters(outcomes(plays._scene))
    assert plays.entropy_per_character() == pytest.approx(bits / characters, rel=1e-9)


# ---- the floor: no text of any length has two derivations ----
#
# Written out in full, with every choice free to be anything it ever is, the grammar is a regular expression, and its
# position automaton (Glushkov's) has as many paths for a text as the text has derivations. Two different paths for
# one text would leave each other at some state, read the same letters, and meet again: the search below looks for that.
# The real choices allow only some of those texts, each still with all its derivations.

Fragment = tuple[list[int], list[int]]  # positions that can come first, positions that can come last


class Automaton:
    """A letter at each position, and the positions that can follow it; built from the end of forms forward."""

    def __init__(self) -> None:
        self.letters: list[str] = []
        self.follow: list[list[int]] = []

    def join(self, lasts: list[int], firsts: list[int]) -> None:
        for last in lasts:
            self.follow[last].extend(firsts)

    def literal(self, text: str) -> Fragment:
        start = len(self.letters)
        self.letters.extend(text)
        self.follow.extend([position + 1] for position in range(start, start + len(text)))
        self.follow[-1] = []
        return [start], [len(self.letters) - 1]

    def sequence(self, form: str) -> Fragment:
        parts = [part for part in enumerate(re.split(r"[{}]", form)) if part[1]]
        pieces = [self.slot(part) if index % 2 else self.literal(part) for index, part in parts]
        for (_, lasts), (firsts, _) in itertools.pairwise(pieces):
            self.join(lasts, firsts)
        return pieces[0][0], pieces[-1][1]

    def slot(self, slot: str) -> Fragment:
        if slot == "lines":  # one to four of them, told apart by their number: a loop serves
            line, newline = self.slot("line"), self.literal("\n")
            self.join(line[1], newline[0])
            self.join(newline[1], line[0])
            return line
        pieces = [self.sequence(form) for form in forms_of(slot)]
        return [first for firsts, _ in pieces for first in firsts], [last for _, lasts in pieces for last in lasts]

    def ambiguous(self, start: list[int]) -> bool:
        """Say whether some text leads from `start` to one position by two paths."""
        by_letter: list[dict[str, list[int]]] = []  # what may follow a position, sorted by its letter; last the start
        for follow in [*self.follow, start]:
            by_letter.append(defaultdict(list))
            for position in follow:
                by_letter[-1][self.letters[position]].append(position)
        apart = [pair for nexts in by_letter for same in nexts.values() for pair in itertools.combinations(same, 2)]
        seen = set(apart)
        while apart:
            a, b = apart.pop()
            if a == b:
                return True
            for letter in by_letter[a].keys() & by_letter[b].keys():
                for pair in itertools.product(by_letter[a][letter], by_letter[b][letter]):
                    if pair not in seen:
                        seen.add(pair)
                        apart.append(pair)
        return False


def forms_of(slot: str) -> list[str]:
    """Return all that a slot can ever be."""
    names = list(plays.PEOPLE)
    if slot in plays.FORMS:
        return [form for _, form in plays.FORMS[slot]]
    if slot.lower() in plays.WORDS:
        return [word if slot.islower() else word.title() for word in plays.WORDS[slot.lower()].split()]
    if slot in plays.PROPERTIES[0]:
        return sorted({brought[slot] for brought in plays.PROPERTIES})
    rhymes = " ".join(plays.RHYMES).split()
    return {
        "SPEAKER": [name.upper() for name in names],
        "REPLY": [name.upper() for name in names],
        "other": names,
        "oath": list(plays.PEOPLE.values()),
        "topic": plays.WORDS["noun"].split(),
        "same": plays.WORDS["noun"].split(),
        "rhyme": rhymes,
        "echo": rhymes,
        "company": ["{other} and {other}", "{other}, {other} and {other}", "{other}, {other}, {other} and {other}"],
    }[slot]


def whole_play() -> tuple[Automaton, list[int]]:
    """Return the automaton of scenes without end, and where it starts."""
    automaton = Automaton()
    opening, exchange, ending = (automaton.slot(slot) for slot in ("opening", "exchange", "ending"))
    automaton.join(opening[1], exchange[0])
    automaton.join(exchange[1], exchange[0] + ending[0])
    automaton.join(ending[1], opening[0])
    return automaton, opening[0]


def test_no_text_has_two_derivations() -> None:
    automaton, start = whole_play()
    assert not automaton.ambiguous(start)


@pytest.mark.parametrize(
    ("slot", "form", "ambiguous"),
    [
        ("one", "gentle {noun}", False),  # a new word harms nobody
        ("one", "bald {noun}", True),  # one of the adjectives already
        ("one", "{noun}-ape", True),  # one of the compounds already
        ("stop", ".", True),  # the same twice
        ("stop", "!\nMy ape is bold; I am shy.", True),  # one line, or two
        ("line", "I love the ape, but {each} ant owes me{stop}", True),
        ("exchange", "{SPEAKER}:\nMy ape is bold; I am shy.\n\n", True),
    ],
)
def test_the_search_finds_ambiguity(monkeypatch: pytest.MonkeyPatch, slot: str, form: str, ambiguous: bool) -> None:
    monkeypatch.setattr(plays, "FORMS", plays.FORMS | {slot: [*plays.FORMS[slot], (1, form)]})
    automaton, start = whole_play()
    assert automaton.ambiguous(start) == ambiguous


# ---- the floor: what others pay ----


def test_compressors_pay_more_than_the_floor(text: str) -> None:
    floor = plays.entropy_per_character() * len(text) / 8
    for packed in (bz2.compress(text.encode()), lzma.compress(text.encode())):
        assert 1.05 * floor < len(packed) < 3 * floor


def grams(symbols: np.ndarray, length: int) -> np.ndarray:
    """Return each run of `length` symbols as one number, the last symbol its lowest digit in base 128."""
    return np.lib.stride_tricks.sliding_window_view(symbols, length) @ (128 ** np.arange(length)[::-1])


def counts_of(wanted: np.ndarray, keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the counts of the `wanted` among sorted `keys`, 0 for what is not there."""
    at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[at] == wanted, counts[at], 0)


def test_an_order_5_model_pays_more_than_the_floor(text: str) -> None:
    """Character n-grams, Witten-Bell smoothed from order 0 up to 5, counted on most of the text, tested on the rest."""
    symbols = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    train, test = symbols[:500_000], symbols[500_000:]
    probability = np.full(len(test) - 5, 1 / 128)
    losses = []
    for order in range(6):
        seen, counts = np.unique(grams(train, order + 1), return_counts=True)
        contexts, starts, kinds = np.unique(seen // 128, return_index=True, return_counts=True)
        wanted = grams(test, order + 1)[5 - order :]
        kind = counts_of(wanted // 128, contexts, kinds)
        total = counts_of(wanted // 128, contexts, np.add.reduceat(counts, starts))
        known = (counts_of(wanted, seen, counts) + kind * probability) / np.maximum(total + kind, 1)
        probability = np.where(total > 0, known, probability)
        losses.append(-np.log2(probability).mean())
    assert losses == sorted(losses, reverse=True)
    assert 1.1 * plays.entropy_per_character() < losses[-1] < 2

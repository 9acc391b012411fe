"""The built-in corpus: scenes of a small comedy, from a grammar that knows its own entropy.

A scene announces its cast and what they bring; its people speak by turns, quarrel, ask and answer, rhyme, and leave.
Every choice is a draw with a known probability, so the least that any model can pay for this text, in bits per
character, follows from the grammar: :func:`entropy_per_character` is the floor under a loss curve (times ln 2 in nats).

A form is text with slots in braces, and a slot is filled in one of two ways:

* a rule (``WORDS``, ``FORMS``) draws one of its alternatives afresh, whatever was said before;
* a choice (``CHOICES``) draws uniformly from what the scene allows, often a single thing: the speaker is anyone of the
  cast but the last, a question is answered by the person asked, an oath is its speaker's own, a verb agrees with the
  property announced at the entrance, a rhyme is answered from its family.

The choices are what a model must look far back for. All that they hang on stands in the text: nothing is hidden, and a
text has one derivation only.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from nanoeuler.errors import UserError

NAME = "plays"

#: Who there is, and what each swears by.
PEOPLE = {
    "Maud": "Bless my kettle",
    "Toby": "Well, butter me",
    "Felix": "By all nine lives",
    "Leonhard": "By seven bridges",
    "Prue": "If I may",
    "Barnaby": "Strike me purple",
    "Gideon": "Sound the trumpet",
    "Dora": "Between ourselves",
    "Gus": "Hear me, pigeons",
    "Hugo": "Pass the mustard",
}

#: What they bring: as it is announced, as it is spoken of, its verb, its pronoun.
PROPERTIES = [
    {"item": "a borrowed goose", "thing": "goose", "is": "is", "them": "it"},
    {"item": "half a cheese", "thing": "cheese", "is": "is", "them": "it"},
    {"item": "the wrong trombone", "thing": "trombone", "is": "is", "them": "it"},
    {"item": "most of a ladder", "thing": "ladder", "is": "is", "them": "it"},
    {"item": "several bees", "thing": "bees", "is": "are", "them": "them"},
    {"item": "two left boots", "thing": "boots", "is": "are", "them": "them"},
    {"item": "three cold puddings", "thing": "puddings", "is": "are", "them": "them"},
    {"item": "the neighbours' twins", "thing": "twins", "is": "are", "them": "them"},
]

#: Words that rhyme, by families.
RHYMES = [
    *("night light bite kite", "bread shed bed thread", "rain brain train lane", "stew shoe glue dew"),
    *("floor shore snore score", "breeze knees peas fleas", "mat bat gnat cravat", "hay day bay ballet"),
]

#: Rules whose alternatives are single words, equally likely; a slot with a capital takes them capitalised.
WORDS = {
    "each": "the my your our his her this that one every each any no some their another",
    "all": "the all my your our his her their these those some most many two ten no",
    "noun": """
        ant ape aunt axe baker barber bat bean bear bee bell boat bolt bride bucket bun button camel cape cart cat
        clerk cloud clown cook cork cow crab crow crown cup dog door dove dragon drum duke ear eel egg elm fig flea
        flute frog ghost gnome goat gown hat hen herb horn inn jar jig judge key king kite knee knot lamb lamp lawyer
        leek lid lord maid map mole monk moon moth mule nail nest nose nun nurse oak oar oven owl pear pie pig pin
        pipe poet pond pope pot priest pump queen rat robe rogue root rope sail seal shed ship snail snake sock soup
        star stool swan sword tailor tart toad tower tub uncle urn veil vow wall weed wheel widow wig yak""",
    "verb": """
        adore aid alarm amuse annoy arrest avoid bake ban bathe bite blame boil bribe bring buy call chain charm cheer
        chide cite clasp count cure dodge doubt drag draw dread dust dye eat expect fear feed find follow fool forget
        forgive frame free gild greet grill guard hail hate heed help hide hire honour hum hunt insult invite jail
        join keep kick know lack lead leave lend lick like lose love lure mend mind mock mourn need nudge obey offend
        oil outlive owe own paint pardon pat pay peel pelt poke prod pull roast rob rule salute scold seek sell shake
        shave shun sink soothe spoil spurn squeeze steal sue suit taunt tell tempt test tickle trap trust tug tune
        view wake want warn water weigh wipe woo""",
    "adjective": """
        able bald big bleak bold brave brisk calm clever cold coy cruel curt damp dear deep dense dim drab droll dry
        dull eager early fair fancy fierce fine firm fond frail frank glad glum gold good grand grave grey grim gruff
        hairy happy harsh hoarse holy humble icy idle itchy jolly keen kind lank late lazy lean limp long loud low
        lucky meek merry mild minor mossy muddy neat new noble numb odd old pale pink plain plump poor prim proud pure
        quick quiet rare raw red rich ripe rough round rude rusty sad shrewd shy silly sleek sly small smug sober soft
        sore sour spare stale stern stiff stout sweet tall tame thin tidy tiny torn upset vague vain vast warm weak
        wet wild wise wooden young""",
    "how": """
        badly boldly daily dearly fondly gladly gravely grimly hourly humbly idly loudly madly meekly nightly oddly
        often poorly rarely rudely sadly shyly slowly softly sternly sweetly thrice twice vainly warmly well wildly""",
    "place": "attic bakery cellar chapel forest garden harbour kitchen library market meadow palace prison tavern",
}

#: Rules whose alternatives are forms, by weight; a choice's slot in capitals prints in capitals.
FORMS = {
    "opening": [
        (3, "Enter {company}, in the {place}.\nThey have {item}.\n\n"),
        (1, "Enter {company}, late for the {place}.\nWith them, {item}.\n\n"),
    ],
    "ending": [
        (2, "Exeunt.\n\n"),
        (1, "Exeunt, with the {thing}.\n\n"),
        (1, "Exeunt, without the {thing}.\n\n"),
    ],
    "exchange": [
        (30, "{SPEAKER}:\n{lines}\n\n"),
        (3, "{SPEAKER}:\n{verse} {rhyme},\n{verse} {echo}.\n\n"),
        (1, "{SPEAKER}:\n{other}, where {is} the {thing}?\n\n{REPLY}:\n{oath}, under {each} {one}!\n\n"),
        (1, "{SPEAKER}:\nWho {verb}s {all} {many}, {other}?\n\n{REPLY}:\n{other} does, {how} and {how}.\n\n"),
        (1, "{SPEAKER}:\n{other}, what is one {topic}?\n\n{REPLY}:\nHalf of two {same}s, {adjective} {noun}.\n\n"),
        (1, "{SPEAKER}:\nAnd the {topic}, {other}?\n\n{REPLY}:\nThe {same} {verb}s {all} {many}.\n\n"),
    ],
    "lines": [
        (1, "{line}"),
        (2, "{line}\n{line}"),
        (3, "{line}\n{line}\n{line}"),
        (4, "{line}\n{line}\n{line}\n{line}"),
    ],
    "line": [
        (8, "{Each} {one} {verb}s {each} {one}{stop}"),
        (8, "{Each} {one} {verb}s {all} {many}{stop}"),
        (8, "{All} {many} {verb} {each} {one}{stop}"),
        (8, "{Verb} {each} {one}, {verb} {all} {many}{stop}"),
        (8, "{Noun}s {verb} {many}, {many} {verb} {many}{stop}"),
        (4, "I {verb} {each} {one}, but {each} {one} {verb}s me{stop}"),
        (4, "{Each} {noun} that {verb}s {many} is {adjective}{stop}"),
        (2, "{Each} {noun} is {adjective}; I am {adjective}{stop}"),
        (2, "{other}, you {adjective}, {adjective} {noun}{stop}"),
        (2, "{Noun}s are {adjective}, and so {is} the {thing}{stop}"),
        (1, "{oath}, the {thing} {is} {adjective}{stop}"),
        (1, "{oath}, {all} {noun}s {verb} {other} {how}{stop}"),
        (1, "{other}, take the {thing} and {verb} {them} {how}{stop}"),
        (1, "They say {other} {verb}s {each} {noun} and {verb}s the {thing}{stop}"),
        (1, "Love is {adjective} and {adjective}, like {each} {noun}{stop}"),
    ],
    "verse": [
        (2, "I {verb} {each} {noun} and {verb} the"),
        (2, "{Each} {noun} {verb}s {each} {noun}, the"),
        (1, "How {adjective} {each} {noun}, how {adjective} the"),
        (1, "Go, {verb} {each} {adjective} {noun} and the"),
    ],
    "one": [(2, "{noun}"), (3, "{adjective} {noun}"), (1, "{noun}-{noun}")],
    "many": [(2, "{noun}s"), (3, "{adjective} {noun}s"), (1, "{noun}-{noun}s")],
    "stop": [(3, "."), (1, "!")],
}

SIZES = [2, 2, 2, 3, 3, 3, 3, 4, 4]  # of a cast, each as likely as the next
EXCHANGES = 12  # in a scene on average: each is the last with probability 1 / EXCHANGES

Scene = dict[str, Any]  # what later words hang on: cast, speaker, other, topic, rhyme, and the property's four words
Form = tuple[str, ...]  # text and names of slots by turns: text, slot, text, slot, ..., text
Draw = Callable[[Sequence[Any]], Any]  # one of a sequence, each as likely as the next

CASTS = {size: list(permutations(PEOPLE, size)) for size in set(SIZES)}
NOUNS = WORDS["noun"].split()
ECHOES = {word: [echo for echo in row.split() if echo != word] for row in RHYMES for word in row.split()}


def _others(scene: Scene) -> list[str]:
    """Return the cast but for who spoke last."""
    return [name for name in scene["cast"] if name != scene["speaker"]]


#: What may fill a slot, given the scene so far: uniform, and certain where only one thing may.
CHOICES: dict[str, Callable[[Scene], Sequence[str]]] = {
    "company": lambda scene: [f"{', '.join(scene['cast'][:-1])} and {scene['cast'][-1]}"],
    "speaker": _others,
    "other": _others,
    "reply": lambda scene: [scene["other"]],
    "oath": lambda scene: [PEOPLE[scene["speaker"]]],
    "topic": lambda scene: NOUNS,
    "same": lambda scene: [scene["topic"]],
    "rhyme": lambda scene: list(ECHOES),
    "echo": lambda scene: ECHOES[scene["rhyme"]],
    "item": lambda scene: [scene["item"]],
    "thing": lambda scene: [scene["thing"]],
    "is": lambda scene: [scene["is"]],
    "them": lambda scene: [scene["them"]],
}


def _compile() -> dict[str, list[Form]]:
    """Return each rule's alternatives, one as often as its weight says."""
    words = {name: [(1, word) for word in text.split()] for name, text in WORDS.items()}
    capitalised = {name.title(): [(1, word.title()) for _, word in words[name]] for name in words}
    return {
        name: [tuple(re.split(r"[{}]", form)) for weight, form in forms for _ in range(weight)]
        for name, forms in (words | capitalised | FORMS).items()
    }


RULES = _compile()


def _say(slot: str, scene: Scene, draw: Draw) -> str:
    """Fill one slot, and note in `scene` what later slots hang on."""
    if slot in RULES:
        form = draw(RULES[slot])
        return "".join([_say(part, scene, draw) if i % 2 else part for i, part in enumerate(form)])
    key = slot.lower()
    options = CHOICES[key](scene)
    word: str = draw(options) if len(options) > 1 else options[0]
    scene["speaker" if key == "reply" else key] = word
    return word.upper() if slot.isupper() else word


def _scene(draw: Draw) -> str:
    """Return one scene, independent of any other. The last named of its cast does not speak first."""
    cast = draw(CASTS[draw(SIZES)])
    scene = {"cast": cast, "speaker": cast[-1]} | draw(PROPERTIES)
    said = [_say("opening", scene, draw), _say("exchange", scene, draw)]
    while draw(range(EXCHANGES)):
        said.append(_say("exchange", scene, draw))
    return "".join(said) + _say("ending", scene, draw)


def _uniforms(seed: int) -> Iterator[float]:
    """Yield k / 2^53 in [0, 1), k the top bits of PCG64's raw output: the same on every platform and NumPy."""
    source = np.random.PCG64(seed)
    while True:
        yield from ((source.random_raw(1 << 14) >> np.uint64(11)) * 2.0**-53).tolist()


def generate(characters: int = 1_000_000, seed: int = 0) -> str:
    """Return exactly `characters` ASCII characters of play, the same for a seed on every platform.

    The text starts where a scene starts and is cut where the count is reached, so a shorter text is a prefix of a
    longer one of the same seed.

    Raises:
        UserError: `characters` or `seed` is negative.
    """
    if characters < 0 or seed < 0:
        raise UserError(f"plays: characters ({characters}) and seed ({seed}) must be 0 or more")
    uniforms = _uniforms(seed)

    def draw(options: Sequence[Any]) -> Any:
        return options[int(next(uniforms) * len(options))]

    pieces, length = [], 0
    while length < characters:
        pieces.append(_scene(draw))
        length += len(pieces[-1])
    return "".join(pieces)[:characters]


def entropy_per_character() -> float:
    """Return the entropy rate of the source in bits per character, exact but for rounding.

    The source is one scene after another, independent and equally distributed. Over k scenes both -log2 P(text) and
    the number of characters are sums of k such terms, so by the law of large numbers their ratio tends to

        H(scene) / E[characters of a scene],

    the entropy rate, which no predictor's expected loss on new text can stay below (Cover and Thomas, Elements of
    Information Theory, 2nd ed., sections 4.2 and 5.4); one that sees less than the whole past can only lose more, and
    only text learnt by heart can cost less. Where a text is cut does not matter: one scene's bits vanish in the ratio.

    The text determines the derivation, so H(scene) is the entropy of the draws, and by the chain rule (section 2.5)
    the sum over draws of their expected -log2 P. The number of exchanges is geometric and independent of what is said
    in them, so their sum has the mean EXCHANGES times that of one (Wald), and the decisions to go on or stop cost
    EXCHANGES times the entropy of a coin of bias 1 / EXCHANGES.
    """
    stop = 1 / EXCHANGES
    stopping = np.array([-EXCHANGES * (stop * math.log2(stop) + (1 - stop) * math.log2(1 - stop)), 0])
    total = np.zeros(2)
    for size, count in Counter(SIZES).items():
        setting = np.array([math.log2(len(SIZES) / count * len(CASTS[size]) * len(PROPERTIES)), 0])
        said = _expected("opening", size) + EXCHANGES * _expected("exchange", size) + _expected("ending", size)
        total += count / len(SIZES) * (setting + stopping + said)
    return float(total[0] / total[1])


@cache
def _expected(slot: str, size: int) -> np.ndarray:
    """Return the expected [bits, characters] of a slot in a cast of `size`: -log2 P of its draws, and its length.

    How many options a choice has depends on `size` alone; how long they are, on one of the scene's facts at a time,
    and each fact is equally likely to be any of its values, people by symmetry. So the balanced scenes' mean is exact.
    """
    total = np.zeros(2)
    if slot not in RULES:
        scenes = _balanced_scenes(size)
        for options in (CHOICES[slot.lower()](scene) for scene in scenes):
            total += np.array([math.log2(len(options)), sum(map(len, options)) / len(options)]) / len(scenes)
        return total
    for form, count in Counter(RULES[slot]).items():
        probability = count / len(RULES[slot])
        own = np.array([-math.log2(probability), len("".join(form[::2]))])
        total += probability * sum((_expected(part, size) for part in form[1::2]), own)
    return total


def _balanced_scenes(size: int) -> list[Scene]:
    """Return scenes in which every person, property, topic and rhyme stands in each place equally often."""
    people, rhymes = list(PEOPLE) * 2, list(ECHOES)
    scenes = []
    for i in range(math.lcm(len(PEOPLE), len(PROPERTIES), len(NOUNS), len(rhymes))):
        cast = people[i % len(PEOPLE) :][:size]
        facts = {"other": cast[0], "topic": NOUNS[i % len(NOUNS)], "rhyme": rhymes[i % len(rhymes)]}
        scenes.append({"cast": cast, "speaker": cast[-1]} | facts | PROPERTIES[i % len(PROPERTIES)])
    return scenes

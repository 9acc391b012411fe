"""Likelihoods and metrics of every task, as transformers and a plain computation give them, one item at a time."""

import io
import json
import math
import statistics

import pytest
from evaluate.published import SUBJECTS, mmlu_rows, write_all
from evaluate.tiny_models import T, log_probabilities, make_models, make_tokenizer, their_tokenizer

from nanoeuler.evaluate.engine import Engine
from nanoeuler.evaluate.likelihood import likelihoods
from nanoeuler.evaluate.progress import Progress
from nanoeuler.evaluate.tasks import TASKS, measure, read_items

# The oracle: prompts as lm-evaluation-harness has them, written down once more. An item is (pairs of context and
# continuation, texts of the choices, answer).


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def clean(text):
    out, depth = "", 0
    for character in text.strip().replace(" [title]", ". "):
        depth += character == "["
        out += "" if depth else character
        depth -= character == "]"
    return out.replace("  ", " ")


def after(context, choices):
    return [(context, f" {choice}") for choice in choices]


def plain_hellaswag(path):
    for doc in lines(path):
        choices = [clean(ending) for ending in doc["endings"]]
        context = clean(doc["activity_label"] + ": " + doc["ctx_a"] + " " + doc["ctx_b"].capitalize())
        yield after(context, choices), choices, int(doc["label"])


def plain_piqa(path):
    labels = (path.parent / "valid-labels.lst").read_text().split()
    for doc, label in zip(lines(path), labels, strict=True):
        choices = [doc["sol1"], doc["sol2"]]
        yield after(f"Question: {doc['goal']}\nAnswer:", choices), choices, int(label)


def plain_arc(path):
    for doc in lines(path):
        choices = [choice["text"] for choice in doc["question"]["choices"]]
        labels = [choice["label"] for choice in doc["question"]["choices"]]
        pairs = after(f"Question: {doc['question']['stem']}\nAnswer:", choices)
        yield pairs, choices, labels.index(doc["answerKey"])


def plain_winogrande(path):
    for doc in lines(path):
        place = doc["sentence"].index("_")
        options = [doc["option1"], doc["option2"]]
        target = " " + doc["sentence"][place + 1 :].strip()
        yield (
            [(doc["sentence"][:place] + option, target) for option in options],
            options,
            {"1": 0, "2": 1}[doc["answer"]],
        )


def plain_lambada(path):
    for doc in lines(path):
        words = doc["text"].split(" ")
        yield [(" ".join(words[:-1]), " " + words[-1])], [words[-1]], 0


def plain_mmlu(shots):
    for subject in SUBJECTS:
        asked = [
            (f"{row[0].strip()}\nA. {row[1]}\nB. {row[2]}\nC. {row[3]}\nD. {row[4]}\nAnswer:", row[5])
            for row in mmlu_rows(subject, "dev", 5)[:shots] + mmlu_rows(subject, "test", 3)
        ]
        head = f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}.\n\n"
        head += "".join(f"{question} {answer}\n\n" for question, answer in asked[:shots])
        for question, answer in asked[shots:]:
            yield after(head + question, "ABCD"), [*"ABCD"], "ABCD".index(answer)


def plain_likelihood(theirs, encode, prefix, context, continuation):
    """Return the log-likelihood of a continuation, and whether greedy decoding gives it."""
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    context_ids, whole = encode(context), encode(context + continuation)
    continuation_ids = whole[len(context_ids) :]
    inputs = ([*prefix, *context_ids, *continuation_ids])[-(T + 1) :][:-1]
    log = log_probabilities(theirs, inputs)[-len(continuation_ids) :]
    picked = [log[i, token] for i, token in enumerate(continuation_ids)]
    return sum(picked), log.argmax(axis=1).tolist() == continuation_ids


PLAIN = {
    "hellaswag": plain_hellaswag,
    "piqa": plain_piqa,
    "arc": plain_arc,
    "winogrande": plain_winogrande,
    "lambada": plain_lambada,
}
CASES = [*((name, 0) for name in PLAIN), ("mmlu", 0), ("mmlu", 2)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def models(request):
    return make_models(request.param)


@pytest.mark.parametrize(("name", "shots"), CASES)
@pytest.mark.parametrize("prefix", [(), (346,)])
def test_as_transformers(models, paths, tmp_path, name, shots, prefix):
    theirs, config, weights = models
    tokenizer = make_tokenizer(prefix)
    encode = their_tokenizer(make_tokenizer(), tmp_path).encode
    plain = list(plain_mmlu(shots) if name == "mmlu" else PLAIN[name](paths[name]))
    expected = [
        [plain_likelihood(theirs, lambda text: encode(text).ids, prefix, *pair) for pair in pairs]
        for pairs, _, _ in plain
    ]

    items = read_items(name, paths[name], shots, None)
    with Engine(config, weights, batch_tokens=3 * T) as engine, Progress(name, io.StringIO()) as progress:
        found = likelihoods(engine, items, tokenizer, progress, "greedy" in TASKS[name].measures)
    assert [[each.log for each in choices] for choices in found] == [
        pytest.approx([log for log, _ in choices], rel=0, abs=1e-4) for choices in expected
    ]
    assert [item.answer for item in items] == [answer for _, _, answer in plain]

    result = measure(name, items, found)
    assert result["items"] == len(plain)
    if name == "lambada":
        assert [each[0].greedy for each in found] == [greedy for [(_, greedy)] in expected]
        assert result["acc"] == statistics.mean(greedy for [(_, greedy)] in expected)
        logs = [log for [(log, _)] in expected]
        assert result["perplexity"] == pytest.approx(math.exp(-statistics.mean(logs)), rel=1e-4)
        return
    for key, length in (("acc", lambda text: 1), ("acc_norm", len), ("acc_bytes", lambda text: len(text.encode()))):
        if key not in TASKS[name].measures:
            assert key not in result
            continue
        right = []
        for choices, (_, texts, answer) in zip(expected, plain, strict=True):
            scores = [log / length(text) for (log, _), text in zip(choices, texts, strict=True)]
            right.append(float(scores.index(max(scores)) == answer))
        assert result[key] == statistics.mean(right), key
        assert result[key + "_stderr"] == pytest.approx(statistics.stdev(right) / math.sqrt(len(right)))


def test_greedy_is_what_decoding_gives(models):
    """A continuation that greedy decoding has made is greedy, and no other."""
    from nanoeuler.evaluate.items import Choice, Item

    theirs, config, weights = models
    tokenizer = make_tokenizer()
    context = tokenizer.encode("Enter a man").tolist()
    decoded = []
    for _ in range(3):
        decoded.append(int(log_probabilities(theirs, context + decoded)[-1].argmax()))

    class Ids:
        """Stands for a tokenizer: the ids are written in the text."""

        prefix = ()

        def encode(self, text):
            import numpy as np

            return np.array(text.split(), np.int32)

    def item(ids):
        choice = Choice(" ".join(map(str, context)), " " + " ".join(map(str, ids)))
        return Item("here:1", (choice,), 0)

    others = [[(decoded[0] + 1) % 300, *decoded[1:]], [*decoded[:2], (decoded[2] + 1) % 300]]
    items = [item(ids) for ids in (decoded, *others, decoded[:1])]
    with Engine(config, weights) as engine, Progress("greedy", io.StringIO()) as progress:
        found = likelihoods(engine, items, Ids(), progress, greedy=True)
    assert [each[0].greedy for each in found] == [True, False, False, True]

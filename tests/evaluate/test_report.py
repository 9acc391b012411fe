import math

import pytest

from nanoeuler.evaluate.items import Item, choices_after
from nanoeuler.evaluate.likelihood import Likelihood
from nanoeuler.evaluate.report import task_lines, task_record, text_line, text_record
from nanoeuler.evaluate.text import TextLoss


def test_the_line_of_a_text():
    loss = TextLoss(tokens=2000, nats=2000 * math.log(8), text_bytes=6000)
    assert text_line("x.txt", loss) == (
        "x.txt: loss 2.0794  perplexity 8  1.0000 bits per byte  (2,000 tokens, 6,000 bytes)"
    )
    assert text_line("x", TextLoss(1, 0.0, 0)) == "x: loss 0.0000  perplexity 1  (1 token, 0 bytes)"


def test_the_record_of_a_text():
    record = text_record(TextLoss(tokens=2, nats=2000.0, text_bytes=0))
    assert record == {"tokens": 2, "bytes": 0, "loss": 1000.0, "perplexity": None, "bits_per_byte": None}


def test_the_lines_of_a_task_with_subjects():
    result = {
        "items": 3,
        "acc": 2 / 3,
        "acc_stderr": 1 / 3,
        "subjects": {
            "law": {"items": 2, "acc": 0.5, "acc_stderr": 0.5},
            "art": {"items": 1, "acc": 1.0, "acc_stderr": None},
        },
        "mean_of_subjects": 0.75,
    }
    assert list(task_lines("mmlu", result)) == [
        "  law: acc 0.5000 ± 0.5000  (2 items)",
        "  art: acc 1.0000  (1 item)",
        "mmlu: acc 0.6667 ± 0.3333  (3 items)  mean of 2 subjects 0.7500",
    ]


def test_the_record_of_a_task():
    items = [Item("file:3", choices_after("context", ["a", "b"]), 1)]
    record = task_record({"items": 1, "acc": 1.0, "perplexity": math.inf}, items, [[Likelihood(-2.5), Likelihood(-1)]])
    assert record == {
        "items": 1,
        "acc": 1.0,
        "perplexity": None,
        "each": [{"place": "file:3", "answer": 1, "log_likelihoods": [-2.5, -1]}],
    }


@pytest.mark.parametrize("text", ["a", ""])
def test_choices_come_after_a_space(text):
    (choice,) = choices_after("context", [text])
    assert (choice.context, choice.continuation, choice.text) == ("context", " " + text, text)

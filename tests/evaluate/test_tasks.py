import pytest
from evaluate.published import write_all

from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Choice, Item
from nanoeuler.evaluate.likelihood import Likelihood
from nanoeuler.evaluate.tasks import chosen, measure, parse_task, read_items


def logs(*values):
    return [Likelihood(value) for value in values]


def item(*texts, answer=0, subject=""):
    return Item("file:1", tuple(Choice("context", " " + text, text) for text in texts), answer, subject)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hellasweg=x", "unknown task 'hellasweg' .did you mean 'hellaswag'..; tasks are hellaswag, piqa, arc"),
        ("val.jsonl", "unknown task 'val.jsonl'"),
        ("arc", "expected is arc=PATH"),
        ("arc=", "expected is arc=PATH"),
    ],
)
def test_what_no_task_is(text, message):
    with pytest.raises(UserError, match=message):
        parse_task(text)


def test_limit_is_of_each_subject(tmp_path):
    paths = write_all(tmp_path)
    assert [len(read_items(name, paths[name], 0, 2)) for name in ("piqa", "mmlu")] == [2, 4]
    assert len(read_items("mmlu", paths["mmlu"], 0, None)) == 6


def test_a_long_choice_is_at_no_disadvantage_once_normalised():
    asked, found = item("short", "as long as this", "éééééééé"), logs(-10.0, -12.0, -9.5)
    assert [chosen(asked, found, by) for by in ("acc", "acc_norm", "acc_bytes")] == [2, 1, 2]


def test_the_first_of_equals():
    assert chosen(item("a", "b"), logs(-1.0, -1.0)) == 0


def test_an_empty_choice_has_a_length():
    assert chosen(item("", "b"), logs(-3.0, -2.0), "acc_norm") == 1


def test_measures_of_subjects():
    items = [item("A", "B", answer=1, subject=s) for s in ("law", "law", "law", "art")]
    found = [logs(-1, -2), logs(-2, -1), logs(-2, -1), logs(-2, -1)]
    result = measure("mmlu", items, found)
    assert result["acc"] == 0.75
    assert result["subjects"]["law"]["acc"] == pytest.approx(2 / 3)
    assert result["subjects"]["art"] == {"items": 1, "acc": 1.0, "acc_stderr": None}
    assert result["mean_of_subjects"] == pytest.approx(5 / 6)
    assert "acc_norm" not in result


def test_a_single_item_has_no_error():
    result = measure("lambada", [item("word")], [[Likelihood(-2000.0, True)]])
    assert result == {
        "items": 1,
        "acc": 1.0,
        "acc_stderr": None,
        "perplexity": float("inf"),
        "perplexity_stderr": None,
    }

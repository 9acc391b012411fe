import pytest
from evaluate.published import HELLASWAG, write_jsonl

from nanoeuler.errors import UserError
from nanoeuler.evaluate.hellaswag import read_hellaswag


def test_items(tmp_path):
    path = write_jsonl(tmp_path / "hellaswag_val.jsonl", HELLASWAG)
    first, second, third = read_hellaswag(path)
    assert first.choices[3].context == "Roof shingle removal: A man is sitting on a roof. He"
    assert first.choices[3].continuation == " starts pulling up roofing on it."
    assert (first.answer, first.place) == (3, f"{path}:1")
    assert second.choices[0].context == "Home and Garden: How to plant a fern. Choose a pot. It should drain well."
    assert [choice.text for choice in second.choices[:2]] == ["Clay is best. Wash it.", "Paint it. Red."]
    assert third.choices[1].context.endswith("a river. The boat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "'label' is None; expected is a number from 0 to 3"),
        ({"label": 4}, "'label' is 4; expected is a number from 0 to 3"),
        ({"label": "-1"}, "'label' is '-1'; expected"),
        ({"label": True}, "'label' is True; expected"),
        ({"endings": "one"}, "'endings' is not a list of strings; expected is a line of HellaSwag"),
        ({"endings": []}, "'endings' is not a list of strings"),
        ({"ctx_b": 7}, "'ctx_b' is not a string; expected is a line of HellaSwag"),
    ],
)
def test_errors(tmp_path, change, message):
    path = write_jsonl(tmp_path / "val.jsonl", [HELLASWAG[0], HELLASWAG[1] | change])
    with pytest.raises(UserError) as error:
        read_hellaswag(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_a_test_set_has_no_answers(tmp_path):
    secret = {key: value for key, value in HELLASWAG[0].items() if key != "label"}
    with pytest.raises(UserError, match=r"test.jsonl:1: no answer: 'label' is missing, as in a test set"):
        read_hellaswag(write_jsonl(tmp_path / "test.jsonl", [secret]))


def test_labels_in_digits_are_as_good(tmp_path):
    path = write_jsonl(tmp_path / "val.jsonl", [HELLASWAG[0] | {"label": "3"}])
    assert read_hellaswag(path)[0].answer == 3

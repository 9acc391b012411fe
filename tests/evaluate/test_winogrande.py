import pytest
from evaluate.published import WINOGRANDE, write_jsonl

from nanoeuler.errors import UserError
from nanoeuler.evaluate.winogrande import read_winogrande


def test_items(tmp_path):
    first, second, third = read_winogrande(write_jsonl(tmp_path / "dev.jsonl", WINOGRANDE))
    assert [first.answer, second.answer, third.answer] == [1, 1, 0]
    assert first.choices[0].context == "Sarah was a much better surgeon than Maria so Sarah"
    assert first.choices[1].context == "Sarah was a much better surgeon than Maria so Maria"
    assert {choice.continuation for choice in first.choices} == {" always got the easier cases."}
    assert second.choices[0].continuation == " is too small."
    assert third.choices[1].context == "Carla Maria"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": ""}, "'answer' is ''; expected is a number from 1 to 2"),
        ({"answer": "0"}, "'answer' is '0'; expected is a number from 1 to 2"),
        ({"sentence": "No blank."}, "'sentence' has no blank '_' with something after it; expected is"),
        ({"sentence": "It ends in _ "}, "'sentence' has no blank '_' with something after it"),
        ({"option2": None}, "'option2' is not a string"),
    ],
)
def test_errors(tmp_path, change, message):
    path = write_jsonl(tmp_path / "dev.jsonl", [WINOGRANDE[0], WINOGRANDE[1] | change])
    with pytest.raises(UserError) as error:
        read_winogrande(path)
    assert str(error.value).startswith(f"{path}:2: {message}")

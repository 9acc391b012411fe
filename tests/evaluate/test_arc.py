import pytest
from evaluate.published import ARC, write_jsonl

from nanoeuler.errors import UserError
from nanoeuler.evaluate.arc import read_arc


def test_items(tmp_path):
    first, second, third = read_arc(write_jsonl(tmp_path / "ARC-Easy-Test.jsonl", ARC))
    assert [first.answer, second.answer, third.answer] == [1, 1, 0]
    assert [len(item.choices) for item in (first, second, third)] == [4, 5, 2]
    assert second.choices[1].context == "Question: Which is hot?\nAnswer:"
    assert second.choices[1].continuation == " fire"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answerKey": "E"}, "'answerKey' is 'E', and the choices are A, B, C, D; expected is a line of ARC"),
        ({"answerKey": ""}, "'answerKey' is ''"),
        ({"answerKey": 2}, "'answerKey' is not a string"),
        ({"question": "Which factor?"}, "'question' is not a stem with choices; expected is a line of ARC"),
        ({"question": {"stem": "Which?", "choices": []}}, "'question' is not a stem with choices"),
        ({"question": {"stem": "Which?", "choices": [{"text": "a"}]}}, "'question' is not a stem with choices"),
        ({"question": {"choices": ARC[0]["question"]["choices"]}}, "'question' is not a stem with choices"),
    ],
)
def test_errors(tmp_path, change, message):
    path = write_jsonl(tmp_path / "arc.jsonl", [ARC[1], ARC[0] | change])
    with pytest.raises(UserError) as error:
        read_arc(path)
    assert str(error.value).startswith(f"{path}:2: {message}")

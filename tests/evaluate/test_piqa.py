import pytest
from evaluate.published import PIQA, PIQA_LABELS, write_jsonl

from nanoeuler.errors import UserError
from nanoeuler.evaluate.piqa import read_piqa


def write(folder, labels=PIQA_LABELS, items=PIQA):
    if labels is not None:
        (folder / "valid-labels.lst").write_text(labels)
    return write_jsonl(folder / "valid.jsonl", items)


def test_items(tmp_path):
    items = read_piqa(write(tmp_path))
    assert [item.answer for item in items] == [0, 1, 0]
    assert items[2].choices[0].context == "Question: To cool soup,\nAnswer:"
    assert items[1].choices[0].continuation == " replace drawer with bobby pin "


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "valid.jsonl: {}/valid-labels.lst is missing: it has the answers"),
        ("0\n1\n", "valid-labels.lst: 2 answers, and {}/valid.jsonl has 3 questions"),
        ("0\n2\n1\n", "valid-labels.lst:2: the answer is '2'; expected is a number from 0 to 1"),
        ("", "valid-labels.lst: nothing in it"),
    ],
)
def test_errors_of_the_answers(tmp_path, labels, message):
    path = write(tmp_path, labels)
    with pytest.raises(UserError) as error:
        read_piqa(path)
    assert message.format(tmp_path) in str(error.value)


def test_another_file(tmp_path):
    path = write(tmp_path, items=[*PIQA[:2], {"text": "a passage"}])
    with pytest.raises(UserError, match=r"valid.jsonl:3: 'goal' is missing; expected is a line of PIQA"):
        read_piqa(path)

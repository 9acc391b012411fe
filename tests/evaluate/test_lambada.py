import pytest
from evaluate.published import LAMBADA, write_jsonl

from nanoeuler.errors import UserError
from nanoeuler.evaluate.lambada import read_lambada


def test_items(tmp_path):
    items = read_lambada(write_jsonl(tmp_path / "lambada_test.jsonl", LAMBADA))
    assert items[0].choices[0].context == 'In my palm is a clear stone.\n"Take it," he said, and gave me the'
    assert [item.choices[0].continuation for item in items] == [" stone", " Rex", " mabel"]


def test_a_passage_in_each_line(tmp_path):
    path = tmp_path / "lambada_plain.txt"
    path.write_text("He gave me the stone\n\nShe walked with Rex \n", encoding="utf-8")
    items = read_lambada(path)
    assert [(item.place, item.choices[0].context) for item in items] == [
        (f"{path}:1", "He gave me the"),
        (f"{path}:3", "She walked with"),
    ]


@pytest.mark.parametrize("line", ["word", " word"])
def test_one_word_is_no_passage(tmp_path, line):
    path = tmp_path / "lambada.txt"
    path.write_text(f"two words\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"lambada.txt:2: a passage of one word"):
        read_lambada(path)


def test_another_kind_of_object(tmp_path):
    path = write_jsonl(tmp_path / "lambada.jsonl", [LAMBADA[0], {"goal": "x"}])
    with pytest.raises(UserError, match=r"lambada.jsonl:2: 'text' is missing; expected is a line of LAMBADA"):
        read_lambada(path)

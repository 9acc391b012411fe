import pytest
from evaluate.published import write_all

from nanoeuler.errors import UserError
from nanoeuler.evaluate.mmlu import read_mmlu


@pytest.fixture
def folder(tmp_path):
    return write_all(tmp_path)["mmlu"]


def test_items_of_all_subjects(folder):
    items = read_mmlu(folder, 0)
    assert [item.subject for item in items] == ["abstract algebra"] * 3 + ["world religions"] * 3
    assert items[1].choices[2].context == (
        "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
        'abstract_algebra test 1: "what", is 1 + 1?\nAnswer in words.\nA. 2\nB. none, of these\nC. 4\nD. all\nAnswer:'
    )
    assert [choice.continuation for choice in items[1].choices] == [" A", " B", " C", " D"]
    assert [item.answer for item in items[:3]] == [0, 1, 2]
    assert items[1].place.endswith("abstract_algebra_test.csv:3")  # each question here takes two lines


def test_shots_come_from_dev(folder):
    one_file = read_mmlu(folder / "test" / "world_religions_test.csv", 5)
    assert len(one_file) == 3
    context = one_file[0].choices[0].context
    assert context.count("Answer:") == 6
    assert context.count("world_religions dev") == 5
    assert "Answer in words.\nA. 0\nB. none, of these\nC. 1\nD. all\nAnswer: D\n\n" in context
    assert one_file == read_mmlu(folder, 5)[3:] == read_mmlu(folder / "test", 5)[3:]


def test_too_few_shots(folder):
    with pytest.raises(UserError, match=r"abstract_algebra_dev.csv: 5 questions, and --shots asks for 6"):
        read_mmlu(folder, 6)
    (folder / "dev" / "abstract_algebra_dev.csv").unlink()
    with pytest.raises(UserError, match=r"abstract_algebra_dev.csv is missing: 5 of its questions .* --shots 0"):
        read_mmlu(folder, 5)
    assert read_mmlu(folder, 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("q,a,b,c,A", ":2: 5 columns; expected is a row of MMLU"),
        ("q,a,b,c,d,E", ":2: the answer is 'E'; expected is a row of MMLU"),
        ("q,a,b,c,d,AB", ":2: the answer is 'AB'"),
        ("q,a,b,c,d,", ":2: the answer is ''"),
        ('q,"a,b,c,d,A', ":2: not CSV: unexpected end of data"),
    ],
)
def test_errors(tmp_path, row, message):
    path = tmp_path / "x_test.csv"
    path.write_text(f"q,a,b,c,d,A\n{row}\n")
    with pytest.raises(UserError) as error:
        read_mmlu(path, 0)
    assert str(error.value).startswith(f"{path}{message}")


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="no file of MMLU here: expected are SUBJECT_test"):
        read_mmlu(tmp_path, 0)
    (tmp_path / "x_test.csv").write_text("")
    with pytest.raises(UserError, match=r"x_test.csv: nothing in it"):
        read_mmlu(tmp_path, 0)

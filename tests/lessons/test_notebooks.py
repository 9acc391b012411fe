"""Notebooks made of a source: the learner's and the solved one, the same in every build."""

import base64
import json
import re
from pathlib import Path

import nbformat
import pytest
from lessons.small import LESSON, written

from nanoeuler.errors import UserError
from nanoeuler.lessons.home import REPOSITORY
from nanoeuler.lessons.notebooks import build, learner_notebook, paths, solved_notebook


def test_the_learners_notebook_has_blanks_and_the_solved_one_none(tmp_path: Path) -> None:
    lesson = written(tmp_path)
    learner, solved = learner_notebook(lesson), solved_notebook(lesson)
    for notebook in (learner, solved):
        nbformat.validate(notebook)
    kinds = [[cell.metadata.nanoeuler.kind for cell in notebook.cells] for notebook in (learner, solved)]
    assert [kind for kind in kinds[1] if kind != "solved"] == kinds[0]
    assert kinds[0][:2] == ["text", "start"]
    exercises = [c.source for c in learner.cells if c.metadata.nanoeuler.kind == "exercise"]
    assert "i = ...  # 1: the number of this thread" in exercises[0]
    assert exercises[1] == "threads = ...  # 1: how many threads?"
    text = "\n".join(cell.source for cell in solved.cells)
    assert "threads = 64  # 1: how many threads?" in text
    assert "assert out[3] == 6" in text
    assert "lesson = start(2, keep=False)" in text
    assert learner.cells[1].source.endswith("lesson = start(2)")
    for notebook in (learner, solved):
        whole = "\n".join(cell.source for cell in notebook.cells)
        assert "mutant" not in whole
        assert "# blank" not in whole
        assert "```python\n@cuda.jit\ndef add(out, x, y):\n    i = cuda.grid(1)" in whole  # in the fold


def test_links_fit_the_folder_and_pictures_travel_along(tmp_path: Path) -> None:
    lesson = written(tmp_path)
    for notebook, up in ((learner_notebook(lesson), "../"), (solved_notebook(lesson), "../../")):
        texts = {cell.source: cell for cell in notebook.cells if cell.cell_type == "markdown"}
        whole = "\n".join(texts)
        assert f"[a file]({up}README.md)" in whole
        assert "[Lesson 2](02_small.ipynb)" in whole
        assert f"{REPOSITORY.removeprefix('https://github.com/')}/blob/main/lessons/" in whole
        (drawn,) = re.findall(r"!\[a square\]\(data:image/svg\+xml;name=02_small\.svg;base64,(\S+)\)", whole)
        assert base64.b64decode(drawn).startswith(b"<svg")


def test_a_build_is_the_same_every_time_and_changes_nothing_twice(tmp_path: Path) -> None:
    lesson = written(tmp_path)
    assert build([lesson], check=True) == list(paths(lesson))
    assert not paths(lesson)[0].exists()
    assert build([lesson]) == list(paths(lesson))
    before = [path.read_bytes() for path in paths(lesson)]
    assert build([lesson]) == build([lesson], check=True) == []
    for path in paths(lesson):
        path.unlink()
    build([lesson])
    assert [path.read_bytes() for path in paths(lesson)] == before
    ids = [cell["id"] for cell in json.loads(before[0])["cells"]]
    assert len(set(ids)) == len(ids)
    changed = written(tmp_path, LESSON.replace("Some words", "Other words"))
    assert build([changed], check=True) == list(paths(lesson))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("picture:02_small.svg)", "picture:none.svg)", r"02_small\.md:10: .*none\.svg: cannot read this picture"),
        ("lesson:2)", "lesson:44)", "there is no lesson 44 to link to"),
        ("{{solution add}}", "{{solution ad}}", r"no exercise 'ad' \(did you mean 'add'"),
    ],
)
def test_what_is_missing_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        learner_notebook(written(tmp_path, LESSON.replace(old, new)))

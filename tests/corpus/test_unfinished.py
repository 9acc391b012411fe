import pytest

from nanoeuler.corpus.unfinished import (
    differences,
    forget_state,
    read_state,
    remove_hidden,
    unfinished_folder,
    write_state,
)
from nanoeuler.errors import UserError


def test_what_is_written_is_read_until_it_is_forgotten(tmp_path):
    assert read_state(tmp_path) is None
    write_state(tmp_path, {"documents": 3})
    write_state(tmp_path, {"documents": 4})
    assert read_state(tmp_path) == {"version": 1, "documents": 4}
    forget_state(tmp_path)
    forget_state(tmp_path)
    assert read_state(tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b was 1, now 2"]),
        ({"a": 1}, {"b": None, "c": 2}, ["a was 1, now None", "c was None, now 2"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b was 2, now 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a gained 2"]),
        ({"a": "x" * 100}, {"a": 1}, [f"a was '{'x' * 76}..., now 1"]),
    ],
)
def test_differences_in_words(old, new, expected):
    assert differences(old, new) == expected


def test_a_folder_is_made_held_and_left_for_later(tmp_path):
    folder = tmp_path / "new" / "owls"
    with unfinished_folder(folder) as hidden:
        assert hidden.parent == folder
        with pytest.raises(UserError, match="another process"), unfinished_folder(folder):
            pass
    with unfinished_folder(folder):
        pass
    remove_hidden(folder)
    assert list(folder.iterdir()) == []


def test_half_written_files_are_removed(tmp_path):
    with unfinished_folder(tmp_path / "owls"):
        (tmp_path / "owls" / ".manifest.json.0123abcd.part").write_bytes(b"{")
    with unfinished_folder(tmp_path / "owls"):
        assert [path.name for path in (tmp_path / "owls").iterdir()] == [".unfinished"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "owls").write_text("")
    assert read_state(tmp_path / "owls" / ".unfinished") is None
    with pytest.raises(UserError, match="owls: not a folder"), unfinished_folder(tmp_path / "owls"):
        pass

from pathlib import Path

import pytest

from nanoeuler.corpus.text import read_text
from nanoeuler.errors import UserError


@pytest.mark.parametrize("text", ["a", "\r\n line \n\r\n", "\ufeffé\t𝔘\u2028\x85", " " * 10])
def test_text_is_read_exactly_as_it_is(tmp_path, text):
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode("utf-8"))
    assert read_text(path) == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty file"),
        (b"PNG\r\n\0\0\1", r"binary file \(byte 5 is NUL\)"),
        ("caf\xe9".encode("latin-1"), "not UTF-8 text: byte 3 is 0xe9"),
        (b"ab\xff\xff", "not UTF-8 text: byte 2 is 0xff"),
        ("cut off: é".encode()[:-1], "not UTF-8 text"),
        (b"\xed\xa0\x80", "not UTF-8 text"),  # half a surrogate pair
        ("hello".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path, content, said):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        read_text(path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == content


def test_a_folder(tmp_path):
    with pytest.raises(UserError, match="a folder"):
        read_text(tmp_path)


def test_an_unreadable_file(tmp_path, monkeypatch):
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # chmod would not stop root
    with pytest.raises(UserError, match=r"secret.txt: cannot read it: Permission denied"):
        read_text(tmp_path / "secret.txt")


def test_a_missing_file_is_for_the_caller_to_explain(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "missing.txt")

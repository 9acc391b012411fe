import pytest

from nanoeuler.errors import UserError
from nanoeuler.evaluate.records import read_jsonl, read_lines


def test_lines_that_are_not_blank_with_their_places(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("\ufeffone\n\n  \r\ntwo\u2028still two\x85\r\n".encode())
    assert list(read_lines(path)) == [(f"{path}:1", "one"), (f"{path}:4", "two\u2028still two\x85\r")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n[1]\n', ":2: not a JSON object; expected is a line of a test"),
        (b'{"a": 1}\nword\n', ":2: not JSON; expected is a line of a test"),
        (b'{"a": 1}\n{"a": \n', ":2: not JSON"),
        (b"[" * 100_000, ":1: not JSON"),
        (b"\n \n", ": nothing in it"),
        (b'{"a": 1}\n\xff\n', ":2: not UTF-8 text"),
        (None, ": cannot read it: No such file"),
    ],
)
def test_errors(tmp_path, content, message):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_jsonl(path, "a line of a test"))
    assert str(error.value).startswith(f"{path}{message}")

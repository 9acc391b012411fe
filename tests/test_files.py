import errno
import os

import pytest

from nanoeuler.errors import UserError
from nanoeuler.files import locked, replace_file, writing, written_whole


def test_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    with written_whole(path) as file:
        file.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(KeyboardInterrupt), written_whole(path) as file:  # noqa: PT012
        file.write(b"tw")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"one"
    assert list(tmp_path.glob("*file*")) == [path]


def test_replace_file_leaves_the_old_content_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "permissions")])
def test_writing_names_the_file_and_what_to_do(tmp_path, number, advice):
    with pytest.raises(UserError, match=advice) as caught, writing(tmp_path / "file"):
        raise OSError(number, os.strerror(number))
    assert "file: cannot write" in str(caught.value)


def test_a_lock_keeps_others_out_until_its_holder_has_ended(tmp_path):
    pytest.importorskip("fcntl", reason="this system has no such locks")
    path = tmp_path / "lock"
    with locked(path, "taken"):
        with pytest.raises(UserError, match=r"^taken$"), locked(path, "taken"):
            pass
        with pytest.raises(UserError, match=r"^taken$"), locked(path, "taken"):  # the attempt has not let it go
            pass
    with locked(path, "taken"):
        assert path.exists()


def test_a_lock_that_cannot_be_made(tmp_path):
    with pytest.raises(UserError, match="lock: cannot write"), locked(tmp_path / "nowhere" / "lock", "taken"):
        pass

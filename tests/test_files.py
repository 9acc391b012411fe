import errno
import os

import pytest

from nanoeuler.errors import UserError
from nanoeuler.files import folder_written_whole, locked, replace_file, writing, written_whole


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


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "folder"
    for content in (b"one", b"two"):  # the second replaces the first
        with folder_written_whole(path) as folder:
            (folder / "file").write_bytes(content)
            assert not path.exists() or (path / "file").read_bytes() == b"one"
        assert (path / "file").read_bytes() == content
    with pytest.raises(KeyboardInterrupt), folder_written_whole(path) as folder:  # noqa: PT012
        (folder / "other").write_bytes(b"three")
        raise KeyboardInterrupt
    assert [(file.name, file.read_bytes()) for file in path.iterdir()] == [("file", b"two")]
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "file").write_bytes(b"old")
    rename, renamed = type(path).rename, []

    def fail_once(self, target):
        renamed.append(target)
        if len(renamed) == 2:  # the old one has stepped aside
            raise OSError(errno.EIO, "the disk is gone")
        return rename(self, target)

    monkeypatch.setattr(type(path), "rename", fail_once)
    with pytest.raises(UserError, match="folder: cannot write it: the disk is gone"), folder_written_whole(path):
        pass
    assert (path / "file").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


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

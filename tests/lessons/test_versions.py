"""The versions that lessons are tested with: exact, installed here, and what is said where they are not."""

from importlib import metadata
from pathlib import Path

import pytest

from nanoeuler.lessons import versions
from nanoeuler.lessons.versions import advice, differing, pins

ROOT = Path(__file__).parents[2]


def test_every_package_of_the_extra_is_pinned() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra, first in (("lessons-kernel", "nanoeuler[gpu]"), ("lessons", "nanoeuler[lessons-kernel]")):
        block = text.split(f"\n{extra} = [", 1)[1].split("\n]", 1)[0]
        wanted = [line.strip().split('"')[1] for line in block.splitlines() if '"' in line]
        assert wanted[0] == first
        assert all("==" in each for each in wanted[1:])
        if extra == "lessons-kernel":
            assert {each.split("==")[0] for each in wanted[1:]} == set(pins())


def test_what_is_installed_here_is_what_is_pinned() -> None:
    assert differing() == {}
    assert advice({}) == ""


def test_other_versions_are_named_with_what_mends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "tiktoken":
            raise metadata.PackageNotFoundError(name)
        return "0.1"

    wanted = pins()
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(versions, "pins", lambda: wanted)
    found = differing()
    assert found["tiktoken"] == (None, wanted["tiktoken"])
    assert found["numpy"] == ("0.1", wanted["numpy"])
    words = advice(found)
    assert f"numpy 0.1, tested with {wanted['numpy']}" in words
    assert "tiktoken is not installed" in words
    assert "python -m pip install -e '.[lessons]', then restart the kernel" in words
    many = advice({f"p{n}": ("1", "2") for n in range(12)})
    assert "and 4 more" in many


def test_a_package_that_was_replaced_while_in_use_asks_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy.__version__", "1.0")
    assert advice({}) == "numpy was replaced while it was in use: restart the kernel (the session)"

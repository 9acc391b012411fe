"""The page on simt: each of its examples is run, and prints what the page says."""

import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simt.kernels.toolkit import need_toolkit

PAGE = Path(__file__).parents[2] / "nanoeuler" / "simt" / "README.md"


def block(language: str, containing: str) -> str:
    """Return the one fenced block of a language that has these words in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [b for b in blocks if containing in b]
    return str(found)


def test_examples_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_toolkit()
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert tried > 20
    assert failed == 0
    assert (tmp_path / "banks.svg").read_bytes() == (PAGE.parent / "banks.svg").read_bytes()


def test_check_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "total.py").write_text(block("python", "total[1, 64]"))
    command = block("bash", "nanoeuler.simt check").split()
    done = subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.sub(r"\d+\.\d s", "0.0 s", done.stdout) == block("text", "race in kernel total")


def test_the_commands_that_trace_run(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "scripts" / "vector_add.py", tmp_path / "kernels.py")
    lines = block("bash", "nanoeuler.trace").splitlines()
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line)[1:] + (["accumulate"] if "--gallery" in line else [])
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), line
    pages = {"trace-rmsnorm_forward.html", "trace-kernels.html", "pages/index.html", "pages/accumulate-add.html"}
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.html")} == pages

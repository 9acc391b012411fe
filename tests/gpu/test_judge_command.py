"""``python -m nanoeuler.judge``: every kernel of a run is judged, and one that is not clean is told."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simt.kernels.toolkit import need_toolkit

import nanoeuler.gpu
from nanoeuler import judge
from nanoeuler.errors import run_command
from nanoeuler.gpu.backend import cuda
from nanoeuler.gpu.launch import Launch


@cuda.jit
def imprecise(out: Any) -> None:
    """Compute in float64 by accident."""
    out[cuda.threadIdx.x] = out[cuda.threadIdx.x] * 0.1 + 0.2


def test_every_kernel_of_the_package_is_judged() -> None:
    """Each kernel that a file defines is among those that are rehearsed, but for variants of copies."""
    judged = {
        launch.kernel.py_func.__name__ + " " + judge.file_of(launch).as_posix()
        for launch in judge.launches_of(judge.default_configs()) + judge.other_launches()
    }
    folder, missing = Path(nanoeuler.gpu.__file__).parent, []
    for path in folder.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for line, after in itertools.pairwise(lines):
            if line == "@cuda.jit" or (line.startswith("@cuda.jit(") and "device=True" not in line):
                kernel = after.removeprefix("def ").partition("(")[0]
                if f"{kernel} {path.relative_to(folder).as_posix()}" not in judged:
                    missing.append(f"{path.name}: {kernel}")
    assert missing == []


def test_the_kernels_of_one_op(capsys: pytest.CaptureFixture[str]) -> None:
    need_toolkit()
    assert run_command(judge.main, ["--op", "accumulate"]) == 0
    out = capsys.readouterr().out
    assert "kernels clean on 7 architectures" in out
    assert "sm_120" in out


def test_a_kernel_that_is_not_clean_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_toolkit()
    launch = Launch(imprecise, 1, 32, (np.zeros(32, np.float32),), 0)
    monkeypatch.setattr(judge, "launches_of", lambda configs: [launch])
    monkeypatch.setattr(judge, "other_launches", list)
    monkeypatch.setattr(judge, "file_of", lambda launch: Path("here.py"))
    assert run_command(judge.main, []) == 1
    out = capsys.readouterr().out
    assert "NOT CLEAN: 1 of 1 kernels" in out
    assert "float64" in out


def test_an_op_that_is_none_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(judge.main, ["--op", "rmsnrom"]) == 2
    assert "did you mean 'rmsnorm'" in capsys.readouterr().err

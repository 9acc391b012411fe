"""The op table for a real GPU, launch by launch on device arrays, where nanoeuler.simt's stand-in plays the GPU.

It runs in a process of its own: the stand-in must be in the place of numba.cuda before the kernels are imported. What
is proven is everything around the kernels: uploads and downloads, the arena, scratch memory, recorded steps.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "on_stand_in.py"


def run(dtype: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT), dtype], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bf16", 3e-2)])
def test_training_on_device_arrays_equals_numpy(dtype: str, tolerance: float) -> None:
    told = run(dtype)
    assert told["on_gpu"]
    assert told["passes"] == "Repeated"
    assert told["without_graph"]  # the stand-in captures nothing
    numpy, device = told["results"]
    for expected, got in zip(numpy[:-1], device[:-1], strict=True):
        assert got == pytest.approx(expected, rel=tolerance)
    assert device[-1][0] == pytest.approx(numpy[-1][0], rel=tolerance)
    if dtype == "float32":
        assert device[-1][1] == numpy[-1][1]  # the same greedy text
    assert told["allocations"] == 0  # all of it came from the arena
    assert told["used"] <= told["reserved"] == pytest.approx(told["used"], rel=0.1)

"""From ``--device`` to an op table."""

import subprocess
import sys

import pytest

import nanoeuler.cpu
import nanoeuler.device
from nanoeuler.device import DEVICES, HELP, op_table
from nanoeuler.errors import UserError
from nanoeuler.precision import CPU_DTYPES, GPU_DTYPES


def test_cpu_is_the_numpy_op_table() -> None:
    assert op_table("cpu") is nanoeuler.cpu
    for dtype in CPU_DTYPES:
        assert op_table("cpu", dtype) is nanoeuler.cpu


@pytest.mark.parametrize(
    ("device", "dtype", "known", "others"),
    [
        ("cpu", "bf16", "float32, float64", "--device gpu or sim"),
        ("cpu", "tf32", "float32, float64", "--device gpu or sim"),
        ("sim", "float64", "float32, tf32, bf16", "--device cpu"),
        ("gpu", "float64", "float32, tf32, bf16", "--device cpu"),
    ],
)
def test_a_dtype_that_a_device_does_not_know(
    device: str, dtype: str, known: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told before anything is looked for: no GPU and no Numba is needed to hear of it."""
    monkeypatch.setattr(nanoeuler.device, "why_no_gpu", lambda: pytest.fail("a GPU was looked for"))
    monkeypatch.setattr(nanoeuler.device, "_kernels", lambda *arguments: pytest.fail("kernels were looked for"))
    with pytest.raises(UserError) as caught:
        op_table(device, dtype)
    said = f"--device {device} computes in {known}, and training.dtype is {dtype}: that takes {others}"
    assert str(caught.value) == said


def test_every_device_is_told_in_the_help() -> None:
    assert all(device in HELP for device in DEVICES)
    assert HELP.endswith("[cpu]")


def test_without_a_gpu_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoeuler.device, "why_no_gpu", lambda: "there is no GPU here: buy one")
    monkeypatch.setattr(nanoeuler.device, "_kernels", lambda **arguments: pytest.fail("kernels were looked for"))
    with pytest.raises(UserError, match="there is no GPU here: buy one"):
        op_table("gpu")


@pytest.mark.parametrize(("device", "on_host"), [("gpu", False), ("sim", True)])
@pytest.mark.parametrize("dtype", GPU_DTYPES)
def test_kernels_are_told_where_arrays_lie_and_how_products_round(
    device: str, on_host: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nanoeuler.device, "why_no_gpu", lambda: None)
    monkeypatch.setattr(nanoeuler.device, "_kernels", lambda **given: given)
    assert op_table(device, dtype) == {"on_host": on_host, "tf32": dtype == "tf32"}


def test_sim_needs_numba_and_says_how_to_get_it() -> None:
    """In a process of its own: here Numba may have been imported long ago."""
    program = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from nanoeuler.device import op_table
from nanoeuler.errors import UserError
assert op_table("cpu")
try:
    op_table("sim")
except UserError as error:
    print(error)
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout.startswith("running kernels takes Numba: ")
    assert "pip install" in child.stdout


@pytest.mark.parametrize(
    ("word", "hint"),
    [("cpuu", " (did you mean 'cpu'?)"), ("CPU ", ""), ("", ""), ("tpx", ""), ("simm", " (did you mean 'sim'?)")],
)
def test_a_misspelt_device_names_what_there_is(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        op_table(word)
    message = str(caught.value)
    assert message.startswith(f"unknown device '{word}'{hint}")
    assert message.endswith("; --device takes cpu, gpu, sim")
    assert DEVICES == ("cpu", "gpu", "sim")
    with pytest.raises(UserError, match="unknown device"):
        op_table(word, "float64")

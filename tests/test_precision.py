"""What ``training.dtype`` means for the arrays of a run."""

import dataclasses
import re
import typing

import numpy as np
import pytest

import nanoeuler.precision
from nanoeuler.config import TrainingConfig
from nanoeuler.precision import CPU_DTYPES, GPU_DTYPES, statistics, storage

DTYPES = typing.get_args(TrainingConfig.model_fields["dtype"].annotation)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def told() -> dict[str, tuple[str, str]]:
    """Return what the table in the docstring says of each dtype: of weights, and of activations."""
    rows = re.findall(r"^\| (\w+) +\| (\w+) +\| (.+?) +\|", nanoeuler.precision.__doc__ or "", re.MULTILINE)
    return {dtype: (master, activations) for dtype, master, activations in rows if dtype != "dtype"}


def test_every_dtype_of_the_configuration_is_known_by_a_device_and_no_other() -> None:
    assert set(CPU_DTYPES) | set(GPU_DTYPES) == set(DTYPES)
    assert set(CPU_DTYPES) & set(GPU_DTYPES) == {"float32"}
    assert TrainingConfig().dtype == "float32"  # which every device knows


@every_dtype
def test_storage_is_what_the_table_says(dtype: str) -> None:
    master, activations = told()[dtype]
    stored = storage(dtype)
    assert stored.master == np.dtype(master)
    assert stored.activations == np.dtype("uint16" if activations == "bfloat16, in uint16 arrays" else activations)
    assert set(told()) == set(DTYPES)


def test_storage_by_hand() -> None:
    sizes = {dtype: (storage(dtype).master.itemsize, storage(dtype).activations.itemsize) for dtype in DTYPES}
    assert sizes == {"float32": (4, 4), "float64": (8, 8), "tf32": (4, 4), "bf16": (4, 2)}
    assert storage("bf16").activations == np.uint16
    with pytest.raises(dataclasses.FrozenInstanceError):
        storage("bf16").master = np.dtype(np.float64)


@every_dtype
def test_statistics_are_as_precise_as_the_master_weights(dtype: str) -> None:
    stored = storage(dtype)
    assert statistics(stored.activations) == stored.master
    assert isinstance(statistics(stored.activations), np.dtype)

"""What ``training.dtype`` means: how weights, activations and statistics are stored and products computed.

| dtype   | weights, moments, their gradients | activations, weights in products | products                |
|---------|-----------------------------------|----------------------------------|-------------------------|
| float32 | float32                           | float32                          | float32                 |
| float64 | float64                           | float64                          | float64                 |
| tf32    | float32                           | float32                          | TensorFloat32 (cuBLAS)  |
| bf16    | float32                           | bfloat16, in uint16 arrays       | of bfloat16, in float32 |

Statistics (means, reciprocal deviations, log-sum-exps) and losses are as precise as the master weights.
"""

from dataclasses import dataclass

import numpy as np

#: The dtypes that each device knows.
CPU_DTYPES = ("float32", "float64")
GPU_DTYPES = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Storage:
    """The array types of one precision."""

    master: np.dtype
    activations: np.dtype


def storage(dtype: str) -> Storage:
    """Return how numbers of ``training.dtype`` are stored; bfloat16 as uint16."""
    master = np.dtype("float64" if dtype == "float64" else "float32")
    return Storage(master, np.dtype(np.uint16) if dtype == "bf16" else master)


def statistics(activations: np.dtype) -> np.dtype:
    """Return the type of statistics and losses beside activations of this type."""
    return np.dtype(np.float32) if activations == np.uint16 else activations

"""What this machine can do: the rates that an op's own is a share of, measured in turns with the op.

    copy        bytes per second, read and written, of an array far larger than the caches
    product     floating-point operations per second of a large matrix product

On a CPU the threads of the team copy a part each, and multiply matrices of their own with single-threaded BLAS. On a
GPU the driver copies, from the device to the device: a copy by a kernel of ours would be judged by ours. The product is
cuBLAS's where it can be loaded, else our op.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nanoeuler.bench import measure
from nanoeuler.bench.ops_arguments import normal
from nanoeuler.cpu.parallel import parallel, scratch
from nanoeuler.precision import storage

#: Bytes that are copied.
COPY_BYTES = 256 << 20
#: Side of the matrices that are multiplied on a GPU; measure.SGEMM_SIZE is that on a CPU.
PRODUCT_SIZE = 8192

COPY, PRODUCT = "copy", "product"


@dataclass(frozen=True)
class Roof:
    """Something that a machine does as fast as it can."""

    about: str
    work: int  # bytes, or floating-point operations
    run: Callable[[], Any]


def on_cpu(workers: int) -> dict[str, Roof]:
    """Return the roofs of a CPU, for a team of so many."""
    x = np.ones((workers, COPY_BYTES // 4 // workers), np.float32)  # zeros would all be one page of memory
    out = np.zeros_like(x)
    n = measure.SGEMM_SIZE
    a, b = np.random.default_rng(0).standard_normal((2, n, n), np.float32)

    def copy() -> None:
        parallel(lambda i: np.copyto(out[i], x[i]), range(workers))

    def multiply(_: int) -> None:
        np.matmul(a, b, out=scratch("sgemm", (n, n), np.float32))

    def product() -> None:
        parallel(multiply, range(workers))

    return {
        COPY: Roof("np.copyto in every thread", 2 * x.nbytes, copy),
        PRODUCT: Roof("np.matmul in every thread, with single-threaded BLAS", workers * 2 * n**3, product),
    }


def on_gpu(ops: Any, dtype: str, library: bool) -> dict[str, Roof]:
    """Return the roofs of a GPU, with ``training.dtype``; ``library`` says whether cuBLAS does the products."""
    count, n, element = COPY_BYTES // 4, PRODUCT_SIZE, storage(dtype).activations
    x, out = ops.empty(count, np.float32), ops.empty(count, np.float32)
    a, b, c = (ops.empty(n * n, element).reshape(n, n) for _ in range(3))
    for array, name in ((x, "x"), (a, "a"), (b, "b")):  # zeros would need less power, and let the GPU clock higher
        ops.from_numpy(array, normal(name, array.shape, np.dtype(array.dtype)))
    return {
        COPY: Roof("the driver's copy, device to device", 2 * 4 * count, partial(out.copy_to_device, x)),
        PRODUCT: Roof("cuBLAS" if library else "our kernel", 2 * n**3, lambda: ops.linear_forward(c, a, b, None)),
    }

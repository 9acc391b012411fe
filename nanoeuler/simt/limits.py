"""How much shared memory a block may have, on the GPUs that the executors stand for (compute capability 9.0).

Source: CUDA C++ Programming Guide, "technical specifications per compute capability".
"""

from nanoeuler.errors import UserError

STATIC_SHARED_BYTES = 48 * 1024  # of arrays whose size is in the source
SHARED_BYTES = 227 * 1024  # static and dynamic together


def check_shared_memory(kernel: str, static_bytes: int, dynamic_bytes: int) -> None:
    """Refuse a launch for whose blocks no GPU of compute capability 9.0 has the shared memory.

    Above 48 KB in all, a GPU starts the kernel only after cudaFuncSetAttribute has raised its
    MaxDynamicSharedMemorySize, which numba-cuda does not do by itself; such a launch is not refused here.

    Raises:
        UserError: more than 48 KB in static arrays, or 227 KB in all; the message says which and what to do.
    """
    if static_bytes > STATIC_SHARED_BYTES:
        what = f"{static_bytes} bytes of static shared arrays, and a block may have {STATIC_SHARED_BYTES}"
        raise UserError(f"kernel {kernel} has {what}: use dynamic shared memory, cuda.shared.array(0, ...)")
    if static_bytes + dynamic_bytes > SHARED_BYTES:
        what = f"{static_bytes + dynamic_bytes} bytes of shared memory, and a block may have {SHARED_BYTES}"
        raise UserError(f"kernel {kernel} needs {what}: give a block less to do, or split its work")

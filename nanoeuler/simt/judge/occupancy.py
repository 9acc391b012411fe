"""How many blocks of a kernel a multiprocessor holds at once, from what the kernel uses and what the hardware has.

The limits are those of the CUDA C++ Programming Guide's table "technical specifications per compute capability"; the
arithmetic, with its granularities, is that of NVIDIA's occupancy calculator (``cuda_occupancy.h`` in the toolkit).
"""

from dataclasses import dataclass

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.launch import WARP_SIZE, Dimensions, launch_shape

KB = 1024


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor has, in threads, blocks and bytes."""

    threads: int
    blocks: int
    shared_bytes: int  # the largest part of the L1 cache that can be made shared memory
    shared_granularity: int  # bytes
    reserved_bytes: int  # of shared memory, taken for each block by the system

    @property
    def block_shared_bytes(self) -> int:
        """The most shared memory that one block may use; above 48 KB only dynamic, and by an opt-in attribute."""
        return self.shared_bytes - self.reserved_bytes


LIMITS = {
    "sm_75": Limits(1024, 16, 64 * KB, 256, 0),
    "sm_80": Limits(2048, 32, 164 * KB, 128, KB),
    "sm_86": Limits(1536, 16, 100 * KB, 128, KB),
    "sm_89": Limits(1536, 24, 100 * KB, 128, KB),
    "sm_90": Limits(2048, 32, 228 * KB, 128, KB),
    "sm_100": Limits(2048, 32, 228 * KB, 128, KB),
    "sm_120": Limits(1536, 24, 100 * KB, 128, KB),
}

# The same on all of these architectures.
REGISTERS = 65536  # of a multiprocessor, 32 bits each; also the most that one block may have
REGISTER_GRANULARITY = 256  # registers, given to a warp
PARTITIONS = 4  # of a multiprocessor, each with a quarter of the registers


@dataclass(frozen=True)
class Occupancy:
    """What of a kernel is resident on one multiprocessor at once."""

    block_threads: int
    blocks: int  # 0: such a block cannot be started at all
    warps: int
    fraction: float  # of the warps that the multiprocessor could hold
    limited_by: str  # "threads", "blocks", "registers" or "shared memory"


def occupancy(architecture: str, block: Dimensions, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Return what one multiprocessor of ``architecture`` (such as "sm_80") holds of a kernel.

    ``registers`` is per thread; ``shared_bytes`` is per block, static and dynamic together. The L1 cache is
    taken to be split for the most shared memory, as the driver does where that lets more blocks in. Named barriers
    (inline PTX) and clusters, which can limit a kernel as well, are not counted.

    >>> occupancy("sm_80", 256, registers=64).blocks
    4

    Raises:
        UserError: an architecture that is not in ``LIMITS``, or a block that no GPU would start.
    """
    if architecture not in LIMITS:
        hint = nearest(architecture, LIMITS) or f": use {', '.join(LIMITS)}"
        raise UserError(f"no limits are known for architecture '{architecture}'{hint}")
    limits = LIMITS[architecture]
    threads = launch_shape(1, block).block_threads
    warps = -(-threads // WARP_SIZE)
    blocks_by = {  # of equal limits the first is named
        "threads": limits.threads // WARP_SIZE // warps,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(warps, registers),
        "shared memory": _blocks_by_shared_memory(limits, shared_bytes),
    }
    limited_by = min(blocks_by, key=lambda name: blocks_by[name])
    blocks = blocks_by[limited_by]
    return Occupancy(threads, blocks, blocks * warps, blocks * warps * WARP_SIZE / limits.threads, limited_by)


def _blocks_by_registers(warps: int, registers: int) -> int:
    """Registers are given to whole warps, and each warp lives in one partition of the multiprocessor."""
    of_warp = _round_up(max(registers, 1) * WARP_SIZE, REGISTER_GRANULARITY)
    if of_warp * _round_up(warps, PARTITIONS) > REGISTERS:  # a launch is checked as if all partitions were used alike
        return 0
    return REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps


def _blocks_by_shared_memory(limits: Limits, shared_bytes: int) -> int:
    """Static, dynamic and the system's own bytes of a block, rounded up."""
    if shared_bytes > limits.block_shared_bytes:
        return 0
    of_block = _round_up(shared_bytes + limits.reserved_bytes, limits.shared_granularity)
    return limits.shared_bytes // of_block if of_block else limits.blocks


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple

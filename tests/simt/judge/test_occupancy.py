import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt.judge.occupancy import LIMITS, occupancy

# Architecture, block, registers, shared bytes, then blocks and limit as NVIDIA's cuda_occupancy.h (CUDA 13) has them,
# compiled and run with the largest shared memory that the L1 cache can be split for.
NVIDIA = [
    ("sm_75", 256, 32, 0, 4, "threads"),
    ("sm_75", 32, 16, 0, 16, "blocks"),
    ("sm_75", 256, 65, 0, 3, "registers"),
    ("sm_75", 64, 32, 33 * 1024, 1, "shared memory"),
    ("sm_75", 64, 32, 65 * 1024, 0, "shared memory"),
    ("sm_80", 256, 32, 0, 8, "threads"),
    ("sm_80", 256, 33, 0, 6, "registers"),
    ("sm_80", 256, 255, 0, 1, "registers"),
    ("sm_80", 288, 224, 0, 0, "registers"),  # 9 warps are checked as if they were 12
    ("sm_80", 1024, 64, 0, 1, "registers"),
    ("sm_80", 1024, 65, 0, 0, "registers"),
    ("sm_80", 128, 32, 48 * 1024, 3, "shared memory"),  # 1 KB of each block is the system's
    ("sm_80", 128, 32, 40 * 1024, 4, "shared memory"),
    ("sm_80", 128, 32, 163 * 1024, 1, "shared memory"),
    ("sm_80", 128, 32, 163 * 1024 + 1, 0, "shared memory"),
    ("sm_86", 1024, 32, 0, 1, "threads"),
    ("sm_86", 64, 32, 0, 16, "blocks"),
    ("sm_86", 256, 40, 0, 6, "threads"),
    ("sm_89", 64, 32, 0, 24, "threads"),
    ("sm_89", 32, 32, 0, 24, "blocks"),
    ("sm_89", 96, 41, 8192, 11, "shared memory"),
    ("sm_90", 384, 168, 0, 1, "registers"),
    ("sm_90", 128, 168, 0, 3, "registers"),
    ("sm_90", 1, 255, 0, 8, "registers"),
    ("sm_90", 128, 64, 227 * 1024, 1, "shared memory"),
    ("sm_100", 512, 64, 100 * 1024, 2, "registers"),
    ("sm_100", 33, 32, 7000, 28, "shared memory"),
    ("sm_120", 768, 40, 0, 2, "threads"),
    ("sm_120", 768, 43, 0, 1, "registers"),
    ("sm_120", 32, 24, 4096, 20, "shared memory"),
]


@pytest.mark.parametrize(("architecture", "block", "registers", "shared_bytes", "blocks", "limited_by"), NVIDIA)
def test_agrees_with_nvidias_calculator(
    architecture: str, block: int, registers: int, shared_bytes: int, blocks: int, limited_by: str
) -> None:
    found = occupancy(architecture, block, registers, shared_bytes)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    warps = blocks * -(-block // 32)
    assert (found.warps, found.fraction) == (warps, warps * 32 / LIMITS[architecture].threads)


def test_a_block_in_three_dimensions_counts_its_threads() -> None:
    assert occupancy("sm_80", (16, 8, 2), 64) == occupancy("sm_80", 256, 64)


def test_a_last_warp_that_is_not_full_takes_a_whole_one() -> None:
    assert occupancy("sm_80", 33, 128).warps == occupancy("sm_80", 64, 128).warps == 16


def test_an_unknown_architecture_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'sm_91'.*did you mean 'sm_90'"):
        occupancy("sm_91", 256, 32)
    with pytest.raises(UserError, match="use sm_75, sm_80"):
        occupancy("hopper", 256, 32)


def test_a_block_that_no_gpu_starts_is_refused() -> None:
    with pytest.raises(UserError, match="1025"):
        occupancy("sm_80", 1025, 32)

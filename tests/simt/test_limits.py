import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt.judge.occupancy import LIMITS
from nanoeuler.simt.limits import SHARED_BYTES, check_shared_memory


def test_limits_of_shared_memory() -> None:
    check_shared_memory("k", 0, 0)
    check_shared_memory("k", 48 * 1024, 179 * 1024)
    with pytest.raises(UserError, match=r"kernel k has 49153 bytes of static .* 49152: use dynamic shared memory"):
        check_shared_memory("k", 48 * 1024 + 1, 0)
    with pytest.raises(UserError, match="kernel k needs 232449 bytes of shared memory, and a block may have 232448"):
        check_shared_memory("k", 1, 227 * 1024)


def test_the_judge_knows_the_same_limit() -> None:
    assert LIMITS["sm_90"].block_shared_bytes == SHARED_BYTES

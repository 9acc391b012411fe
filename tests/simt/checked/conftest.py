"""What the tests of a checked kernel's numbers share."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nanoeuler.simt.checked import scalars


@pytest.fixture
def quiet() -> Iterator[None]:
    """A kernel's arithmetic warns of nothing."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def creeping() -> Iterator[list[str]]:
    """What has become float64 without cause."""
    found: list[str] = []
    with scalars.listening(found.append):
        yield found


@pytest.fixture
def same() -> Callable[[Any, Any], bool]:
    """Return whether two scalars have one type and the same bits, or are NaN both."""
    return lambda a, b: type(a) is type(b) and ((a != a and b != b) or a.tobytes() == b.tobytes())

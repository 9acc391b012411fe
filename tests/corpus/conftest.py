"""Tests of corpora have nothing at hand that they did not ask for, such as a stand-in of the hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.hub_server import Hub


@pytest.fixture(autouse=True)
def _empty(empty_world: Path) -> None:
    """Have nothing at hand in any test."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Give a stand-in of the hub, with no data set yet: see :mod:`hub_server`."""
    server = Hub(tmp_path / "hub", tmp_path / "hub_home")
    yield server
    server.close()

import itertools
import threading
from collections.abc import Iterator

import pytest

from nanoeuler.corpus.prefetch import Prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []


class Counted:
    """Counts up, without end; says how far it is, and can wait there."""

    def __init__(self) -> None:
        self.given = 0
        self.reached = threading.Event()
        self.wait_at: int | None = None
        self.go_on = threading.Event()

    def __iter__(self) -> "Counted":
        return self

    def __next__(self) -> int:
        if self.given == self.wait_at:
            self.reached.set()
            assert self.go_on.wait(30)
        self.given += 1
        return self.given - 1


def test_items_come_in_order_and_to_their_end():
    with Prefetch(iter(range(100))) as items:
        assert list(items) == list(range(100))
        assert list(items) == []  # and asking again does not wait for ever


def test_so_many_are_ready_and_no_more():
    source = Counted()
    source.wait_at = 3
    with Prefetch(source, ready=3) as items:
        assert not source.reached.wait(0.05)  # three are ready, and there is no room for a fourth
        assert source.given == 3
        assert next(items) == 0
        assert source.reached.wait(30)
        source.go_on.set()
        assert [next(items) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_the_next_one_is_made_while_this_one_is_used():
    source = Counted()
    source.wait_at = 1
    with Prefetch(source) as items:
        assert next(items) == 0
        assert source.reached.wait(30)  # at work on the next, and nobody has asked for it
        source.go_on.set()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_an_error_comes_in_the_place_of_its_item(error):
    def failing() -> Iterator[int]:
        yield from range(3)
        raise error

    with Prefetch(failing()) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                next(items)
            assert caught.value is error


@pytest.mark.parametrize("used", [0, 1, 10])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_however_the_block_is_left_the_thread_ends(used, error):
    def use() -> None:
        with Prefetch(itertools.count()) as items:
            for _ in range(used):
                next(items)
            raise error

    with pytest.raises(error):
        use()


def test_it_ends_also_while_an_item_is_being_made():
    source = Counted()
    source.wait_at = 0
    with Prefetch(source):
        assert source.reached.wait(30)
        assert threads() == ["prefetch"]
        threading.Timer(0.05, source.go_on.set).start()
    assert source.given == 1


def test_waiting_is_measured():
    source = Counted()
    source.wait_at = 1
    with Prefetch(source) as items:
        next(items)
        before = items.waited
        threading.Timer(0.2, source.go_on.set).start()
        next(items)
        assert items.waited - before > 0.05

"""How ops share out their work: every item once, errors handed over, threads and BLAS limits given back."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from nanoeuler.cpu.parallel import (
    BLOCK_ELEMENTS,
    TILES,
    Team,
    available_cores,
    blocks,
    is_parallel,
    ones,
    parallel,
    repeated,
    scratch,
    tiles,
    workers,
)

SIZES = [0, 1, 2, 7, 63, 64, 65, 1000, 70_001]


def covers(parts: list[slice], n: int) -> bool:
    """Return whether slices follow each other from 0 to n, none of them empty."""
    edges = [0, *(part.stop for part in parts)]
    return [part.start for part in parts] == edges[:-1] and edges[-1] == n and all(p.stop > p.start for p in parts)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("columns", [0, 1, 7, 5000, 10**7])
def test_blocks_cover_all_rows(n: int, columns: int) -> None:
    parts = blocks(n, columns)
    assert covers(parts, n)
    for part in parts:
        assert part.stop - part.start == 1 or (part.stop - part.start) * columns <= BLOCK_ELEMENTS


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("team", [1, 2])
def test_tiles_cover_all_rows(n: int, team: int) -> None:
    with Team(team):
        parts = tiles(n)
    assert covers(parts, n)
    if team == 1:
        assert len(parts) <= 1
    elif n >= 1000:
        assert 2 <= len(parts) <= TILES


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 100])
def test_every_item_is_done_once(n: int, size: int) -> None:
    done = np.zeros(n, int)

    def item(i: int) -> None:
        done[i] += 1

    with Team(size):
        for _ in range(5):
            parallel(item, range(n))
    assert (done == 5).all()


def test_without_a_team_items_run_here_in_order() -> None:
    seen: list[tuple[int, threading.Thread]] = []
    assert not is_parallel()
    parallel(lambda i: seen.append((i, threading.current_thread())), range(5))
    assert seen == [(i, threading.main_thread()) for i in range(5)]


def test_two_items_run_side_by_side() -> None:
    meeting, threads = threading.Barrier(2, timeout=30), set()

    def item(i: int) -> None:
        meeting.wait()  # breaks, and raises, unless both are here at once
        threads.add(threading.current_thread())

    with Team(2):
        parallel(item, range(2))
    assert len(threads) == 2
    assert threading.main_thread() in threads


def test_a_region_inside_another_runs_serially() -> None:
    inner: list[bool] = []

    def item(i: int) -> None:
        here = threading.current_thread()
        assert not is_parallel()
        parallel(lambda j: inner.append(threading.current_thread() is here), range(3))

    with Team(2):
        assert is_parallel()
        parallel(item, range(4))
        assert is_parallel()
    assert inner == [True] * 12


def test_an_error_is_raised_by_the_caller_and_the_team_goes_on() -> None:
    done: list[int] = []

    def item(i: int) -> None:
        if i == 3:
            raise ValueError("three")
        done.append(i)

    with Team(2):
        with pytest.raises(ValueError, match="three"):
            parallel(item, range(6))
        assert sorted(done) == [0, 1, 2, 4, 5]
        parallel(done.append, range(10, 20))
    assert sorted(done)[5:] == list(range(10, 20))


def test_threads_end_with_the_team() -> None:
    before = threading.active_count()
    with Team(3):
        assert threading.active_count() == before + 2
    assert threading.active_count() == before
    assert not is_parallel()
    with pytest.raises(RuntimeError, match="stop here"), Team(3):
        raise RuntimeError("stop here")
    assert threading.active_count() == before
    assert not is_parallel()
    with Team(1):
        assert threading.active_count() == before
        assert not is_parallel()


def test_one_team_at_a_time() -> None:
    with Team(2):
        with pytest.raises(RuntimeError, match="one team at a time"), Team(2):
            pass
        assert is_parallel()
    with Team(2):
        assert is_parallel()


def test_blas_has_one_thread_in_a_team_and_its_own_number_after() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"]

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads()
        with Team(2):
            assert set(threads()) <= {1}
        assert threads() == before


def test_scratch_is_kept_and_grows() -> None:
    small = scratch("test", (3, 4), np.float32)
    assert small.shape == (3, 4)
    assert small.dtype == np.float32
    assert np.shares_memory(scratch("test", (2, 2), np.float32), small)
    assert not np.shares_memory(scratch("test", (3, 4), np.float64), small)
    assert not np.shares_memory(scratch("other", (3, 4), np.float32), small)
    large = scratch("test", (30, 40), np.float32)
    assert large.shape == (30, 40)
    assert not np.shares_memory(large, small)
    assert np.shares_memory(scratch("test", (3, 4), np.float32), large)
    assert scratch("empty", (0, 4), np.float32).shape == (0, 4)


def test_every_thread_has_scratch_of_its_own() -> None:
    meeting, arrays = threading.Barrier(2, timeout=30), []

    def item(i: int) -> None:
        meeting.wait()
        arrays.append(scratch("test", (5,), np.float64))

    with Team(2):
        parallel(item, range(2))
    assert not np.shares_memory(*arrays)


def test_ones() -> None:
    for n in (3, 10, 2):
        assert ones(n, np.float32).tolist() == [1] * n
        assert ones(n, np.float32).dtype == np.float32


def test_workers_are_as_many_as_asked_for_or_one_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [workers(asked) for asked in (1, 2, 64)] == [1, 2, 64]
    assert workers(0) == available_cores() >= 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert workers(0) == available_cores() == 3  # those that this process may use, not those of the machine
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert workers(0) == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)  # it is not known
    assert workers(0) == 1


def test_repeated_does_what_the_function_does_each_time_anew() -> None:
    numbers = np.zeros(3)
    step = [1.0]

    def function() -> None:
        numbers[:] += step[0]

    again = repeated(function)
    assert numbers.tolist() == [0, 0, 0]  # nothing is done before the first call
    again()
    step[0] = 10.0
    again()
    assert numbers.tolist() == [11, 11, 11]

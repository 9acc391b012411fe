"""Lesson 2: how many blocks; a guarded map; a grid-stride loop; a bias added in two dimensions, and its gradient."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced


def blocks_for(function: Any) -> None:
    """Check ``blocks_for(n, block)``: the blocks of so many threads that n elements need."""
    for n, block in ((1000, 256), (1024, 256), (1, 32), (1025, 256), (255, 256), (97, 1)):
        got = call(function, n, block)
        whole = isinstance(got, (int, np.integer)) and not isinstance(got, bool)
        require(whole, f"blocks_for({n}, {block}) is {got!r}, and should be a whole number: use // and not /")
        threads = f"{got} blocks of {block} are {got * block} threads"
        require(got * block >= n, f"blocks_for({n}, {block}) is {got}: {threads}, too few for {n} elements")
        require((got - 1) * block < n, f"blocks_for({n}, {block}) is {got}: {threads}, and one block less would do")


def add(kernel: Any) -> None:
    """Check ``add(out, x, y)``: out = x + y, one thread an element."""
    for n, block in ((1, 32), (32, 32), (33, 32), (100, 64), (300, 128)):
        x, y = different(n), different(n, seed=1)
        run_kernel(
            kernel,
            -(-n // block),
            block,
            {"out": empty(n), "x": x, "y": y},
            expected={"out": x + y},
            label=f"{plural(n, 'element')} in blocks of {block}",
            hints={
                "out of bounds": "The last block sticks out. Which threads have an element?",
                "race between blocks": "Threads of two blocks have the same i: does it depend on the block?",
                "tail": "Every thread with an element must write it, those of the last block too.",
                "unwritten": "Some elements have no thread: how far do i's values go?",
                "wrong": "out[i] is the sum of the two elements with the same i.",
            },
        )


def axpy(kernel: Any) -> None:
    """Check ``axpy(out, a, x)``: out += a x, in any grid, by a grid-stride loop."""
    for n, grid, block in ((100, 1, 32), (64, 2, 32), (1, 3, 32), (257, 2, 64), (31, 4, 32)):
        x, out = different(n), different(n, seed=1)
        run_kernel(
            kernel,
            grid,
            block,
            {"out": out, "a": np.float32(0.75), "x": x},
            expected={"out": out + np.float32(0.75) * x},
            label=f"{plural(n, 'element')}, {plural(grid, 'block')} of {block}",
            hints={
                "out of bounds": "A range that ends at out.size needs no guard.",
                "race between blocks": "Two threads come to the same element: by how much does each thread step?",
                "race": "Two threads come to the same element: by how much does each thread step?",
                "tail": "There are more elements than threads: each thread has to take several.",
                "copied": "Nothing was added. Does the loop begin at this thread's number?",
                "wrong": "Begin at this thread's number, and step by the number of all threads in the grid.",
            },
        )


def backward(function: Any) -> None:
    """Check ``backward(dy)``: the gradients dx and dbias of y = x + bias."""
    for rows, columns in ((4, 3), (1, 5), (3, 1), (5, 5)):
        dy = different(rows, columns, dtype=np.float64)
        got = call(function, dy)
        pair = isinstance(got, tuple) and len(got) == 2
        require(pair, "backward returns two things, the gradients of x and of bias: return dx, dbias")
        where = f"for dy of {plural(rows, 'row')} and {plural(columns, 'column')}"
        same(got[0], dy, f"dx {where}", hints={"wrong": "y = x + bias: when x grows by 1, y grows by 1."})
        across = dy.sum(axis=1)
        if np.shape(got[1]) == across.shape and np.allclose(got[1], across) and rows > 1:
            require(False, f"dbias {where} sums along the rows: it should have a number for each column")
        hint = "Each bias[c] is added in every row, so it gets the sum of dy[r, c] over the rows r."
        same(got[1], dy.sum(axis=0), f"dbias {where}", hints={"wrong": hint, "shape": hint, "scaled": hint})


def bias_add(kernel: Any) -> None:
    """Check ``bias_add(out, x, bias)``: a bias added to each row, one thread an element, in two dimensions."""
    for rows, columns in ((1, 1), (3, 5), (4, 33), (9, 8), (5, 40)):
        x, bias = different(rows, columns), different(columns, seed=1)
        run_kernel(
            kernel,
            (-(-columns // 16), -(-rows // 4)),
            (16, 4),
            {"out": empty(rows, columns), "x": x, "bias": bias},
            expected={"out": x + bias},
            label=f"{plural(rows, 'row')} of {columns}, blocks of 16 by 4",
            hints={
                "out of bounds": "The grid sticks out at the right and at the bottom: guard the column and the row. "
                "x runs along the columns.",
                "unwritten": "Some elements have no thread. Which of the two numbers of cuda.grid(2) is the column?",
                "tail": "Some rows have no thread. Which of the two numbers of cuda.grid(2) is the row?",
                "wrong": "bias has one number for each column.",
            },
        )
    trace = traced(kernel, (2, 1), (32, 1), {"out": empty(1, 64), "x": different(1, 64), "bias": different(64, seed=1)})
    sectors = sum(line.traffic.sectors for line in trace.numbers.lines.values())
    require(sectors <= 24, f"right, but neighbouring threads are not neighbouring columns: {sectors} sectors for 24")


def bias_gradient(kernel: Any) -> None:
    """Check ``bias_gradient(dbias, dy)``: the sum of each column, one thread a column."""
    for rows, columns in ((1, 1), (3, 5), (7, 33), (2, 70)):
        dy = different(rows, columns)
        run_kernel(
            kernel,
            -(-columns // 32),
            32,
            {"dbias": empty(columns), "dy": dy},
            expected={"dbias": dy.sum(axis=0)},
            label=f"{plural(rows, 'row')} of {columns}",
            deterministic=True,
            hints={
                "out of bounds": "The last block has more threads than there are columns left. Rows go to dy.shape[0].",
                "unwritten": "dbias comes with NaN in it, so it has to be written, not added to: sum up in a variable.",
                "race": "One thread a column: nobody else may write dbias[c].",
                "float64": "Begin with float32(0): 0.0 is a float64.",
                "wrong": "The thread of column c goes down all rows r and adds dy[r, c].",
            },
        )

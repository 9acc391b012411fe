"""Linear layer on the GPU: one tiled matrix product for all three of its products; see :mod:`nanoeuler.cpu.linear`.

Letters: N rows (tokens), I input channels, O output channels; of a product, M rows and N columns of ``out``, and K
terms in each of its sums.

``product`` gives each block a square tile of ``out`` (128, 64 or 32 on a side, by how many there are) and each thread
8 x 8 or 4 x 4 elements of it, whose sums stay in registers. The block goes along K in steps of 8: its threads fetch the
next 8 columns of ``a`` and 8 rows of ``b`` from global memory, multiply the ones that lie in shared memory since the
step before, and put the new ones into the other half of it, so that the fetch takes place behind the multiplication
and one barrier a step is enough. What it costs, for a multiply-add in a tile of 128: 1/64 element from global memory,
1/4 from shared memory, read four at a time.

Each operand is fetched along its contiguous side, whichever that is: neighbouring threads take neighbouring addresses.
In shared memory both lie with K first. A thread's rows, and its columns, come in fours, which are then one load of 16
bytes; a row there has four elements more than the tile, so that an operand whose contiguous side is K, and which is
turned on the way, meets 32 different banks.

The gradient of a weight has few elements and long sums. There several blocks share a tile, each with a slice of K;
their sums go to scratch memory, and are added in a fixed order (:mod:`nanoeuler.gpu.column_sums`, as is the gradient of
a bias): the same bits in every run.

``row_products`` is for a few rows, as in generating text: a warp for each element, along K.

On a real GPU cuBLAS does the products, if it can be loaded and :data:`products` does not say otherwise.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.gpu import cublas
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.column_sums import BUSY, SLICE, add_column_sums, sliced
from nanoeuler.gpu.launch import call, current_stream, launch, on_gpu
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import WARP, warp_sum

Array = Any

DEPTH = 8  # K in steps of so many


def _shape(side: int, each: int) -> dict[str, int]:
    """Return the constants of ``product`` for ``side`` x ``side`` threads with ``each`` x ``each`` elements each."""
    tile, threads = side * each, side * side
    return {"SIDE": side, "EACH": each, "TILE": tile, "PADDED": tile + 4, "LOADS": tile * DEPTH // threads}


SHAPES = [_shape(16, 8), _shape(16, 4), _shape(8, 4)]
SIDE, EACH, TILE, PADDED, LOADS = SHAPES[0].values()
A_TRANSPOSED = B_TRANSPOSED = BIAS = ADD = PARTIAL = False  # what else the variants of the kernels exchange

#: Up to so many rows ``row_products`` is used: a tile would be mostly empty.
FEW_ROWS = 8
WARPS = 8  # of a block of row_products
FLAT = 256  # threads of a block of repeat_row


@dataclass
class Products:
    """How matrix products are done on a GPU; on the CPU it is always by the kernels here."""

    use_cublas: bool = True  # if it can be loaded
    tf32: bool = False  # cuBLAS may round float32 operands to TF32, for the tensor cores


products = Products()


@cuda.jit(device=True)
def share(thread: Any, along_k: Any, side: Any, tile: Any) -> Any:
    """Return where in a tile a thread's fetches begin, and how far apart they are: line, k, lines, ks."""
    if along_k:
        return thread // uint32(DEPTH), thread % uint32(DEPTH), uint32(side * side // DEPTH), uint32(0)
    return thread % uint32(tile), thread // uint32(tile), uint32(0), uint32(side * side // tile)


@cuda.jit(device=True)
def own(i: Any, t: Any, side: Any) -> Any:
    """Return the i-th of the lines of a tile that belong to thread t of a side."""
    return uint32(i // 4 * 4 * side + i % 4) + uint32(4) * t


@cuda.jit
def product(out: Array, a: Array, b: Array, bias: Array, slice_depth: Any) -> None:
    """Write or add ``a @ b + bias``: a block for a tile of ``out`` and a slice of K, or, PARTIAL, slice under slice."""
    a_tile = cuda.shared.array((2, DEPTH, PADDED), float32, alignment=16)
    b_tile = cuda.shared.array((2, DEPTH, PADDED), float32, alignment=16)
    total = cuda.local.array((EACH, EACH), float32)
    a_own, b_own = cuda.local.array(EACH, float32), cuda.local.array(EACH, float32)
    a_next, b_next = cuda.local.array(LOADS, float32), cuda.local.array(LOADS, float32)
    M, N = uint32(a.shape[1 if A_TRANSPOSED else 0]), uint32(out.shape[1])
    tx, ty, part = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.z)
    first_row, first_column = uint32(cuda.blockIdx.x) * uint32(TILE), uint32(cuda.blockIdx.y) * uint32(TILE)
    start = part * uint32(slice_depth)
    end = min(uint32(a.shape[0 if A_TRANSPOSED else 1]), start + uint32(slice_depth))
    a_line, a_k, a_lines, a_ks = share(ty * uint32(SIDE) + tx, not A_TRANSPOSED, SIDE, TILE)
    b_line, b_k, b_lines, b_ks = share(ty * uint32(SIDE) + tx, B_TRANSPOSED, SIDE, TILE)
    for i in range(EACH):
        for j in range(EACH):
            total[i, j] = float32(0)
    for step in range((end - start + uint32(DEPTH - 1)) // uint32(DEPTH) + uint32(1)):
        first_k = start + uint32(step) * uint32(DEPTH)  # in the last step nothing is left to fetch
        for load in range(LOADS):
            row, k = first_row + a_line + uint32(load) * a_lines, first_k + a_k + uint32(load) * a_ks
            a_next[load] = float32(0)
            if row < M and k < end:
                a_next[load] = widen(a[k, row] if A_TRANSPOSED else a[row, k])
            column, k = first_column + b_line + uint32(load) * b_lines, first_k + b_k + uint32(load) * b_ks
            b_next[load] = float32(0)
            if column < N and k < end:
                b_next[load] = widen(b[column, k] if B_TRANSPOSED else b[k, column])
        half = uint32(step & 1)
        if step > 0:  # multiply what the step before has put there
            for k in range(uint32(DEPTH)):
                for i in range(EACH):
                    a_own[i] = a_tile[uint32(1) - half, k, own(i, ty, SIDE)]
                    b_own[i] = b_tile[uint32(1) - half, k, own(i, tx, SIDE)]
                for i in range(EACH):
                    for j in range(EACH):
                        total[i, j] += a_own[i] * b_own[j]
        for load in range(LOADS):
            a_tile[half, a_k + uint32(load) * a_ks, a_line + uint32(load) * a_lines] = a_next[load]
            b_tile[half, b_k + uint32(load) * b_ks, b_line + uint32(load) * b_lines] = b_next[load]
        cuda.syncthreads()
    for i in range(EACH):
        row = first_row + own(i, ty, SIDE)
        for j in range(EACH):
            column = first_column + own(j, tx, SIDE)
            if row < M and column < N:
                value = total[i, j]
                if BIAS:
                    value += widen(bias[column])
                if ADD:
                    out[row, column] += value
                elif PARTIAL:
                    out[part * M + row, column] = value
                else:
                    out[row, column] = narrow(value)


@cuda.jit
def row_products(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """Write ``x @ weight.T + bias``: a warp for each element."""
    row, column = cuda.blockIdx.x, cuda.blockIdx.y * WARPS + cuda.threadIdx.y
    if column >= weight.shape[0]:
        return
    total = float32(0)
    for i in range(uint32(cuda.threadIdx.x), uint32(x.shape[1]), uint32(WARP)):
        total += widen(x[row, i]) * widen(weight[column, i])
    total = warp_sum(total)
    if cuda.threadIdx.x == 0:
        if BIAS:
            total += widen(bias[column])
        out[row, column] = narrow(total)


@cuda.jit
def repeat_row(out: Array, row: Array) -> None:
    """Write the same to every row: a thread for each element of a row."""
    column = cuda.blockIdx.y * FLAT + cuda.threadIdx.x
    if column < out.shape[1]:
        out[cuda.blockIdx.x, column] = row[column]


def linear_forward(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Write ``x @ weight.T + bias``.

    Args:
        out: (N, O), written.
        x: (N, I).
        weight: (O, I).
        bias: (O,) or None.
    """
    N, O = out.shape
    if N == 0:
        return
    if _with_cublas(out):
        if bias is not None:  # first, for cuBLAS to add to: so the sum is rounded but once
            launch(repeat_row, (N, -(-O // FLAT)), FLAT, out, bias)
        _library_product(out, x, weight, transpose_b=True, add=bias is not None)
        return
    unused = weight[0]  # something of the right type
    if N <= FEW_ROWS:
        kernel = variant(row_products, BIAS=bias is not None)
        launch(kernel, (N, -(-O // WARPS)), (WARP, WARPS), out, x, weight, unused if bias is None else bias)
    else:
        shape = _tile_shape(N, O)
        kernel = variant(product, B_TRANSPOSED=True, BIAS=bias is not None, **shape)
        _tiled(kernel, shape, out, x, weight, unused if bias is None else bias, (N, O, x.shape[1]))


def linear_backward(
    dx: Array | None,
    dweight: Array,
    dbias: Array | None,
    dout: Array,
    x: Array,
    weight: Array,
) -> None:
    """Write the input's gradient, add to the parameters'.

    Args:
        dx: (N, I), written; may be ``x`` itself; None if nothing needs it.
        dweight: (O, I) float32, added to.
        dbias: (O,) float32, added to; None for a layer without bias.
        dout: (N, O).
        x: (N, I), the forward's.
        weight: (O, I).
    """
    if dout.shape[0] == 0:  # no rows: nothing to write or to add
        return
    if dbias is not None:
        add_column_sums(dbias, dout)
    if _with_cublas(dout):
        _library_product(dweight, dout, x, transpose_a=True, add=True)
        if dx is not None:
            _library_product(dx, dout, weight)
        return
    _add_weight_gradient(dweight, dout, x)
    if dx is not None:  # last: it may lie over x
        shape = _tile_shape(*dx.shape)
        _tiled(variant(product, **shape), shape, dx, dout, weight, weight[0], (*dx.shape, dout.shape[1]))


def _add_weight_gradient(dweight: Array, dout: Array, x: Array) -> None:
    """Add ``dout.T @ x``, with the rows in slices where ``dweight`` alone would leave a large GPU idle."""
    (O, I), N = dweight.shape, x.shape[0]
    shape = _tile_shape(O, I, max(1, N // SLICE))
    slices, rows = sliced(_tiles(O, I, shape["TILE"]), N)
    kernel = variant(product, A_TRANSPOSED=True, **shape)
    if slices == 1:
        _tiled(variant(kernel, ADD=True), shape, dweight, dout, x, x[0], (O, I, N))
        return
    partial = scratch("linear", (slices * O, I), np.float32, like=dweight)
    _tiled(variant(kernel, PARTIAL=True), shape, partial, dout, x, x[0], (O, I, rows), slices)
    add_column_sums(dweight.reshape(O * I), partial.reshape(slices, O * I))


def _tiled(
    kernel: Any, shape: dict[str, int], out: Array, a: Array, b: Array, bias: Array, sizes: tuple, slices: int = 1
) -> None:
    """Launch a variant of ``product`` for ``sizes`` M, N and the K of a slice."""
    M, N, K = sizes
    grid = (-(-M // shape["TILE"]), -(-N // shape["TILE"]), slices)
    launch(kernel, grid, (shape["SIDE"], shape["SIDE"]), out, a, b, bias, K)


def _tiles(rows: int, columns: int, tile: int) -> int:
    return -(-rows // tile) * -(-columns // tile)


def _tile_shape(rows: int, columns: int, slices: int = 1) -> dict[str, int]:
    """Return the shape with the largest tiles of which there are enough, each in up to so many slices."""
    enough = (shape for shape in SHAPES if _tiles(rows, columns, shape["TILE"]) * slices >= BUSY)
    return next(enough, SHAPES[-1])


def _with_cublas(out: Array) -> bool:
    return products.use_cublas and on_gpu(out) and cublas.available()


def _library_product(
    out: Array, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, add: bool = False
) -> None:
    """Write or add a product by cuBLAS."""
    workspace = scratch("cublas", (cublas.WORKSPACE_BYTES,), np.uint8, like=out)
    work = cublas.bind(
        out, a, b, transpose_a, transpose_b, beta=float(add), tf32=products.tf32, workspace=workspace
    )  # fmt: skip
    call(lambda: work(current_stream()))

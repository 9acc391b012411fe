"""Token embedding on the GPU, and its backward with no atomics; see :mod:`nanoeuler.cpu.embedding` for the formulas.

Letters: B batch, T sequence, C channels, V vocabulary, S longest sequence, N = B T places in the batch.

Forward. A block writes the rows of one position in ``ROWS`` sequences, its threads side by side; a thread has its
position's element once and loads all its tokens' before it writes the first.

Backward. A row of dweight is the sum over the places where its token stands. Atomic additions would add them in another
order in each run, so the places are first ordered by token, equal tokens as they come, with integers alone:

    sort_tiles      a block orders TILE places in shared memory: a place's rank is the number of places before it
    merge_tiles     a place's rank among all is its rank in its tile plus, for each other tile, how many of that tile's
                    tokens come before it, found by halving: ``TEAMS`` threads to a place share the tiles

Then equal tokens are a run of places, and the runs are summed. A token may stand at one place or at a fifth of all (a
space, where tokens are characters), so the work is cut not by token but into pieces of ``PIECE`` places:

    sum_pieces      a block goes through a piece, a thread down each column, and adds each sum to its token's row when
                    the token changes; the sum of a run that an earlier piece began goes to scratch memory
    add_rests       those sums are added, by one block for each run that is longer than its first piece

Each element of dweight belongs to one thread in each kernel: nothing is added at the same time, and the order is fixed.

Moved: N C elements read, and a row of dweight read and written for each run. Ordering costs N TILE comparisons in
shared memory and N (N / TILE) log2(TILE) steps of halving in cache: for 65536 places 34 and 75 million, where each
place looking for its like among all others would cost 4 thousand million. dposition is one more pass over dout, a
thread for each of its elements.
"""

from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, int32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.warp import WARP, whole_warps

Array = Any

THREADS = 256  # of a block that copies rows, at most: its columns
ROWS = 4  # sequences whose rows a thread copies
COLUMNS = 128  # of a block that sums, at most
TILE = 512  # places ordered by one block, a thread each
TEAMS = 8  # threads that search the tiles for one place
PIECE = 64  # places summed by one block
AHEAD = 4  # rows loaded before the first is added


@cuda.jit
def write_token_rows(out: Array, tokens: Array, weight: Array, position: Array, start: Any, has_position: bool) -> None:
    """Write the tokens' rows, plus their position's."""
    column = uint32(cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x)
    t = uint32(cuda.blockIdx.x)
    if column >= out.shape[2]:
        return
    shift = widen(position[uint32(start + t), column]) if has_position else float32(0)
    values = cuda.local.array(ROWS, float32)
    for k in range(ROWS):
        b = uint32(cuda.blockIdx.y * ROWS + k)
        if b < out.shape[0]:
            token = min(max(tokens[b, t], int32(0)), int32(weight.shape[0] - 1))
            values[k] = widen(weight[uint32(token), column])
    for k in range(ROWS):
        b = uint32(cuda.blockIdx.y * ROWS + k)
        if b < out.shape[0]:
            out[b, t, column] = narrow(values[k] + shift)


@cuda.jit
def sort_tiles(tile_tokens: Array, tile_places: Array, tokens: Array, V: Any) -> None:
    """Write the tokens of each tile in order, and the places where they stand."""
    keys = cuda.shared.array(TILE, int32)
    thread, first = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x * TILE)
    count = min(int32(TILE), int32(tokens.size - first))
    if thread < count:
        keys[thread] = min(max(tokens[first + thread], int32(0)), int32(V - 1))
    cuda.syncthreads()
    if thread < count:
        token, rank = keys[thread], int32(0)
        for other in range(count):
            if keys[other] < token or (keys[other] == token and other < thread):
                rank += int32(1)
        tile_tokens[first + rank] = token
        tile_places[first + rank] = first + thread


@cuda.jit
def merge_tiles(run_tokens: Array, run_places: Array, tile_tokens: Array, tile_places: Array) -> None:
    """Write all tokens in order, and the places where they stand."""
    counts = cuda.shared.array((TEAMS, WARP), int32)
    lane, team, N = cuda.threadIdx.x, cuda.threadIdx.y, int32(tile_tokens.size)
    at = int32(cuda.blockIdx.x * WARP + lane)
    before = int32(0)
    if at < N:
        for first in range(team * TILE, N, TEAMS * TILE):
            low, high = int32(first), min(int32(first + TILE), N)
            if low <= at < high:
                low = at
            else:
                bound = tile_tokens[at] + int32(low < at)  # of equal tokens those in earlier tiles come before
                while low < high:
                    middle = (low + high) >> 1
                    if tile_tokens[middle] < bound:
                        low = int32(middle + 1)
                    else:
                        high = int32(middle)
            before += int32(low - first)
    counts[team, lane] = before
    cuda.syncthreads()
    if team == 0 and at < N:
        for other in range(1, TEAMS):
            before += counts[other, lane]
        run_tokens[before] = tile_tokens[at]
        run_places[before] = tile_places[at]


@cuda.jit
def sum_pieces(dweight: Array, rests: Array, dout: Array, run_tokens: Array, run_places: Array) -> None:
    """Add the sum of each run's rows, but for what continues a run of an earlier piece: write that."""
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if column >= dout.shape[1]:
        return
    first = int32(cuda.blockIdx.x * PIECE)
    end = min(int32(first + PIECE), int32(run_tokens.size))
    continues = first > 0 and run_tokens[first - 1] == run_tokens[first]
    total = float32(0)
    values = cuda.local.array(AHEAD, float32)
    for some in range(first, end, AHEAD):
        for k in range(AHEAD):
            if some + k < end:
                values[k] = widen(dout[uint32(run_places[uint32(some + k)]), column])
        for k in range(AHEAD):
            at = some + k
            if at < end:
                token = uint32(run_tokens[uint32(at)])
                total += values[k]
                if at + 1 == end or run_tokens[uint32(at + 1)] != token:
                    if continues:
                        rests[cuda.blockIdx.x, column] = total
                    else:
                        dweight[token, column] += total
                    continues = False
                    total = float32(0)


@cuda.jit
def add_rests(dweight: Array, rests: Array, run_tokens: Array) -> None:
    """Add what :func:`sum_pieces` wrote of a run, from its second piece to its last, if this block's is the second."""
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    piece = int32(cuda.blockIdx.x + 1)
    first = int32(piece * PIECE)
    token = run_tokens[first]
    begins_here = run_tokens[first - 1] != token
    began_earlier = piece > 1 and run_tokens[first - PIECE - 1] == token
    if column >= dweight.shape[1] or begins_here or began_earlier:
        return
    total = float32(0)
    while first < run_tokens.size and run_tokens[first] == token:
        total += rests[uint32(piece), column]
        piece += int32(1)
        first += int32(PIECE)
    dweight[uint32(token), column] += total


@cuda.jit
def add_over_batch(dposition: Array, dout: Array, start: Any) -> None:
    """Add each position's sum over the batch."""
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    t = uint32(cuda.blockIdx.x)
    if column >= dout.shape[2]:
        return
    total = float32(0)
    for b in range(dout.shape[0]):
        total += widen(dout[uint32(b), t, column])
    dposition[uint32(start + t), column] += total


def embedding_forward(out: Array, tokens: Array, weight: Array, position: Array | None, start: int = 0) -> None:
    """Write each token's row, plus its position's.

    Args:
        out: (B, T, C), written.
        tokens: (B, T) int32, each in [0, V): not checked here, the loader does.
        weight: (V, C).
        position: (S, C), or None where positions are not learned.
        start: position of the first token.
    """
    B, T, C = out.shape
    given = weight if position is None else position  # a kernel takes no None
    threads = whole_warps(C, THREADS)
    grid = T, -(-B // ROWS), -(-C // threads)
    launch(write_token_rows, grid, threads, out, tokens, weight, given, start, position is not None)


def embedding_backward(dweight: Array, dposition: Array | None, dout: Array, tokens: Array, start: int = 0) -> None:
    """Add each place's gradient to its rows, in a fixed order: the same bits in every run.

    Args:
        dweight: (V, C) float32, added to.
        dposition: (S, C) float32, added to, or None.
        dout: (B, T, C).
        tokens: (B, T) int32.
        start: the forward's.
    """
    B, T, C = dout.shape
    N, rows = B * T, dout.reshape(B * T, C)
    tiles, pieces, columns = -(-N // TILE), -(-N // PIECE), whole_warps(C, COLUMNS)
    across = -(-C // columns)
    tile_tokens = scratch("embedding tile tokens", (N,), np.int32, like=dout)
    tile_places = scratch("embedding tile places", (N,), np.int32, like=dout)
    run_tokens = scratch("embedding run tokens", (N,), np.int32, like=dout)
    run_places = scratch("embedding run places", (N,), np.int32, like=dout)
    rests = scratch("embedding rests", (pieces, C), np.float32, like=dout)
    launch(sort_tiles, tiles, TILE, tile_tokens, tile_places, tokens.reshape(N), dweight.shape[0])
    launch(merge_tiles, -(-N // WARP), (WARP, TEAMS), run_tokens, run_places, tile_tokens, tile_places)
    launch(sum_pieces, (pieces, across), columns, dweight, rests, rows, run_tokens, run_places)
    launch(add_rests, (max(0, pieces - 1), across), columns, dweight, rests, run_tokens)
    if dposition is not None:
        launch(add_over_batch, (T, across), columns, dposition, dout, start)

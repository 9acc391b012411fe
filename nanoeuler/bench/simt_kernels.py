"""Kernels of a tiny Llama-like transformer, forward, backward and AdamW: what the benchmark of the executors runs.

They are written to be run by every executor, Numba's own simulator included, which knows no warp operation; so they
reduce through shared memory. They are float32 throughout; sizes are read from the arrays, whose strides may be any.

Letters: N rows (tokens), B batch, T sequence, C channels, H heads, D head size, F feed-forward size, V vocabulary.
"""

import math
from typing import Any

from numba import cuda, float32

TILE = 8  # a block of the product makes TILE x TILE elements of it
ROWS = 16  # threads of a block of the attention, a query (or a key) each
HEAD = 32  # the largest head size
THREADS = 32  # of a block in all other kernels: a power of two

Array = Any  # how a kernel sees a NumPy array


@cuda.jit
def product(out: Array, a: Array, b: Array) -> None:
    """Write (N, M) ``out = a @ b``, from a tile of each in shared memory; transposed views make the backward's two."""
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        left[ty, tx] = a[row, start + tx] if row < a.shape[0] and start + tx < a.shape[1] else float32(0)
        right[ty, tx] = b[start + ty, column] if start + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@cuda.jit
def add(out: Array, x: Array, y: Array) -> None:
    """Write (N, C) ``out = x + y``, a block a row."""
    row = cuda.blockIdx.x
    for c in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
        out[row, c] = x[row, c] + y[row, c]


@cuda.jit(device=True)
def block_sum(value: Any, partial: Array) -> Any:
    """Return the sum of ``value`` over the block; ``partial`` is shared, an element a thread."""
    t = cuda.threadIdx.x
    cuda.syncthreads()  # whoever used it before has read its result
    partial[t] = value
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    return partial[0]


@cuda.jit(device=True)
def block_max(value: Any, partial: Array) -> Any:
    """Return the largest ``value`` of the block; ``partial`` is shared, an element a thread."""
    t = cuda.threadIdx.x
    cuda.syncthreads()
    partial[t] = value
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            partial[t] = max(partial[t], partial[t + half])
        cuda.syncthreads()
        half //= 2
    return partial[0]


@cuda.jit(device=True)
def dot(x: Array, y: Array) -> Any:
    """Return the scalar product of two vectors."""
    total = float32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@cuda.jit
def embedding_forward(out: Array, tokens: Array, weight: Array) -> None:
    """Write each token's row of (V, C) ``weight`` to (N, C) ``out``, a block a row."""
    row = cuda.blockIdx.x
    for c in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
        out[row, c] = weight[tokens[row], c]


@cuda.jit
def embedding_backward(dweight: Array, dout: Array, tokens: Array) -> None:
    """Add each row's gradient to its token's row of ``dweight``."""
    row = cuda.blockIdx.x
    for c in range(cuda.threadIdx.x, dout.shape[1], cuda.blockDim.x):
        cuda.atomic.add(dweight, (tokens[row], c), dout[row, c])


@cuda.jit
def rmsnorm_forward(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write (N, C) ``out = x rstd weight``, where (N,) ``rstd`` is one over a row's root mean square; a block a row."""
    partial = cuda.shared.array(THREADS, float32)
    row, t, C = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    squares = float32(0)
    for c in range(t, C, cuda.blockDim.x):
        squares += x[row, c] * x[row, c]
    r = float32(1) / math.sqrt(block_sum(squares, partial) / float32(C) + eps)
    for c in range(t, C, cuda.blockDim.x):
        out[row, c] = x[row, c] * r * weight[c]
    if t == 0:
        rstd[row] = r


@cuda.jit
def rmsnorm_backward(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    """Add to both gradients: ``dx`` holds that of the residual stream, which went round the norm."""
    partial = cuda.shared.array(THREADS, float32)
    row, t, C = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    along = float32(0)
    for c in range(t, C, cuda.blockDim.x):
        along += dout[row, c] * weight[c] * x[row, c]
    r = rstd[row]
    mean = block_sum(along, partial) * r / float32(C)
    for c in range(t, C, cuda.blockDim.x):
        normalised = x[row, c] * r
        dx[row, c] += r * (dout[row, c] * weight[c] - normalised * mean)
        cuda.atomic.add(dweight, c, dout[row, c] * normalised)


@cuda.jit
def attention_forward(out: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any) -> None:
    """Write causal attention, (B, T, H, D), and the (B, H, T) log of each row's sum: flash attention.

    A thread a query, a block ROWS of them of one head; keys and values pass through shared memory in tiles.
    """
    keys = cuda.shared.array((ROWS, HEAD), float32)
    values = cuda.shared.array((ROWS, HEAD), float32)
    query = cuda.local.array(HEAD, float32)
    mixed = cuda.local.array(HEAD, float32)
    T, D = q.shape[1], q.shape[3]
    t, h, b = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
    first = cuda.blockIdx.x * ROWS
    row = first + t
    for d in range(D):
        query[d] = q[b, row, h, d] * scale if row < T else float32(0)
        mixed[d] = float32(0)
    high, mass = float32(-math.inf), float32(0)
    for start in range(0, first + 1, ROWS):
        if start + t < T:
            for d in range(D):
                keys[t, d] = k[b, start + t, h, d]
                values[t, d] = v[b, start + t, h, d]
        cuda.syncthreads()
        seen = min(ROWS, row - start + 1) if row < T else 0
        for j in range(seen):
            score = float32(0)
            for d in range(D):
                score += query[d] * keys[j, d]
            higher = max(high, score)
            old, new = math.exp(high - higher), math.exp(score - higher)
            mass = mass * old + new
            for d in range(D):
                mixed[d] = mixed[d] * old + new * values[j, d]
            high = higher
        cuda.syncthreads()
    if row < T:
        for d in range(D):
            out[b, row, h, d] = mixed[d] / mass
        lse[b, h, row] = high + math.log(mass)


@cuda.jit
def attention_backward_queries(
    dq: Array, delta: Array, dout: Array, out: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any
) -> None:
    """Write the queries' gradient, a thread a query, and (B, H, T) ``delta = dout · out`` for the keys."""
    t, h, b = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if t >= q.shape[1]:
        return
    mean = dot(dout[b, t, h], out[b, t, h])
    delta[b, h, t] = mean
    for d in range(q.shape[3]):
        dq[b, t, h, d] = float32(0)
    for s in range(t + 1):
        p = math.exp(dot(q[b, t, h], k[b, s, h]) * scale - lse[b, h, t])
        dscore = p * (dot(dout[b, t, h], v[b, s, h]) - mean) * scale
        for d in range(q.shape[3]):
            dq[b, t, h, d] += dscore * k[b, s, h, d]


@cuda.jit
def attention_backward_keys(
    dk: Array, dv: Array, dout: Array, delta: Array, lse: Array, q: Array, k: Array, v: Array, scale: Any
) -> None:
    """Write the gradients of keys and values, a thread a key."""
    s, h, b = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if s >= k.shape[1]:
        return
    for d in range(k.shape[3]):
        dk[b, s, h, d] = float32(0)
        dv[b, s, h, d] = float32(0)
    for t in range(s, q.shape[1]):
        p = math.exp(dot(q[b, t, h], k[b, s, h]) * scale - lse[b, h, t])
        dscore = p * (dot(dout[b, t, h], v[b, s, h]) - delta[b, h, t]) * scale
        for d in range(k.shape[3]):
            dk[b, s, h, d] += dscore * q[b, t, h, d]
            dv[b, s, h, d] += p * dout[b, t, h, d]


@cuda.jit
def swiglu_forward(out: Array, gate_up: Array) -> None:
    """Write (N, F) ``silu(gate) up`` of (N, 2F) ``gate_up``, a block a row."""
    row, F = cuda.blockIdx.x, out.shape[1]
    for f in range(cuda.threadIdx.x, F, cuda.blockDim.x):
        gate = gate_up[row, f]
        out[row, f] = gate / (float32(1) + math.exp(-gate)) * gate_up[row, F + f]


@cuda.jit
def swiglu_backward(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    """Write the gradient of both halves."""
    row, F = cuda.blockIdx.x, dout.shape[1]
    for f in range(cuda.threadIdx.x, F, cuda.blockDim.x):
        gate, up = gate_up[row, f], gate_up[row, F + f]
        sigmoid = float32(1) / (float32(1) + math.exp(-gate))
        silu = gate * sigmoid
        dgate_up[row, f] = dout[row, f] * up * (sigmoid * (float32(1) - silu) + silu)
        dgate_up[row, F + f] = dout[row, f] * silu


@cuda.jit
def cross_entropy(losses: Array, logits: Array, targets: Array, dloss: Any) -> None:
    """Write each row's loss in nats and, over its (N, V) ``logits``, the gradient of ``dloss * losses.sum()``."""
    partial = cuda.shared.array(THREADS, float32)
    row, t, V = cuda.blockIdx.x, cuda.threadIdx.x, logits.shape[1]
    high = float32(-math.inf)
    for i in range(t, V, cuda.blockDim.x):
        high = max(high, logits[row, i])
    high = block_max(high, partial)
    mass = float32(0)
    for i in range(t, V, cuda.blockDim.x):
        mass += math.exp(logits[row, i] - high)
    mass = block_sum(mass, partial)
    for i in range(t, V, cuda.blockDim.x):
        shifted = logits[row, i] - high
        gradient = math.exp(shifted) / mass
        if i == targets[row]:
            losses[row] = math.log(mass) - shifted
            gradient -= float32(1)
        logits[row, i] = dloss * gradient


@cuda.jit
def adamw(
    weight: Array,
    m: Array,
    v: Array,
    gradient: Array,
    rate: Any,
    beta1: Any,
    beta2: Any,
    eps: Any,
    decay: Any,
    step: Any,
) -> None:
    """Update (n,) weights and moments, a thread an element, and zero the gradient; ``step`` counts from 1, float32."""
    i = cuda.grid(1)
    if i >= weight.shape[0]:
        return
    one, g = float32(1), gradient[i]
    m[i] = beta1 * m[i] + (one - beta1) * g
    v[i] = beta2 * v[i] + (one - beta2) * g * g
    mean = m[i] / (one - math.pow(beta1, step))
    square = v[i] / (one - math.pow(beta2, step))
    weight[i] -= rate * (decay * weight[i] + mean / (math.sqrt(square) + eps))
    gradient[i] = float32(0)

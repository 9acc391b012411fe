"""What the tests of ops and model share: random arrays, comparisons, and a plain PyTorch model as the oracle.

PyTorch always computes in float64, from the very numbers that the op was given in its own precision: what differs is
then the op's error alone.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nanoeuler.config import ModelConfig
from nanoeuler.cpu.parallel import BLOCK_ELEMENTS, Team
from nanoeuler.model import Transformer
from nanoeuler.parameters import named_views

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed (it comes with the extra 'oracles')")
dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32])

#: Largest error of an op, relative to the largest element of the tensor.
TOLERANCE = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-5}


def losses_of(
    model: Transformer,
    flat: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    dloss: Any,
    dropout: Any = None,
    starts: np.ndarray | None = None,
) -> np.ndarray:
    """Add a batch's gradient to a flat buffer; return the heads' summed losses."""
    losses = np.zeros(len(dloss), flat.dtype)
    views = named_views(flat, model.shapes)
    model.loss_and_gradients(views, losses, inputs, targets, np.array(dloss, flat.dtype), dropout, starts)
    return losses


def more_than_a_block(columns: int) -> int:
    """Return how many rows of so many elements an op takes in two blocks, the second nearly empty."""
    return BLOCK_ELEMENTS // columns + 3


def normal(shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return standard normal numbers; another seed for each array of a test."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def unwritten(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return an array full of NaN, which an op has to write everywhere."""
    return np.full(shape, np.nan, dtype)


def leaf(x: np.ndarray | None) -> Any:
    """Return a float64 tensor that collects a gradient; None stays None."""
    return None if x is None else torch.tensor(x, dtype=torch.float64, requires_grad=True)


def error(actual: np.ndarray, expected: Any) -> float:
    """Return the largest error relative to the largest expected element; NaN if anything is NaN."""
    if torch is not None and isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    difference = np.abs(actual.astype(np.float64) - expected).max()
    return float(difference / max(float(np.abs(expected).max()), np.finfo(np.float64).tiny))


def assert_close(actual: np.ndarray, expected: Any, tolerance: float | None = None) -> None:
    """Assert that an op's result is the oracle's, as closely as its precision allows."""
    assert error(actual, expected) <= (TOLERANCE[actual.dtype] if tolerance is None else tolerance)


def assert_same_with_threads(run: Callable[[], list[np.ndarray]], tolerance: float = 0) -> None:
    """Assert that a team of two threads gives the results of one: the same bits, if no tolerance is given."""
    with Team(1):
        alone = [np.copy(result) for result in run()]
    with Team(2):
        together = run()
    for a, b in zip(alone, together, strict=True):
        assert np.isfinite(a).all()
        assert error(b, a) <= tolerance


# A model of either preset, for clarity alone: weights by the names of nanoeuler.parameters, autograd does the rest.

Drop = Callable[[Any, int], Any]  # (activations, place in the model) -> activations


def reference_losses(
    W: dict[str, Any],
    config: ModelConfig,
    inputs: np.ndarray,
    targets: np.ndarray,
    drop: Drop = lambda x, site: x,
    starts: np.ndarray | None = None,
) -> list[Any]:
    """Return each head's loss in nats, summed over the (B, T) targets that are not negative."""
    x = reference_trunk(W, config, torch.tensor(inputs, dtype=torch.long), drop, starts)
    losses = []
    for k in range(config.num_prediction_heads):
        logits = reference_head(W, config, x, k)
        wanted = torch.tensor(targets[k], dtype=torch.long)
        kept = wanted >= 0
        losses.append(F.cross_entropy(logits[kept], wanted[kept], reduction="sum"))
    return losses


def reference_logits(W: dict[str, Any], config: ModelConfig, inputs: np.ndarray) -> Any:
    """Return the (B, T, V) logits of the next token."""
    return reference_head(W, config, reference_trunk(W, config, torch.tensor(inputs, dtype=torch.long)), 0)


def reference_trunk(
    W: dict[str, Any],
    config: ModelConfig,
    tokens: Any,
    drop: Drop = lambda x, site: x,
    starts: np.ndarray | None = None,
) -> Any:
    """Return the residual stream after the last layer, (B, T, C)."""
    B, T = tokens.shape
    seen = torch.ones(B, 1, T, T, dtype=torch.bool).tril()
    if starts is not None:
        seen &= torch.tensor(starts)[:, None, :, None] <= torch.arange(T)
    H, K, D = config.num_heads, config.kv_heads, config.head_dim
    x = W["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + W["position.weight"][:T]
    x = drop(x, 0)
    for layer in range(config.num_layers):
        name = f"layers.{layer}."
        qkv = _linear(W, name + "qkv", _norm(W, config, name + "attention_norm", x)).view(B, T, H + 2 * K, D)
        q, k, v = (heads.transpose(1, 2) for heads in qkv.split([H, K, K], dim=2))  # (B, heads, T, D)
        if config.qk_norm:
            q, k = (F.rms_norm(x, (D,), W[f"{name}{n}_norm.weight"], config.norm_eps) for n, x in (("q", q), ("k", k)))
        if config.position == "rope":
            q, k = _rope(q, config), _rope(k, config)
        k, v = (heads.repeat_interleave(H // K, dim=1) for heads in (k, v))
        attention = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        out = _linear(W, name + "attention_out", attention.transpose(1, 2).reshape(B, T, H * D))
        x = x + drop(out, 1 + 2 * layer)
        h = _norm(W, config, name + "mlp_norm", x)
        if config.activation == "swiglu":
            gate, up = _linear(W, name + "gate_up", h).chunk(2, dim=-1)
            h = F.silu(gate) * up
        else:
            h = F.gelu(_linear(W, name + "up", h), approximate="tanh")
        x = x + drop(_linear(W, name + "down", h), 2 + 2 * layer)
    return x


def reference_head(W: dict[str, Any], config: ModelConfig, x: Any, k: int) -> Any:
    """Return head k's logits, (B, T, V)."""
    name = "final_norm"
    if k > 0:
        x, name = x + _linear(W, f"prediction.{k}", x), f"prediction.{k}.norm"
    return _norm(W, config, name, x) @ W["embedding.weight" if config.tie_embeddings else "head.weight"].T


def _linear(W: dict[str, Any], name: str, x: Any) -> Any:
    return F.linear(x, W[name + ".weight"], W.get(name + ".bias"))


def _norm(W: dict[str, Any], config: ModelConfig, name: str, x: Any) -> Any:
    shape, weight = (config.hidden_dim,), W[name + ".weight"]
    if config.norm == "rmsnorm":
        return F.rms_norm(x, shape, weight, config.norm_eps)
    return F.layer_norm(x, shape, weight, W.get(name + ".bias"), config.norm_eps)


def _rope(x: Any, config: ModelConfig) -> Any:
    """Turn (..., T, D), the pairs of channels lying half a head apart."""
    T, D = x.shape[-2:]
    frequencies = [_frequency(config, config.rope_theta ** (-i / D)) for i in range(0, D, 2)]
    angles = torch.arange(T)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    pairs = torch.complex(x[..., : D // 2], x[..., D // 2 :]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def _frequency(config: ModelConfig, frequency: float) -> float:
    """Return the angle of a pair between neighbours, stretched as Llama 3.1's is: by three cases of its wavelength."""
    wavelength, length = 2 * math.pi / frequency, config.rope_original_length
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    if wavelength < length / high:
        return frequency
    if wavelength > length / low:
        return frequency / config.rope_factor
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / config.rope_factor + smooth * frequency

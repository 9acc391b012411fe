"""The other side of the benchmark: the same model and the same update in PyTorch, as well as PyTorch does them.

Packed projections, fused attention, half-split RoPE from tables, the fastest of its AdamW variants, and modules named
so that our weights load by their own names, strictly: a tensor too many or too few is an error.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanoeuler.bench.workload import Workload
from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.cpu.rope import rope_tables
from nanoeuler.model import rope_scaling
from nanoeuler.parameters import initial_weights, named_views, parameter_shapes

#: The ways PyTorch offers to run AdamW; one class, one result.
OPTIMIZERS: dict[str, dict[str, Any]] = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


class RMSNorm(nn.Module):
    """Root mean square norm with a weight."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(channels)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def _norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rmsnorm":
        return RMSNorm(config.hidden_dim, config.norm_eps)
    return nn.LayerNorm(config.hidden_dim, config.norm_eps, bias=bool(config.bias))


class Layer(nn.Module):
    """Attention, then feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig, gelu: str) -> None:
        super().__init__()
        C, H, K, D, ff = config.hidden_dim, config.num_heads, config.kv_heads, config.head_dim, config.ff_dim
        bias = bool(config.bias)
        self.heads, self.kv_heads, self.head_dim, self.gelu = H, K, D, gelu
        self.attention_norm = _norm(config)
        self.qkv = nn.Linear(C, (H + 2 * K) * D, bool(config.qkv_bias))
        self.qk_norm = config.qk_norm
        if self.qk_norm:
            self.q_norm, self.k_norm = RMSNorm(D, config.norm_eps), RMSNorm(D, config.norm_eps)
        self.attention_out = nn.Linear(H * D, C, bias)
        self.mlp_norm = _norm(config)
        self.swiglu = config.activation == "swiglu"
        if self.swiglu:
            self.gate_up = nn.Linear(C, 2 * ff, bias)
        else:
            self.up = nn.Linear(C, ff, bias)
        self.down = nn.Linear(ff, C, bias)

    def forward(self, x: Tensor, cos: Tensor | None, sin: Tensor | None) -> Tensor:
        """Return the residual stream after the layer, (B, T, C)."""
        x = x + self.attention_out(self._attention(self.qkv(self.attention_norm(x)), cos, sin))
        return x + self.down(self._activation(self.mlp_norm(x)))

    def _attention(self, qkv: Tensor, cos: Tensor | None, sin: Tensor | None) -> Tensor:
        B, T, _ = qkv.shape
        H, K = self.heads, self.kv_heads
        heads = qkv.view(B, T, H + 2 * K, self.head_dim)
        turned, v = heads.split((H + K, K), dim=2)
        if self.qk_norm:
            turned = torch.cat((self.q_norm(turned[:, :, :H]), self.k_norm(turned[:, :, H:])), dim=2)
        if cos is not None and sin is not None:
            first, second = turned.chunk(2, dim=-1)
            turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        q, k = turned.split((H, K), dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
        return out.transpose(1, 2).reshape(B, T, -1)

    def _activation(self, x: Tensor) -> Tensor:
        if self.swiglu:
            gate, up = self.gate_up(x).chunk(2, dim=-1)
            return F.silu(gate) * up
        return F.gelu(self.up(x), approximate=self.gelu)


class Transformer(nn.Module):
    """The model of a :class:`~nanoeuler.config.ModelConfig` with one prediction head, with our initial weights."""

    def __init__(self, config: ModelConfig, gelu: str) -> None:
        super().__init__()
        V, C = config.vocabulary, config.hidden_dim
        self.embedding = nn.Embedding(V, C)
        self.position = nn.Embedding(config.max_seq_len, C) if config.position == "learned" else None
        self.layers = nn.ModuleList(Layer(config, gelu) for _ in range(config.num_layers))
        self.final_norm = _norm(config)
        self.head = None if config.tie_embeddings else nn.Linear(C, V, bias=False)
        self.cos: Tensor | None = None
        self.sin: Tensor | None = None

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of (B, T) int64 targets after (B, T) int64 tokens, in nats."""
        T = tokens.shape[1]
        x = self.embedding(tokens)
        if self.position is not None:
            x = x + self.position.weight[:T]
        cos, sin = (None, None) if self.cos is None or self.sin is None else (self.cos[:T], self.sin[:T])
        for layer in self.layers:
            x = layer(x, cos, sin)
        weight = self.embedding.weight if self.head is None else self.head.weight
        logits = F.linear(self.final_norm(x), weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_model(workload: Workload) -> Transformer:
    """Return the model with the weights that our own side starts from."""
    config = workload.model
    if config.num_prediction_heads > 1 or config.dropout:
        raise ValueError("the PyTorch side has one prediction head and no dropout")
    with torch.device("meta"):  # the weights come below
        model = Transformer(config, "none" if workload.exact_gelu else "tanh")
    shapes = parameter_shapes(config)
    views = named_views(initial_weights(config, workload.training.seed), shapes)
    model.load_state_dict({name: torch.from_numpy(view.copy()) for name, view in views.items()}, assign=True)
    if config.position == "rope":
        tables = rope_tables(config.max_seq_len, config.head_dim, config.rope_theta, scaling=rope_scaling(config))
        model.cos, model.sin = (torch.from_numpy(table[:, None]) for table in tables)
    return model


def make_optimizer(model: nn.Module, training: TrainingConfig, name: str) -> torch.optim.Optimizer:
    """Return AdamW with decay on matrices only, run the way that ``name`` says (see :data:`OPTIMIZERS`)."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    betas = (training.beta1, training.beta2)
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=betas, eps=training.adam_eps, **OPTIMIZERS[name])


def fastest_optimizer(model: nn.Module, training: TrainingConfig) -> str:
    """Return the name of the AdamW that updates this model in the least time; its weights stay as they are."""
    generator = torch.Generator().manual_seed(training.seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    times: dict[str, float] = {}
    for name in OPTIMIZERS:
        optimizer = make_optimizer(model, training.model_copy(update={"learning_rate": 0.0}), name)
        times[name] = min(_seconds(optimizer.step) for _ in range(4))  # the first also allocates the moments
        del optimizer
    model.zero_grad(set_to_none=True)
    return min(times, key=times.__getitem__)


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def make_step(
    workload: Workload, compiled: bool, optimizer: str | None
) -> tuple[Callable[[int], tuple[float, float]], str]:
    """Return a training step, and which AdamW it uses (the fastest, if ``optimizer`` is None).

    The step takes the number of a batch and returns its loss and the norm of its gradient before clipping.
    """
    training = workload.training
    torch.set_num_threads(training.workers)
    model = make_model(workload)
    optimizer = optimizer or fastest_optimizer(model, training)
    adamw = make_optimizer(model, training, optimizer)
    parameters = list(model.parameters())
    batches = [
        (torch.from_numpy(inputs).long(), torch.from_numpy(targets[0]).long())
        for ((inputs, targets),) in workload.batches()
    ]
    forward = torch.compile(model, dynamic=False) if compiled else model

    def step(index: int) -> tuple[float, float]:
        inputs, targets = batches[index % len(batches)]
        adamw.zero_grad(set_to_none=True)
        loss = forward(inputs, targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, training.grad_clip)
        adamw.step()
        return loss.item(), norm.item()

    return step, optimizer

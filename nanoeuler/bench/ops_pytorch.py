"""What PyTorch does in place of each of our ops: eager, as its users write it.

A forward is the function of ``torch.nn.functional``, or the expression where there is none. A backward is autograd's,
for a forward that was done before; where ours computes loss and gradient in one, PyTorch's time is of both. The inputs
are the very arrays that ours is given. What PyTorch changes in place is a copy of its own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nanoeuler.bench.ops_entries import EPS

#: Largest difference from our op, relative to the largest element, with ``training.dtype``.
TOLERANCES = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}

Given = dict[str, Any]  # an op's arguments by name, arrays as tensors
Run = Callable[[], Any]  # returns a tensor, or several


def tensor(x: Any) -> Any:
    """Return an array, of the host or the GPU, as a tensor on the same memory; other arguments as they are."""
    if isinstance(x, list):
        return [tensor(each) for each in x]
    if not hasattr(x, "dtype"):
        return x
    shared = torch.as_tensor(x, device="cuda" if hasattr(x, "__cuda_array_interface__") else "cpu")
    return shared.view(torch.bfloat16) if shared.dtype == torch.uint16 else shared


def equivalent(op: str, arguments: dict[str, Any], dtype: str) -> Run:
    """Return what does the same as an op with these arguments; its outputs are named in :data:`EQUIVALENTS`."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    return EQUIVALENTS[op][1]({name: tensor(x) for name, x in arguments.items()})


def difference(op: str, outputs: Any, arguments: dict[str, Any]) -> float:
    """Return the largest difference from what our op wrote, relative to the largest element of its tensor."""
    found = [0.0]
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for name, theirs in zip(EQUIVALENTS[op][0].split(), outputs, strict=False):  # a layer may have no bias
        ours, theirs = tensor(arguments[name]).float(), theirs.detach().float().reshape(arguments[name].shape)
        found.append(float((theirs - ours).abs().max() / ours.abs().max().clamp_min(1e-30)))
    return float(np.max(found))  # not a number, if one is


def release() -> None:
    """Give memory that PyTorch keeps for later back to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _backward(forward: Callable[..., Tensor], dout: Tensor, *inputs: Tensor) -> Run:
    """Return autograd's backward of ``forward(*inputs)``."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = forward(*leaves)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def _embed(tokens: Tensor, weight: Tensor, position: Tensor) -> Tensor:
    return F.embedding(tokens, weight) + position


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _angles(a: Given) -> tuple[Tensor, Tensor]:
    """Return cos and sin as activations are stored, with an axis for the heads."""
    x = a["x"] if "x" in a else a["dout"]
    return a["cos"][:, None].to(x.dtype), a["sin"][:, None].to(x.dtype)


def _seen(starts: Tensor | None) -> Tensor | None:
    """Return which keys a query may see where a sequence has documents, (B, 1, T, T)."""
    if starts is None:
        return None
    places = torch.arange(starts.shape[1], device=starts.device)
    return ((starts[:, :, None] <= places) & (places <= places[:, None]))[:, None]


def _attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    how: Given = {"is_causal": seen is None, "attn_mask": seen, "enable_gqa": q.shape[1] != k.shape[1]}
    return F.scaled_dot_product_attention(q, k, v, **how).transpose(1, 2)


def _attention_forward(a: Given) -> Run:
    return partial(_attend, a["q"], a["k"], a["v"], _seen(a["starts"]))


def _attention_backward(a: Given) -> Run:
    return _backward(partial(_attend, seen=_seen(a["starts"])), a["dout"], a["q"], a["k"], a["v"])


def _swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def _embedding_backward(a: Given) -> Run:
    tables = (torch.zeros_like(a[name], dtype=a["dout"].dtype) for name in ("dweight", "dposition"))
    return _backward(lambda weight, position: _embed(a["tokens"], weight, position), a["dout"], *tables)


def _residual_backward(a: Given, norm: Callable[..., Tensor], *more: Tensor) -> Run:
    """Return the backward of a norm, with what other uses of its input hand back added."""
    run = _backward(norm, a["dout"], a["total"], a["weight"], *more)

    def with_residual() -> tuple[Tensor, ...]:
        dx, *others = run()
        return a["dtotal"] + dx, *others

    return with_residual


def _residual_forward(a: Given, norm: Callable[..., Tensor], *more: Tensor) -> Run:
    def run() -> tuple[Tensor, Tensor]:
        total = a["x"] + a["branch"]
        return norm(total, a["weight"], *more), total

    return run


def _linear_backward(a: Given) -> Run:
    bias = [] if a["dbias"] is None else [torch.zeros_like(a["dbias"], dtype=a["x"].dtype)]
    return _backward(F.linear, a["dout"], a["x"], a["weight"], *bias)


def _cross_entropy_forward(a: Given) -> Run:
    targets = a["targets"].long()
    return lambda: F.cross_entropy(a["logits"], targets, reduction="none")


def _cross_entropy_backward(a: Given) -> Run:
    logits, targets = a["logits"].detach().requires_grad_(), a["targets"].long()

    def run() -> tuple[Tensor, Tensor]:
        losses = F.cross_entropy(logits, targets, reduction="none")
        return losses, *torch.autograd.grad(losses, logits, a["dloss"].to(losses.dtype).expand_as(losses))

    return run


def _adamw(a: Given) -> Run:
    weight = a["weight"].clone()
    weight.grad = a["gradient"]
    betas, decay = (a["beta1"], a["beta2"]), a["weight_decay"]
    optimizer = torch.optim.AdamW([weight], a["learning_rate"], betas, a["eps"], decay, fused=True)

    def run() -> Tensor:
        optimizer.step()
        return weight

    return run


def _accumulate(a: Given) -> Run:
    out = a["out"].clone()

    def run() -> Tensor:
        for part in a["parts"]:
            out.add_(part)
        return out

    return run


def _total(a: Given) -> Run:
    out = a["out"].clone()
    return lambda: out.add_(a["x"].sum())


def _copy(a: Given) -> Run:
    out = torch.empty_like(a["out"])
    return lambda: out.copy_(a["x"])


def _fill(a: Given) -> Run:
    out = torch.empty_like(a["out"])
    return lambda: out.fill_(a["value"])


def _no_bias(a: Given) -> Tensor:
    """Return a bias for a backward, which its values do not matter to."""
    return torch.zeros_like(a["weight"])


#: By op: the names of what is returned, and what makes a function that does the same. Dropout draws other numbers than
#: ours, so nothing of it can be compared.
EQUIVALENTS: dict[str, tuple[str, Callable[[Given], Run]]] = {
    "embedding_forward": ("out", lambda a: lambda: _embed(a["tokens"], a["weight"], a["position"])),
    "embedding_backward": ("dweight dposition", _embedding_backward),
    "dropout_forward": ("", lambda a: lambda: F.dropout(a["x"], a["rate"])),
    "dropout_backward": ("", lambda a: _backward(lambda x: F.dropout(x, a["rate"]), a["dout"], a["dout"])),
    "rmsnorm_forward": ("out", lambda a: lambda: _rms_norm(a["x"], a["weight"])),
    "rmsnorm_backward": ("dx dweight", lambda a: _backward(_rms_norm, a["dout"], a["x"], a["weight"])),
    "head_rmsnorm_forward": ("out", lambda a: lambda: _rms_norm(a["x"], a["weight"])),
    "head_rmsnorm_backward": ("dx dweight", lambda a: _backward(_rms_norm, a["dout"], a["x"], a["weight"])),
    "layernorm_forward": ("out", lambda a: lambda: _layer_norm(a["x"], a["weight"], a["bias"])),
    "layernorm_backward": (
        "dx dweight dbias",
        lambda a: _backward(_layer_norm, a["dout"], a["x"], a["weight"], _no_bias(a)),
    ),
    "residual_forward": ("out", lambda a: lambda: a["x"] + a["branch"]),
    "residual_backward": ("dx dbranch", lambda a: lambda: (a["dout"].clone(), a["dout"].clone())),
    "residual_rmsnorm_forward": ("out total", lambda a: _residual_forward(a, _rms_norm)),
    "residual_rmsnorm_backward": ("dx dweight", lambda a: _residual_backward(a, _rms_norm)),
    "residual_layernorm_forward": ("out total", lambda a: _residual_forward(a, _layer_norm, a["bias"])),
    "residual_layernorm_backward": ("dx dweight dbias", lambda a: _residual_backward(a, _layer_norm, _no_bias(a))),
    "rope_forward": ("out", lambda a: partial(_rotate, a["x"], *_angles(a))),
    "rope_backward": ("dx", lambda a: _backward(lambda x: _rotate(x, *_angles(a)), a["dout"], a["dout"])),
    "attention_forward": ("out", _attention_forward),
    "attention_backward": ("dq dk dv", _attention_backward),
    "linear_forward": ("out", lambda a: lambda: F.linear(a["x"], a["weight"], a["bias"])),
    "linear_backward": ("dx dweight dbias", _linear_backward),
    "gelu_forward": ("out", lambda a: lambda: _gelu(a["x"], a["bias"])),
    "gelu_backward": ("dx dbias", lambda a: _backward(_gelu, a["dout"], a["x"], a["bias"])),
    "swiglu_forward": ("out", lambda a: lambda: _swiglu(a["gate_up"])),
    "swiglu_backward": ("dgate_up", lambda a: _backward(_swiglu, a["dout"], a["gate_up"])),
    "cross_entropy_forward": ("losses", _cross_entropy_forward),
    "cross_entropy_backward": ("losses dlogits", _cross_entropy_backward),
    "total": ("out", _total),
    "accumulate": ("out", _accumulate),
    "global_norm": ("out", lambda a: lambda: torch.linalg.vector_norm(a["x"])),
    "adamw": ("weight", _adamw),
    "copy": ("out", _copy),
    "fill": ("out", _fill),
}

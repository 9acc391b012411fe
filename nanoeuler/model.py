"""The transformer: forward and backward, written once against an op table.

``ops`` is a module such as :mod:`nanoeuler.cpu`; nothing here asks which device it is on. Letters: B batch, T
sequence, N = B·T rows, C channels, H query heads, K key/value heads, D head size, F feed-forward size, L layers,
V vocabulary.

    x = embedding(tokens)                                       the residual stream, (N, C)
    x = x + attention_out(attention(rope(qkv(norm(x)))))        L times: attention,
    x = x + down(activation(up(norm(x))))                       then feed-forward
    logits_0 = head(final_norm(x))                              the language model
    logits_k = head(norm_k(x + x @ prediction_k.T))             predicts k + 1 tokens ahead, training only

Queries and keys may have a norm of their own, over each head's channels, before RoPE (``qk_norm``).

The further heads are the linear heads of Gloeckle et al. 2024, arXiv:2404.19737, on one shared unembedding.

Several documents may be packed into a sequence. With ``starts``, for each token where its document begins, attention
stays within the documents. Rotary positions are relative, so they need no new beginning, and each document gives what
it would give alone; learned positions go on counting through the sequence.

Every sum of the residual stream is followed by a norm, so the two are one op, and so are the bias before a GELU and
the GELU: each saves a pass over memory.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.activations import Purpose, arena_shapes, statistic_shapes
from nanoeuler.config import ModelConfig
from nanoeuler.cpu.rope import RopeScaling
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.precision import statistics

Array = Any  # of the op table's kind: np.ndarray for nanoeuler.cpu
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Dropout:
    """Where in the sequence of random numbers a micro-batch stands (see :mod:`nanoeuler.cpu.dropout`)."""

    seed: int
    micro_batch: Array  # (1,) int64, counts every micro-batch of the run
    first_row: int = 0  # of this piece in its micro-batch


def rope_scaling(config: ModelConfig) -> RopeScaling:
    """Return how RoPE's long waves are stretched."""
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    return RopeScaling(config.rope_factor, low, high, config.rope_original_length)


class KeyValueCache:
    """Keys and values of the positions that a model has seen, so that each new token costs one row."""

    def __init__(self, config: ModelConfig, ops: Any, batch: int, length: int, dtype: Any) -> None:
        shape = (config.num_layers, 2, batch, length, config.kv_heads, config.head_dim)
        self.ops = ops
        self.arrays = named_views(ops.empty(flat_size({"cache": shape}), dtype), {"cache": shape})["cache"]
        self.capacity, self.length = length, 0

    def append(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Store (B, T, K, D) keys and values of one layer after the earlier ones; return all of them, (B, S, K, D)."""
        B, T = keys.shape[:2]
        for i, new in enumerate((keys, values)):
            self.ops.copy(self.arrays[layer, i][:B, self.length : self.length + T], new)
        stored = [self.arrays[layer, i][:B, : self.length + T] for i in (0, 1)]
        return stored[0], stored[1]


class Transformer:
    """A model over given weights, with the activations of at most ``batch`` sequences of ``length`` tokens."""

    def __init__(
        self, config: ModelConfig, ops: Any, weights: Array, batch: int, length: int, purpose: Purpose = "training"
    ) -> None:
        """Allocate the arena: every array of the model's size, once.

        Args:
            config: the architecture, with its vocabulary size.
            ops: the op table.
            weights: flat buffer laid out by :func:`~nanoeuler.parameters.parameter_shapes`; its dtype is the model's.
            batch: largest B.
            length: largest T.
            purpose: what it is for; see :func:`~nanoeuler.activations.arena_shapes`.
        """
        self.config, self.ops, self.purpose = config, ops, purpose
        self.shapes = parameter_shapes(config)
        self.weights: Arrays = named_views(weights, self.shapes)
        self.dtype = weights.dtype
        self._arena = ops.empty(flat_size(arena_shapes(config, batch, length, purpose)), self.dtype)
        exact = statistics(self.dtype)
        self._statistics = ops.empty(flat_size(statistic_shapes(config, batch, length, purpose)), exact)
        self._tokens = batch * length
        self._uploaded = {name: ops.empty(self._tokens, np.int32) for name in ("tokens", "targets")}
        self._views: dict[tuple[int, int], Arrays] = {}
        if purpose == "generation":
            self.cache = KeyValueCache(config, ops, batch, length, self.dtype)
        if config.position == "rope":
            T, D = config.max_seq_len, config.head_dim
            host = np.stack(ops.rope_tables(T, D, config.rope_theta, exact, rope_scaling(config)))
            tables = ops.empty(host.size, exact).reshape(host.shape)
            ops.from_numpy(tables, host)
            self.cos, self.sin = tables[0], tables[1]

    # What a caller asks for. Tokens come from the host, and logits and losses go there.

    def logits(self, tokens: np.ndarray, cache: KeyValueCache | None = None) -> np.ndarray:
        """Return (B, T, V) logits of the token after each of (B, T) tokens; valid until the next call.

        With a cache the tokens follow those that it holds, which are attended to, and are added to it.
        """
        return self.ops.to_numpy(self._logits(tokens, cache)).reshape(*tokens.shape, -1)

    def next_logits(self, tokens: np.ndarray, cache: KeyValueCache) -> np.ndarray:
        """Return (B, V) logits of the token after the last of (B, T) tokens: the others' are not computed."""
        B, T = tokens.shape
        a = self.activations(B, T)
        self._trunk_forward(a, self._upload("tokens", tokens), cache, None, None)
        cache.length += T
        last, logits = a["branch"][:B], a["logits"][:B]
        self.ops.copy(last, a["final_norm"].reshape(B, T, -1)[:, T - 1])
        self.ops.linear_forward(logits, last, self._head_weight(), None)
        return self.ops.to_numpy(logits)

    def losses(self, inputs: np.ndarray, targets: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
        """Return the (B, T) losses in nats of (B, T) targets, 0 where a target is negative.

        With (B, T) ``starts`` as :meth:`loss_and_gradients` has them, but in the host's memory.
        """
        logits = self._logits(inputs, None, starts)
        losses = self.activations(*inputs.shape)["losses"]
        self.ops.cross_entropy_forward(losses, logits, self._upload("targets", targets.reshape(-1)))
        return self.ops.to_numpy(losses).reshape(inputs.shape)

    def loss_and_gradients(
        self,
        gradients: Arrays,
        losses: Array,
        inputs: Array,
        targets: Array,
        dloss: Array,
        dropout: Dropout | None = None,
        starts: Array | None = None,
    ) -> None:
        """Add the gradient of ``Σ_k dloss[k] Σ losses_k`` to ``gradients``, and each head's summed loss to ``losses``.

        Args:
            gradients: named views laid out as the weights, added to.
            losses: (heads,), in nats, added to.
            inputs: (B, T) tokens, in the device's memory as all arrays here.
            targets: (heads, B, T): what each head should predict; negative to ignore.
            dloss: (heads,): a weight for each head, 1 / (number of targets) for the mean loss of the first.
            dropout: where the random numbers stand, if the configuration drops anything.
            starts: (B, T) int32, where in its sequence the document of each token begins, so that attention stays
                within it; None if a sequence is one document.
        """
        B, T = inputs.shape
        a = self.activations(B, T)
        dropout = dropout if self.config.dropout else None
        x = self._trunk_forward(a, inputs, None, dropout, starts)
        for k in range(self.config.num_prediction_heads):
            self._head_forward_backward(
                k, a, gradients, losses[k : k + 1], x, targets[k].reshape(B * T), dloss[k : k + 1]
            )
        self._trunk_backward(a, gradients, inputs, dropout, starts)

    def activations(self, B: int, T: int) -> Arrays:
        """Return the arrays of the arena for a batch and a length, by name."""
        if (B, T) not in self._views:
            self._views[B, T] = named_views(self._arena, arena_shapes(self.config, B, T, self.purpose)) | named_views(
                self._statistics, statistic_shapes(self.config, B, T, self.purpose)
            )
        return self._views[B, T]

    # Forward.

    def _logits(self, tokens: np.ndarray, cache: KeyValueCache | None, starts: np.ndarray | None = None) -> Array:
        B, T = tokens.shape
        a = self.activations(B, T)
        begins = None if starts is None else self._upload("starts", starts)
        self._trunk_forward(a, self._upload("tokens", tokens), cache, None, begins)
        self.ops.linear_forward(a["logits"], a["final_norm"], self._head_weight(), None)
        if cache is not None:
            cache.length += T
        return a["logits"]

    def _upload(self, name: str, tokens: np.ndarray) -> Array:
        if name not in self._uploaded:  # starts, which most runs do without
            self._uploaded[name] = self.ops.empty(self._tokens, np.int32)
        array = self._uploaded[name][: tokens.size].reshape(tokens.shape)
        self.ops.from_numpy(array, tokens)
        return array

    def _trunk_forward(
        self, a: Arrays, tokens: Array, cache: KeyValueCache | None, dropout: Dropout | None, starts: Array | None
    ) -> Array:
        """Run all layers and the final norm; return the residual stream, of which a["final_norm"] is the norm."""
        B, T = tokens.shape
        W, start = self.weights, cache.length if cache is not None else 0
        x = a["embedded"]
        self.ops.embedding_forward(x.reshape(B, T, -1), tokens, W["embedding.weight"], W.get("position.weight"), start)
        self._dropout_forward(x, dropout, 0)
        self._norm_forward("layers.0.attention_norm", a, "layers.0.attention_norm", x)
        for layer in range(self.config.num_layers):
            x = self._layer_forward(layer, a, x, B, T, cache, dropout, starts)
        return x

    def _layer_forward(
        self,
        layer: int,
        a: Arrays,
        x: Array,
        B: int,
        T: int,
        cache: KeyValueCache | None,
        dropout: Dropout | None,
        starts: Array | None,
    ) -> Array:
        """Add a layer's two branches to x, whose attention norm is there already; leave the next norm there."""
        ops, name, at = self.ops, f"layers.{layer}.", self._place(layer)

        self._linear_forward(name + "qkv", a[at + "qkv"], a[at + "attention_norm"])
        self._qk_norm_forward(name, a, at, B, T)
        self._rope(ops.rope_forward, self._queries_keys(a, at, B, T), cache.length if cache is not None else 0)
        q, k, v = self._attended(a, at, B, T)
        if cache is not None:
            k, v = cache.append(layer, k, v)
        ops.attention_forward(a[at + "attention"].reshape(q.shape), a[at + "lse"], q, k, v, starts)
        self._linear_forward(name + "attention_out", a["branch"], a[at + "attention"])
        self._dropout_forward(a["branch"], dropout, 1 + 2 * layer)
        self._residual_norm_forward(name + "mlp_norm", a, at + "mlp_norm", a[at + "middle"], x, a["branch"])

        up, activated = a[at + "up"], a[at + "activated"]
        if self.config.activation == "swiglu":
            self._linear_forward(name + "gate_up", up, a[at + "mlp_norm"])
            ops.swiglu_forward(activated, up)
        else:  # the bias is added on the way into the activation
            ops.linear_forward(up, a[at + "mlp_norm"], self.weights[name + "up.weight"], None)
            ops.gelu_forward(activated, up, self.weights.get(name + "up.bias"))
        self._linear_forward(name + "down", a["branch"], activated)
        self._dropout_forward(a["branch"], dropout, 2 + 2 * layer)
        norm, after = "final_norm", "final_norm"
        if layer + 1 < self.config.num_layers:
            norm, after = f"layers.{layer + 1}.attention_norm", self._place(layer + 1) + "attention_norm"
        self._residual_norm_forward(norm, a, after, a[at + "out"], a[at + "middle"], a["branch"])
        return a[at + "out"]

    # Backward, in the opposite order. a["dresidual"] holds the gradient of the residual stream all the way down: a
    # residual connection hands it on to its branch as it is, and what comes back through the branch's norm is added to
    # it. The other gradients are written over the activations that they are of, which nothing reads any more: memory
    # that is in the cache already.

    def _head_forward_backward(
        self, k: int, a: Arrays, gradients: Arrays, loss: Array, x: Array, targets: Array, dloss: Array
    ) -> None:
        """Compute head k's logits, its loss and the backward to the trunk: so one array of logits serves all heads."""
        ops, norm, prediction = self.ops, "final_norm", f"prediction.{k}"
        z = x
        if k > 0:
            z, norm = a["prediction"], f"{prediction}.norm"
            self._linear_forward(prediction, a["branch"], x)
            self._residual_norm_forward(norm, a, "final_norm", z, x, a["branch"])
        ops.linear_forward(a["logits"], a["final_norm"], self._head_weight(), None)

        dlogits, dnorm = a["logits"], a["final_norm"]  # gradients lie over what they are of
        ops.cross_entropy_backward(a["losses"], dlogits, a["logits"], targets, dloss)
        ops.total(loss, a["losses"])
        head = "embedding.weight" if self.config.tie_embeddings else "head.weight"
        ops.linear_backward(dnorm, gradients[head], None, dlogits, a["final_norm"], self.weights[head])
        if k == 0:
            self._norm_backward(norm, a, gradients, "final_norm", a["dresidual"], dnorm, z)
        else:
            self._norm_backward(norm, a, gradients, "final_norm", dnorm, dnorm, z)
            self._linear_backward(prediction, gradients, a["dbranch"], dnorm, x)
            ops.residual_forward(a["dresidual"], a["dresidual"], dnorm)
            ops.residual_forward(a["dresidual"], a["dresidual"], a["dbranch"])

    def _trunk_backward(
        self, a: Arrays, gradients: Arrays, tokens: Array, dropout: Dropout | None, starts: Array | None
    ) -> None:
        B, T = tokens.shape
        for layer in reversed(range(self.config.num_layers)):
            x = a[f"layers.{layer - 1}.out"] if layer > 0 else a["embedded"]
            self._layer_backward(layer, a, gradients, x, B, T, dropout, starts)
        dx = a["dresidual"]
        self._dropout_backward(dx, dx, dropout, 0)
        self.ops.embedding_backward(
            gradients["embedding.weight"], gradients.get("position.weight"), dx.reshape(B, T, -1), tokens
        )

    def _layer_backward(
        self,
        layer: int,
        a: Arrays,
        gradients: Arrays,
        x: Array,
        B: int,
        T: int,
        dropout: Dropout | None,
        starts: Array | None,
    ) -> None:
        ops, at = self.ops, f"layers.{layer}."
        dx = a["dresidual"]

        dbranch = self._dropout_backward(a["dbranch"], dx, dropout, 2 + 2 * layer)
        dactivated, dup, dnorm = a[at + "activated"], a[at + "up"], a[at + "mlp_norm"]
        self._linear_backward(at + "down", gradients, dactivated, dbranch, a[at + "activated"])
        if self.config.activation == "swiglu":
            ops.swiglu_backward(dup, dactivated, a[at + "up"])
            self._linear_backward(at + "gate_up", gradients, dnorm, dup, a[at + "mlp_norm"])
        else:
            bias, weight = at + "up.bias", at + "up.weight"
            ops.gelu_backward(dup, gradients.get(bias), dactivated, a[at + "up"], self.weights.get(bias))
            ops.linear_backward(dnorm, gradients[weight], None, dup, a[at + "mlp_norm"], self.weights[weight])
        self._residual_norm_backward(at + "mlp_norm", a, gradients, dx, dnorm, a[at + "middle"])

        dbranch = self._dropout_backward(a["dbranch"], dx, dropout, 1 + 2 * layer)
        self._linear_backward(at + "attention_out", gradients, a["dattention"], dbranch, a[at + "attention"])
        q, k, v = self._attended(a, at, B, T)
        dq, dk, dv = self._split_heads(a["dqkv"], B, T)
        dout, out = a["dattention"].reshape(q.shape), a[at + "attention"].reshape(q.shape)
        ops.attention_backward(dq, dk, dv, dout, out, a[at + "lse"], q, k, v, starts)
        self._rope(ops.rope_backward, self._heads(a["dqkv"], B, T)[:, :, : q.shape[2] + k.shape[2]], 0)
        self._qk_norm_backward(a, at, gradients, dq, dk, B, T)
        dnorm = a[at + "attention_norm"]
        self._linear_backward(at + "qkv", gradients, dnorm, a["dqkv"], a[at + "attention_norm"])
        self._residual_norm_backward(at + "attention_norm", a, gradients, dx, dnorm, x)

    # The switches of the configuration, each in one place.

    def _place(self, layer: int) -> str:
        """Return how the names of a layer's activations start: only training keeps each layer's own."""
        return f"layers.{layer if self.purpose == 'training' else 0}."

    def _head_weight(self) -> Array:
        return self.weights["embedding.weight" if self.config.tie_embeddings else "head.weight"]

    def _heads(self, packed: Array, B: int, T: int) -> Array:
        """View (N, heads·D) as (B, T, heads, D)."""
        return packed.reshape(B, T, -1, self.config.head_dim)

    def _split_heads(self, qkv: Array, B: int, T: int) -> tuple[Array, Array, Array]:
        """View (N, (H + 2K)·D) packed q|k|v as (B, T, H, D), (B, T, K, D), (B, T, K, D)."""
        H, K, heads = self.config.num_heads, self.config.kv_heads, self._heads(qkv, B, T)
        return heads[:, :, :H], heads[:, :, H : H + K], heads[:, :, H + K :]

    def _queries_keys(self, a: Arrays, at: str, B: int, T: int) -> Array:
        """View the queries and keys that attention reads, (B, T, H + K, D): a norm of them has an array of its own."""
        if self.config.qk_norm:
            return self._heads(a[at + "qk"], B, T)
        return self._heads(a[at + "qkv"], B, T)[:, :, : self.config.num_heads + self.config.kv_heads]

    def _attended(self, a: Arrays, at: str, B: int, T: int) -> tuple[Array, Array, Array]:
        """View what attention reads: queries (B, T, H, D), keys and values (B, T, K, D)."""
        H, both = self.config.num_heads, self._queries_keys(a, at, B, T)
        return both[:, :, :H], both[:, :, H:], self._split_heads(a[at + "qkv"], B, T)[2]

    def _qk_norm_forward(self, name: str, a: Arrays, at: str, B: int, T: int) -> None:
        if self.config.qk_norm:
            raw, normed = self._split_heads(a[at + "qkv"], B, T), self._attended(a, at, B, T)
            for i, norm in enumerate(("q_norm", "k_norm")):
                weight, eps = self.weights[f"{name}{norm}.weight"], self.config.norm_eps
                self.ops.head_rmsnorm_forward(normed[i], a[f"{at}{norm}.rstd"], raw[i], weight, eps)

    def _qk_norm_backward(self, a: Arrays, at: str, gradients: Arrays, dq: Array, dk: Array, B: int, T: int) -> None:
        """Turn the gradients of the normed queries and keys into those of the raw ones, in place."""
        if self.config.qk_norm:
            raw = self._split_heads(a[at + "qkv"], B, T)
            for norm, d, x in zip(("q_norm", "k_norm"), (dq, dk), raw[:2], strict=True):
                weight = f"{at}{norm}.weight"
                self.ops.head_rmsnorm_backward(d, gradients[weight], d, x, self.weights[weight], a[f"{at}{norm}.rstd"])

    def _rope(self, rotate: Any, heads: Array, start: int) -> None:
        """Turn (B, T, heads, D) queries and keys in place; they lie side by side."""
        if self.config.position == "rope":
            T = heads.shape[1]
            rotate(heads, heads, self.cos[start : start + T], self.sin[start : start + T])

    def _linear_forward(self, name: str, out: Array, x: Array) -> None:
        self.ops.linear_forward(out, x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def _linear_backward(self, name: str, gradients: Arrays, dx: Array, dout: Array, x: Array) -> None:
        weight = name + ".weight"
        self.ops.linear_backward(dx, gradients[weight], gradients.get(name + ".bias"), dout, x, self.weights[weight])

    def _norm_forward(self, name: str, a: Arrays, at: str, x: Array) -> None:
        weight, eps = self.weights[name + ".weight"], self.config.norm_eps
        if self.config.norm == "rmsnorm":
            self.ops.rmsnorm_forward(a[at], a[at + ".rstd"], x, weight, eps)
        else:
            bias = self.weights.get(name + ".bias")
            self.ops.layernorm_forward(a[at], a[at + ".mean"], a[at + ".rstd"], x, weight, bias, eps)

    def _norm_backward(
        self, name: str, a: Arrays, gradients: Arrays, at: str, dx: Array, dout: Array, x: Array
    ) -> None:
        weight, dweight = self.weights[name + ".weight"], gradients[name + ".weight"]
        if self.config.norm == "rmsnorm":
            self.ops.rmsnorm_backward(dx, dweight, dout, x, weight, a[at + ".rstd"])
        else:
            dbias = gradients.get(name + ".bias")
            self.ops.layernorm_backward(dx, dweight, dbias, dout, x, weight, a[at + ".mean"], a[at + ".rstd"])

    def _residual_norm_forward(self, name: str, a: Arrays, at: str, total: Array, x: Array, branch: Array) -> None:
        """Write ``total = x + branch`` and its norm."""
        weight, eps = self.weights[name + ".weight"], self.config.norm_eps
        if self.config.norm == "rmsnorm":
            self.ops.residual_rmsnorm_forward(a[at], total, a[at + ".rstd"], x, branch, weight, eps)
        else:
            bias, mean, rstd = self.weights.get(name + ".bias"), a[at + ".mean"], a[at + ".rstd"]
            self.ops.residual_layernorm_forward(a[at], total, mean, rstd, x, branch, weight, bias, eps)

    def _residual_norm_backward(
        self, name: str, a: Arrays, gradients: Arrays, dx: Array, dout: Array, total: Array
    ) -> None:
        """Add to dx, the gradient of ``total``, what comes back through its norm."""
        weight, dweight = self.weights[name + ".weight"], gradients[name + ".weight"]
        if self.config.norm == "rmsnorm":
            self.ops.residual_rmsnorm_backward(dx, dweight, dout, dx, total, weight, a[name + ".rstd"])
        else:
            dbias, mean, rstd = gradients.get(name + ".bias"), a[name + ".mean"], a[name + ".rstd"]
            self.ops.residual_layernorm_backward(dx, dweight, dbias, dout, dx, total, weight, mean, rstd)

    def _dropout_forward(self, x: Array, dropout: Dropout | None, site: int) -> None:
        if dropout:
            start = dropout.first_row * self.config.hidden_dim
            self.ops.dropout_forward(x, x, self.config.dropout, dropout.seed, site, dropout.micro_batch, start)

    def _dropout_backward(self, dx: Array, dout: Array, dropout: Dropout | None, site: int) -> Array:
        """Return the gradient of what was dropped: written to ``dx``, or ``dout`` itself where nothing was."""
        if not dropout:
            return dout
        start = dropout.first_row * self.config.hidden_dim
        self.ops.dropout_backward(dx, dout, self.config.dropout, dropout.seed, site, dropout.micro_batch, start)
        return dx

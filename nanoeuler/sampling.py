"""From logits to text: the ways of choosing the next token, and the loop that chooses many."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.model import Transformer
from nanoeuler.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults draw from the model's own distribution."""

    temperature: float = 1.0  # divides the logits; 0 always takes the likeliest token
    top_k: int = 0  # only the k likeliest; 0 all
    top_p: float = 1.0  # only the likeliest whose probabilities reach p together (Holtzman et al. 2020)
    min_p: float = 0.0  # only those with at least this share of the likeliest one's probability (Nguyen et al. 2024)
    repetition_penalty: float = 1.0  # divides positive logits of tokens that were used (Keskar et al. 2019)


def distribution(logits: np.ndarray, sampling: Sampling, used: np.ndarray | None = None) -> np.ndarray:
    """Return the probabilities that the next token is drawn from, (V,) float64.

    The order is Hugging Face's: penalty, temperature, top-k, top-p, min-p.

    Args:
        logits: (V,).
        sampling: how to choose.
        used: ids that the repetition penalty is for.
    """
    z = logits.astype(np.float64)
    if used is not None and sampling.repetition_penalty != 1:
        ids = np.unique(used)
        penalty = sampling.repetition_penalty
        with np.errstate(over="ignore"):
            z[ids] = np.where(z[ids] > 0, z[ids] / penalty, z[ids] * penalty)
    if sampling.temperature == 0:
        return (np.arange(z.size) == z.argmax()).astype(np.float64)
    z -= z.max()
    with np.errstate(over="ignore"):  # a tiny temperature leaves the likeliest alone, at 0
        z /= sampling.temperature
    if 0 < sampling.top_k < z.size:
        z[z < np.partition(z, -sampling.top_k)[-sampling.top_k]] = -np.inf
    p = _softmax(z)
    if sampling.top_p < 1:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]  # what likelier tokens reach without this one
        p[order[before >= sampling.top_p]] = 0
        p[order[0]] = max(p[order[0]], np.finfo(p.dtype).tiny)  # top_p 0 keeps the likeliest
    if sampling.min_p > 0:
        p[p < sampling.min_p * p.max()] = 0
    return p / p.sum()


def generate(
    model: Transformer, prompt: np.ndarray, vocab_size: int, sampling: Sampling, seed: int | tuple[int, ...]
) -> Iterator[int]:
    """Yield tokens after a prompt, without end.

    Each token costs one row of the model, since the cache holds the keys and values of those before it. When the
    cache is full, the model starts again from the last half of its context.

    Args:
        model: planned for the generation of one sequence; its cache is used, the length of which is the context.
        prompt: (n,) int32 token ids, n ≥ 1; of a longer one than the context the end is used.
        vocab_size: tokens that the tokenizer knows; a padded model's further logits are never chosen.
        sampling: how to choose.
        seed: the same seed gives the same tokens.
    """
    generator = np.random.default_rng(seed)
    cache, limit = model.cache, model.cache.capacity
    tokens = [int(token) for token in prompt]
    cache.length = 0
    new = tokens[-limit:]
    while True:
        logits = model.next_logits(np.array([new], np.int32), cache)[0, :vocab_size]
        p = distribution(logits, sampling, np.array(tokens[-limit:]))
        token = int(np.searchsorted(np.cumsum(p), generator.random(), side="right"))
        token = min(token, int(np.flatnonzero(p)[-1]))  # rounding may leave the sum just below the number drawn
        tokens.append(token)
        yield token
        new = [token]
        if cache.length == limit:
            cache.length = 0
            new = tokens[-max(1, limit // 2) :]


def sample_prompt(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """Return the tokens that a sample starts with; a prompt that this vocabulary cannot say gives way to a token."""
    try:
        prompt = with_prefix(tokenizer, tokenizer.encode(text))
    except UserError:
        prompt = with_prefix(tokenizer, np.zeros(0, np.int32))
    return prompt if prompt.size else np.zeros(1, np.int32)


def with_prefix(tokenizer: Tokenizer, tokens: np.ndarray) -> np.ndarray:
    """Return the tokens of a text with those before them that a model expects, such as BOS: (n,) int32."""
    return np.concatenate([np.array(tokenizer.prefix, np.int32), tokens])


def _softmax(z: np.ndarray) -> np.ndarray:
    p = np.exp(z - z.max())
    return p / p.sum()

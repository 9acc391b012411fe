"""Tiny random models, the same in transformers and here, and a tokenizer that both libraries have."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizer.byte_pairs import learn

from nanoeuler.config import ModelConfig
from nanoeuler.corpus import plays
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.tokenizer import BPETokenizer
from nanoeuler.weights.mapping import huggingface_views

V, T = 360, 96  # vocabulary; the context, which is shorter than many a prompt


def make_tokenizer(prefix: tuple[int, ...] = ()) -> BPETokenizer:
    """Return a byte-level BPE with a few merges, and an end-of-text token as its largest id."""
    merges = _merges()
    tokenizer = BPETokenizer(merges, "gpt2", {"<|endoftext|>": 256 + len(merges)})
    tokenizer.prefix = prefix
    return tokenizer


@cache
def _merges() -> list[tuple[int, int]]:
    return learn(plays.generate(3000), 90, "gpt2")


def their_tokenizer(tokenizer: BPETokenizer, folder: Path) -> Any:
    """Return the same tokenizer in Hugging Face's library."""
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers is not installed")
    tokenizer.save(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def make_models(family: str) -> tuple[Any, ModelConfig, np.ndarray]:
    """Return a model of transformers, and the configuration and weights of ours, float32."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)  # these models are too small for more
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "max_seq_len": T, "hidden_dim": 32, "num_layers": 2, "num_heads": 4}
    if family == "llama":
        config = ModelConfig(**sizes, num_kv_heads=2, feed_forward_dim=48, tie_embeddings=False)
        theirs = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=V,
                max_position_embeddings=T,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=48,
                rms_norm_eps=config.norm_eps,
                initializer_range=0.2,
                attn_implementation="eager",
            )
        )
    else:
        config = ModelConfig(preset="gpt2", **sizes)
        theirs = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=V, n_positions=T, n_embd=32, n_layer=2, n_head=4, initializer_range=0.2,
                layer_norm_epsilon=config.norm_eps, attn_implementation="eager",
            )
        )  # fmt: skip
    theirs.eval()
    shapes = parameter_shapes(config)
    weights = np.zeros(flat_size(shapes), np.float32)
    tensors = theirs.state_dict()
    for name, view in huggingface_views(config, named_views(weights, shapes)).items():
        view[...] = tensors[name].numpy()
    return theirs, config, weights


def log_probabilities(theirs: Any, ids: list[int]) -> np.ndarray:
    """Return transformers' (T, V) log-probabilities of the token after each id."""
    import torch

    with torch.no_grad():
        return torch.log_softmax(theirs(torch.tensor([ids])).logits[0].double(), dim=-1).numpy()


def plain_strided_loss(theirs: Any, ids: list[int], first: int, length: int, stride: int) -> list[float]:
    """Return each scored token's loss: one window after the other, cross-entropy of torch's on transformers' logits."""
    import torch

    losses, done = [], first  # done: tokens before this one are scored, or stand in front
    while done < len(ids):
        end = min(length + 1 if done == first else done + stride, len(ids))
        inputs = torch.tensor([ids[max(0, end - 1 - length) : end - 1]])
        with torch.no_grad():
            logits = theirs(inputs).logits[0, done - end :]
        targets = torch.tensor(ids[done:end])
        losses += torch.nn.functional.cross_entropy(logits, targets, reduction="none").tolist()
        done = end
    return losses

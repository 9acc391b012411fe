"""Tiny models in files, for tests of commands: a run's folder, llm.c's and llama2.c's .bin."""

from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.checkpoint import Checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig
from nanoeuler.parameters import flat_size, initial_weights, named_views, parameter_shapes
from nanoeuler.tokenizer import CharTokenizer
from nanoeuler.weights.llama2c import write_llama2c
from nanoeuler.weights.llmc import write_llmc
from nanoeuler.weights.tensors import narrow, widen

GPT2 = {"preset": "gpt2", "vocab_size": 20, "max_seq_len": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
LLAMA = {"vocab_size": 20, "max_seq_len": 8, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 16}
TOKENIZER = CharTokenizer("abcdefgh \n")


def weights_of(config: ModelConfig, dtype: str = "float32") -> np.ndarray:
    """Return a flat buffer of numbers that a dtype holds exactly, all different from zero."""
    shapes = parameter_shapes(config)
    flat = np.zeros(flat_size(shapes), np.float32)
    random = np.random.default_rng(4)
    for view in named_views(flat, shapes).values():
        x = random.normal(0, 0.3, view.shape).astype(np.float32)
        view[...] = widen(narrow(x)) if dtype == "bfloat16" else x.astype(dtype) if dtype == "float16" else x
    return flat


def make_bin(path: Path, dtype: str = "float32", **model: Any) -> Path:
    """Write a .bin file: llm.c's for a GPT-2, llama2.c's for a Llama."""
    config = ModelConfig(**model)
    views = named_views(weights_of(config, dtype), parameter_shapes(config))
    if config.norm == "layernorm":
        write_llmc(path, config, views, dtype)
    else:
        write_llama2c(path, config, views)
    return path


def make_run(path: Path, **model: Any) -> Path:
    """Write a run's folder with one checkpoint."""
    config = Config(model=ModelConfig(**model))
    flat = initial_weights(config.model, seed=0)
    path.mkdir()
    write_checkpoint(path, 5, Checkpoint(config, flat, None, {"best": [1.5, 4]}, TOKENIZER), keep=1)
    return path

"""Our checkpoints are Hugging Face directories: ``transformers`` loads them as they are, and computes what we do."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import error
from weights.variants import (
    VARIANTS,
    batch,
    every_variant,
    our_numbers,
    our_text,
    random_weights,
    their_numbers,
    their_text,
    torch,
    transformers,
)

from nanoeuler.checkpoint import Checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig
from nanoeuler.tokenizer import CharTokenizer

CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "LlamaForCausalLM"} | {
    f"qwen{i}": f"Qwen{i}ForCausalLM" for i in (2, 3)
}
Out = tuple[Path, ModelConfig, np.ndarray]  # a checkpoint and what lies in it
Written = Callable[..., Out]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Give ``written(name, heads=1)``, which writes a checkpoint of random weights once."""

    @cache
    def write(name: str, heads: int = 1) -> Out:
        config = ModelConfig(**VARIANTS[name].ours, num_prediction_heads=heads)
        tokenizer = CharTokenizer("".join(chr(ord("A") + i) for i in range(config.vocabulary)))
        weights = random_weights(config)
        run = tmp_path_factory.mktemp("run")
        checkpoint = Checkpoint(Config(model=config), weights, None, {}, tokenizer)
        return write_checkpoint(run, 1, checkpoint, keep=1), config, weights

    return write


def from_pretrained(path: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return what ``transformers`` makes of a folder, and what it found missing or left over."""
    return transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)


@every_variant
@pytest.mark.parametrize("heads", [1, 3])
def test_it_is_loaded_as_it_is(name: str, heads: int, written: Written) -> None:
    path, config, _ = written(name, heads)
    model, loading = from_pretrained(path)
    assert type(model).__name__ == CLASSES[VARIANTS[name].model_type]
    assert model.dtype == torch.float32
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    extra = {key.split(".")[0] for key in loading["unexpected_keys"]}
    assert extra == ({"prediction"} if heads > 1 else set())
    assert len(loading["unexpected_keys"]) == (heads - 1) * (3 if config.norm == "layernorm" else 2)
    assert model.config.tie_word_embeddings == config.tie_embeddings
    assert model.config.max_position_embeddings == config.max_seq_len
    assert model.config.bos_token_id is None
    assert model.config.eos_token_id is None  # or a text would end there


@every_variant
def test_logits_and_gradients(name: str, written: Written) -> None:
    """1e-4 is asked for, of the logits."""
    path, config, weights = written(name)
    tokens, targets = batch(config.vocabulary)
    theirs = their_numbers(from_pretrained(path)[0].eval(), tokens, targets)
    ours = our_numbers(config, weights, tokens, targets)
    assert theirs.logits.std() > 0.5
    assert error(ours.logits, theirs.logits) < 1e-5
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
    assert ours.gradients.keys() == theirs.gradients.keys()
    for key, gradient in theirs.gradients.items():
        assert error(ours.gradients[key], gradient) < 1e-4, key


@every_variant
def test_the_likeliest_text(name: str, written: Written) -> None:
    path, config, weights = written(name, 3)
    model, prompt = from_pretrained(path)[0].eval(), [5, 5, 9, 33, 7]
    text = their_text(model, prompt, 30)
    assert our_text(config, weights, prompt, 30) == text
    assert len(set(text)) > 1

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
    save,
    their_numbers,
    their_text,
    torch,
    transformers,
)

from nanoeuler.checkpoint import Checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig
from nanoeuler.parameters import named_views, parameter_shapes
from nanoeuler.tokenizer import CharTokenizer
from nanoeuler.weights import load_pretrained
from nanoeuler.weights.directory import write_model_files

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
    """Nothing is missing and nothing left over, whatever prediction heads lie beside the model; we read those again."""
    path, config, weights = written(name, heads)
    model, loading = from_pretrained(path)
    assert type(model).__name__ == CLASSES[VARIANTS[name].model_type]
    assert model.dtype == torch.float32
    assert not any(loading[keys] for keys in ("missing_keys", "mismatched_keys", "unexpected_keys"))
    assert model.config.tie_word_embeddings == config.tie_embeddings
    assert model.config.max_position_embeddings == config.max_seq_len
    assert model.config.bos_token_id is None
    assert model.config.eos_token_id is None  # or a text would end there
    assert load_pretrained(path).weights.tobytes() == weights.tobytes()


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


@every_variant
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_there_and_back(name: str, dtype: str, tmp_path: Path) -> None:
    """A model of ``transformers``, read here and written again: its own class, its dtype and its very bits."""
    there, back = tmp_path / "there", tmp_path / "back"
    back.mkdir()
    model = load_pretrained(save(name, there, dtype))
    views = named_views(model.weights, parameter_shapes(model.config))
    write_model_files(back, model.config, views, dtype, model.tokenizer, model.end_ids)
    first, second = (from_pretrained(folder, dtype="auto")[0] for folder in (there, back))
    assert second.dtype == first.dtype == getattr(torch, dtype)
    if VARIANTS[name].model_type != "mistral":  # which without its window is a Llama
        assert type(second) is type(first)
    state, state_again = first.state_dict(), second.state_dict()
    assert state.keys() == state_again.keys()
    for key, tensor in state.items():
        assert torch.equal(tensor, state_again[key]), key

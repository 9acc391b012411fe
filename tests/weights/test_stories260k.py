"""A real model: the numbers of its Hugging Face folder are those of its llama2.c file, and those of transformers."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weights.variants import (
    assert_same_numbers,
    doubled,
    exact,
    our_numbers,
    our_text,
    their_numbers,
    their_text,
    transformers,
)

from nanoeuler.weights import Pretrained, load_pretrained

MODELS = Path(os.environ.get("NANOEULER_DATA", "no such folder")).parent / "models" / "stories260K"
pytestmark = pytest.mark.skipif(
    not (MODELS / "hf" / "config.json").is_file(),
    reason="the weights of stories260K are not in ../models beside the folder that NANOEULER_DATA names",
)

STORY = """Once upon a time, there was a little owl who lived in a tall tree. The owl had a red ball. Every night he
rolled the ball down the hill, and every night he ran after it. One day the ball fell into the river.
"My ball!" said the owl. He was very sad. A big fish came up and said, "Do not be sad. I can help you." The fish
pushed the ball back to the grass. The owl was so happy. "Thank you, fish!" he said. They played together all day,
and from then on they were the best of friends.
"""


@cache
def ours(source: str, dtype: Any = np.float32) -> Pretrained:
    return load_pretrained(MODELS / source, dtype)


@cache
def theirs() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(MODELS / "hf", attn_implementation="eager").eval()


@cache
def processor() -> Any:
    sentencepiece = pytest.importorskip("sentencepiece", reason="the oracle of these tests' tokens is sentencepiece")
    return sentencepiece.SentencePieceProcessor(model_file=str(MODELS / "hf" / "tokenizer.model"))


def tokens_of(text: str) -> np.ndarray:
    """Return the tokens of a text as the model wants them, after the one that begins every text."""
    return np.array([processor().bos_id(), *processor().encode(text)], np.int32)


def story_batch() -> tuple[np.ndarray, np.ndarray]:
    """Return the story as tokens (1, T), and what each should predict."""
    tokens = tokens_of(STORY)[None]
    assert 150 < tokens.size < 500
    targets = tokens[:, 1:].copy()
    targets[0, -1] = -1  # transformers sees no target past its end
    return tokens[:, :-1], targets


def test_folder_and_file_are_the_same_model() -> None:
    """Bit by bit, once the interleaved RoPE is undone."""
    folder, file = ours("hf"), ours("stories260K.bin")
    assert folder.weights.tobytes() == file.weights.tobytes()
    assert np.abs(folder.weights).max() > 0.1
    same = ("vocab_size", "num_layers", "num_heads", "num_kv_heads", "hidden_dim", "feed_forward_dim", "tie_embeddings",
            "norm_eps", "rope_theta", "max_seq_len")  # fmt: skip
    assert {key: getattr(folder.config, key) for key in same} == {key: getattr(file.config, key) for key in same}


@pytest.mark.parametrize("text", ["Once upon a time", STORY])
def test_the_tokens_of_a_text(text: str) -> None:
    """The folder's tokenizer is sentencepiece's, and comes along."""
    tokenizer = ours("hf").tokenizer
    assert tokenizer is not None
    assert [*tokenizer.prefix, *tokenizer.encode(text)] == tokens_of(text).tolist()


def test_logits_loss_and_gradients_of_a_story() -> None:
    reference = their_numbers(theirs(), *story_batch())
    assert_same_numbers(our_numbers(ours("hf").config, ours("hf").weights, *story_batch()), reference, 1e-5, 1e-4)
    assert 1.0 < reference.loss < 3.0  # it knows stories: one that knows nothing has log(512) = 6.2


def test_the_story_in_float64() -> None:
    model = ours("hf", np.float64)
    with doubled():
        reference = their_numbers(exact(theirs()), *story_batch())
    assert_same_numbers(our_numbers(model.config, model.weights, *story_batch()), reference, 1e-9, 1e-9)


@pytest.mark.parametrize("source", ["hf", "stories260K.bin"])
def test_the_likeliest_story(source: str) -> None:
    prompt = tokens_of("Once upon a time").tolist()
    text = their_text(theirs(), prompt, 200)
    assert our_text(ours(source).config, ours(source).weights, prompt, 200) == text
    said = processor().decode(text)
    assert " she " in said or " he " in said

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


def tokens_of(text: str) -> np.ndarray:
    """Return the tokens of a text as the model wants them, the one that begins every text included."""
    tokenizer = ours("hf").tokenizer
    assert tokenizer is not None
    return np.concatenate([np.array(tokenizer.prefix, np.int32), tokenizer.encode(text)])


def test_folder_and_file_are_the_same_model() -> None:
    """Bit by bit, once the interleaved RoPE is undone."""
    folder, file = ours("hf"), ours("stories260K.bin")
    assert folder.weights.tobytes() == file.weights.tobytes()
    assert np.abs(folder.weights).max() > 0.1
    same = ("vocab_size", "num_layers", "num_heads", "num_kv_heads", "hidden_dim", "feed_forward_dim", "tie_embeddings",
            "norm_eps", "rope_theta", "max_seq_len")  # fmt: skip
    assert {key: getattr(folder.config, key) for key in same} == {key: getattr(file.config, key) for key in same}


def test_the_tokens_of_the_story() -> None:
    """Of both sides: its tokenizer is sentencepiece's."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="the oracle of this test is sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(MODELS / "hf" / "tokenizer.model"))
    assert tokens_of(STORY).tolist() == [1, *processor.encode(STORY)]


def test_logits_loss_and_gradients_of_a_story() -> None:
    tokens = tokens_of(STORY)
    assert 150 < len(tokens) < 500
    batch = tokens[None, :-1], tokens[None, 1:].copy()
    batch[1][0, -1] = -1  # transformers sees no target past its end
    numbers = our_numbers(ours("hf").config, ours("hf").weights, *batch)
    reference = their_numbers(theirs(), *batch)
    assert_same_numbers(numbers, reference, 1e-5, 1e-4)
    assert 1.0 < reference.loss < 3.0  # it knows stories: log(512) is 6.2


def test_the_story_in_float64() -> None:
    tokens = tokens_of(STORY)
    batch = tokens[None, :-1], tokens[None, 1:].copy()
    batch[1][0, -1] = -1
    model = ours("hf", np.float64)
    with doubled():
        reference = their_numbers(exact(theirs()), *batch)
    assert_same_numbers(our_numbers(model.config, model.weights, *batch), reference, 1e-9, 1e-9)


@pytest.mark.parametrize("source", ["hf", "stories260K.bin"])
def test_the_likeliest_story(source: str) -> None:
    prompt = tokens_of("Once upon a time").tolist()
    text = their_text(theirs(), prompt, 200)
    assert our_text(ours(source).config, ours(source).weights, prompt, 200) == text
    tokenizer = ours("hf").tokenizer
    assert tokenizer is not None
    assert b" she " in tokenizer.decode_any(text) or b" he " in tokenizer.decode_any(text)

"""Choosing the next token: by hand, against transformers, and many in a row."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from nanoeuler import cpu
from nanoeuler.config import ModelConfig
from nanoeuler.model import Transformer
from nanoeuler.parameters import initial_weights
from nanoeuler.sampling import Sampling, distribution, generate, sample_prompt, with_prefix
from nanoeuler.tokenizer import ByteTokenizer, CharTokenizer

LOGITS = np.log([0.5, 0.25, 0.125, 0.0625, 0.0625]).astype(np.float32)


def probabilities(used: list[int] | None = None, **sampling: Any) -> list[float]:
    return distribution(LOGITS, Sampling(**sampling), None if used is None else np.array(used)).tolist()


# --- by hand


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16]),
        ({"temperature": 0}, [1, 0, 0, 0, 0]),
        ({"temperature": 0.5}, [64 / 86, 16 / 86, 4 / 86, 1 / 86, 1 / 86]),  # squared
        ({"temperature": 1e-6}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e9}, [1 / 5] * 5),
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_k": 4}, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16]),  # the fourth and fifth are equal: both stay
        ({"top_k": 99}, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16]),
        ({"top_p": 0.74}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.76}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"top_p": 0.1}, [1, 0, 0, 0, 0]),
        ({"top_p": 0}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.94}, [8 / 16, 4 / 16, 2 / 16, 1 / 16, 1 / 16]),
        ({"min_p": 0.24}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"min_p": 0.26}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"min_p": 1}, [1, 0, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.8}, [2 / 3, 1 / 3, 0, 0, 0]),  # of the three left 4/7 + 2/7 are more than 0.8
        (
            {"temperature": 0.5, "min_p": 0.06},
            [16 / 21, 4 / 21, 1 / 21, 0, 0],
        ),  # squared, the third is 1/16 of the first
    ],
    ids=str,
)
def test_distributions_by_hand(sampling: dict[str, Any], expected: list[float]) -> None:
    assert probabilities(**sampling) == pytest.approx(expected, abs=1e-6)


def test_the_penalty_by_hand() -> None:
    logits = np.array([2.0, -1.0, 0.5, 0.0])
    p = distribution(logits, Sampling(repetition_penalty=2.0), np.array([0, 1, 1, 3]))
    z = np.array([1.0, -2.0, 0.5, 0.0])  # divided where positive, multiplied where negative, once only
    np.testing.assert_allclose(p, np.exp(z) / np.exp(z).sum(), rtol=1e-12)
    np.testing.assert_array_equal(distribution(logits, Sampling()), distribution(logits, Sampling(), np.array([0])))
    assert distribution(logits, Sampling(temperature=0, repetition_penalty=8.0), np.array([0])).argmax() == 2


def test_logits_are_not_changed() -> None:
    logits = LOGITS.copy()
    distribution(logits, Sampling(0.5, 2, 0.9, 0.1, 1.5), np.array([0]))
    np.testing.assert_array_equal(logits, LOGITS)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.01}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_huge_logits(sampling: dict[str, Any]) -> None:
    p = distribution(np.array([1e30, -1e30, 0.0, 1e30], np.float32), Sampling(**sampling))
    assert p.tolist() == [0.5, 0, 0, 0.5]


# --- against transformers

COMBINATIONS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8},
    {"temperature": 1.4, "top_k": 20, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.1},
    {"temperature": 0.3, "top_k": 7, "top_p": 0.5},
]


@pytest.mark.parametrize("sampling", COMBINATIONS, ids=str)
def test_the_same_as_transformers(sampling: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (it comes with the extra 'oracles')")
    hf = pytest.importorskip(
        "transformers.generation.logits_process",
        reason="transformers is not installed (it comes with the extra 'oracles')",
    )
    makers = {
        "repetition_penalty": hf.RepetitionPenaltyLogitsProcessor,
        "temperature": hf.TemperatureLogitsWarper,
        "top_k": hf.TopKLogitsWarper,
        "top_p": hf.TopPLogitsWarper,
        "min_p": hf.MinPLogitsWarper,
    }
    generator = np.random.default_rng(0)
    for _ in range(20):
        logits, used = 3 * generator.standard_normal(50), generator.integers(0, 50, 12)
        scores = torch.tensor(logits)[None]
        for name, maker in makers.items():
            if name in sampling:
                scores = maker(sampling[name])(torch.tensor(used)[None], scores)
        expected = torch.softmax(scores, -1)[0].numpy()
        ours = distribution(logits, Sampling(**sampling), used)
        np.testing.assert_allclose(ours, expected, rtol=1e-9)
        assert ((ours == 0) == (expected == 0)).all()


# --- many in a row

MODEL = ModelConfig(vocab_size=11, max_seq_len=8, num_layers=2, num_heads=2, num_kv_heads=1, hidden_dim=16)


def model(changes: dict[str, Any] | None = None) -> Transformer:
    config = ModelConfig.model_validate(MODEL.model_dump() | {"init_std": 0.5} | (changes or {}))
    return Transformer(config, cpu, initial_weights(config, 0, np.float64), 1, config.max_seq_len, "generation")


def tokens(count: int, sampling: Sampling, seed: Any = 0, prompt: tuple[int, ...] = (1, 2, 3)) -> list[int]:
    return list(islice(generate(model(), np.array(prompt, np.int32), 11, sampling, seed), count))


def plain_greedy(transformer: Transformer, prompt: list[int], count: int) -> list[int]:
    """Return the likeliest tokens, each from the logits of all of its context at once, without a cache."""
    config, limit = transformer.config, transformer.cache.capacity
    weights = initial_weights(config, 0, np.float64)
    everything = Transformer(config, cpu, weights, 1, limit, "evaluation")
    text, context = list(prompt), list(prompt)[-limit:]
    for _ in range(count):
        text.append(int(everything.logits(np.array([context], np.int32))[0, -1].argmax()))
        context = [*context, text[-1]] if len(context) < limit else text[-max(1, limit // 2) :]
    return text[len(prompt) :]


@pytest.mark.parametrize("changes", [{}, {"position": "learned", "norm": "layernorm"}, {"max_seq_len": 1}], ids=str)
@pytest.mark.parametrize("length", [1, 3, 8, 12])
def test_greedy_text_is_that_of_the_model_without_a_cache_also_beyond_its_context(
    changes: dict[str, Any], length: int
) -> None:
    prompt = [(3 * i) % 11 for i in range(length)]
    transformer = model(changes)
    expected = plain_greedy(transformer, prompt, 30)
    got = generate(transformer, np.array(prompt, np.int32), 11, Sampling(temperature=0), 0)
    assert list(islice(got, 30)) == expected
    assert len(set(expected)) > 1


def test_the_context_is_what_was_planned_not_what_the_model_could() -> None:
    """Models that could read 100,000 tokens are planned for as many as a text will have."""
    config = model().config
    short = Transformer(config, cpu, initial_weights(config, 0, np.float64), 1, 5, "generation")
    for prompt in ([3], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]):
        got = list(islice(generate(short, np.array(prompt, np.int32), 11, Sampling(temperature=0), 0), 30))
        assert got == plain_greedy(short, prompt, 30)
        assert got != plain_greedy(model(), prompt, 30)
        assert short.cache.length <= 5


def test_the_same_seed_gives_the_same_text_and_others_differ() -> None:
    assert tokens(40, Sampling()) == tokens(40, Sampling())
    assert len({tuple(tokens(40, Sampling(), seed)) for seed in (0, 1, 2, (0, 1), (0, 2))}) == 5


def test_a_text_knows_nothing_of_the_one_before() -> None:
    """The model's cache serves every text in turn, also where one was left off in its midst."""
    transformer, prompt = model(), np.array([1, 2, 3], np.int32)
    for earlier in (0, 1, 3, 7, 40):
        list(islice(generate(transformer, np.array([9, 9], np.int32), 11, Sampling(), 5), earlier))
        assert list(islice(generate(transformer, prompt, 11, Sampling(), 0), 40)) == tokens(40, Sampling())


def test_greedy_does_not_depend_on_the_seed() -> None:
    greedy = tokens(40, Sampling(temperature=0), 0)
    assert greedy == tokens(40, Sampling(temperature=0), 1) == tokens(40, Sampling(top_k=1), 2)


def test_tokens_come_as_often_as_their_probability() -> None:
    """The first token of many seeds: counts within five standard deviations of what the model says."""
    transformer, sampling = model({"init_std": 0.3}), Sampling(temperature=1.5, top_k=6)
    prompt = np.array([4], np.int32)
    n = 1500
    counts = np.zeros(11)
    for seed in range(n):
        counts[next(generate(transformer, prompt, 11, sampling, seed))] += 1
    everything = Transformer(transformer.config, cpu, initial_weights(transformer.config, 0, np.float64), 1, 8)
    p = distribution(everything.logits(prompt[None])[0, -1], sampling)
    assert (counts[p == 0] == 0).all()
    assert (p > 0).sum() == 6
    assert (np.abs(counts - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + 1e-9).all()


def test_a_padded_vocabulary_is_never_chosen() -> None:
    prompt = np.array([1], np.int32)
    chosen = set(islice(generate(model(), prompt, 4, Sampling(temperature=50.0), 0), 200))
    assert chosen == {0, 1, 2, 3}


def test_the_penalty_counts_the_prompt_and_what_was_generated() -> None:
    got = tokens(8, Sampling(temperature=0, repetition_penalty=1e6), prompt=(1, 2, 3))
    assert len({1, 2, 3, *got[:5]}) == 8  # eight are in the context at most, and none of them comes again


def test_the_prompt_is_not_changed() -> None:
    prompt = np.arange(11, dtype=np.int32)
    list(islice(generate(model(), prompt, 11, Sampling(), 0), 20))
    assert prompt.tolist() == list(range(11))


def test_a_sample_starts_with_what_the_vocabulary_can_say() -> None:
    assert sample_prompt(CharTokenizer("ab\n"), "ba").tolist() == [2, 1]
    assert sample_prompt(CharTokenizer("ab"), "\n").tolist() == [0]
    assert sample_prompt(ByteTokenizer(), "").tolist() == [0]


def test_what_a_model_expects_before_a_text_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CharTokenizer, "prefix", (7, 8))
    tokenizer = CharTokenizer("ab\n")
    assert with_prefix(tokenizer, np.array([2, 1], np.int32)).tolist() == [7, 8, 2, 1]
    assert with_prefix(tokenizer, np.array([2, 1], np.int32)).dtype == np.int32
    assert sample_prompt(tokenizer, "ba").tolist() == [7, 8, 2, 1]
    assert sample_prompt(tokenizer, "what it cannot say").tolist() == [7, 8]

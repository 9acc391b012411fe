import threading

import numpy as np
import pytest

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.evaluate import engine as module
from nanoeuler.evaluate.engine import Engine
from nanoeuler.parameters import initial_weights

CONFIG = ModelConfig(vocab_size=50, max_seq_len=16, num_layers=1, num_heads=2, hidden_dim=8)
WEIGHTS = initial_weights(CONFIG, 0, np.float32)


def test_results_come_in_order_whoever_is_quick(monkeypatch):
    monkeypatch.setattr(module, "available_on", lambda device: None)
    monkeypatch.setattr("nanoeuler.cpu.workers", lambda asked: 3)
    second_is_done = threading.Event()

    def score(model, batch):
        if batch == 0:
            assert second_is_done.wait(30)
        if batch == 1:
            second_is_done.set()
        return batch, model

    with Engine(CONFIG, WEIGHTS) as engine:
        assert len(engine.models) == 3
        found = list(engine.run(score, range(8)))
    assert [batch for batch, _ in found] == list(range(8))
    assert len({id(model) for _, model in found[:3]}) == 3


def test_an_interruption_waits_for_what_is_under_way_alone():
    begun = []

    def score(model, batch):
        begun.append(batch)
        if batch == 0:
            raise KeyboardInterrupt

    with Engine(CONFIG, WEIGHTS) as engine, pytest.raises(KeyboardInterrupt):
        list(engine.run(score, range(1000)))
    assert len(begun) <= len(engine.models)


def test_length_and_batch():
    assert Engine(CONFIG, WEIGHTS).length == 16
    assert Engine(CONFIG, WEIGHTS, length=5, batch_tokens=14).batch_tokens == 10
    assert Engine(CONFIG, WEIGHTS, length=5, batch_tokens=1).batch_tokens == 5
    with pytest.raises(UserError, match="--length 17: the model takes at most 16 tokens"):
        Engine(CONFIG, WEIGHTS, length=17)


def test_a_long_context_is_not_taken_unasked():
    config = ModelConfig(**CONFIG.model_dump() | {"max_seq_len": 100_000})
    assert Engine(config, WEIGHTS).length == module.LONGEST


def test_memory_decides_how_many_are_under_way(monkeypatch):
    monkeypatch.setattr("nanoeuler.cpu.workers", lambda asked: 64)
    monkeypatch.setattr(module, "available_on", lambda device: 40_000)
    with Engine(CONFIG, WEIGHTS, batch_tokens=16) as engine:
        assert 1 <= len(engine.models) < 8
    with pytest.raises(UserError, match=r"a batch of 1600 tokens takes .* give fewer --batch-tokens"):
        Engine(CONFIG, WEIGHTS, batch_tokens=1600)


def test_the_kernels_give_the_same_losses():
    pytest.importorskip("numba", reason="Numba is not installed (it comes with the extra 'gpu')")
    tokens = np.random.default_rng(0).integers(0, 50, (2, 17)).astype(np.int32)
    losses = {}
    for device in ("cpu", "sim"):
        with Engine(CONFIG, WEIGHTS, device) as engine:
            inputs, targets = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
            (losses[device],) = engine.run(lambda model, batch: np.array(model.losses(*batch)), [(inputs, targets)])
    np.testing.assert_allclose(losses["sim"], losses["cpu"], rtol=1e-4)

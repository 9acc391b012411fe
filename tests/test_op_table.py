"""What the code around the ops does with a device's arrays: it views them and hands them to ops, and nothing else.

The op table here is NumPy's, but its arrays seem to lie in a memory that the host cannot reach, as those of a GPU do.
Whatever works with it, and to the same bytes, asks nothing of a device but the ops.
"""

import shutil
from inspect import isclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import runs

import nanoeuler.generate
import nanoeuler.train
from nanoeuler import cpu
from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.cpu.parallel import Team
from nanoeuler.model import Transformer
from nanoeuler.parameters import initial_weights
from nanoeuler.step import TrainingStep

T = 8
CONFIGS = {
    "euler": {"num_kv_heads": 1, "num_prediction_heads": 2, "dropout": 0.2},
    "gpt2": {"preset": "gpt2", "dropout": 0.2},
    "mixed": {"norm": "layernorm", "bias": True, "position": "learned", "tie_embeddings": True},
}
every_config = pytest.mark.parametrize("name", CONFIGS)


class Far:
    """An array that only ops, ``from_numpy`` and ``to_numpy`` can reach into: all else is to take views of it."""

    __array_ufunc__ = None  # so that arithmetic with an array of the host is an error too

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.ndim, self.size, self.dtype = array.shape, array.ndim, array.size, array.dtype

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        raise TypeError("an array of the device was read by the host")

    def __getitem__(self, index: Any) -> "Far":
        view = self._array[index]
        assert isinstance(view, np.ndarray), "an element was read by the host"
        assert np.shares_memory(view, self._array) or view.size == 0
        return Far(view)

    def reshape(self, *shape: Any) -> "Far":
        view = self._array.reshape(*shape)
        assert np.shares_memory(view, self._array), "a GPU's arrays cannot be reshaped where that takes a copy"
        return Far(view)


def array_of(argument: Any) -> Any:
    """Return what an op is to work on; an array of the host is refused."""
    if isinstance(argument, list):
        return [array_of(each) for each in argument]
    if isinstance(argument, np.ndarray):
        raise TypeError("an op was given an array of the host")
    return argument._array if isinstance(argument, Far) else argument


def far_table() -> SimpleNamespace:
    """Return the op table."""

    def over(op: Any) -> Any:
        return lambda *arguments: op(*map(array_of, arguments))

    def from_numpy(out: Far, x: np.ndarray) -> None:
        assert not isinstance(x, Far)
        cpu.from_numpy(out._array, x)

    table = {name: getattr(cpu, name) for name in cpu.__all__}
    ops = {name: over(op) for name, op in table.items() if not isclass(op) and op.__module__ != Team.__module__}
    return SimpleNamespace(
        **table
        | ops
        | {
            "empty": lambda size, dtype: Far(cpu.empty(size, dtype)),
            "from_numpy": from_numpy,
            "to_numpy": lambda x: x._array.copy(),
            "rope_tables": cpu.rope_tables,
        }
    )


def far(array: np.ndarray) -> Far:
    """Return a copy of an array of the host."""
    return Far(array.copy())


def model_config(name: str) -> ModelConfig:
    sizes = {"vocab_size": 13, "max_seq_len": T, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "init_std": 0.1}
    return ModelConfig(**(sizes | CONFIGS[name]))


def batch(config: ModelConfig, seed: int, B: int = 5) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    targets = random.integers(-1, 13, (config.num_prediction_heads, B, T), np.int32)
    return random.integers(0, 13, (B, T), np.int32), targets


def test_the_far_table_is_strict() -> None:
    table, x = far_table(), far(np.ones((3, 4)))
    for wrong in (
        lambda: np.asarray(x),
        lambda: x + x,
        lambda: np.ones((3, 4)) * x,
        lambda: float(x),
        lambda: x.__setitem__(0, 1.0),
        lambda: table.fill(np.ones(3), 0.0),
        lambda: table.accumulate(x, [np.ones((3, 4))]),
        lambda: cpu.fill(x, 0.0),
    ):
        with pytest.raises((TypeError, AttributeError)):
            wrong()
    with pytest.raises(AssertionError):
        x[:, :2].reshape(6)
    with pytest.raises(AssertionError):
        x[0, 0]


@every_config
def test_a_model_takes_tokens_and_gives_logits_and_losses_to_the_host(name: str) -> None:
    config = model_config(name)
    weights, (tokens, targets) = initial_weights(config, 0), batch(config, 0, 3)
    near, away = (
        {purpose: Transformer(config, table, given, 3, T, purpose) for purpose in ("evaluation", "generation")}
        for table, given in ((cpu, weights), (far_table(), far(weights)))
    )
    for B, length in ((3, T), (2, 5)):
        some = tokens[:B, :length]
        assert (away["evaluation"].logits(some) == near["evaluation"].logits(some)).all()
        losses = [side["evaluation"].losses(some, targets[0, :B, :length]) for side in (near, away)]
        assert type(losses[1]) is np.ndarray
        assert (losses[0] == losses[1]).all()
    for part in (tokens[:, :3], tokens[:, 3:4], tokens[:, 4:]):
        logits = [side["generation"].next_logits(part, side["generation"].cache) for side in (near, away)]
        assert type(logits[1]) is np.ndarray
        assert (logits[0] == logits[1]).all()


@every_config
@pytest.mark.parametrize(("pieces", "first"), [(1, None), (3, None), (1, 4), (3, 4)])
def test_a_step_is_the_same(name: str, pieces: int, first: int | None) -> None:
    """With documents too, which begin with the token ``first``."""
    config = model_config(name)
    training = TrainingConfig(batch_size=5, gradient_accumulation=2, workers=2, pieces=pieces)
    results, states = [], []
    for table in (cpu, far_table()):
        with TrainingStep(config, training, table, document_start=first) as step:
            for i in range(3):
                results.append(step.run([batch(config, 2 * i), batch(config, 2 * i + 1)], 1e-2))
            results.append(step.evaluate([batch(config, 9), batch(config, 10, 2)]))
        buffers = [table.to_numpy(x).copy() for x in (step.weights, step.m, step.v)]
        with TrainingStep(config, training, table, buffers[0], document_start=first) as again:
            again.restore(step.state(), *buffers[1:])
            results.append(again.run([batch(config, 6), batch(config, 7)], 1e-2))
        states.append([table.to_numpy(x).tobytes() for x in (again.weights, again.m, again.v, again.norm)])
    assert results[:5] == results[5:]
    assert states[0] == states[1]


def test_a_run_and_its_samples_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole commands: training, evaluating, sampling, saving, going on from a checkpoint, generating."""
    text = runs.write_text(tmp_path / "text.txt")
    changes = runs.all_states(training__checkpoint_interval=6, training__sample_interval=4, training__eval_interval=3)
    learned, texts = [], []
    for run in (tmp_path / "near", tmp_path / "far"):
        if run.name == "far":
            monkeypatch.setattr(nanoeuler.train, "op_table", lambda *arguments: far_table())
            monkeypatch.setattr(nanoeuler.generate, "op_table", lambda *arguments: far_table())
        command = runs.options(run, text, **changes, training__total_steps=9)
        assert runs.train_here(command) == 0
        shutil.rmtree(run / "checkpoints" / "step-00000009")
        assert runs.train_here(command) == 0  # on from step 6
        capfd.readouterr()
        assert runs.generate_here("--checkpoint", str(run), "--tokens", "40", "--samples", "2") == 0
        texts.append(capfd.readouterr().out)
        learned.append(runs.learned(run, 9))
    assert learned[0] == learned[1]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 80

"""What the training benchmark runs: the standard sizes, their batches, and the arithmetic that one step needs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig, TrainingConfig, load_config
from nanoeuler.errors import UserError
from nanoeuler.parameters import parameter_count, parameter_shapes
from nanoeuler.plan import flops_per_token
from nanoeuler.step import Batch

#: Distinct batches that the steps go round.
BATCHES = 8

#: The configuration that is compared with nanoGPT's laptop recipe.
RECIPE = Path(__file__).parents[2] / "configs" / "shakespeare-char.json"
#: Characters in TinyShakespeare, the vocabulary of that recipe.
CHARACTERS = 65


@dataclass(frozen=True)
class Workload:
    """A model, and the batches it is trained on."""

    model: ModelConfig
    training: TrainingConfig
    length: int  # T of a batch, at most the model's
    exact_gelu: bool = False  # PyTorch's side only: nanoGPT has not the tanh form

    @property
    def tokens(self) -> int:
        """Tokens in one step."""
        return self.training.batch_size * self.training.gradient_accumulation * self.length

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return parameter_count(parameter_shapes(self.model))

    def batches(self) -> list[list[Batch]]:
        """Return the micro-batches of :data:`BATCHES` steps: uniformly random tokens, the same every time."""
        B, T, heads = self.training.batch_size, self.length, self.model.num_prediction_heads
        generator = np.random.Generator(np.random.PCG64(self.training.seed))

        def batch() -> Batch:
            tokens = generator.integers(0, self.model.vocabulary, (B, T + heads), np.int32)
            targets = np.stack([tokens[:, k + 1 : k + 1 + T] for k in range(heads)])
            return tokens[:, :T].copy(), targets

        return [[batch() for _ in range(self.training.gradient_accumulation)] for _ in range(BATCHES)]

    @property
    def flops(self) -> int:
        """Floating-point operations of one step that the model itself asks for, not what is computed twice."""
        return self.tokens * flops_per_token(self.model, self.length)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which :func:`workload_from_dict` builds the same."""
        return {
            "model": self.model.model_dump(),
            "training": self.training.model_dump(),
            "length": self.length,
            "exact_gelu": self.exact_gelu,
        }


def workload_from_dict(values: dict[str, Any]) -> Workload:
    """Build what :meth:`Workload.to_dict` took apart."""
    model, training = ModelConfig.model_validate(values["model"]), TrainingConfig.model_validate(values["training"])
    return Workload(model, training, values["length"], values["exact_gelu"])


def _workload(batch_size: int, length: int, **model: Any) -> Workload:
    return Workload(ModelConfig.model_validate(model), TrainingConfig(batch_size=batch_size), length)


def _euler(
    dim: int, heads: int, kv_heads: int, layers: int, feed_forward: int, length: int, batch_size: int, vocabulary: int
) -> Workload:
    return _workload(
        batch_size,
        length,
        hidden_dim=dim,
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_layers=layers,
        feed_forward_dim=feed_forward,
        max_seq_len=length,
        vocab_size=vocabulary,
    )


SIZES = {
    "S": _euler(128, 4, 2, 4, 512, 128, 16, 512),
    "M": _euler(384, 6, 2, 6, 1024, 256, 12, 4096),
    "L": _euler(768, 12, 4, 12, 2048, 1024, 1, 50257),
    "gpt2": _workload(
        4, 64, preset="gpt2", hidden_dim=768, num_heads=12, num_layers=12, max_seq_len=1024, vocab_size=50257
    ),
}

#: nanoGPT's own model on a laptop (its README, "I only have a macbook"): 2000 steps on characters.
NANOGPT = replace(
    _workload(
        12,
        64,
        preset="gpt2",
        hidden_dim=128,
        num_heads=4,
        num_layers=4,
        max_seq_len=64,
        vocab_size=CHARACTERS,
        bias=False,
    ),
    exact_gelu=True,
)


def recipe() -> Workload:
    """Return what ``configs/shakespeare-char.json`` trains.

    Raises:
        UserError: the file is not there, or is not a configuration.
    """
    if not RECIPE.exists():
        raise UserError(f"size nanogpt compares with {RECIPE}, which is not there: run it from a clone of the project")
    config = load_config(RECIPE)
    model = config.model if config.model.vocab_size else config.model.model_copy(update={"vocab_size": CHARACTERS})
    return Workload(model, config.training, model.max_seq_len)

"""What the reader of every format returns: a model in files, before any weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanoeuler.config import ModelConfig
from nanoeuler.weights.tensors import Tensor


@dataclass(frozen=True)
class ModelFiles:
    """A model in files: what it is, and its tensors under Hugging Face's names, none of them read.

    Names and shapes have been checked against the configuration, and sizes against those of the files.
    """

    format: str  # "Hugging Face", "llm.c", "llama2.c"
    path: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    end_ids: tuple[int, ...] = ()  # tokens that end a generation, where the files say so
    note: str = ""  # what a user should know, such as prediction heads that are not there any more

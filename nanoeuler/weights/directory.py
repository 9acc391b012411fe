"""A Hugging Face folder: ``config.json``, tensors in one file or in many with an index, and the tokenizer beside them.

Read are also the variants that are about: names without the prefix of the whole model (``h.0.`` for
``transformer.h.0.``), buffers saved with the weights, an output matrix saved though it is the embedding's.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Tokenizer
from nanoeuler.tokenizer.files import read_json
from nanoeuler.weights.hf_config import config_record, read_config
from nanoeuler.weights.mapping import huggingface_views, model_family
from nanoeuler.weights.model_files import ModelFiles
from nanoeuler.weights.safetensors_file import read_header, write_tensors
from nanoeuler.weights.tensors import Tensor, check_tensors

MODEL_CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
#: Our further prediction heads, apart: llama.cpp's converter takes model*.safetensors and stops at an unknown name.
HEADS, HEADS_PREFIX = "prediction_heads.safetensors", "prediction."
#: Weights as pickles, by the names that they go under.
PICKLES = (
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "consolidated*.pth",
    "*.pt",
    "*.pth",
    "*.ckpt",
    "*.pkl",
)
#: Tensors that are no weights: masks and frequencies, which follow from the configuration.
BUFFERS = re.compile(r"(.*\.)?(attn\.(bias|masked_bias)|rotary_emb\.inv_freq)")
#: What stands before the names of all but the output matrix.
PREFIXES = {"gpt2": "transformer.", "nanoeuler": ""}
HEAD = "lm_head.weight"


def open_directory(folder: Path, file: str | None = None) -> ModelFiles:
    """Return the model in a folder; no weight is read. ``file`` is the one with all weights, where there are others.

    Raises:
        UserError: a file is missing or damaged; the configuration asks for what we lack; the weights are pickles; or
            the tensors are not those of the configuration. The message names the file.
    """
    config = read_model_config(folder)
    files = {file: None} if file else weight_files(folder)
    tensors: dict[str, Tensor] = {}
    for file, names in files.items():
        found = read_header(folder / file)
        _check_listed(folder, file, found, names)
        tensors |= found
    where = folder / (INDEX if None not in files.values() else next(iter(files)))
    try:
        config, tensors, note = _canonical(config, tensors)
        check_tensors(config, tensors)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return ModelFiles("Hugging Face", folder, config, tensors, read_end_ids(folder), note)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by the names that they have there; none is read.

    Raises:
        UserError: a file is missing or damaged, or an index says something else than the files.
    """
    tensors: dict[str, Tensor] = {}
    for file, names in weight_files(folder).items():
        found = read_header(folder / file)
        _check_listed(folder, file, found, names)
        tensors |= found
    return tensors


def read_model_config(folder: Path) -> ModelConfig:
    """Return the architecture in a folder's ``config.json``.

    Raises:
        UserError: it is missing, damaged, or asks for what we lack.
    """
    path = folder / MODEL_CONFIG
    if not path.exists():
        raise UserError(f"{path}: missing: a model's folder has it beside its weights")
    try:
        return read_config(read_json(path))
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def read_end_ids(folder: Path) -> tuple[int, ...]:
    """Return the tokens that end a generation, of ``generation_config.json`` or else of ``config.json``."""
    for name in (GENERATION_CONFIG, MODEL_CONFIG):
        if (folder / name).exists():
            ids = read_json(folder / name).get("eos_token_id")
            ids = ids if isinstance(ids, list) else [ids]
            if ids := [i for i in ids if isinstance(i, int) and not isinstance(i, bool)]:
                return tuple(ids)
    return ()


def weight_files(folder: Path) -> dict[str, set[str] | None]:
    """Return the names of the files with weights, each with the tensors that an index says it has, None without one.

    Of one file and an index the file is taken, as ``transformers`` does.

    Raises:
        UserError: there are none, or only pickles; the index is damaged, or names what is not in the folder.
    """
    heads: dict[str, set[str] | None] = {HEADS: None} if (folder / HEADS).exists() else {}
    if (folder / WEIGHTS).exists():
        return {WEIGHTS: None} | heads
    if (folder / INDEX).exists():
        return _read_index(folder / INDEX) | heads
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(others) == 1:
        return {others[0]: None}
    if others:
        raise UserError(f"{folder}: {len(others)} files of tensors and no {INDEX} that says what is where")
    refuse_pickles(folder)
    raise UserError(f"{folder}: no weights: neither {WEIGHTS} nor {INDEX}")


def refuse_pickles(folder: Path, source: str | None = None) -> None:
    """Refuse a folder whose weights are pickles.

    Raises:
        UserError: they are; it has the command that converts them.
    """
    pickles = sorted({path.name for pattern in PICKLES for path in folder.glob(pattern)})
    if pickles:
        raise UserError(pickle_message(source or str(folder), pickles[0]))


def pickle_message(source: str, file: str) -> str:
    """Return why a pickle is not read, and the command that makes a folder of safetensors of it."""
    target = re.sub(r"[^\w.-]+", "-", Path(source).name or "model") + "-safetensors"
    return (
        f"{source}: its weights are in {file}, a pickle, which can run any code when it is read: nanoeuler reads "
        "safetensors alone. If you trust where it is from, convert it where PyTorch and transformers are installed:\n"
        f'  python -c "from transformers import AutoModelForCausalLM as M; '
        f'M.from_pretrained({source!r}).save_pretrained({target!r})"'
    )


def _read_index(path: Path) -> dict[str, set[str] | None]:
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(file, str) for file in places.values()):
        raise UserError(f"{path}: damaged: no weight_map that says for each tensor in which file it is")
    files: dict[str, set[str] | None] = {}
    for name, file in places.items():
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise UserError(f"{path}: tensor {name} is said to be in {file!r}: not a file of tensors in this folder")
        if not os.path.exists(path.parent / file):  # noqa: PTH110  (False, too, for what can be no name at all)
            raise UserError(f"{path}: tensor {name} is said to be in {file}, and there is no such file")
        names = files.setdefault(file, set())
        assert names is not None
        names.add(name)
    return files


def _check_listed(folder: Path, file: str, found: Mapping[str, Tensor], listed: set[str] | None) -> None:
    for name in sorted(found.keys() ^ listed) if listed is not None else []:
        what = "is said to be in" if name not in found else "is not said to be in"
        which = "and is not there" if name not in found else "and is there"
        raise UserError(f"{folder / INDEX}: tensor {name} {what} {file}, {which}")


def _canonical(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor], str]:
    """Return tensors under their full names, without buffers and copies; and prediction heads, if they are there."""
    note, prefix = "", PREFIXES.get(model_family(config), "model.")
    kept = {name: tensor for name, tensor in tensors.items() if not BUFFERS.fullmatch(name)}
    if not any(name.startswith(prefix) for name in kept):
        kept = {name if name == HEAD or name.startswith(HEADS_PREFIX) else prefix + name: t for name, t in kept.items()}
    if config.tie_embeddings and HEAD in kept and model_family(config) != "nanoeuler":
        embedding = kept.get(f"{prefix}{'wte' if model_family(config) == 'gpt2' else 'embed_tokens'}.weight")
        if embedding is None or not _equal(kept.pop(HEAD), embedding):
            raise UserError(f"tie_word_embeddings is true, and yet {HEAD} is another matrix than the embedding")
    if config.num_prediction_heads > 1 and not any(name.startswith(HEADS_PREFIX) for name in kept):
        note = f"the {config.num_prediction_heads - 1} further prediction heads are not there any more"
        config = config.model_copy(update={"num_prediction_heads": 1})
    return config, kept, note


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and np.array_equal(a.read(), b.read(), equal_nan=True)


def write_model_files(
    folder: Path,
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    dtype: str,
    tokenizer: Tokenizer | None,
    end_ids: tuple[int, ...] = (),
) -> None:
    """Write a model into a folder that exists: configuration, weights, tokenizer.

    Args:
        folder: where to.
        config: the architecture, with its vocabulary size.
        weights: named views, as :func:`~nanoeuler.parameters.parameter_shapes` has them.
        dtype: of the numbers in the file, one of :data:`~nanoeuler.weights.tensors.DTYPES`.
        tokenizer: if there is one.
        end_ids: tokens that end a generation.

    Raises:
        UserError: a number is beyond the dtype, or the tokenizer cannot be written.
        OSError, SafetensorError: a file cannot be written.
    """
    bos = None if tokenizer is None or not tokenizer.prefix else tokenizer.prefix[0]
    write_record(folder / MODEL_CONFIG, config_record(config, dtype, bos, end_ids))
    views = huggingface_views(config, weights)
    heads = {name: view for name, view in views.items() if name.startswith(HEADS_PREFIX)}
    model = {name: view for name, view in views.items() if name not in heads}
    write_tensors(folder / WEIGHTS, model, dtype)
    if heads:
        write_tensors(folder / HEADS, heads, dtype)
    # Of one file an index says nothing, but vLLM takes every *.safetensors of a folder that has none.
    size = (folder / WEIGHTS).stat().st_size
    write_record(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(model, WEIGHTS)})
    if tokenizer is not None:
        tokenizer.save(folder)


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a file.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

"""Checkpoints: directories that are either whole or not there.

A checkpoint is ``RUN/checkpoints/step-00000500/``, which ``transformers`` loads as it is::

    config.json, model.safetensors   the model, as Hugging Face names and lays it out (nanoeuler.huggingface)
    optimizer.safetensors            AdamW's moments m and v, flat buffers in the layout of nanoeuler.parameters
    nanoeuler_tokenizer.json, ...    the tokenizer
    training.json                    the resolved configuration, the tokenizer's identity, and how far training got
    SHA256SUMS                       a digest of every other file; `sha256sum -c SHA256SUMS` checks them

It is written under a hidden name, flushed to the disk, and then renamed; a rename either happens or does not. A
checkpoint is removed the other way round: renamed to a hidden name first. So what a crash leaves half done never has a
checkpoint's name, and the next write clears it away. Only one process may write to a run at a time.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nanoeuler.config import Config, config_from_dict
from nanoeuler.errors import UserError
from nanoeuler.files import sha256_of_file
from nanoeuler.huggingface import fill_weights, read_model_config, to_huggingface
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.precision import storage
from nanoeuler.tokenizer import Tokenizer, load_tokenizer

MODEL_CONFIG, WEIGHTS, MOMENTS = "config.json", "model.safetensors", "optimizer.safetensors"
TRAINING, SUMS = "training.json", "SHA256SUMS"


@dataclass
class Checkpoint:
    """What a checkpoint holds.

    ``weights`` and the two ``moments`` are flat buffers in the layout of :func:`parameter_shapes`. ``progress`` is
    whatever JSON the trainer needs to go on; once read back it has the key ``step`` too. ``moments`` are None where
    they were not saved or not asked for.
    """

    config: Config
    weights: np.ndarray
    moments: tuple[np.ndarray, np.ndarray] | None
    progress: dict[str, Any]
    tokenizer: Tokenizer


def write_checkpoint(run: Path, step: int, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint of ``step`` into the directory ``run``, which exists, and return the checkpoint's path.

    A checkpoint of the same step is replaced. Of the new one and older ones the newest ``keep`` stay; checkpoints of
    later steps (damaged ones, when a run was resumed from an earlier one) are left as they are.

    Memory: safetensors takes all tensors of a file at once, so GPT-2's transposed ones are copied for that moment;
    all others are written from the buffers they lie in.

    Raises:
        UserError: the disk is full, or the directory is read-only or gone; the message names the last good checkpoint.
            The checkpoints that were there before are untouched.
    """
    folder = run / "checkpoints"
    final = folder / f"step-{step:08d}"
    new = _hidden(final, "new")
    try:
        folder.mkdir(exist_ok=True)
        _flush(run)
        _tidy(folder)
        new.mkdir()
        _write_files(new, step, checkpoint)
        _put_in_place(new, final)
    except (OSError, SafetensorError, UserError) as error:  # the tokenizer's is already a UserError
        _tidy(folder)
        raise UserError(
            f"cannot write the checkpoint of step {step} into {folder}: {_reason(error)}. {_last_good(folder)}"
        ) from None
    except BaseException:  # Ctrl-C, most likely
        _tidy(folder)
        raise
    checkpoints = list_checkpoints(run)
    for older in checkpoints[checkpoints.index(final) + keep :]:
        _remove(older)
    return final


def read_checkpoint(path: Path, moments: bool = True) -> Checkpoint:
    """Read the checkpoint in the directory ``path``, once its checksums hold; leave the moments out on request.

    Raises:
        UserError: a file is missing, damaged, or of another architecture or tokenizer; the message names the file.
    """
    files = _verify(path)
    training = _read_json(path / TRAINING)
    with _blaming(path / TRAINING):
        config = config_from_dict(training["config"])
        progress, identity = dict(training["progress"]), dict(training["tokenizer"])
    _check_model(path, config)
    weights = _read_weights(path / WEIGHTS, config)
    return Checkpoint(
        config=config,
        weights=weights,
        moments=_read_moments(path / MOMENTS, weights) if moments and MOMENTS in files else None,
        progress=progress,
        tokenizer=_read_tokenizer(path, identity),
    )


def find_checkpoint(path: Path) -> tuple[Path, list[str]]:
    """Return the newest checkpoint whose checksums hold, and what is wrong with each newer one that was passed over.

    ``path`` is a run's directory, its folder of checkpoints, or one checkpoint.

    Raises:
        UserError: there is none, or all are damaged.
    """
    with _blaming(path):
        is_run = (path / "checkpoints").is_dir()
        is_checkpoint = not is_run and ((path / SUMS).exists() or (path / WEIGHTS).exists())
    if is_checkpoint:
        _verify(path)
        return path, []
    damaged = []
    for checkpoint in list_checkpoints(path):
        try:
            _verify(checkpoint)
        except UserError as error:
            damaged.append(str(error))
        else:
            return checkpoint, damaged
    if damaged:
        raise UserError(f"no checkpoint in {path} is intact:\n" + "\n".join(damaged))
    raise UserError(f"no checkpoint in {path}: give a run's directory, such as runs/NAME, or one checkpoint in it")


def list_checkpoints(path: Path) -> list[Path]:
    """Return the checkpoints in a run's directory or its folder of checkpoints, newest first, damaged ones included.

    Raises:
        UserError: the directory cannot be read. (One that does not exist has no checkpoints.)
    """
    with _blaming(path):
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        entries = sorted(folder.iterdir()) if folder.exists() else []
    found = {}
    for entry in entries:  # ".step-00000500.old" sorts before "step-00000500", and counts only where the latter is gone
        if match := re.fullmatch(r"(step-\d{8,})|\.(step-\d{8,})\.old", entry.name):
            found[int((match[1] or match[2]).removeprefix("step-"))] = entry
    return [found[step] for step in sorted(found, reverse=True)]


# --- writing


def _write_files(directory: Path, step: int, checkpoint: Checkpoint) -> None:
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    hf_config, tensors = to_huggingface(config.model, named_views(checkpoint.weights, parameter_shapes(config.model)))
    training = {
        "config": config.model_dump(),
        "tokenizer": _identity(tokenizer),
        "progress": checkpoint.progress | {"step": step},
    }
    _write_json(directory / MODEL_CONFIG, hf_config)
    _write_json(directory / TRAINING, training)
    _write_tensors(directory / WEIGHTS, tensors)
    if checkpoint.moments is not None:
        _write_tensors(directory / MOMENTS, dict(zip("mv", checkpoint.moments, strict=True)))
    tokenizer.save(directory)
    # training.json is listed last and must be listed: a SHA256SUMS that was cut off is then noticed.
    files = sorted(directory.iterdir(), key=lambda file: (file.name == TRAINING, file.name))
    sums = directory / SUMS
    sums.write_bytes("".join(f"{sha256_of_file(file)}  {file.name}\n" for file in files).encode())
    for file in [*files, sums, directory]:
        _flush(file)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}  # most are already
    save_file(contiguous, file, metadata={"format": "pt"})  # transformers 4 asks for "pt", whoever wrote the file
    shutil.copymode(file.with_name(MODEL_CONFIG), file)  # safetensors makes files that only their owner may read


def _put_in_place(new: Path, final: Path) -> None:
    """Rename ``new`` to ``final``.

    A directory cannot be renamed over another, so an old one steps aside first. A crash between the two renames leaves
    it as ``.old``, which then still counts as the checkpoint.
    """
    old = _hidden(final, "old")
    if final.exists():
        final.rename(old)
    new.rename(final)
    _flush(final.parent)
    _remove(old)


def _tidy(folder: Path) -> None:
    """Clear away what an interrupted write or removal has left; put back a checkpoint that had stepped aside."""
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = re.fullmatch(r"\.(step-\d{8,})\.(new|old|removed)", path.name)
            if match and match[2] == "old" and not (folder / match[1]).exists():
                path.rename(folder / match[1])
            elif match:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, or what is left of one. What cannot be removed now is tried again at the next write."""
    removed = _hidden(path, "removed")
    with suppress(OSError):
        if path != removed:
            shutil.rmtree(removed, ignore_errors=True)
            path.rename(removed)
            _flush(path.parent)
        shutil.rmtree(removed, ignore_errors=True)


def _hidden(path: Path, state: str) -> Path:
    """Return the hidden name that a checkpoint has while it is "new", "old" or "removed".

    >>> _hidden(Path("step-00000500"), "new").name
    '.step-00000500.new'
    """
    return path.with_name(f".{path.name.strip('.').partition('.')[0]}.{state}")


def _flush(path: Path) -> None:
    """Have the disk itself hold a file, or a directory's entries (fsync)."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a directory
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_good(folder: Path) -> str:
    try:
        return f"The last good checkpoint is {find_checkpoint(folder)[0]}"
    except UserError:
        return "There is no earlier good checkpoint"


# --- reading


def _verify(path: Path) -> set[str]:
    """Check every file of a checkpoint against SHA256SUMS, and return their names.

    Raises:
        UserError: a file is missing or differs, or SHA256SUMS itself is missing or damaged.
    """
    with _blaming(path / SUMS):
        if not (path / SUMS).exists():
            raise UserError("missing: not a whole checkpoint of nanoeuler")
        lines = (path / SUMS).read_bytes().decode().removesuffix("\n").split("\n")
        matches = [re.fullmatch(r"([0-9a-f]{64})  ([^/\\]+)", line) for line in lines]
        sums = {match[2]: match[1] for match in matches if match}
        if len(sums) < len(lines) or not {MODEL_CONFIG, WEIGHTS, TRAINING} <= sums.keys():
            raise UserError("damaged: it should hold a line 'digest  name' for each file of a checkpoint")
    for name, digest in sums.items():
        with _blaming(path / name):
            if sha256_of_file(path / name) != digest:
                raise UserError(f"damaged: its SHA-256 is not the one in {SUMS}")
    return set(sums)


def _check_model(path: Path, config: Config) -> None:
    hf_config = _read_json(path / MODEL_CONFIG)
    with _blaming(path / MODEL_CONFIG):
        model = read_model_config(hf_config)
        ours, theirs = config.model.model_dump(), model.model_dump()
        if ours != theirs:
            keys = ", ".join(f"{key} {theirs[key]} ({ours[key]})" for key in ours if ours[key] != theirs[key])
            raise UserError(f"another architecture than that in {TRAINING} (in brackets): {keys}")


def _read_weights(file: Path, config: Config) -> np.ndarray:
    """Return the weights as one flat buffer; besides it only one tensor is in memory at a time."""
    shapes = parameter_shapes(config.model)
    weights = np.zeros(flat_size(shapes), storage(config.training.dtype).master)
    with _blaming(file), safe_open(file, framework="numpy") as tensors:
        fill_weights(config.model, named_views(weights, shapes), tensors.keys(), tensors.get_tensor)
    return weights


def _read_moments(file: Path, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with _blaming(file), safe_open(file, framework="numpy") as tensors:
        m, v = tensors.get_tensor("m"), tensors.get_tensor("v")
        for moment in (m, v):
            if (moment.shape, moment.dtype) != (weights.shape, weights.dtype):
                raise UserError(
                    f"moments are {moment.dtype} {moment.shape}, the weights {weights.dtype} {weights.shape}"
                )
        return m, v


def _read_tokenizer(path: Path, identity: dict[str, Any]) -> Tokenizer:
    tokenizer = load_tokenizer(path)
    for key, value in _identity(tokenizer).items():
        if value != identity.get(key):
            raise UserError(
                f"{path}: another tokenizer than the model was trained with: its {key} is {value}, "
                f"and {TRAINING} says {identity.get(key)}"
            )
    return tokenizer


def _identity(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}


def _read_json(file: Path) -> dict[str, Any]:
    with _blaming(file):
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise UserError("not a JSON object")
        return content


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Turn whatever goes wrong while ``file`` is read into a :class:`UserError` that names it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except FileNotFoundError:
        raise UserError(f"{file}: missing") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: cannot be read: {_reason(error)}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{file}: not what a checkpoint holds: {type(error).__name__}: {error}") from None


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)

"""Checkpoints: directories that are either whole or not there.

A checkpoint is ``RUN/checkpoints/step-00000500/``, which ``transformers`` loads as it is::

    config.json, model.safetensors   the model, as Hugging Face names and lays it out (nanoeuler.weights)
    prediction_heads.safetensors     its further prediction heads, which others leave aside
    optimizer.safetensors            AdamW's moments m and v, flat buffers in the layout of nanoeuler.parameters
    nanoeuler_tokenizer.json, ...    the tokenizer
    training.json                    the resolved configuration, the tokenizer's identity, and how far training got
    SHA256SUMS                       a digest of every other file; `sha256sum -c SHA256SUMS` checks them

It is written under a hidden name, flushed to the disk, and then renamed; a rename either happens or does not. A
checkpoint is removed the other way round: renamed to a hidden name first. So what a crash leaves half done never has a
checkpoint's name, and the next write clears it away. Only one process may write to a run at a time.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from nanoeuler.config import Config, config_from_dict
from nanoeuler.errors import UserError
from nanoeuler.files import flush, sha256_of_file
from nanoeuler.parameters import named_views, parameter_shapes
from nanoeuler.precision import storage
from nanoeuler.tokenizer import Tokenizer, load_tokenizer
from nanoeuler.weights.directory import (
    MODEL_CONFIG,
    WEIGHTS,
    read_end_ids,
    read_model_config,
    read_tensors,
    write_model_files,
    write_record,
)
from nanoeuler.weights.safetensors_file import read_header, write_tensors
from nanoeuler.weights.tensors import read_flat

MOMENTS = "optimizer.safetensors"
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
    end_ids: tuple[int, ...] = ()  # tokens that end a generation


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
        flush(run)
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
    weights = _read_weights(path, config)
    return Checkpoint(
        config=config,
        weights=weights,
        moments=_read_moments(path / MOMENTS, weights) if moments and MOMENTS in files else None,
        progress=progress,
        tokenizer=_read_tokenizer(path, identity),
        end_ids=read_end_ids(path),
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
    config, tokenizer, dtype = checkpoint.config, checkpoint.tokenizer, str(checkpoint.weights.dtype)
    training = {
        "config": config.model_dump(),
        "tokenizer": _identity(tokenizer),
        "progress": checkpoint.progress | {"step": step},
    }
    write_record(directory / TRAINING, training)
    views = named_views(checkpoint.weights, parameter_shapes(config.model))
    write_model_files(directory, config.model, views, dtype, tokenizer, checkpoint.end_ids)
    if checkpoint.moments is not None:
        write_tensors(directory / MOMENTS, dict(zip("mv", checkpoint.moments, strict=True)), dtype)
    # training.json is listed last and must be listed: a SHA256SUMS that was cut off is then noticed.
    files = sorted(directory.iterdir(), key=lambda file: (file.name == TRAINING, file.name))
    sums = directory / SUMS
    sums.write_bytes("".join(f"{sha256_of_file(file)}  {file.name}\n" for file in files).encode())
    for file in [*files, sums, directory]:
        flush(file)


def _put_in_place(new: Path, final: Path) -> None:
    """Rename ``new`` to ``final``.

    A directory cannot be renamed over another, so an old one steps aside first. A crash between the two renames leaves
    it as ``.old``, which then still counts as the checkpoint.
    """
    old = _hidden(final, "old")
    if final.exists():
        final.rename(old)
    new.rename(final)
    flush(final.parent)
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
            flush(path.parent)
        shutil.rmtree(removed, ignore_errors=True)


def _hidden(path: Path, state: str) -> Path:
    """Return the hidden name that a checkpoint has while it is "new", "old" or "removed".

    >>> _hidden(Path("step-00000500"), "new").name
    '.step-00000500.new'
    """
    return path.with_name(f".{path.name.strip('.').partition('.')[0]}.{state}")


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
    ours, theirs = config.model.model_dump(), read_model_config(path).model_dump()
    if ours != theirs:
        keys = ", ".join(f"{key} {theirs[key]} ({ours[key]})" for key in ours if ours[key] != theirs[key])
        raise UserError(f"{path / MODEL_CONFIG}: another architecture than that in {TRAINING} (in brackets): {keys}")


def _read_weights(path: Path, config: Config) -> np.ndarray:
    """Return the weights as one flat buffer; besides it only one tensor is in memory at a time."""
    dtype = storage(config.training.dtype).master
    with _blaming(path / WEIGHTS):
        tensors = read_tensors(path)
        for name, tensor in tensors.items():
            if tensor.dtype != str(dtype):
                raise UserError(f"tensor {name} is {tensor.dtype}; the configuration makes it {dtype}")
        return read_flat(config.model, tensors, dtype, finite=False)  # a run that went wrong can be looked into


def _read_moments(file: Path, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with _blaming(file):
        tensors = read_header(file)
        m, v = tensors["m"].read(), tensors["v"].read()
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

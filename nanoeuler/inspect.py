"""What a model is: ``python -m nanoeuler.inspect MODEL``.

Its architecture in words, parameters by part, tokenizer, and what the numbers of every tensor look like. Of a model
that nanoeuler does not run it says why, and shows the tensors all the same.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

from nanoeuler.config import ModelConfig, Parser
from nanoeuler.console import format_bytes, say
from nanoeuler.errors import UserError, nearest, run_command
from nanoeuler.files import written_whole
from nanoeuler.parameters import parameter_shapes
from nanoeuler.weights import ModelFiles, Tensor, open_model
from nanoeuler.weights.listing import show_tensors
from nanoeuler.weights.mapping import model_family
from nanoeuler.weights.pretrained import SOURCES, read_tokenizer
from nanoeuler.weights.safetensors_file import read_header

#: Bytes of one number.
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
#: Parts of a model, and where the names of their parameters begin, after "layers.N."; the first that fits.
PARTS = {
    "prediction heads": ("prediction",),
    "embedding": ("embedding",),
    "positions": ("position",),
    "norms": ("attention_norm", "mlp_norm", "final_norm", "q_norm", "k_norm"),
    "attention": ("qkv", "attention_out"),
    "feed-forward": ("gate_up", "up", "down"),
    "output": ("head",),
}


def main(arguments: list[str]) -> None:
    """Print what a model is.

    Raises:
        UserError: there is no model, its files are damaged, or no tensor has such a name.
    """
    parser = Parser(prog="python -m nanoeuler.inspect", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help=SOURCES)
    parser.add_argument(
        "--tensors", default="*", metavar="PATTERN", help="only those whose names fit, such as '*norm*'"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that is known into a file, too")
    options = parser.parse_args(arguments)
    record: dict[str, Any] = {"source": options.model}
    try:
        files = open_model(options.model)
        tensors = files.tensors
    except UserError as error:
        tensors = bare_tensors(Path(options.model))
        if not tensors:
            raise
        say(f"nanoeuler does not run this model:\n{error}\n")
        record["refused"] = str(error)
    else:
        record |= show_model(files)
        say("")
    chosen = choose_tensors(tensors, options.tensors)
    record["tensors"] = [
        {"name": name, "shape": list(chosen[name].shape), "dtype": chosen[name].dtype} | asdict(result)
        for name, result in show_tensors(chosen)
    ]
    broken = [tensor["name"] for tensor in record["tensors"] if tensor["nans"] or tensor["infinities"]]
    if broken:
        say(f"\nwarning: not all numbers are finite in {', '.join(broken)}")
    if options.json is not None:
        with written_whole(options.json) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())


def show_model(files: ModelFiles) -> dict[str, Any]:
    """Print all but the tensors of a model; return the same as a record."""
    tokenizer, progress = describe_tokenizer(files), training_progress(files.path)
    dtypes = stored_bytes(files.tensors)
    rows = {"format": files.format, "path": str(files.path)} | describe_architecture(files.config)
    rows["weights"] = ", ".join(f"{dtype} ({format_bytes(size)})" for dtype, size in dtypes.items())
    rows |= tokenizer | ({"trained": describe_progress(progress)} if progress else {})
    for title, text in rows.items():
        say(f"{title:<18}{text}")
    if files.note:
        say(f"\n{files.note}")
    parts = parameters_by_part(files.config)
    total = sum(parts.values())
    say("\nparameters")
    for part, count in (parts | {"all": total}).items():
        say(f"  {part:<16}{count:>15,}  {100 * count / total:5.1f} %")
    return {
        "format": files.format,
        "path": str(files.path),
        "config": files.config.model_dump(),
        "parameters": parts,
        "bytes": dtypes,
        "tokenizer": tokenizer,
        "end_ids": list(files.end_ids),
        "training": progress,
        "note": files.note,
    }


def describe_architecture(config: ModelConfig) -> dict[str, str]:
    """Return every switch that matters, in words."""
    H, K, D = config.num_heads, config.kv_heads, config.head_dim
    groups = "each with its own keys and values" if H == K else f"{H // K} share one of {K} key/value heads"
    if config.position == "learned":
        positions = f"learned, {config.max_seq_len:,} of them"
    else:
        positions = f"RoPE of base {config.rope_theta:g}"
    if config.position == "rope" and config.rope_factor > 1:
        positions += (
            f", long waves stretched {config.rope_factor:g} times (Llama 3), from {config.rope_original_length:,}"
        )
    biases = {(True, True): "everywhere", (False, False): "none", (False, True): "on queries, keys and values"}
    norm = "RMSNorm" if config.norm == "rmsnorm" else "LayerNorm"
    activation = "SwiGLU" if config.activation == "swiglu" else "GELU (tanh)"
    rows = {
        "family": model_family(config),
        "layers": f"{config.num_layers}, of {config.hidden_dim:,} channels",
        "attention": f"{H} heads of {D} channels, {groups}" + (", queries and keys normed" if config.qk_norm else ""),
        "feed-forward": f"{activation}, {config.ff_dim:,} channels",
        "norm": f"{norm}, eps {config.norm_eps:g}",
        "positions": positions,
        "biases": biases.get((bool(config.bias), bool(config.qkv_bias)), "but not on queries, keys and values"),
        "longest sequence": f"{config.max_seq_len:,} tokens",
        "vocabulary": f"{config.vocabulary:,} tokens",
        "output": "weights of the embedding (tied)" if config.tie_embeddings else "weights of its own",
    }
    if config.num_prediction_heads > 1:
        rows["prediction"] = f"{config.num_prediction_heads} heads: the next token, and up to as many ahead"
    return rows


def describe_tokenizer(files: ModelFiles) -> dict[str, str]:
    """Return what a model's tokenizer is, in words."""
    try:
        tokenizer = read_tokenizer(files)
    except UserError as error:
        return {"tokenizer": f"cannot be read: {error}"}
    if tokenizer is None:
        return {"tokenizer": "none beside it"}
    special = ", ".join(f"{token} {i}" for token, i in tokenizer.special.items())
    return {
        "tokenizer": f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens",
        "special tokens": special or "none",
        "chat template": "yes" if tokenizer.chat_template else "no",
    }


def describe_progress(progress: Mapping[str, Any]) -> str:
    """Return how far a training run has come, in words."""
    best = progress.get("best") or []
    return f"{progress['step']} steps" + (f"; lowest validation loss {best[0]:.4f}, at step {best[1]}" if best else "")


def training_progress(path: Path) -> dict[str, Any] | None:
    """Return the step and the lowest validation loss of a checkpoint of ours, None for any other model."""
    try:
        progress = json.loads((path / "training.json").read_text(encoding="utf-8"))["progress"]
        return {key: progress.get(key) for key in ("step", "best", "smoothed_loss", "elapsed_seconds")}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not ours, whatever it may be
        return None


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Return the number of parameters of every part that there is."""
    parts = dict.fromkeys(PARTS, 0)
    for name, shape in parameter_shapes(config).items():
        place = name.split(".")[2 if name.startswith("layers.") else 0]
        part = next(part for part, beginnings in PARTS.items() if place in beginnings)
        parts[part] += prod(shape)
    return {part: count for part, count in parts.items() if count}


def bare_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of those in a folder, whatever the architecture may be."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        with suppress(UserError):  # it has been complained of already
            tensors |= read_header(file)
    return tensors


def stored_bytes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the bytes of the tensors by dtype."""
    sizes = dict.fromkeys(BYTES, 0)
    for tensor in tensors.values():
        sizes[tensor.dtype] += prod(tensor.shape) * BYTES[tensor.dtype]
    return {dtype: size for dtype, size in sizes.items() if size}


def choose_tensors(tensors: Mapping[str, Tensor], pattern: str) -> dict[str, Tensor]:
    """Return those whose names fit a pattern, layer by layer.

    Raises:
        UserError: none does.
    """
    names = sorted((name for name in tensors if fnmatchcase(name, pattern)), key=_in_natural_order)
    if not names:
        hint = nearest(pattern.strip("*"), tensors) or f"; the first is {next(iter(tensors))}"
        raise UserError(f"no tensor has a name like '{pattern}'{hint}")
    return {name: tensors[name] for name in names}


def _in_natural_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by their value.

    >>> sorted(["h.10.b", "h.2.b", "h.2.a"], key=_in_natural_order)
    ['h.2.a', 'h.2.b', 'h.10.b']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


if __name__ == "__main__":
    raise SystemExit(run_command(main))

"""Everything a run can be told: three sections of named values, from JSON, overridden on the command line.

A configuration file holds the sections ``model``, ``training`` and ``data``; each key that it leaves out has the
default below, and each key is also an option: ``--training.learning_rate 3e-4``. Types, limits and defaults stand
in one place, the field's own line; `pydantic <https://docs.pydantic.dev>`_ enforces them.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from nanoeuler.errors import UserError, nearest

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]

#: What a preset sets where the configuration says nothing: the two ancestors of this project.
PRESETS: dict[str, dict[str, Any]] = {
    "euler": {
        "norm": "rmsnorm",
        "position": "rope",
        "activation": "swiglu",
        "bias": False,
        "tie_embeddings": False,
    },
    "gpt2": {
        "norm": "layernorm",
        "position": "learned",
        "activation": "gelu",
        "bias": True,
        "tie_embeddings": True,
    },
}


class Section(BaseModel):
    """One section of the configuration: immutable, and closed to keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelConfig(Section):
    """The architecture.

    Letters used everywhere: C hidden_dim, H heads, K key/value heads, D head size, F feed-forward size, L layers,
    V vocabulary, T sequence.
    """

    preset: Literal["euler", "gpt2"] = Field("euler", description="family that sets the switches left out below")
    vocab_size: Positive | None = Field(None, description="V, tokens in the vocabulary; the tokenizer's if left out")
    max_seq_len: Positive = Field(128, description="T, longest sequence the model sees")
    num_layers: Positive = Field(4, le=10_000, description="L, transformer layers")
    num_heads: Positive = Field(4, description="H, query heads")
    num_kv_heads: Positive | None = Field(None, description="K, key/value heads, a divisor of num_heads; H if left out")
    hidden_dim: Positive = Field(128, description="C, channels of the residual stream, a multiple of num_heads "
                                 "unless attention_head_dim is given")  # fmt: skip
    attention_head_dim: Positive | None = Field(None, description="D, channels of one head; C / H if left out")
    feed_forward_dim: Positive | None = Field(
        None, description="F; if left out 8/3 C rounded up to a multiple of 32 for swiglu, 4 C for gelu"
    )
    norm: Literal["rmsnorm", "layernorm"] | None = Field(None, description="normalisation (euler rmsnorm)")
    position: Literal["rope", "learned"] | None = Field(None, description="position encoding (euler rope)")
    activation: Literal["swiglu", "gelu"] | None = Field(None, description="feed-forward activation (euler swiglu)")
    bias: bool | None = Field(None, description="biases in linear layers and layernorm (euler false)")
    qkv_bias: bool | None = Field(None, description="biases of queries, keys and values; as bias says if left out")
    qk_norm: bool = Field(False, description="RMSNorm of each head's queries and keys, before RoPE")
    tie_embeddings: bool | None = Field(None, description="output weights are the embedding's (euler false)")
    rope_theta: float = Field(10000.0, gt=0, description="base of the RoPE frequencies")
    rope_factor: float = Field(1.0, ge=1, description="Llama 3's stretching of RoPE's long waves; 1 is none")
    rope_low_freq_factor: float = Field(1.0, gt=0, description="waves longer than rope_original_length / this are "
                                        "stretched in full")  # fmt: skip
    rope_high_freq_factor: float = Field(4.0, gt=0, description="waves shorter than rope_original_length / this stay "
                                         "as they are")  # fmt: skip
    rope_original_length: Positive = Field(8192, description="longest sequence before RoPE was stretched")
    norm_eps: float = Field(1e-5, gt=0, description="added to the variance before its root")
    init_std: float = Field(0.02, gt=0, description="standard deviation of initial weights")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of the embedding's and each branch's activations zeroed in training"
    )
    num_prediction_heads: Positive = Field(
        1, description="heads; head k predicts k+1 tokens ahead, head 0 is the model"
    )
    prediction_loss_weight: float = Field(0.3, ge=0, description="weight of the further heads' mean loss")

    @model_validator(mode="after")
    def _fill_from_preset(self) -> "ModelConfig":
        """Set what was left out from the preset, so that a resolved configuration says everything."""
        for key, value in PRESETS[self.preset].items():
            if getattr(self, key) is None:
                self._fill(key, value)
        return self

    @model_validator(mode="after")
    def _check_shapes(self) -> "ModelConfig":
        heads, kv_heads = self.num_heads, self.num_kv_heads or self.num_heads
        if self.attention_head_dim is None and self.hidden_dim % heads:
            raise ValueError(
                f"hidden_dim {self.hidden_dim} is not a multiple of num_heads {heads}; "
                "for heads of another size give attention_head_dim"
            )
        if heads % kv_heads:
            raise ValueError(f"num_heads {heads} is not a multiple of num_kv_heads {kv_heads}")
        if self.position == "rope" and self.head_dim % 2:
            size = "hidden_dim / num_heads" if self.attention_head_dim is None else "attention_head_dim"
            raise ValueError(f"RoPE turns pairs of channels, so the head size {size} = {self.head_dim} must be even")
        if self.rope_factor > 1 and self.rope_low_freq_factor >= self.rope_high_freq_factor:
            raise ValueError(
                f"rope_low_freq_factor {self.rope_low_freq_factor:g} must be below rope_high_freq_factor "
                f"{self.rope_high_freq_factor:g}"
            )
        rounded = -(-8 * self.hidden_dim // (3 * 32)) * 32
        defaults = {
            "num_kv_heads": heads,
            "attention_head_dim": self.hidden_dim // heads,
            "qkv_bias": self.bias,
            "feed_forward_dim": rounded if self.activation == "swiglu" else 4 * self.hidden_dim,
        }
        for key, value in defaults.items():
            if getattr(self, key) is None:
                self._fill(key, value)
        return self

    def _fill(self, key: str, value: Any) -> None:
        """Set a key that was left out; it goes on counting as left out (:meth:`written`)."""
        object.__setattr__(self, key, value)
        self.model_fields_set.discard(key)

    def written(self) -> dict[str, Any]:
        """Return the keys that somebody has given a value, in a file or on the command line."""
        return {key: getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set}

    @property
    def head_dim(self) -> int:
        """D, channels of one head (``attention_head_dim`` with its default filled in)."""
        return self.attention_head_dim or self.hidden_dim // self.num_heads

    @property
    def kv_heads(self) -> int:
        """K, key/value heads (``num_kv_heads`` with its default filled in)."""
        return self.num_kv_heads or self.num_heads

    @property
    def ff_dim(self) -> int:
        """F, channels of the feed-forward layer (``feed_forward_dim`` with its default filled in)."""
        assert self.feed_forward_dim is not None  # set by _check_shapes
        return self.feed_forward_dim

    @property
    def vocabulary(self) -> int:
        """V, once it is known.

        Raises:
            UserError: the vocabulary's size is neither configured nor taken from a tokenizer yet.
        """
        if self.vocab_size is None:
            raise UserError("model.vocab_size is not known: give it, or a tokenizer")
        return self.vocab_size


class TrainingConfig(Section):
    """How the model is trained."""

    init_from: str | None = Field(None, description="weights to start from: the folder of a model or of a run, a .bin "
                                  "file of llm.c or llama2.c, or a hub's owner/name[@revision]; they bring the "
                                  "architecture and the tokenizer along")  # fmt: skip
    batch_size: Positive = Field(12, description="B, sequences in one micro-batch")
    gradient_accumulation: Positive = Field(1, le=1_000_000, description="micro-batches in one step")
    total_steps: Positive = Field(2000, description="optimizer steps")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate")
    min_learning_rate: Fraction = Field(0.1, description="where the schedule ends, as a share of the peak")
    warmup_steps: Count = Field(100, description="steps of linear warm-up from 0")
    schedule: Literal["cosine", "linear", "constant", "wsd"] = Field("cosine", description="after the warm-up")
    decay_fraction: Fraction = Field(0.2, description="share of the steps in which wsd decays, at the end")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's decay, on weight matrices and embeddings only")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's first moment")
    beta2: float = Field(0.99, ge=0, lt=1, description="AdamW's second moment")
    adam_eps: float = Field(1e-8, gt=0, description="AdamW's epsilon")
    grad_clip: float = Field(1.0, ge=0, description="largest global gradient norm; 0 turns clipping off")
    outlier_z: float = Field(0.0, ge=0, description="skip an update whose loss or gradient norm is so many standard "
                             "deviations above its recent mean; 0 never")  # fmt: skip
    outlier_window: Annotated[int, Field(ge=8)] = Field(128, description="steps that mean and deviation are over")
    seed: int = Field(1337, ge=0, lt=2**64, description="decides initial weights, batches and dropout")
    dtype: Literal["float32", "float64", "tf32", "bf16"] = Field("float32", description="of weights and arithmetic; "
                             "float64 on a CPU only, tf32 and bf16 on a GPU only")  # fmt: skip
    workers: Count = Field(0, le=1024, description="threads that share the work on a CPU; 0 is one per core")
    pieces: Count = Field(0, description="parts a micro-batch is cut into for the workers; 0 chooses by size")
    eval_interval: Count = Field(250, description="steps between evaluations; 0 only at the end")
    eval_batches: Positive = Field(20, description="validation batches in an evaluation on the way")
    final_eval_batches: Positive = Field(200, description="validation batches in the last evaluation")
    sample_interval: Count = Field(500, description="steps between samples of text; 0 only at the end")
    sample_tokens: Positive = Field(200, description="tokens in a sample")
    sample_prompt: str = Field("\n", description="what a sample starts with")
    checkpoint_interval: Count = Field(500, description="steps between checkpoints; 0 only at the end")
    keep_checkpoints: Positive = Field(3, description="newest checkpoints kept")


class DataConfig(Section):
    """What the model reads."""

    dataset: str | None = Field(None, description="tinyshakespeare, plays (built in), the path of a text file, the "
                                "folder of a prepared corpus or of llm.c's shards, the name of a corpus in ./data, or "
                                "several with weights, such as data/a=0.7,data/b=0.3; if left out tinyshakespeare "
                                "where it can be had, else plays")  # fmt: skip
    tokenizer_path: str | None = Field(None, description="char, byte, gpt2, or a folder with a saved tokenizer; if "
                                       "left out a prepared corpus's own, char for a text")  # fmt: skip
    val_fraction: float = Field(0.1, gt=0, lt=1, description="share of a text, at its end, kept for validation; a "
                                "prepared corpus was split when it was prepared")  # fmt: skip
    doc_mask: bool = Field(False, description="no attention across the borders of documents")


class Config(Section):
    """A whole run."""

    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    data: DataConfig = DataConfig()

    def to_json(self) -> str:
        """Return the configuration with every key, as JSON that :func:`load_config` reads back."""
        return json.dumps(self.model_dump(), indent=2) + "\n"


#: Shorter names of options.
ALIASES = {"--training.init_from": "--init-from"}
SECTIONS: dict[str, type[Section]] = {"model": ModelConfig, "training": TrainingConfig, "data": DataConfig}


def load_config(path: str | Path | None = None, overrides: dict[str, Any] | None = None) -> Config:
    """Read a JSON file (or nothing) and lay overrides such as ``{"training.learning_rate": "3e-4"}`` over it.

    Raises:
        UserError: the file cannot be read or is not JSON, a key is unknown, or a value is not allowed; the message
            names the key, what is allowed and the nearest spelling.
    """
    file = {} if path is None else _read_json(Path(path))
    sections = dict(file)
    for dotted, value in (overrides or {}).items():
        section, _, key = dotted.partition(".")
        sections[section] = {**sections.get(section, {}), key: value}
    try:
        return config_from_dict(sections)
    except UserError:
        config_from_dict(file, source=f"{path}: ")  # is it the file's fault, or that of an override?
        raise


def config_from_dict(sections: dict[str, Any], source: str = "") -> Config:
    """Validate a dictionary of sections.

    Raises:
        UserError: as :func:`load_config`; the message starts with ``source``.
    """
    try:
        return Config.model_validate(sections)
    except ValidationError as error:
        raise UserError("\n".join(source + _explain(e) for e in error.errors())) from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        sections = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: a configuration is JSON text, and this file is not text") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets thousands deep
        raise UserError(f"{path}: not a configuration: {error}") from None
    if not isinstance(sections, dict):
        raise UserError(f"{path}: a configuration is a JSON object with the sections {', '.join(SECTIONS)}")
    for name, section in sections.items():
        if name in SECTIONS and not isinstance(section, dict):
            raise UserError(f"{path}: section '{name}' must be a JSON object")
    return sections


def _explain(error: Any) -> str:
    """Turn one of pydantic's error records into a sentence that names the key, what was given and what is allowed."""
    location = [str(part) for part in error["loc"]]
    key = ".".join(location[:2])
    if error["type"] == "extra_forbidden":
        if len(location) == 1:
            return f"unknown section '{key}'{nearest(key, SECTIONS)}; sections are {', '.join(SECTIONS)}"
        fields = SECTIONS[location[0]].model_fields
        return f"unknown key '{key}'{nearest(location[1], fields)}; keys of {location[0]}: {', '.join(sorted(fields))}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":  # our own checks say it all
        return f"{key}: {message}"
    hint = nearest(str(error["input"]), get_args(_literal(location))) if error["type"] == "literal_error" else ""
    return f"{key}: {message[0].lower()}{message[1:]}, not {error['input']!r}{hint}"


def _literal(location: list[str]) -> Any:
    """Return the ``Literal[...]`` type of a key, whether or not None is allowed beside it."""
    annotation = SECTIONS[location[0]].model_fields[location[1]].annotation
    inner = [a for a in get_args(annotation) if get_args(a)]
    return inner[0] if inner else annotation


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Give a command ``--config FILE`` and one option for each key, each with its help and default."""
    parser.add_argument("--config", metavar="FILE", help="JSON file with the sections model, training, data")
    for section, schema in SECTIONS.items():
        group = parser.add_argument_group(section)
        for key, field in schema.model_fields.items():
            option = f"--{section}.{key}"
            names = [option, ALIASES[option]] if option in ALIASES else [option]
            group.add_argument(*names, metavar=_metavar(field), default=argparse.SUPPRESS, help=_help(field))


def config_from_options(options: argparse.Namespace) -> Config:
    """Build the configuration that a parsed command line asks for.

    Raises:
        UserError: as :func:`load_config`.
    """
    overrides = {
        f"{section}.{key}": _from_text(vars(options)[f"{section}.{key}"], field)
        for section, schema in SECTIONS.items()
        for key, field in schema.model_fields.items()
        if f"{section}.{key}" in options
    }
    return load_config(options.config, overrides)


def _from_text(value: str, field: FieldInfo) -> str | None:
    """Return an option's value; ``none`` leaves open what may be left open."""
    return None if value in ("none", "null") and type(None) in get_args(field.annotation) else value


def _metavar(field: FieldInfo) -> str:
    for annotation in (field.annotation, *get_args(field.annotation)):
        choices = [a for a in get_args(annotation) if isinstance(a, str)]
        if choices:
            return "{" + ",".join(choices) + "}"
    names = [t.__name__ for t in (field.annotation, *get_args(field.annotation)) if t in (int, float, bool, str)]
    return (names or ["int"])[0].upper()


def _help(field: FieldInfo) -> str:
    default = "" if field.default is None else f" [{field.default!r}]"
    return f"{field.description}{default}".replace("%", "%%")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError` and suggest the nearest option."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def parse_args(self, args: Any = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parse, and name the nearest option when one is unknown."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            raise UserError(f"unknown option '{word}'{nearest(word, known, 0.7)}; see --help")  # all begin with --
        return options

    def error(self, message: str) -> Any:
        """Raise instead of printing the whole usage."""
        raise UserError(f"{message}; see --help")


def number(kind: type[int] | type[float], low: float, high: float = math.inf) -> Callable[[str], float]:
    """Return the ``type`` of an option that is a number from ``low`` to ``high``; its error names these limits.

    >>> number(int, 1)("12"), number(float, 0, 1)("0.5")
    (12, 0.5)
    """

    def convert(text: str) -> float:
        try:
            value = kind(text)
            if low <= value <= high and abs(value) < math.inf:
                return value
        except ValueError:
            pass
        noun = "a whole number" if kind is int else "a number"
        limits = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"'{text}' is not {noun} {limits}")

    return convert

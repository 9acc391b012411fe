"""The configuration: defaults, presets, JSON, options, and what is said of anything that is not allowed."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from nanoeuler.config import (
    PRESETS,
    SECTIONS,
    Config,
    DataConfig,
    ModelConfig,
    Parser,
    TrainingConfig,
    add_config_options,
    config_from_dict,
    config_from_options,
    load_config,
    number,
)
from nanoeuler.errors import UserError

CONFIGS = Path(__file__).parent.parent / "configs"
KEYS = [(section, key) for section, schema in SECTIONS.items() for key in schema.model_fields]


def parser() -> Parser:
    parser = Parser(prog="test")
    add_config_options(parser)
    return parser


def from_line(*arguments: str) -> Config:
    return config_from_options(parser().parse_args(list(arguments)))


def refusal(sections: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        config_from_dict(sections)
    return str(caught.value)


def json_refusal(path: Path, content: str | bytes) -> str:
    """Return what is said of a file of this content, without the path that the message must start with."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


# --- what a configuration says


def test_the_keys_that_everybody_writes_make_a_whole_configuration() -> None:
    path = CONFIGS / "gpt2-small.json"
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "model": {
            "hidden_dim": 768,
            "num_layers": 12,
            "num_heads": 12,
            "num_kv_heads": 4,
            "vocab_size": 50257,
            "max_seq_len": 1024,
        },
        "training": {
            "batch_size": 8,
            "learning_rate": 3e-4,
            "warmup_steps": 2000,
            "total_steps": 50000,
            "gradient_accumulation": 4,
        },
        "data": {"dataset": "fineweb-edu", "tokenizer_path": "gpt2"},
    }
    config = load_config(path)
    model, training = config.model, config.training
    assert (model.hidden_dim, model.num_layers, model.num_heads, model.num_kv_heads) == (768, 12, 12, 4)
    assert (model.vocabulary, model.max_seq_len, model.head_dim, model.ff_dim) == (50257, 1024, 64, 2048)
    assert (model.norm, model.position, model.activation) == ("rmsnorm", "rope", "swiglu")
    assert (training.batch_size, training.learning_rate, training.warmup_steps) == (8, 3e-4, 2000)
    assert (training.total_steps, training.gradient_accumulation) == (50000, 4)
    assert (config.data.dataset, config.data.tokenizer_path) == ("fineweb-edu", "gpt2")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_every_configuration_that_ships_is_valid(path: Path) -> None:
    config = load_config(path)
    for section, values in json.loads(path.read_text(encoding="utf-8")).items():
        for key, value in values.items():
            assert getattr(getattr(config, section), key) == value


def test_nothing_at_all_is_a_configuration() -> None:
    assert load_config() == Config() == from_line()


def test_an_empty_file_of_sections_too(tmp_path: Path) -> None:
    for content in ("{}", '{"model": {}}', '{"data": {}, "training": {}, "model": {}}'):
        (tmp_path / "c.json").write_text(content, encoding="utf-8")
        assert load_config(tmp_path / "c.json") == Config()


def test_presets_set_what_is_left_out_and_nothing_else() -> None:
    for preset, switches in PRESETS.items():
        model = ModelConfig(preset=preset)
        assert {key: getattr(model, key) for key in switches} == switches
    mixed = ModelConfig(preset="gpt2", norm="rmsnorm", tie_embeddings=False)
    assert (mixed.norm, mixed.tie_embeddings) == ("rmsnorm", False)
    assert (mixed.position, mixed.activation, mixed.bias) == ("learned", "gelu", True)
    assert ModelConfig(preset="gpt2", norm=None).norm == "layernorm"


@pytest.mark.parametrize(
    ("hidden", "activation", "size"),
    [
        (128, "swiglu", 352),  # 8/3 of 128 is 341.3
        (768, "swiglu", 2048),  # exactly
        (96, "swiglu", 256),
        (4, "swiglu", 32),
        (128, "gelu", 512),
    ],
)
def test_the_feed_forward_size_that_is_left_out(hidden: int, activation: str, size: int) -> None:
    assert ModelConfig(hidden_dim=hidden, num_heads=2, activation=activation).ff_dim == size


def test_key_value_heads_left_out_are_as_many_as_heads() -> None:
    assert ModelConfig(num_heads=8).kv_heads == ModelConfig(num_heads=8).num_kv_heads == 8
    assert ModelConfig(num_heads=8, num_kv_heads=1).kv_heads == 1


def test_an_unknown_vocabulary_is_said_when_it_is_needed() -> None:
    assert ModelConfig().vocab_size is None
    with pytest.raises(UserError, match="vocab_size is not known"):
        _ = ModelConfig().vocabulary


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().training.__setattr__("seed", 3)


# --- every key


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_has_a_default_a_help_text_and_an_option(section: str, key: str) -> None:
    field = SECTIONS[section].model_fields[key]
    assert field.default is not PydanticUndefined
    assert field.description
    (action,) = [a for a in parser()._actions if f"--{section}.{key}" in a.option_strings]
    assert isinstance(action.help, str)
    assert field.description in action.help.replace("%%", "%")
    if field.default is not None:
        assert f"[{field.default!r}]" in action.help.replace("%%", "%")


def another_value(section: str, key: str) -> Any:
    """Return a value of a key that is allowed and not its default."""
    choices = {
        "model.preset": "gpt2",
        "model.norm": "layernorm",
        "model.position": "learned",
        "model.activation": "gelu",
        "model.bias": True,
        "model.qkv_bias": True,
        "model.qk_norm": True,
        "model.attention_head_dim": 16,
        "model.rope_factor": 8.0,
        "model.tie_embeddings": True,
        "training.init_from": "models/stories",
        "training.schedule": "wsd",
        "training.dtype": "float64",
        "training.sample_prompt": "O\n",
        "data.dataset": "plays",
        "data.tokenizer_path": "byte",
        "data.doc_mask": True,
        "model.num_kv_heads": 2,
        "model.hidden_dim": 256,
        "model.num_heads": 8,
    }
    if f"{section}.{key}" in choices:
        return choices[f"{section}.{key}"]
    default = SECTIONS[section].model_fields[key].default
    return 9 if default is None or isinstance(default, int) else 0.5 * default + 0.125


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_can_be_overridden_and_comes_back_from_json(section: str, key: str, tmp_path: Path) -> None:
    value = another_value(section, key)
    config = from_line(f"--{section}.{key}={value}")
    assert getattr(getattr(config, section), key) == value
    assert config != Config()
    path = tmp_path / "c.json"
    path.write_text(json.dumps({section: {key: value}}), encoding="utf-8")
    assert load_config(path) == config
    path.write_text(config.to_json(), encoding="utf-8")
    assert load_config(path) == config
    assert set(json.loads(config.to_json())[section]) == set(SECTIONS[section].model_fields)


def test_help_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for section, key in KEYS:
        assert f"--{section}.{key} " in text
    assert "{cosine,linear,constant,wsd}" in text
    assert "%%" not in text


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"training": {"seed": 5, "batch_size": 3}, "model": {"preset": "gpt2"}}', encoding="utf-8")
    config = from_line("--config", str(path), "--training.seed", "6", "--model.bias", "false")
    assert (config.training.seed, config.training.batch_size) == (6, 3)
    assert (config.model.preset, config.model.bias, config.model.norm) == ("gpt2", False, "layernorm")


def test_none_leaves_open_what_may_be_left_open() -> None:
    assert from_line("--model.vocab_size", "none", "--data.dataset", "null").model.vocab_size is None
    assert from_line("--training.sample_prompt", "none").training.sample_prompt == "none"
    with pytest.raises(UserError, match=r"training\.seed: .*not 'none'"):
        from_line("--training.seed", "none")


# --- what is refused


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"modle": {}}, ["unknown section 'modle'", "did you mean 'model'?", "model, training, data"]),
        ({"zzz": {}}, ["unknown section 'zzz'; sections are model, training, data"]),
        ({"training": {"lerning_rate": 1}}, ["unknown key 'training.lerning_rate'", "'learning_rate'", "total_steps"]),
        ({"model": {"qqq": 1}}, ["unknown key 'model.qqq'; keys of model: activation, attention_head", "vocab_size"]),
        ({"training": {"schedule": "cosin"}}, ["training.schedule", "'constant' or 'wsd'", "'cosin'", "n 'cosine'?"]),
        ({"training": {"dtype": "float16"}}, ["training.dtype", "'float64', 'tf32' or 'bf16'", "not 'float16'"]),
        ({"model": {"norm": "rms"}}, ["model.norm", "'rmsnorm' or 'layernorm'", "mean 'rmsnorm'?"]),
        ({"model": {"preset": "gpt-2"}}, ["model.preset", "'euler' or 'gpt2'", "mean 'gpt2'?"]),
        ({"model": {"preset": ["gpt2"]}}, ["model.preset", "'euler' or 'gpt2'", "not ['gpt2']"]),
        ({"model": {"preset": None}}, ["model.preset", "'euler' or 'gpt2'", "not None"]),
        ({"model": {"num_layers": 0}}, ["model.num_layers", "greater than or equal to 1", "not 0"]),
        ({"model": {"num_layers": None}}, ["model.num_layers", "valid integer", "not None"]),
        ({"model": {"num_layers": 2.5}}, ["model.num_layers", "valid integer", "not 2.5"]),
        ({"model": {"num_layers": "two"}}, ["model.num_layers", "valid integer", "not 'two'"]),
        ({"model": {"vocab_size": 0}}, ["model.vocab_size", "greater than or equal to 1", "not 0"]),
        ({"model": {"dropout": 1}}, ["model.dropout", "less than 1", "not 1"]),
        ({"model": {"bias": "maybe"}}, ["model.bias", "valid boolean", "not 'maybe'"]),
        ({"training": {"learning_rate": 0}}, ["training.learning_rate", "greater than 0", "not 0"]),
        ({"training": {"learning_rate": math.nan}}, ["training.learning_rate", "finite number", "not nan"]),
        ({"training": {"learning_rate": math.inf}}, ["training.learning_rate", "finite number", "not inf"]),
        ({"training": {"beta2": 1.0}}, ["training.beta2", "less than 1", "not 1.0"]),
        ({"training": {"seed": -1}}, ["training.seed", "greater than or equal to 0", "not -1"]),
        ({"training": {"sample_prompt": 3}}, ["training.sample_prompt", "valid string", "not 3"]),
        ({"data": {"val_fraction": 1}}, ["data.val_fraction", "less than 1", "not 1"]),
        ({"data": {"dataset": {}}}, ["data.dataset", "valid string", "not {}"]),
        ({"model": {"hidden_dim": 130}}, ["hidden_dim 130 is not a multiple of num_heads 4"]),
        ({"model": {"num_heads": 4, "num_kv_heads": 3}}, ["num_heads 4 is not a multiple of num_kv_heads 3"]),
        ({"model": {"num_kv_heads": 8}}, ["num_heads 4 is not a multiple of num_kv_heads 8"]),
        ({"model": {"hidden_dim": 12}}, ["RoPE", "head size hidden_dim / num_heads = 3 must be even"]),
        ({"model": {"attention_head_dim": 3}}, ["RoPE", "head size attention_head_dim = 3 must be even"]),
        ({"model": {"rope_factor": 8, "rope_low_freq_factor": 4}}, ["rope_low_freq_factor 4 must be below"]),
        ({"model": 3}, ["model", "not 3"]),
    ],
)
def test_a_refusal_names_the_key_what_is_allowed_and_the_nearest_spelling(
    sections: dict[str, Any], words: list[str]
) -> None:
    message = refusal(sections)
    for word in words:
        assert word in message
    assert "\n" not in message
    assert "pydantic" not in message


def test_all_that_is_wrong_is_said_at_once() -> None:
    lines = refusal({"model": {"num_layers": 0, "norm": "x"}, "data": {"foo": 1}}).split("\n")
    assert [line.split()[0] for line in lines] == ["model.num_layers:", "model.norm:", "unknown"]


def test_learned_positions_allow_odd_heads() -> None:
    assert ModelConfig(hidden_dim=12, num_heads=4, position="learned").head_dim == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--training.lerning_rate", "1"], ["unknown option '--training.lerning_rate'", "'--training.learning_rate'?"]),
        (["--learning_rate=3"], ["unknown option '--learning_rate'", "'--training.learning_rate'?"]),
        (["--training.learning_rat=3"], ["unknown option", "'--training.learning_rate'?"]),  # and no abbreviations
        (["config.json"], ["unknown option 'config.json'"]),
        (["--training.seed"], ["--training.seed", "expected one argument"]),
        (["--training.schedule", "wsdd"], ["training.schedule", "'wsdd'", "mean 'wsd'?"]),
        (["--training.total_steps", "1e3"], ["training.total_steps", "valid integer", "'1e3'"]),
        (["--training.seed", "-1"], ["training.seed", "greater than or equal to 0", "'-1'"]),
        (["--training.learning_rate", "nan"], ["training.learning_rate", "finite"]),
        (["--model.num_heads", "3"], ["hidden_dim 128 is not a multiple of num_heads 3"]),
    ],
)
def test_a_wrong_option_is_explained_too(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        from_line(*arguments)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=f"{path}: cannot read the configuration: {reason}"):
            load_config(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "this file is not text"),
        ("", "not valid JSON: line 1, column 1: "),
        ('{"model": {}\n "data": {}}', "not valid JSON: line 2, column 2: Expecting ',' delimiter"),
        ('{"model": {"preset": gpt2}}', "not valid JSON: line 1, column 22: "),
        ("[1, 2]", "a configuration is a JSON object with the sections model, training, data"),
        ('"model"', "a configuration is a JSON object with the sections model, training, data"),
        ('{"model": [1]}', "section 'model' must be a JSON object"),
        ('{"training": null}', "section 'training' must be a JSON object"),
        ('{"training": {"seed": -1}}', "training.seed: input should be greater than or equal to 0, not -1"),
        ('{"zzz": {}}', "unknown section 'zzz'; sections are model, training, data"),
        ("[" * 100_000, "not a configuration: "),
        ('{"training": {"seed": ' + "1" * 5000 + "}}", "not a configuration: "),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_file_that_is_no_configuration(content: str | bytes, said: str, tmp_path: Path) -> None:
    assert said in json_refusal(tmp_path / "c.json", content)


def test_two_errors_in_a_file_each_name_the_file(tmp_path: Path) -> None:
    message = json_refusal(tmp_path / "c.json", '{"model": {"a": 1, "b": 2}}')
    assert message.count(f"{tmp_path / 'c.json'}: ") == 1  # the second; the first is cut off
    assert message.count("unknown key") == 2


def test_the_whole_program_uses_these_limits() -> None:
    """The two sections that are no architecture have every number within limits."""
    for section in (TrainingConfig, DataConfig):
        for key, field in section.model_fields.items():
            if isinstance(field.default, int | float):
                with pytest.raises(UserError, match=key):
                    config_from_dict({next(n for n, s in SECTIONS.items() if s is section): {key: -1}})


def test_options_take_only_keys_that_exist() -> None:
    options = argparse.Namespace(**{"config": None, "model.num_layers": "2", "run": "x", "model.bogus": "1"})
    assert config_from_options(options) == load_config(None, {"model.num_layers": 2})


# --- numbers on the command line


@pytest.mark.parametrize(
    ("kind", "low", "high", "good", "bad"),
    [
        (int, 1, math.inf, ["1", " 12 ", "9" * 400], ["0", "-1", "1.0", "", "x", "nan", "1e3", "9" * 5000]),
        (int, 0, 10, ["0", "10"], ["-1", "11"]),
        (float, 0, math.inf, ["0", "1e3", "2.5"], ["-0.1", "inf", "nan", "1e999", "", "x"]),
        (float, 0.01, 1, ["0.01", "1"], ["0", "1.01", "-inf"]),
    ],
)
def test_a_number_with_limits(kind: Any, low: float, high: float, good: list[str], bad: list[str]) -> None:
    parser = Parser(prog="test")
    parser.add_argument("--n", type=number(kind, low, high))
    for text in good:
        value = parser.parse_args(["--n", text]).n
        assert (type(value), value) == (kind, kind(text))
    noun = {int: "a whole number", float: "a number"}[kind]
    limits = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
    for text in bad:
        with pytest.raises(UserError) as caught:
            parser.parse_args([f"--n={text}"])
        assert f"argument --n: '{text}' is not {noun} {limits}" in str(caught.value)

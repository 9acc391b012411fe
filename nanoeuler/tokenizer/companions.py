"""What stands beside a tokenizer of others: which tokens begin and end a text, the chat template; and all their files.

``tokenizer_config.json`` has bos_token, eos_token, add_bos_token and chat_template, older folders the first two in
``special_tokens_map.json``, newer ones the template in ``chat_template.jinja``; whether a text begins with BOS may also
follow from the post-processor of ``tokenizer.json``. The files are kept as they are, and written again when the
tokenizer is saved: what is not read here, others may need.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.base import Tokenizer
from nanoeuler.tokenizer.files import decode_utf8, read_bytes, read_json

CONFIG_FILE, SPECIAL_FILE, TEMPLATE_FILE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
#: Files that are kept besides the tokenizer's own.
KEPT = (
    *(CONFIG_FILE, SPECIAL_FILE, TEMPLATE_FILE, "added_tokens.json"),
    *("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"),
)
#: SentencePiece's own, where nothing beside says other ones.
SENTENCEPIECE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
END_OF_TEXT = "<|endoftext|>"


def adopt(tokenizer: Tokenizer, path: Path, name: str) -> None:
    """Tell a tokenizer that was read from ``path`` what the files beside it say, and keep them, its own as ``name``.

    Raises:
        UserError: one of them is damaged, or names a token that the vocabulary does not have.
    """
    folder = path.parent
    config = _config(folder, SENTENCEPIECE if name == "tokenizer.model" else {})
    tokenizer.files = {name: read_bytes(path)} | {
        other: read_bytes(folder / other) for other in KEPT if other != name and (folder / other).is_file()
    }
    tokenizer.token_names = _token_names(folder, config)
    tokenizer.bos, tokenizer.eos = (
        tokenizer.special.get(tokenizer.token_names.get(key, "")) for key in ("bos_token", "eos_token")
    )
    tokenizer.prefix = _prefix(tokenizer, path, name, config)
    tokenizer.chat_template = _template(folder, config)
    between = tokenizer.prefix[:1] or [i for i in (tokenizer.eos, tokenizer.special.get(END_OF_TEXT)) if i is not None]
    tokenizer.end_of_text = between[0] if between else None


def _config(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(defaults)
    for name in (SPECIAL_FILE, CONFIG_FILE):  # the second wins
        if (folder / name).is_file():
            config |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return config


def _token_names(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return what a configuration calls its tokens, such as ``eos_token``: each a text, or an object with it.

    Raises:
        UserError: BOS or EOS is neither.
    """
    extra = config.get("extra_special_tokens")
    named = {key: token for key, token in config.items() if key.endswith("_token")}
    names = {}
    for key, token in (named | (extra if isinstance(extra, dict) else {})).items():
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            names[key] = text
        elif key in ("bos_token", "eos_token"):
            raise UserError(f"{folder / CONFIG_FILE}: damaged: a special token is {token!r}")
    return names


def _prefix(tokenizer: Tokenizer, path: Path, name: str, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ids that texts begin with: as the configuration says it, or else the post-processor."""
    if isinstance(config.get("add_bos_token"), bool):
        return (tokenizer.bos,) if config["add_bos_token"] and tokenizer.bos is not None else ()
    if name != "tokenizer.json":
        return ()
    post = read_json(path).get("post_processor") or {}
    try:
        steps = post["processors"] if post.get("type") == "Sequence" else [post]
        templates = [step for step in steps if step.get("type") == "TemplateProcessing"]
        tokens = []
        for piece in templates[0]["single"] if templates else []:
            if "Sequence" in piece:
                break
            tokens.append(tokenizer.special[piece["SpecialToken"]["id"]])
    except (KeyError, TypeError, AttributeError, IndexError):
        raise UserError(f"{path}: its post_processor is damaged, or names a token that is not there") from None
    return tuple(tokens)


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the chat template, of several that are named the one named default."""
    if (folder / TEMPLATE_FILE).is_file():
        return decode_utf8(read_bytes(folder / TEMPLATE_FILE), str(folder / TEMPLATE_FILE))
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if template is not None and not isinstance(template, str):
        raise UserError(f"{folder / CONFIG_FILE}: damaged: chat_template is {type(template).__name__}, and not a text")
    return template

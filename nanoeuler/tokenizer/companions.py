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
SENTENCEPIECE = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
END_OF_TEXT = "<|endoftext|>"


def adopt(tokenizer: Tokenizer, path: Path) -> None:
    """Tell a tokenizer that was read from ``path`` what the files beside it say.

    Raises:
        UserError: one of them is damaged, or names a token that the vocabulary does not have.
    """
    folder = path.parent
    config = _config(folder, SENTENCEPIECE if path.suffix == ".model" else {})
    tokenizer.files = {
        name: read_bytes(folder / name) for name in dict.fromkeys([path.name, *KEPT]) if (folder / name).is_file()
    }
    tokenizer.bos, tokenizer.eos = (_id(tokenizer, folder, config.get(key)) for key in ("bos_token", "eos_token"))
    tokenizer.prefix = _prefix(tokenizer, path, config)
    tokenizer.chat_template = _template(folder, config)
    between = tokenizer.prefix[:1] or [i for i in (tokenizer.eos, tokenizer.special.get(END_OF_TEXT)) if i is not None]
    tokenizer.end_of_text = between[0] if between else None


def _config(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(defaults)
    for name in (SPECIAL_FILE, CONFIG_FILE):  # the second wins
        if (folder / name).is_file():
            config |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return config


def _id(tokenizer: Tokenizer, folder: Path, token: Any) -> int | None:
    """Return the id of a token that a configuration names, as text or as an object with its content."""
    text = token.get("content") if isinstance(token, dict) else token
    if text is None:
        return None
    if not isinstance(text, str):
        raise UserError(f"{folder / CONFIG_FILE}: damaged: a special token is {token!r}")
    return tokenizer.special.get(text)


def _prefix(tokenizer: Tokenizer, path: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ids that texts begin with: as the configuration says it, or else the post-processor."""
    if isinstance(config.get("add_bos_token"), bool):
        return (tokenizer.bos,) if config["add_bos_token"] and tokenizer.bos is not None else ()
    if path.name != "tokenizer.json":
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
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise UserError(f"{folder / CONFIG_FILE}: damaged: chat_template is {type(template).__name__}, and not a text")
    return template

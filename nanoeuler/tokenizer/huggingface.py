"""Hugging Face's ``tokenizer.json``: byte-level BPE, read and written; and BPE of characters, read."""

import json
import re
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.alphabet import to_characters
from nanoeuler.tokenizer.base import Tokenizer
from nanoeuler.tokenizer.bpe import END_OF_TEXT, BPETokenizer
from nanoeuler.tokenizer.files import read_json
from nanoeuler.tokenizer.huggingface_characters import read_characters
from nanoeuler.tokenizer.patterns import PATTERNS
from nanoeuler.tokenizer.vocabulary import tokenizer_from_merges

#: One character, or a class, that Hugging Face's regular expressions, which are Oniguruma's, read as tiktoken's do.
_ALIKE = r"\\[pP]\{[A-Z][a-z]*\}|\\[dDsSrntfv]|\\[^\w\s<>]"
#: A pattern as far as both read it alike. Much is left out: ``(?s:`` is no group there, ``^`` and ``$`` are the ends of
#: lines, ``{1,3}+`` is not possessive, ``\w`` has other letters, and ``(?i:ss)`` has ß, so that ``(?i:`` is only
#: allowed for contractions.
READ_ALIKE = re.compile(
    r"(?:\(\?i:(?:'[a-z]{1,2}\|?)+\)"  # contractions
    rf"|\(\?<[=!](?:{_ALIKE}|\w)\)"  # one character behind, where more may not compile
    r"|\(\?[:=!]|\((?!\?)|[)|]"  # groups, and what lies ahead
    r"|[*+?][+?]?|\{\d+(?:,\d*)?\}\??(?!\+)"  # repeats
    rf"|\[\^?(?:{_ALIKE}|[^\[\]\\])+\]|{_ALIKE}"  # sets, classes
    r"|[^\\\[\](){}*+?|^$])*"  # any other character
)

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"

#: Settings of the model that must be off: settings of other kinds of BPE, and what each does.
OTHER_BPE = {
    "dropout": "leaves merges out at random",
    "unk_token": "stands for unknown text, of which bytes have none",
    "continuing_subword_prefix": "marks tokens within a word",
    "end_of_word_suffix": "marks tokens at the end of a word",
    "byte_fallback": "is of a BPE of characters",
}


def read_huggingface(path: Path) -> Tokenizer:
    """Return the tokenizer in a ``tokenizer.json``: byte-level BPE, or BPE of characters as Llama 2 has it.

    Tokens that were added to the vocabulary without being special count as special here: ordinary text never gives
    them, and ``encode`` does where it is allowed to. Hugging Face's libraries cut both out of any text.

    Raises:
        UserError: it is missing or damaged, or a kind of tokenizer that gives other ids than ours.
    """
    record = read_json(path)
    model = record.get("model")
    try:
        special = _special_of(path, record.get("added_tokens") or [])
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not all that a tokenizer.json has is in it, or it is damaged") from None
    if isinstance(model, dict) and model.get("byte_fallback"):
        return read_characters(path, record, special)
    return _read_bytes(path, record, special)


def _read_bytes(path: Path, record: dict[str, Any], special: dict[str, int]) -> BPETokenizer:
    try:
        model = record["model"]
        normalizer = record.get("normalizer") or {}
        _check_kind(path, model, normalizer)
        pattern = _pattern_of(path, record.get("pre_tokenizer") or {})
        vocab, merges = dict(model["vocab"]), model["merges"]
        if not isinstance(merges, list) or not all(isinstance(token, str) for token in special):
            raise TypeError
        for token, i in special.items():
            if vocab.pop(token, i) != i:
                raise UserError(f"{path}: the special token {token!r} has another id in the vocabulary than {i}")
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{path}: not all that a tokenizer.json has is in it, or it is damaged") from None
    tokenizer = tokenizer_from_merges(
        path, vocab, merges, lambda i: f"{path}: model.merges[{i}]", pattern, special, bool(model.get("ignore_merges"))
    )
    return tokenizer.normalised() if normalizer else tokenizer


def _check_kind(path: Path, model: dict[str, Any], normalizer: dict[str, Any]) -> None:
    """Check that a model is byte-level BPE, and that text is not changed beforehand."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise UserError(f"{path}: a tokenizer of the kind {kind!r}, and nanoeuler reads byte-level BPE")
    if normalizer and normalizer.get("type") != "NFC":
        raise UserError(f"{path}: it changes text first (normalizer {normalizer.get('type')!r}); nanoeuler has 'NFC'")
    for setting, effect in OTHER_BPE.items():
        if model.get(setting):
            raise UserError(f"{path}: {setting} is {model[setting]!r}, which {effect}; a byte-level BPE has none")


def _pattern_of(path: Path, pre_tokenizer: dict[str, Any]) -> str:
    """Return the pattern of a pre-tokenizer: ``ByteLevel``, or ``Split`` and then ``ByteLevel``."""
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    names = [step.get("type") for step in steps]
    if names not in (["ByteLevel"], ["Split", "ByteLevel"], ["Digits", "ByteLevel"]):
        raise UserError(
            f"{path}: text is cut by {', '.join(map(repr, names))}; nanoeuler reads ByteLevel, alone or after a Split "
            "or Digits"
        )
    if steps[-1].get("add_prefix_space", True):  # true where it is left out
        raise UserError(f"{path}: add_prefix_space puts a space before the text; nanoeuler encodes text as it is")
    by_gpt2 = steps[-1].get("use_regex", True)
    if len(steps) == 1 and by_gpt2:
        return PATTERNS["gpt2"]
    if names[0] == "Digits":
        if not steps[0].get("individual_digits") or not by_gpt2:
            raise UserError(f"{path}: Digits must be individual_digits, and ByteLevel cut what is between them")
        return PATTERNS["smollm"]
    if len(steps) == 1 or by_gpt2:
        raise UserError(f"{path}: text must be cut by one pattern, and here it is {'two' if by_gpt2 else 'none'}")
    cut = steps[0]
    if "Regex" not in cut["pattern"] or cut.get("behavior") != "Isolated" or cut.get("invert"):
        raise UserError(f"{path}: Split must be by a Regex, with the behavior Isolated and not inverted")
    pattern = str(cut["pattern"]["Regex"])
    if why := _unlike(pattern):
        raise UserError(f"{path}: {why}")
    return pattern


def _unlike(pattern: str) -> str | None:
    """Return why a pattern cuts text otherwise at Hugging Face than it does here; None if we know that it does not."""
    found = READ_ALIKE.match(pattern)
    if found and (unlike := pattern[found.end() :]):
        return f"{unlike[:10]!r} in the pattern {pattern!r} may mean one thing to tiktoken and another to Hugging Face"
    return None


def _special_of(path: Path, added: list[dict[str, Any]]) -> dict[str, int]:
    """Return the special tokens among those that were added to a vocabulary."""
    for token in added:
        content = token["content"]
        extra = [key for key in ("single_word", "lstrip", "rstrip") if token.get(key)]
        if extra:
            raise UserError(f"{path}: the special token {content!r} takes text beside it ({', '.join(extra)})")
    return {token["content"]: token["id"] for token in added}


def unwritable(tokenizer: BPETokenizer) -> str | None:
    """Return why ``tokenizer.json`` cannot hold a tokenizer; None if it can."""
    if why := _unlike(tokenizer.pattern):
        return why
    if twice := tokenizer.special.keys() & {to_characters(token) for token in tokenizer.tokens}:
        return f"the special token {min(twice)!r} is written like another token"
    return None


def write_huggingface(folder: Path, tokenizer: BPETokenizer) -> list[Path]:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` into a folder; return their paths.

    Raises:
        UserError: they cannot be written, or the format cannot hold this tokenizer.
    """
    if reason := unwritable(tokenizer):
        raise UserError(f"{folder / TOKENIZER_FILE}: {reason}")
    return [
        _write_json(folder / TOKENIZER_FILE, _tokenizer_record(tokenizer)),
        _write_json(folder / CONFIG_FILE, _config_record(tokenizer)),
    ]


def _write_json(path: Path, record: dict[str, Any]) -> Path:
    with written_whole(path) as file:
        file.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return path


def _tokenizer_record(tokenizer: BPETokenizer) -> dict[str, Any]:
    names = [to_characters(token) for token in tokenizer.tokens]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token, **flags} for token, i in tokenizer.special.items()],
        "normalizer": {"type": "NFC"} if tokenizer.nfc else None,
        "pre_tokenizer": _pre_tokenizer(tokenizer.pattern),
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": not tokenizer.merges_are_tokens,
            # Special tokens too: those that are not in it get other ids when the file is read.
            "vocab": dict(zip(names, tokenizer.ids.tolist(), strict=True)) | dict(tokenizer.special),
            "merges": [f"{names[a]} {names[b]}" for a, b in tokenizer.merges],
        },
    }


def _pre_tokenizer(pattern: str) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if pattern == PATTERNS["gpt2"]:
        return byte_level | {"use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}


def _config_record(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return what transformers needs to know beside ``tokenizer.json``."""
    end = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT} if tokenizer.end_of_text is not None else {}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **end}

"""Small tokenizers of each kind that model families have, made by Hugging Face's library, structured as theirs are."""

import json
from pathlib import Path
from typing import Any

from tokenizer.texts import AWKWARD, TEXT

from nanoeuler.tokenizer.patterns import PATTERNS

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_level(folder: Path, record: dict[str, Any], specials: list[tuple[str, bool]], config: dict[str, Any]) -> Path:
    """Write a byte-level BPE with parts of ``record`` exchanged, and the configuration beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT, *AWKWARD], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    made = json.loads(tokenizer.to_str()) | {"decoder": decoder} | record
    first = len(made["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    made["added_tokens"] = [
        {"id": first + i, "content": token, "special": special, **flags} for i, (token, special) in enumerate(specials)
    ]
    made["model"] |= record.get("model", {}) if "model" in record else {}
    return write(folder, made, config)


def write(folder: Path, record: dict[str, Any], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def split_then_bytes(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, bytes_]}


def template(token: str, i: int) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}},
    }


def llama3(folder: Path) -> Path:
    from tokenizers import Tokenizer

    specials = [("<|begin_of_text|>", True), ("<|end_of_text|>", True), ("<|eot_id|>", True)]
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    byte_level(folder, {"pre_tokenizer": split_then_bytes(PATTERNS["llama3"])}, specials, config)
    record = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    as_of_ranks(record, ["Ġquickly", "zqzq"])
    bos = record["added_tokens"][0]["id"]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    record["post_processor"] = {"type": "Sequence", "processors": [bytes_, template("<|begin_of_text|>", bos)]}
    write(folder, record, config)
    Tokenizer.from_file(str(folder / "tokenizer.json"))
    return folder


def as_of_ranks(record: dict[str, Any], unreachable: list[str]) -> None:
    """Make a vocabulary one that was converted from ranks: every split of a token merges, and some tokens by none."""
    model, vocab = record["model"], record["model"]["vocab"]
    vocab |= {token: len(vocab) + i for i, token in enumerate(unreachable)}
    for i, token in enumerate(record["added_tokens"]):
        token["id"] = len(vocab) + i  # the library gives them these whatever the file says
    splits = [(token[:i], token[i:]) for token in sorted(vocab, key=vocab.get) for i in range(1, len(token))]
    model["merges"] = [[a, b] for a, b in splits if a in vocab and b in vocab and a + b not in unreachable]
    model["ignore_merges"] = True


def qwen(folder: Path) -> Path:
    specials = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)]
    record = {"normalizer": {"type": "NFC"}, "pre_tokenizer": split_then_bytes(PATTERNS["qwen2"])}
    config = {"bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False, "chat_template": CHATML}
    return byte_level(folder, record, specials, config)


def smollm(folder: Path) -> Path:
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    record = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytes_]}}
    specials = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True)]
    bos, eos = ({"__type": "AddedToken", "content": token} for token in ("<|im_start|>", "<|im_end|>"))
    config = {"bos_token": bos, "eos_token": eos, "chat_template": CHATML}
    byte_level(folder, record, specials, config)
    made = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    specials_first(made)
    return write(folder, made, config)


def specials_first(record: dict[str, Any]) -> None:
    """Give special tokens the first ids, and a place in the vocabulary, as SmolLM's and Mistral Nemo's have it."""
    special, vocab = record["added_tokens"], record["model"]["vocab"]
    for i, token in enumerate(special):
        token["id"] = i
    moved = {token: len(special) + i for token, i in vocab.items()}
    record["model"]["vocab"] = {token["content"]: token["id"] for token in special} | moved


#: mistralai/Mistral-Nemo-Base-2407, tokenizer.json
NEMO = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def nemo(folder: Path) -> Path:
    specials = [("<unk>", True), ("<s>", True), ("</s>", True), ("[INST]", True), ("[/INST]", True)]
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    byte_level(folder, {"pre_tokenizer": split_then_bytes(NEMO)}, specials, config)
    record = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    specials_first(record)
    return write(folder, record | {"post_processor": template("<s>", 1)}, config)


def characters(folder: Path, normalizer: Any, pre_tokenizer: Any, config: dict[str, Any] | None = None) -> Path:
    """Write a BPE of characters with bytes to fall back on, as Llama 2's was converted."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=300, limit_alphabet=60)
    learner.train_from_iterator([TEXT, "the quick brown fox  jumps over the lazy dog's back"], trainer)
    learned = json.loads(learner.to_str())["model"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in learned["vocab"]:
        vocab.setdefault(token, len(vocab))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    record = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": template("<s>", 1),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": learned["merges"],
        },
    }
    return write(folder, record, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | (config or {}))


PREPEND = {"type": "Prepend", "prepend": "▁"}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def llama2(folder: Path) -> Path:
    return characters(folder, {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}, None)


def metaspace(folder: Path, scheme: str) -> Path:
    return characters(folder, None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False})


FAMILIES = {
    "llama3": llama3,
    "qwen": qwen,
    "smollm": smollm,
    "nemo": nemo,
    "llama2": llama2,
    "mistral": lambda folder: metaspace(folder, "first"),
    "metaspace always": lambda folder: metaspace(folder, "always"),
    "metaspace never": lambda folder: metaspace(folder, "never"),
}

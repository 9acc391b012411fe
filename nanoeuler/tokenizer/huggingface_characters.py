"""BPE of characters in a ``tokenizer.json``: Llama 2, TinyLlama, Mistral before its byte-level vocabularies.

Spaces become ▁ and one is put before the text, in one of two ways: by the normalizer, ``Prepend`` and ``Replace``,
before every stretch between special tokens; or by the pre-tokenizer ``Metaspace``, which adds none where one is there.
"""

from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.character_bpe import SPACE, CharacterBPE, LeadingSpace, Vocabulary, by_rank

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Prepend", "prepend": SPACE}


def read_characters(path: Path, record: dict[str, Any], special: dict[str, int]) -> CharacterBPE:
    """Return the tokenizer that a ``tokenizer.json`` with ``byte_fallback`` describes.

    Raises:
        UserError: it is damaged, or does what ours do not.
    """
    try:
        model = record["model"]
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
            if model.get(key):
                raise UserError(f"{path}: {key} is {model[key]!r}; nanoeuler's BPE of characters has none")
        vocab = dict(model["vocab"])
        leading = _leading(path, record.get("normalizer") or {}, record.get("pre_tokenizer") or {})
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        if missing := [name for name in names if name not in vocab]:
            raise UserError(f"{path}: byte_fallback without the token {missing[0]!r}")
        if not all(type(i) is int and 0 <= i < 1 << 24 for i in [*vocab.values(), *special.values()]):
            raise ValueError
        if not all(vocab.keys() | special.keys()):
            raise ValueError  # an empty token
        "".join([*vocab, *special]).encode()  # for its error, a ValueError: half a surrogate pair
        _check_ids(path, vocab, special)
        pieces = {piece: i for piece, i in vocab.items() if piece not in special and piece not in names}
        merges = _merges(path, model["merges"], vocab)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{path}: not all that a tokenizer.json has is in it, or it is damaged") from None
    vocabulary = Vocabulary(pieces, [vocab[name] for name in names], special, by_rank(merges), SPACE, leading)
    return CharacterBPE(vocabulary, repr((sorted(vocab.items()), list(merges), special, leading)).encode())


def _check_ids(path: Path, vocab: dict[str, int], special: dict[str, int]) -> None:
    """Check that every token has one id, and every id one token."""
    for token, i in special.items():
        if vocab.get(token, i) != i:
            raise UserError(f"{path}: the special token {token!r} has another id in the vocabulary than {i}")
    ids = (vocab | special).values()
    if len(set(ids)) < len(ids):
        raise UserError(f"{path}: the vocabulary has two tokens with one id")


def _leading(path: Path, normalizer: dict[str, Any], pre_tokenizer: dict[str, Any]) -> LeadingSpace:
    """Return how a space is put before a text."""
    steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
    cut = pre_tokenizer.get("type")
    if cut is None and steps == [PREPEND, REPLACE]:
        return LeadingSpace("always")
    if cut is None and steps == [REPLACE]:
        return LeadingSpace("never")
    if cut == "Metaspace" and not steps and pre_tokenizer.get("replacement") == SPACE:
        if pre_tokenizer.get("split", True):
            raise UserError(f"{path}: Metaspace with split cuts text at spaces; nanoeuler reads it with split false")
        scheme = pre_tokenizer.get("prepend_scheme", "always")
        if scheme in ("always", "first", "never"):
            return LeadingSpace(scheme, unless_there=True)
    raise UserError(
        f"{path}: text is changed or cut in another way than Llama 2's: normalizers "
        f"{[step.get('type') for step in steps]}, pre-tokenizer {cut!r}"
    )


def _merges(path: Path, merges: list[Any], vocab: dict[str, int]) -> dict[tuple[int, int], tuple[float, int]]:
    """Return what each pair of ids makes, and its place in the list."""
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for rank, merge in enumerate(merges):
        a, b = merge.split(" ") if isinstance(merge, str) else merge
        try:
            found.setdefault((vocab[a], vocab[b]), (rank, vocab[a + b]))
        except KeyError as error:
            raise UserError(
                f"{path}: model.merges[{rank}]: the merge of {a!r} and {b!r} needs the token {error.args[0]!r}, which "
                "is not there"
            ) from None
    return found

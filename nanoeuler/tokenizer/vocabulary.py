"""From what a vocabulary file says to a tokenizer that gives exactly those ids, or the reason why there is none."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import merges as pairs
from nanoeuler.tokenizer.alphabet import BYTE_OF_CHARACTER, BYTES, CHARACTER_OF_BYTE, to_bytes, to_characters
from nanoeuler.tokenizer.bpe import MOST_IDS, BPETokenizer
from nanoeuler.tokenizer.merges import Pair

CHARACTERS = [to_characters(byte) for byte in BYTES]


def tokenizer_from_merges(
    path: Path,
    vocab: Mapping[str, int],
    merges: Sequence[str | Sequence[str]],
    where: Callable[[int], str],
    pattern: str,
    special: Mapping[str, int],
    whole_first: bool = False,
) -> BPETokenizer:
    """Return the tokenizer of a vocabulary and a list of merges, both in GPT-2's visible characters.

    Args:
        path: the file of the vocabulary, for messages.
        vocab: token to id, the special tokens left out.
        merges: ``"a b"`` or ``("a", "b")`` for each pair, in the order in which they are merged.
        where: says for messages where the i-th merge is written.
        pattern: how text is cut.
        special: special tokens and their ids.
        whole_first: a pre-token that is a token is not cut at all (``ignore_merges`` of Hugging Face).

    Raises:
        UserError: the file is damaged, or means what tiktoken cannot do.
    """
    check_vocabulary(path, vocab)
    read = [_pair(merge, vocab, i, where) for i, merge in enumerate(merges)]
    made = list(dict.fromkeys(a + b for a, b in read))  # in the order of the first merge of each
    tokens = CHARACTERS + made
    unmade = vocab.keys() - set(tokens)
    if unmade and not whole_first:
        raise UserError(f"{path}: no merge makes the token {min(unmade)!r}, and it is not among the special tokens")
    if unmade:  # from a rank file then, in which ids are ranks
        tokens = CHARACTERS + sorted(vocab.keys() - set(CHARACTERS), key=vocab.__getitem__)
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    ranked = [(rank_of[a], rank_of[b]) for a, b in read]
    if len(ranked) == len(made) and not unmade:
        _check_single(ranked, where)
    else:
        _check_every_pair(path, tokens, ranked, whole_first)
    return tokenizer_from_ranks(path, tokens, vocab, pattern, special)


def tokenizer_from_ranks(
    path: Path, tokens: Sequence[str], vocab: Mapping[str, int], pattern: str, special: Mapping[str, int]
) -> BPETokenizer:
    """Return the tokenizer of tokens in visible characters, in the order of rank, with their ids in ``vocab``.

    Raises:
        UserError: the pattern is none, or a special token has an id that another has.
    """
    ids = [vocab[token] for token in tokens]
    try:
        return BPETokenizer.from_ranks([to_bytes(token) for token in tokens], pattern, special, ids)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def check_vocabulary(path: Path, vocab: Mapping[str, int]) -> None:
    """Check that tokens are written in visible characters, that every byte is one, and that each has an id of its own.

    Raises:
        UserError: it is not so; the message names the token.
    """
    seen: dict[int, str] = {}
    for token, i in vocab.items():
        if strange := [character for character in token if character not in BYTE_OF_CHARACTER]:
            raise UserError(
                f"{path}: {token!r} is no token of a byte-level BPE: {strange[0]!r} stands for no byte. "
                "(A special token must be listed as one.)"
            )
        if type(i) is not int or not 0 <= i < MOST_IDS:
            raise UserError(f"{path}: the id of {token!r} is {i!r}, and ids are whole numbers from 0")
        if i in seen:
            raise UserError(f"{path}: {token!r} and {seen[i]!r} both have id {i}")
        seen[i] = token
    missing = [byte for byte in range(256) if CHARACTER_OF_BYTE[byte] not in vocab]
    if missing:
        raise UserError(
            f"{path}: no token for byte 0x{missing[0]:02x} ({len(missing)} of the 256 are missing): "
            "not a byte-level BPE, or a damaged one"
        )


def _pair(merge: str | Sequence[str], vocab: Mapping[str, int], i: int, where: Callable[[int], str]) -> tuple[str, str]:
    """Return the two sides of the i-th merge."""
    try:
        a, b = merge.split(" ") if isinstance(merge, str) else merge
        if a in vocab and b in vocab and a + b in vocab:
            return a, b
    except (TypeError, ValueError):
        a = b = ""
    if not a or not b:
        raise UserError(f"{where(i)}: a merge is two tokens, and this is {merge!r}")
    missing = next(token for token in (a, b, a + b) if token not in vocab)
    raise UserError(f"{where(i)}: the merge of {a!r} and {b!r} needs the token {missing!r}, which is not there")


def _check_single(ranked: list[Pair], where: Callable[[int], str]) -> None:
    """Check a list with one merge for each token, as training makes it.

    Raises:
        UserError: there is a merge that such a list cannot have.
    """
    for i, (a, b) in enumerate(ranked):
        if max(a, b) >= len(CHARACTERS) + i:
            raise UserError(f"{where(i)}: a merge of a token that only a later merge makes; nanoeuler cannot run these")
    if (wrong := pairs.first_misplaced(ranked)) is not None:
        raise UserError(
            f"{where(wrong)}: a merge that the bytes of its own token do not come to; no training of byte pairs "
            "makes such a list, and nanoeuler cannot run it"
        )


def _check_every_pair(path: Path, tokens: list[str], ranked: list[Pair], whole_first: bool) -> None:
    """Check a list with several merges for a token: it must say what tiktoken does, as lists made from its files do.

    Raises:
        UserError: it says something else.
    """
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    order = [rank_of[tokens[a] + tokens[b]] for a, b in ranked]
    lengths = pairs.lengths_of(tokens)
    every = {pair for token in tokens for pair in pairs.splits(token, rank_of, lengths)}
    if any(a > b for a, b in pairwise(order)) or set(ranked) != every:
        raise UserError(f"{path}: several merges make one token, and not all that could; nanoeuler cannot run these")
    if not whole_first and pairs.merges_of(tokens) is None:
        raise UserError(f"{path}: some tokens are made by no merges, which needs ignore_merges to be true")

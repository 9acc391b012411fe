"""Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019, section 2.2): any merges, run by tiktoken."""

import base64
import hashlib
import operator
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from numpy.typing import ArrayLike

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import merges as pairs
from nanoeuler.tokenizer.alphabet import BYTES, to_characters
from nanoeuler.tokenizer.base import Tokenizer, fingerprint, utf8
from nanoeuler.tokenizer.merges import Pair
from nanoeuler.tokenizer.patterns import PATTERNS, resolve, split

END_OF_TEXT = "<|endoftext|>"
#: More than anybody's: we keep arrays of this length, and files that are damaged may have any ids.
MOST_IDS = 1 << 24
#: What is not of the vocabulary, and told afterwards.
BESIDE = {"bos", "eos", "prefix", "end_of_text", "chat_template", "token_names", "files"}
#: SHA-256 of GPT-2's vocabulary as a rank file. Tokenizers with these ids are known by a fingerprint of their own.
GPT2_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


class BPETokenizer(Tokenizer):
    """Text is cut by a pattern; in each piece, bytes are merged pair by pair, the pair that was learned first first.

    >>> tokenizer = BPETokenizer([(64, 65), (256, 66)], "gpt2")  # a b, ab c
    >>> tokenizer.encode("abcab").tolist()
    [257, 256]

    Args:
        merges: pairs of ids: 0 to 255 are the bytes in GPT-2's order (``alphabet.BYTES``), 256 + i is what merge i
            makes.
        pattern: how text is cut: a name in ``patterns.PATTERNS``, or a regular expression.
        special: tokens that ordinary text never gives, and their ids; ``<|endoftext|>`` after the last merge if left
            out.

    Raises:
        UserError: the merges are such that none of our training makes, the pattern is none, or two tokens have one id.
    """

    kind = "bpe"
    nfc = False  # whether text is brought into Unicode's normal form C first, as Qwen's is

    def __init__(self, merges: Sequence[Pair], pattern: str = "gpt2", special: Mapping[str, int] | None = None) -> None:
        try:
            tokens = pairs.tokens_of(merges)
        except ValueError as error:
            raise UserError(f"not the merges of a BPE: {error}") from None
        if (wrong := pairs.first_misplaced(merges)) is not None:
            raise UserError(f"not the merges of a BPE: those before merge {wrong} leave no two tokens for it to merge")
        self._set_up(tokens, pattern, {END_OF_TEXT: len(tokens)} if special is None else special)

    @classmethod
    def from_ranks(
        cls, tokens: Sequence[bytes], pattern: str, special: Mapping[str, int], ids: Sequence[int] | None = None
    ) -> "BPETokenizer":
        """Return the tokenizer of a list of tokens, as tiktoken has them.

        Args:
            tokens: all tokens but the special ones: the bytes as ``alphabet.BYTES`` has them, then the others in the
                order in which they are merged.
            pattern: how text is cut.
            special: special tokens and their ids.
            ids: the id of each token; its place in the list if left out.

        Raises:
            UserError: the tokens do not begin with the bytes, the pattern is none, or two tokens have one id.
        """
        if list(tokens[: len(BYTES)]) != BYTES:
            raise UserError("the first 256 tokens of a byte-level BPE are the bytes")
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(list(tokens), pattern, special, ids)
        return tokenizer

    def _set_up(
        self, tokens: list[bytes], pattern: str, special: Mapping[str, int], ids: Sequence[int] | None = None
    ) -> None:
        self.pattern = resolve(pattern)
        self.tokens = tokens  # by rank
        self.special = _checked(special)
        self.end_of_text = self.special.get(END_OF_TEXT)
        self.ids = np.arange(len(tokens), dtype=np.int32) if ids is None else np.array(ids, np.int32)  # by rank
        self._bytes_of = dict(zip(self.ids.tolist(), tokens, strict=True))
        self._bytes_of |= {i: token.encode() for token, i in self.special.items()}
        if len(self._bytes_of) < len(tokens) + len(special):
            raise UserError("the vocabulary has two tokens with one id")
        if min(self._bytes_of) < 0 or max(self._bytes_of) >= MOST_IDS:
            raise UserError(f"the vocabulary has an id below 0, or beyond {MOST_IDS}")
        self.vocab_size = max(self._bytes_of) + 1
        self._known = np.zeros(self.vocab_size, bool)
        self._known[list(self._bytes_of)] = True
        self._rank_of = {token: rank for rank, token in enumerate(tokens)}
        self._tiktoken = _encoding(self.pattern, self._rank_of, list(self.special))
        self.fingerprint = self._fingerprint()

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to other processes as lists, tiktoken's object cannot; and with what files beside it have said."""
        beside = {key: value for key, value in vars(self).items() if key in BESIDE}
        return _again, (self.tokens, self.pattern, self.special, self.ids.tolist(), self.nfc), beside

    def normalised(self) -> "BPETokenizer":
        """Return a tokenizer of the same vocabulary that brings text into Unicode's normal form C first."""
        tokenizer = BPETokenizer.from_ranks(self.tokens, self.pattern, self.special, self.ids.tolist())
        tokenizer.nfc = True
        tokenizer.fingerprint = fingerprint("bpe, NFC", self.fingerprint.encode())
        return tokenizer

    def _fingerprint(self) -> str:
        """Return the SHA-256 of tokens, ids, pattern and special tokens."""
        ranks = self.rank_file
        like_gpt2 = self.pattern == PATTERNS["gpt2"] and self.special == {END_OF_TEXT: 50256}
        if like_gpt2 and hashlib.sha256(ranks).hexdigest() == GPT2_SHA256:
            return fingerprint("gpt2", ranks)
        return fingerprint("bpe", repr((self.pattern, self.special)).encode() + b"\0" + ranks)

    @property
    def rank_file(self) -> bytes:
        """All tokens but the special ones, with their ids, as tiktoken keeps them: a line for each, base64 and id."""
        lines = zip(self.tokens, self.ids.tolist(), strict=True)
        return b"".join(base64.b64encode(token) + b" %d\n" % i for token, i in lines)

    @cached_property
    def merges(self) -> list[Pair]:
        """The pairs of ranks that are merged, in order: one for each token beyond the bytes.

        In a vocabulary of which some tokens are made by no merges (``merges_are_tokens`` is False), every pair that is
        a token, so that a token may have several.
        """
        if self._own_merges is not None:
            return self._own_merges
        lengths = pairs.lengths_of(self.tokens)
        return [pair for token in self.tokens for pair in pairs.splits(token, self._rank_of, lengths)]

    @property
    def merges_are_tokens(self) -> bool:
        """Whether each token beyond the bytes is made by one merge, as it is after training."""
        return self._own_merges is not None

    @cached_property
    def _own_merges(self) -> list[Pair] | None:
        return pairs.merges_of(self.tokens)

    def id_of(self, token: bytes) -> int:
        """Return the id of a token that is not special.

        Raises:
            KeyError: there is no such token.
        """
        return int(self.ids[self._rank_of[token]])

    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return the ids of the text's tokens, (N,) int32. Special tokens are text like any other.

        Raises:
            UserError: the text is not valid Unicode.
        """
        utf8(text)  # for its error: tiktoken would put U+FFFD without a word
        return self.ids[self._ranks(self._normal(text))]

    def _normal(self, text: str) -> str:
        return unicodedata.normalize("NFC", text) if self.nfc else text

    def _ranks(self, text: str) -> np.ndarray:
        try:
            return self._tiktoken.encode_to_numpy(text, disallowed_special=())
        except BaseException as error:
            if not _is_tiktokens(error):
                raise
        return np.fromiter(self._ranks_by_piece(text), np.int64)

    def _ranks_by_piece(self, text: str) -> Iterator[int]:
        """Give the same ranks where tiktoken's regular expressions fail, as they do on a million spaces in a row."""
        for piece in split(self.pattern, text):
            yield from self._tiktoken._encode_single_piece(piece)

    def encode_definition(self, text: str) -> np.ndarray:
        """Return the same ids by the definition: slow, and to be read."""
        return self.ids[
            [rank for piece in split(self.pattern, self._normal(text)) for rank in self._merged(piece.encode())]
        ]

    def _merged(self, piece: bytes) -> list[int]:
        """Return the ranks of a piece's tokens."""
        if piece in self._rank_of and not self.merges_are_tokens:
            return [self._rank_of[piece]]
        ranks = [self._rank_of[bytes([byte])] for byte in piece]
        while candidates := [(self._made[pair], i) for i, pair in enumerate(pairwise(ranks)) if pair in self._made]:
            made, i = min(candidates)  # the pair learned first, and of several the leftmost
            ranks[i : i + 2] = [made]
        return ranks

    @cached_property
    def _made(self) -> dict[Pair, int]:
        """What each pair of ranks makes."""
        return {(a, b): self._rank_of[self.tokens[a] + self.tokens[b]] for a, b in self.merges}

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the bytes of the ids' tokens; a special token gives its text.

        Raises:
            UserError: an id is no token.
        """
        return b"".join(map(self._bytes_of.__getitem__, self._tokens(ids).tolist()))

    def _is_token(self, flat: np.ndarray) -> np.ndarray:
        inside = super()._is_token(flat)
        return inside & self._known[np.where(inside, flat, 0)]

    def _save_own(self, directory: Path) -> None:
        """Write the tokenizer into a folder, for us and, where its format can hold it, for Hugging Face's libraries.

        Raises:
            UserError: it cannot be written.
        """
        from nanoeuler.tokenizer.huggingface import unwritable, write_huggingface  # which need this module

        if not unwritable(self):
            write_huggingface(directory, self)
        super()._save_own(directory)

    def _content(self) -> dict[str, Any]:
        vocab = zip(map(to_characters, self.tokens), self.ids.tolist(), strict=True)
        content = {"pattern": self.pattern, "special": self.special, "vocab": dict(vocab)}
        return content | ({"nfc": True} if self.nfc else {})


def _again(tokens: list[bytes], pattern: str, special: Mapping[str, int], ids: list[int], nfc: bool) -> BPETokenizer:
    tokenizer = BPETokenizer.from_ranks(tokens, pattern, special, ids)
    return tokenizer.normalised() if nfc else tokenizer


def _checked(special: Mapping[str, int]) -> dict[str, int]:
    """Return special tokens in the order of their ids.

    Raises:
        UserError: a token is empty or not valid Unicode, or an id is no whole number.
    """
    for token in special:
        if not token:
            raise UserError("a special token cannot be empty")
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise UserError(f"the special token {token!r} is not valid Unicode")
    try:
        ids = {token: operator.index(i) for token, i in special.items()}
    except TypeError:
        raise UserError(f"the ids of special tokens are whole numbers, not {list(special.values())}") from None
    return dict(sorted(ids.items(), key=lambda item: item[1]))


def _encoding(pattern: str, rank_of: dict[bytes, int], special: list[str]) -> tiktoken.Encoding:
    """Return tiktoken's encoder; the special tokens' own ids are of no use to it."""
    ranks_of_special = {token: len(rank_of) + i for i, token in enumerate(special)}
    try:
        return tiktoken.Encoding("nanoeuler", pat_str=pattern, mergeable_ranks=rank_of, special_tokens=ranks_of_special)
    except ValueError as error:  # a pattern that Python's regex takes and Rust's does not
        raise UserError(f"the pattern {pattern!r} cannot be used: tiktoken says: {error}") from None


def _is_tiktokens(error: BaseException) -> bool:
    """Return whether tiktoken gave up: with an error, or in older versions a panic, which is no Exception."""
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"

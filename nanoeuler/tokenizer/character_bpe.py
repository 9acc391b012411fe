"""BPE of characters with bytes to fall back on, as SentencePiece makes it: Llama 2, TinyLlama, Mistral, llama2.c.

Text is one long word, in which spaces are characters like any other, written ▁; a character that is no token becomes
its UTF-8 bytes, each a token. Neighbours are merged, the best pair first, and of equals the leftmost. What is best is
all in which the files differ: SentencePiece and llama2.c give each token a score, Hugging Face lists pairs in order.
"""

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.tokenizer.base import Tokenizer, fingerprint, utf8

#: What a space is written as, U+2581.
SPACE = "▁"
#: Words whose tokens are kept.
CACHE = 1 << 17


@dataclass(frozen=True)
class LeadingSpace:
    """The space that is put before a text, so that its first word is the same token as within a sentence.

    ``before``: always, also after a special token; the first text of all only; or never. ``unless_there``: not before a
    text that begins with a space.
    """

    before: Literal["always", "first", "never"] = "always"
    unless_there: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a BPE of characters."""

    pieces: Mapping[str, int]  # what text is made of, and can be merged
    bytes: Sequence[int]  # the id of each of the 256
    special: Mapping[str, int]
    #: From two neighbours' ids to (the lower the better, id of what they make), or None where they do not merge.
    merge: Callable[[int, int], tuple[float, int] | None]
    space: str = SPACE
    leading: LeadingSpace = LeadingSpace()
    scores: Mapping[int, float] | None = None  # of the tokens, where pairs merge by them


class CharacterBPE(Tokenizer):
    """Characters are merged, the best neighbours first.

    Encoding gives no BOS. ``decode`` drops the leading space again where the ids begin with BOS, as in a document.

    Args:
        vocabulary: the tokens.
        identity: what makes it this one: bytes that go into the fingerprint.
    """

    kind = "sentencepiece"

    def __init__(self, vocabulary: Vocabulary, identity: bytes) -> None:
        self.vocabulary, self._merged_pair = vocabulary, vocabulary.merge
        self.special = dict(vocabulary.special)
        self.fingerprint = fingerprint(self.kind, identity)
        self._bytes_of = {i: piece.replace(vocabulary.space, " ").encode() for piece, i in vocabulary.pieces.items()}
        self._bytes_of |= {i: bytes([byte]) for byte, i in enumerate(vocabulary.bytes)}
        self._bytes_of |= {i: token.encode() for token, i in self.special.items()}
        self.vocab_size = max(self._bytes_of) + 1
        self._known_ids = np.zeros(self.vocab_size, bool)
        self._known_ids[list(self._bytes_of)] = True
        # If no token has a space after something else, nothing is ever merged there: words are apart, and can be kept.
        space = vocabulary.space
        together = any(space in piece.lstrip(space) for piece in vocabulary.pieces)
        self._words = re.compile(r".+" if together else f"{space}*[^{space}]+|{space}+", re.DOTALL)
        self._known: dict[str, list[int]] = {}

    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return the ids of the text's tokens, (N,) int32; none for no text.

        Raises:
            UserError: the text is not valid Unicode.
        """
        return self._encode(text, self.vocabulary.leading.before != "never")

    def _encode_after_special(self, text: str) -> np.ndarray:
        return self._encode(text, self.vocabulary.leading.before == "always")

    def _encode(self, text: str, leading: bool) -> np.ndarray:
        utf8(text)  # for its error
        space = self.vocabulary.space
        text = text.replace(" ", space)
        if leading and text and not (self.vocabulary.leading.unless_there and text.startswith(space)):
            text = space + text
        ids = [i for word in self._words.findall(text) for i in self._encode_word(word)]
        return np.array(ids, np.int32)

    def _encode_word(self, word: str) -> list[int]:
        ids = self._known.get(word)
        if ids is None:
            ids = self._merge(self._characters(word))
            if len(self._known) < CACHE:
                self._known[word] = ids
        return ids

    def _characters(self, text: str) -> list[int]:
        """Return one id for each character, or one for each of its bytes where it is no token."""
        ids: list[int] = []
        for character in text:
            known = self.vocabulary.pieces.get(character)
            ids += [self.vocabulary.bytes[byte] for byte in character.encode()] if known is None else [known]
        return ids

    def _merge(self, ids: list[int]) -> list[int]:
        """Return ids with neighbours merged: the best pair first, of several the leftmost."""
        left, right = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))  # neighbours of each place
        candidates: list[tuple[float, int, int, int, int]] = []

        def consider(i: int, j: int) -> None:
            if i >= 0 and j < len(ids) and (found := self._merged_pair(ids[i], ids[j])) is not None:
                heapq.heappush(candidates, (found[0], i, ids[i], ids[j], found[1]))

        for i in range(len(ids) - 1):
            consider(i, i + 1)
        while candidates:
            _, i, a, b, made = heapq.heappop(candidates)
            j = right[i]
            if ids[i] != a or j >= len(ids) or ids[j] != b:
                continue  # one of the two has been merged meanwhile
            ids[i], ids[j], right[i] = made, -1, right[j]
            if right[j] < len(ids):
                left[right[j]] = i
            consider(left[i], i)
            consider(i, right[i])
        return [i for i in ids if i >= 0]

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the bytes of the ids' tokens. A BOS at the beginning gives nothing, and takes one space with it.

        Raises:
            UserError: an id is no token.
        """
        flat: Sequence[int] = self._tokens(ids).tolist()
        if flat[:1] == [self.bos]:
            return b"".join(map(self._bytes_of.__getitem__, flat[1:])).removeprefix(b" ")
        return b"".join(map(self._bytes_of.__getitem__, flat))

    def _is_token(self, flat: np.ndarray) -> np.ndarray:
        inside = (flat >= 0) & (flat < self.vocab_size)
        return inside & self._known_ids[np.where(inside, flat, 0)]


def by_score(pieces: Mapping[str, int], scores: Mapping[int, float]) -> Callable[[int, int], tuple[float, int] | None]:
    """Return how neighbours merge where tokens have scores: the token with the highest first."""
    return partial(_merge_by_score, pieces, scores, {i: piece for piece, i in pieces.items()})


def _merge_by_score(
    pieces: Mapping[str, int], scores: Mapping[int, float], text_of: Mapping[int, str], a: int, b: int
) -> tuple[float, int] | None:
    if a not in text_of or b not in text_of:
        return None
    made = pieces.get(text_of[a] + text_of[b])
    return None if made is None else (-scores[made], made)


def by_rank(pairs: Mapping[tuple[int, int], tuple[float, int]]) -> Callable[[int, int], tuple[float, int] | None]:
    """Return how neighbours merge where pairs stand in a list: the first of them first."""
    return partial(_merge_by_rank, pairs)


def _merge_by_rank(pairs: Mapping[tuple[int, int], tuple[float, int]], a: int, b: int) -> tuple[float, int] | None:
    return pairs.get((a, b))

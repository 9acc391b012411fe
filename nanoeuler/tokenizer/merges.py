"""Which pair makes each token of a byte-level BPE, and whether tiktoken may run a list of merges.

Tokens are numbered by rank: 0 to 255 are the bytes in the order of :data:`alphabet.BYTES`, 256 + i is what merge i
makes.

BPE as defined merges the pairs of a list. tiktoken has no list of pairs: it merges any two neighbours whose bytes
together are a token, the token of lowest rank first. The two agree on every text if they agree on the bytes of every
single token. For look at the first neighbours (a, b) that make a token t though (a, b) is not t's pair: nothing has
ever been merged across the ends of this stretch of text, so what happened in it is what happens to t's bytes alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from nanoeuler.tokenizer.alphabet import BYTES

Pair = tuple[int, int]
Text = TypeVar("Text", bytes, str)  # a token: bytes, or in visible characters


def tokens_of(merges: Sequence[Pair]) -> list[bytes]:
    """Return the bytes of all tokens in the order of rank: the 256 bytes, then what each merge makes.

    Raises:
        ValueError: a merge is of tokens that are not there yet, or makes a token that is; the message says which.
    """
    tokens, seen = list(BYTES), set(BYTES)
    for i, (a, b) in enumerate(merges):
        if not (0 <= a < len(tokens) and 0 <= b < len(tokens)):
            raise ValueError(f"merge {i} is of tokens {a} and {b}, and there are {len(tokens)} tokens before it")
        token = tokens[a] + tokens[b]
        if token in seen:
            raise ValueError(f"merge {i} makes {token!r}, which is a token already")
        tokens.append(token)
        seen.add(token)
    return tokens


def splits(token: Text, rank_of: Mapping[Text, int], lengths: Sequence[int]) -> Iterator[Pair]:
    """Give every way to cut a token into two tokens, of which ``lengths`` are those that there are, in order."""
    for cut in lengths:
        if cut >= len(token):
            return
        if (a := rank_of.get(token[:cut])) is not None and (b := rank_of.get(token[cut:])) is not None:
            yield a, b


def lengths_of(tokens: Iterable[Text]) -> list[int]:
    """Return the lengths that tokens have: few even where a token is a megabyte of one letter."""
    return sorted(set(map(len, tokens)))


def merges_of(tokens: Sequence[Text]) -> list[Pair] | None:
    """Return for each token beyond the bytes the pair that BPE makes it from, given all tokens in the order of rank.

    None if a token is such that BPE of its bytes, with the merges before it, does not end in two tokens: tiktoken gives
    it for a pre-token that it is the whole of, and hardly ever else. (Llama 3's vocabulary has some.)
    """
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    lengths = lengths_of(tokens)
    parts = [(-1, -1)] * len(BYTES)
    made: dict[Pair, int] = {}
    for rank in range(len(BYTES), len(tokens)):
        for a, b in splits(tokens[rank], rank_of, lengths):
            if a < rank and b < rank and stays_cut(parts, made, a, b, rank):
                break
        else:
            return None
        parts.append((a, b))
        made[a, b] = rank
    return parts[len(BYTES) :]


def first_misplaced(merges: Sequence[Pair]) -> int | None:
    """Return the first merge that BPE of its own token's bytes would not come to; None if there is none."""
    parts = [(-1, -1)] * len(BYTES) + list(merges)
    made = {pair: rank for rank, pair in enumerate(parts)}
    ranks = range(len(BYTES), len(parts))
    return next((r - len(BYTES) for r in ranks if not stays_cut(parts, made, *parts[r], r)), None)


def stays_cut(parts: Sequence[Pair], made: dict[Pair, int], a: int, b: int, rank: int) -> bool:
    """Return whether BPE of a's bytes and b's bytes side by side comes to (a, b), by merges before ``rank``.

    Tokens a and b must be such that BPE of their own bytes gives them. Then only a merge across the border could come
    in between. We go back in time: undo the later of the two merges that made a and b, and look whether the neighbours
    at the border then would have been merged before that. Of equal merges the left one is done first.

    Args:
        parts: the pair of each token.
        made: the token of each pair, for ranks up to this one.
        a: the token on the left.
        b: the token on the right.
        rank: that of the token to be made.
    """
    until = 2 * rank  # a merge across the border is done before this: twice its rank, and 1 more for one on the right
    while True:
        across = made.get((a, b))
        if across is not None and 2 * across < until:
            return False
        if a < len(BYTES) and b < len(BYTES):
            return True
        if a > b:
            until = 2 * a
            a = parts[a][1]
        else:
            until = 2 * b + 1
            b = parts[b][0]

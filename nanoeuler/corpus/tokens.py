"""A corpus in the form that batches are made of."""

from dataclasses import dataclass

from nanoeuler.corpus.shuffle import Shuffle, by_sorting
from nanoeuler.corpus.stream import Stream


@dataclass(frozen=True)
class Tokens:
    """The two splits of a corpus, and what a run must know of them."""

    train: Stream
    val: Stream
    fingerprint: str = ""  # equal for two that give the same batches
    bytes_per_token: float = 1.0  # of the validation text
    floor: float | None = None  # nats per token that no model can go below, where it is known
    shuffle: Shuffle = by_sorting
    name: str = "the text"  # in messages, as what follows: what helps where a split is too short
    longer: str = "a longer text"
    longer_val: str = "a longer text or a larger data.val_fraction"

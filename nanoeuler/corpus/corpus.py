"""What a run learns from: one corpus, or several with their shares, and one tokenizer for all of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from nanoeuler.corpus.prepared import PreparedCorpus
from nanoeuler.corpus.text_corpus import TextCorpus
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Tokenizer, make_tokenizer

Part = TextCorpus | PreparedCorpus


@dataclass(frozen=True)
class Corpus:
    """One corpus, or a mixture of several."""

    parts: list[Part]
    shares: list[Fraction]  # of the windows; their sum is 1

    @property
    def name(self) -> str:
        """The names of all."""
        return "+".join(part.name for part in self.parts)

    @property
    def reason(self) -> str:
        """Return in one line which corpora these are, and why."""
        if len(self.parts) == 1:
            return self.parts[0].reason
        each = (f"{float(100 * s):.3g} % {p.reason}" for p, s in zip(self.parts, self.shares, strict=True))
        return f"a mixture: {'; '.join(each)}"


def choose_tokenizer(wanted: str | None, parts: Sequence[Part]) -> Tokenizer:
    """Return the tokenizer of a run: the one that is wanted, else the one that made the tokens, else char.

    Args:
        wanted: ``data.tokenizer_path``.
        parts: all that the run learns from.

    Raises:
        UserError: a corpus was made with another one, or it cannot be had.
    """
    prepared = [part for part in parts if isinstance(part, PreparedCorpus)]
    own = [(part, tokenizer) for part in prepared if (tokenizer := part.own_tokenizer())]
    if own and wanted in (None, own[0][1].kind):  # which needs no look for gpt2's vocabulary
        chosen = own[0][1]
    elif wanted is None and prepared:
        chosen = prepared[0].likely_tokenizer()
    else:
        chosen = make_tokenizer(wanted or "char", "".join(p.text for p in parts if isinstance(p, TextCorpus)))
    for part, tokenizer in own:
        if tokenizer.fingerprint != chosen.fingerprint:
            other = f"data.tokenizer_path {wanted}" if wanted else f"{own[0][0].folder}"
            raise UserError(
                f"{part.folder} was prepared with another tokenizer ({_in_words(tokenizer)}) than {other} "
                f"({_in_words(chosen)}): "
                + ("leave data.tokenizer_path out, or prepare it again" if wanted else "prepare it again")
                + " with the same --tokenizer"
            )
    return chosen


def _in_words(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {tokenizer.fingerprint[:8]}"


def fingerprint(corpora: Sequence[str], shares: Sequence[Fraction]) -> str:
    """Return the fingerprint of a run's data from those of its corpora: the same for one corpus."""
    if len(corpora) == 1:
        return corpora[0]
    lines = "".join(f"{share} {corpus}\n" for share, corpus in zip(shares, corpora, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()

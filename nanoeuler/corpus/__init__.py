"""Corpora: documents from files or a hub, shards of tokens on the disk, batches for training.

Two ways lead here: :func:`load_corpus` and :class:`Batches` are those of a training run, and the command
``python -m nanoeuler.corpus`` prepares a corpus before it (:mod:`~nanoeuler.corpus.__main__`).

Documents. :mod:`~nanoeuler.corpus.sources` finds them by what the user names: a name of :mod:`~nanoeuler.corpus.names`,
such as :mod:`~nanoeuler.corpus.tinyshakespeare` or the built-in :mod:`~nanoeuler.corpus.plays`; files
(:mod:`~nanoeuler.corpus.local`, :mod:`~nanoeuler.corpus.formats`, :mod:`~nanoeuler.corpus.text`); a data set of a hub
(:mod:`~nanoeuler.corpus.hub`, :mod:`~nanoeuler.hub_trouble`, :mod:`~nanoeuler.corpus.arrow_exit`). What they have in
common is in :mod:`~nanoeuler.corpus.documents`, conditions on columns in :mod:`~nanoeuler.corpus.filters`.

Shards. :mod:`~nanoeuler.corpus.prepare` is the pipeline: :mod:`~nanoeuler.corpus.seen` leaves duplicates out,
:mod:`~nanoeuler.workers` tokenize (:mod:`~nanoeuler.corpus.encoded`), :mod:`~nanoeuler.corpus.writer` writes
:mod:`~nanoeuler.corpus.shards`, :mod:`~nanoeuler.corpus.unfinished` keeps what is needed to go on,
:mod:`~nanoeuler.corpus.manifest` says in the end what there is, :mod:`~nanoeuler.corpus.progress` shows how far it is.
:mod:`~nanoeuler.corpus.verify` and :mod:`~nanoeuler.corpus.show` look at the result.

Batches. :mod:`~nanoeuler.corpus.load` returns what ``data.dataset`` stands for, a :mod:`~nanoeuler.corpus.corpus` of
one or several parts: a :mod:`~nanoeuler.corpus.text_corpus`, or a :mod:`~nanoeuler.corpus.prepared` one, the files of
which :mod:`~nanoeuler.corpus.digests` tells from damaged ones. Each becomes :mod:`~nanoeuler.corpus.tokens`, a
:mod:`~nanoeuler.corpus.stream` for each split. :mod:`~nanoeuler.corpus.batches` are drawn from these:
:mod:`~nanoeuler.corpus.mixture` says which corpus a window is of, :mod:`~nanoeuler.corpus.windows` and
:mod:`~nanoeuler.corpus.shuffle` where it lies, :mod:`~nanoeuler.corpus.prefetch` has the next batch ready.
"""

from nanoeuler.corpus.batches import Batches, check_vocabulary
from nanoeuler.corpus.corpus import Corpus, choose_tokenizer
from nanoeuler.corpus.documents import Options
from nanoeuler.corpus.load import load_corpus
from nanoeuler.corpus.prefetch import Prefetch
from nanoeuler.corpus.prepared import PreparedCorpus
from nanoeuler.corpus.sources import open_source
from nanoeuler.corpus.text_corpus import TextCorpus
from nanoeuler.corpus.tokens import Tokens

__all__ = [
    "Batches",
    "Corpus",
    "Options",
    "Prefetch",
    "PreparedCorpus",
    "TextCorpus",
    "Tokens",
    "check_vocabulary",
    "choose_tokenizer",
    "load_corpus",
    "open_source",
]

"""Where text comes from (:func:`load_corpus`) and how its tokens become batches (:class:`Batches`)."""

from nanoeuler.corpus.batches import Batches, check_vocabulary, split
from nanoeuler.corpus.load import load_corpus
from nanoeuler.corpus.mixed import Corpus, choose_tokenizer
from nanoeuler.corpus.prefetch import Prefetch
from nanoeuler.corpus.prepared import PreparedCorpus
from nanoeuler.corpus.text_corpus import TextCorpus
from nanoeuler.corpus.tokens import Tokens

__all__ = [
    "Batches",
    "Corpus",
    "Prefetch",
    "PreparedCorpus",
    "TextCorpus",
    "Tokens",
    "check_vocabulary",
    "choose_tokenizer",
    "load_corpus",
    "split",
]

"""Text to token ids and back, by characters, by bytes or by byte pairs, behind one interface.

A byte pair encoding is learned in three steps, here of a text in memory:

>>> counts = count_pretokens(["to be, or not to be: that is the question"])
>>> merges = train_bpe(counts, merges=3)
>>> [token.decode() for token in BPETokenizer(merges).tokens[256:]]
[' t', 'be', ' be']

Kinds: :mod:`.base` is the interface; :mod:`.char`, :mod:`.byte`, :mod:`.bpe` and :mod:`.sentencepiece` (llama2.c's)
are the kinds, :mod:`.gpt2` finds GPT-2's vocabulary, :mod:`.load` returns any of them by name or path.

Training: :mod:`.patterns` cut text into pre-tokens, :mod:`.pretokens` counts them, :mod:`.training` learns the merges.

Files: :mod:`.huggingface`, :mod:`.vocab_merges` and :mod:`.ranks` are the formats, :mod:`.files` reads them with errors
that name the line, :mod:`.vocabulary` and :mod:`.merges` make a tokenizer of what they say, and :mod:`.alphabet` is
GPT-2's way to write bytes.
"""

from nanoeuler.tokenizer.base import Tokenizer
from nanoeuler.tokenizer.bpe import BPETokenizer
from nanoeuler.tokenizer.byte import ByteTokenizer
from nanoeuler.tokenizer.char import CharTokenizer
from nanoeuler.tokenizer.gpt2 import GPT2Tokenizer, find_gpt2
from nanoeuler.tokenizer.load import load_tokenizer, make_tokenizer
from nanoeuler.tokenizer.pretokens import count_pretokens
from nanoeuler.tokenizer.ranks import read_ranks
from nanoeuler.tokenizer.sentencepiece import Llama2cTokenizer
from nanoeuler.tokenizer.training import train_bpe, train_bpe_definition

__all__ = [
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "GPT2Tokenizer",
    "Llama2cTokenizer",
    "Tokenizer",
    "count_pretokens",
    "find_gpt2",
    "load_tokenizer",
    "make_tokenizer",
    "read_ranks",
    "train_bpe",
    "train_bpe_definition",
]

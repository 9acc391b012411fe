"""Text to token ids and back, by characters, by bytes or by byte pairs, behind one interface."""

from nanoeuler.tokenizer.base import Tokenizer
from nanoeuler.tokenizer.bpe import BPETokenizer
from nanoeuler.tokenizer.byte import ByteTokenizer
from nanoeuler.tokenizer.char import CharTokenizer
from nanoeuler.tokenizer.gpt2 import GPT2Tokenizer, find_gpt2
from nanoeuler.tokenizer.load import load_tokenizer, make_tokenizer
from nanoeuler.tokenizer.ranks import read_ranks
from nanoeuler.tokenizer.sentencepiece import Llama2cTokenizer

__all__ = [
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "GPT2Tokenizer",
    "Llama2cTokenizer",
    "Tokenizer",
    "find_gpt2",
    "load_tokenizer",
    "make_tokenizer",
    "read_ranks",
]

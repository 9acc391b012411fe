"""``python -m nanoeuler.tokenizer train``: the merges of a byte-level BPE, learned from text."""

import argparse
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from nanoeuler.config import Parser, number
from nanoeuler.console import format_bytes, plural, say
from nanoeuler.corpus.documents import Options
from nanoeuler.corpus.sources import open_source
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import huggingface, vocab_merges
from nanoeuler.tokenizer.base import FILE, Tokenizer, utf8
from nanoeuler.tokenizer.bpe import END_OF_TEXT, BPETokenizer
from nanoeuler.tokenizer.huggingface import CONFIG_FILE, TOKENIZER_FILE, write_huggingface
from nanoeuler.tokenizer.merges import Pair
from nanoeuler.tokenizer.patterns import PATTERNS, resolve
from nanoeuler.tokenizer.pretokens import count_pretokens, read_documents
from nanoeuler.tokenizer.progress import Progress
from nanoeuler.tokenizer.ranks import write_ranks
from nanoeuler.tokenizer.training import MOST_IDS, train_bpe
from nanoeuler.tokenizer.vocab_merges import write_vocab_merges

#: Characters at the beginning of the input on which the tokenizer is tried when it is done.
SAMPLE = 1_000_000
RANKS = "tokenizer.tiktoken"
#: The files of each format. The first is what our commands read back, and Hugging Face's libraries too.
FORMATS: dict[str, tuple[str, ...]] = {
    "nanoeuler": (FILE, TOKENIZER_FILE, CONFIG_FILE),
    "huggingface": (TOKENIZER_FILE, CONFIG_FILE),
    "gpt2": ("vocab.json", "merges.txt"),
    "tiktoken": (RANKS, FILE),
}
#: Say why a format cannot hold a tokenizer, if it cannot. The others hold any.
CANNOT_HOLD = {"huggingface": huggingface.unwritable, "gpt2": vocab_merges.unwritable}


def train_main(arguments: list[str]) -> None:
    """``train``: count the pre-tokens of the input, learn the merges, write the tokenizer's files.

    Raises:
        UserError: the input cannot be read, an option makes no sense, or the files cannot be written.
    """
    given = _parser().parse_args(arguments)
    pattern = resolve(given.pattern)
    special = list(dict.fromkeys([END_OF_TEXT, *given.special]))
    merges = given.vocab_size - 256 - len(special)
    if merges < 0:
        raise UserError(f"--vocab-size {given.vocab_size}: the bytes and special tokens alone are {256 + len(special)}")
    _check_output(given.out, given.format, _tokenizer([], pattern, special))
    source = Documents(given.input, given.text_column, pattern, special)
    with Progress() as progress:
        progress.begin("counting")
        counts = count_pretokens(
            source.documents(progress.note),
            pattern,
            given.workers,
            lambda done, _: progress.bytes(done, source.share(done)),
        )
        if not counts:
            raise UserError("there is no text in the input to learn from")
        progress.begin("merging")
        pairs = train_bpe(counts, merges, given.min_frequency, progress.merges)
    tokenizer = _tokenizer(pairs, pattern, special)
    files = _write(given.out, given.format, tokenizer)
    _tell(tokenizer, merges, source, files, given)


def _tokenizer(merges: list[Pair], pattern: str, special: list[str]) -> BPETokenizer:
    """Return the tokenizer of merges, with special tokens after them."""
    return BPETokenizer(merges, pattern, {token: 256 + len(merges) + i for i, token in enumerate(special)})


class Documents:
    """The documents of the input, and what there is to tell of them: a sample, and rows left out by their reason."""

    def __init__(self, inputs: list[str], text_column: str | None, pattern: str, separators: list[str]) -> None:
        self.sample: list[str] = []
        self.skipped: Counter[str] = Counter()
        self._pattern, self._separators = pattern, separators
        self._border = re.compile("|".join(map(re.escape, sorted(separators, key=len, reverse=True))))
        self._texts = [Path(name) for name in inputs if name.endswith(".txt") and Path(name).is_file()]
        self._size = sum(path.stat().st_size for path in self._texts)
        self._source = None
        if len(self._texts) < len(inputs):
            self._source = open_source(inputs[0] if len(inputs) == 1 else inputs, Options(text_column=text_column))

    def documents(self, note: Callable[[str], None]) -> Iterator[str]:
        """Give every document, or of a long one its parts."""
        wanted = SAMPLE
        for document in self._all(note):
            if wanted > 0:
                self.sample.append(document[:wanted])
                wanted -= len(document)
            yield document

    def _all(self, note: Callable[[str], None]) -> Iterator[str]:
        if self._source is None:
            yield from read_documents(self._texts, self._pattern, self._separators)
            return
        for text in self._source.notes:
            note(text)
        for batch in self._source.read():
            self.skipped.update(batch.skipped)
            for text in batch.notes:
                note(text)
            for document in batch.documents:
                yield from filter(None, self._border.split(document))

    def share(self, text_bytes: int) -> float | None:
        """Return which share of the input that many bytes of text are; None if that is not known."""
        done, total = self._source.progress() if self._source else (text_bytes, self._size)
        return min(done / total, 1.0) if total else None


def _check_output(out: Path, kind: str, trial: BPETokenizer) -> None:
    """Check before the work that the result, here without its merges, can be written where and as it shall.

    Raises:
        UserError: it cannot.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file, and the tokenizer goes into a folder")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UserError(f"{out}: cannot write there: {there} is {'read-only' if there.is_dir() else 'a file'}")
    known = {name for names in FORMATS.values() for name in names}
    others = sorted(name for name in known - set(FORMATS[kind]) if (out / name).exists())
    if others:
        raise UserError(f"{out}: there is another tokenizer's {others[0]} here; take another folder, or remove it")
    if kind in CANNOT_HOLD and (why := CANNOT_HOLD[kind](trial)):
        raise UserError(f"--format {kind}: {why}; use --format nanoeuler")


def _write(out: Path, kind: str, tokenizer: BPETokenizer) -> list[Path]:
    """Write the tokenizer's files into a folder; return their paths."""
    if kind == "huggingface":
        return write_huggingface(out, tokenizer)
    if kind == "gpt2":
        return write_vocab_merges(out, tokenizer)
    if kind == "tiktoken":
        ranks = write_ranks(out / RANKS, tokenizer)
        Tokenizer._save_own(tokenizer, out)  # our own file alone, with the pattern and the special tokens
        return [*ranks, out / FILE]
    tokenizer.save(out)
    return [out / name for name in FORMATS[kind] if (out / name).exists()]


def _tell(
    tokenizer: BPETokenizer, wanted: int, source: Documents, files: list[Path], given: argparse.Namespace
) -> None:
    """Say what has been made, how it does, and what to do with it."""
    made, special = plural(len(tokenizer.merges), "merge"), plural(len(tokenizer.special), "special token")
    say(f"vocabulary {tokenizer.vocab_size:,}: 256 bytes, {made}, {special}")
    if missing := wanted - len(tokenizer.merges):
        rarer = f" that occur {given.min_frequency:,} times" if given.min_frequency > 1 else ""
        say(f"{plural(missing, 'merge')} fewer than asked for: the text has no more pairs to merge{rarer}")
    for reason, rows in source.skipped.items():
        say(f"left out {plural(rows, 'row')}: {reason}")
    sizes = [(len(utf8(text)), len(tokenizer.encode(text))) for text in source.sample]
    size, tokens = map(sum, zip(*sizes, strict=True)) if sizes else (0, 0)
    if tokens:
        say(f"{size / tokens:.2f} bytes per token on the first {format_bytes(size)} of the input")
    for path in files:
        say(str(path))
    if given.format == "nanoeuler" and (why := huggingface.unwritable(tokenizer)):
        say(f"no {TOKENIZER_FILE}: {why}")
    if given.format == "tiktoken":
        say(f"a rank file has neither pattern nor special tokens: pat_str={tokenizer.pattern!r}, {tokenizer.special}")
    folder = shlex.quote(str(given.out))
    say(f"look at it:   python -m nanoeuler.tokenizer inspect --tokenizer {folder}")
    inputs = " ".join(shlex.quote(path) for path in given.input)
    say(f"encode text:  python -m nanoeuler.corpus prepare {inputs} --tokenizer {folder} --out data/NAME")


def _parser() -> Parser:
    parser = Parser(
        prog="python -m nanoeuler.tokenizer train",
        description="Learn a byte-level BPE from text: the merges of the pairs that are most frequent in it.",
    )
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="PATH",
        help="text, JSON lines, JSON, Parquet or CSV files, folders, globs; or what nanoeuler.corpus prepare takes",
    )
    parser.add_argument(
        "--vocab-size",
        type=number(int, 257, MOST_IDS),
        default=4096,
        metavar="N",
        help="tokens, special ones too [4096]",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--pattern",
        default="gpt2",
        metavar="NAME|REGEX",
        help=f"how text is cut first: {', '.join(PATTERNS)}, or a regular expression [gpt2]",
    )
    parser.add_argument(
        "--special", nargs="+", default=[], metavar="TOKEN", help=f"special tokens besides {END_OF_TEXT}"
    )
    parser.add_argument("--min-frequency", type=number(int, 0), default=0, metavar="N", help="merge no rarer pair [0]")
    parser.add_argument(
        "--workers",
        type=number(int, 1),
        default=available_cores(),
        metavar="N",
        help="processes that count [the cores]",
    )
    parser.add_argument("--text-column", metavar="NAME", help="of the text [text, or the only column of strings]")
    parser.add_argument("--format", choices=FORMATS, default="nanoeuler", help="of the files [nanoeuler]")
    return parser

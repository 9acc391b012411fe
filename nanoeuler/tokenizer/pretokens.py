"""How often each pre-token occurs in a text: all that BPE training needs to know of it.

A text is cut into pieces that several processes count. It may be cut wherever a letter is followed by white space: no
match of a published pattern goes across such a place, and none looks back over it. Within a piece the same holds for
single spaces between what is not white space. There we cut first, for words come again and again, and a pattern, which
is slow, then has to cut each one only once. A pattern of the user's own may match anything: with one of these a
document stays whole.

Memory is that of the distinct pre-tokens and of a few pieces in work, however large the corpus is.
"""

import codecs
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain, islice
from pathlib import Path

from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError
from nanoeuler.tokenizer.base import utf8
from nanoeuler.tokenizer.patterns import PATTERNS, resolve, safe_place, split
from nanoeuler.workers import Workers

#: Characters, or a few more, of the pieces that are counted at a time.
PIECE = 1 << 21
#: So many pieces are counted here before it is worth starting processes, which takes half a second.
FEW = 4
MOST_WORKERS = 8  # they are faster than this process, which reads and adds up, can be
#: Bytes that are read from a file at a time.
BLOCK = 1 << 20

#: A single space between characters that are no white space. (Python's \s has a few more than the patterns'.)
BETWEEN_WORDS = re.compile(r" (?<=\S )(?=\S)")

#: Bytes of text, and how often each pre-token occurs in it.
Counted = tuple[int, dict[bytes, int]]
#: Told how many bytes of text have been counted, and of files how many there are.
Progress = Callable[[int, int | None], None]


def count_pretokens(
    documents: Iterable[str],
    pattern: str = "gpt2",
    workers: int = 0,
    progress: Progress = lambda done, total: None,
    total: int | None = None,
) -> Counter[bytes]:
    """Return how often each pre-token occurs in documents.

    >>> count_pretokens(["to be or not to be"])[b" be"]
    2

    Args:
        documents: any number of texts, of any size; they are taken one by one.
        pattern: a name of a pattern, or a regular expression.
        workers: processes that count; 0 is one for each core, 1 is none but this one.
        progress: told now and then how many bytes of text have been counted, and ``total``.
        total: bytes of text, if known.

    Raises:
        UserError: the pattern is none, a document is not valid Unicode, or a process was killed.
    """
    pattern = resolve(pattern)
    counts: Counter[bytes] = Counter()
    done = 0
    for size, part in _counted(_pieces(documents, pattern), pattern, workers or available_cores()):
        counts.update(part)
        done += size
        progress(done, total)
    return counts


def count_files(
    paths: Sequence[Path],
    pattern: str = "gpt2",
    separators: Sequence[str] = ("<|endoftext|>",),
    workers: int = 0,
    progress: Progress = lambda done, total: None,
) -> Counter[bytes]:
    """Return how often each pre-token occurs in text files; see :func:`count_pretokens` and :func:`read_documents`.

    Raises:
        UserError: a file cannot be read or is not UTF-8.
    """
    try:
        total = sum(path.stat().st_size for path in paths)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot read it: {error.strerror}") from None
    return count_pretokens(read_documents(paths, pattern, separators), pattern, workers, progress, total)


def read_documents(
    paths: Iterable[Path], pattern: str, separators: Sequence[str] = ("<|endoftext|>",)
) -> Iterator[str]:
    """Give the documents of text files, or parts of them that count as the whole would.

    Args:
        paths: UTF-8 files, read block by block.
        pattern: if it is a published one, long documents are given in parts.
        separators: what stands between documents and is in none.

    Raises:
        UserError: a file cannot be read or is not UTF-8.
    """
    for path in paths:
        try:
            yield from _file_documents(path, resolve(pattern), separators)
        except OSError as error:
            raise UserError(f"{path}: cannot read it: {error.strerror}") from None


def _file_documents(path: Path, pattern: str, separators: Sequence[str]) -> Iterator[str]:
    separator = re.compile("|".join(map(re.escape, sorted(separators, key=len, reverse=True))) or "(?!)")
    kept = max(map(len, separators), default=0)  # at the end of what was read there may be the half of a separator
    decoder, pending = codecs.getincrementaldecoder("utf-8")(), ""
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:  # a byte order mark is not text
            file.seek(0)
        while True:
            start = file.tell() - len(decoder.getstate()[0])  # of what is decoded next
            # As much again as there is already: a document without an end is searched for one log N times.
            block = file.read(max(BLOCK, len(pending)))
            try:
                pending += decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise UserError(
                    f"{path}: not UTF-8 text: byte {start + error.start} is 0x{byte:02x}. "
                    "If it is text in another encoding, save it as UTF-8"
                ) from None
            *documents, pending = separator.split(pending)
            yield from documents
            if not block:
                break
            *parts, pending = _parts(pending, pattern, kept)
            yield from parts
    yield pending


def _parts(text: str, pattern: str, kept: int = 0) -> Iterator[str]:
    """Cut a text, if the pattern is such that it can be, into parts of :data:`PIECE` characters or a few more.

    The last part is what is left: at least ``kept`` characters, or the whole text.
    """
    start = 0
    if pattern in PATTERNS.values():
        while (place := safe_place(text, start + PIECE, len(text) - kept)) is not None:
            yield text[start:place]
            start = place
    yield text[start:]


def _pieces(documents: Iterable[str], pattern: str) -> Iterator[list[str]]:
    """Give documents, or parts of them, in lists of :data:`PIECE` characters or more."""
    piece: list[str] = []
    size = 0
    for document in documents:
        for part in _parts(document, pattern):
            piece.append(part)
            size += len(part)
            if size >= PIECE:
                yield piece
                piece, size = [], 0
    yield piece


def _counted(pieces: Iterator[list[str]], pattern: str, workers: int) -> Iterator[Counted]:
    """Count each piece, by several processes if there are many pieces; give the counts in the order of the pieces."""
    first = list(islice(pieces, FEW))
    if workers == 1 or len(first) < FEW:
        yield from (count_piece(pattern, piece) for piece in chain(first, pieces))
    else:
        count = min(workers, MOST_WORKERS)
        with Workers(count, count_piece, pattern) as pool:
            waiting: deque[Future[Counted]] = deque()
            for piece in chain(first, pieces):
                waiting.append(pool.submit(piece))
                if len(waiting) > count:  # no more pieces in work than keep all busy
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def count_piece(pattern: str, texts: list[str]) -> Counted:
    """Return the bytes of some texts, and how often each pre-token occurs in them."""
    size = sum(len(utf8(text)) for text in texts)
    counts: Counter[str] = Counter()
    if pattern not in PATTERNS.values():
        for text in texts:
            counts.update(split(pattern, text))
        return size, _encoded(counts)
    words: Counter[str] = Counter()
    for text in texts:
        first, *rest = BETWEEN_WORDS.split(text)
        last = " " + rest.pop() if rest else ""
        counts.update(split(pattern, first) + split(pattern, last))  # these may begin and end with more white space
        words.update(rest)
    for count, group in _by_count(words).items():
        for pretoken, times in Counter(split(pattern, " " + " ".join(group))).items():
            counts[pretoken] += count * times
    return size, _encoded(counts)


def _by_count(words: Counter[str]) -> dict[int, list[str]]:
    """Return the words that occur once, those that occur twice, and so on: a pattern cuts all of a group at a time."""
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for word, count in words.items():
        groups[count].append(word)
    return groups


def _encoded(counts: Counter[str]) -> dict[bytes, int]:
    return {pretoken.encode(): count for pretoken, count in counts.items()}

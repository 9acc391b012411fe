"""``python -m nanoeuler.corpus NAME``: prepare a corpus, verify one, show a document of it."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from nanoeuler.config import Parser, number
from nanoeuler.console import byte_bar, is_terminal, plural, visible
from nanoeuler.corpus import manifest
from nanoeuler.corpus.documents import Options
from nanoeuler.corpus.filters import parse_condition
from nanoeuler.corpus.formats import kind_asked_for
from nanoeuler.corpus.manifest import SPLITS, Manifest
from nanoeuler.corpus.names import NAMES
from nanoeuler.corpus.prepare import Settings, earlier_source, prepare
from nanoeuler.corpus.progress import Progress
from nanoeuler.corpus.shards import MOST_TOKENS
from nanoeuler.corpus.show import find_document
from nanoeuler.corpus.sources import open_source
from nanoeuler.corpus.verify import bytes_to_read, shard_files, verify
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError, run_command, run_named
from nanoeuler.tokenizer import Tokenizer, load_tokenizer, make_tokenizer

USAGE = """usage: python -m nanoeuler.corpus {prepare,verify,show} [options]

prepare   text of files, or of a hub's data set, into token shards for training; goes on where it was interrupted
verify    is a prepared corpus what its manifest says?
show      a document of a prepared corpus, decoded

--help after the name lists its options"""


def main(arguments: list[str]) -> int | None:
    """Run the command that the first argument names; without one, say what there is.

    Raises:
        UserError: there is no such command.
    """
    return run_named(COMMANDS, USAGE, arguments)


def prepare_main(arguments: list[str]) -> None:
    """``prepare NAME|PATH... --out FOLDER``: go on with a corpus that is unfinished, leave a finished one alone."""
    given = _prepare_parser().parse_args(arguments)
    if given.max_chars is not None and given.max_chars < given.min_chars:
        raise UserError(
            f"--max-chars {given.max_chars} is less than --min-chars {given.min_chars}: no document is both"
        )
    tokenizer = _tokenizer(given.tokenizer)
    options = Options(
        text_column=given.text_column,
        conditions=tuple(parse_condition(text) for text in given.filter),
        min_characters=given.min_chars,
        max_characters=given.max_chars,
        separator=given.separator,
        revision=given.revision,
    )
    settings = Settings(given.val_fraction, given.shard_tokens, given.deduplicate, given.limit)
    earlier = None if given.restart else earlier_source(given.out)
    source = open_source(given.source[0] if len(given.source) == 1 else given.source, options, earlier)
    with _ended_by_signals(), Progress() as progress:
        for note in source.notes:
            progress.note(note)
        corpus = prepare(source, options, tokenizer, given.out, settings, given.workers, progress, given.restart)
        _tell(given.out, corpus, settings, progress)


def verify_main(arguments: list[str]) -> int:
    """``verify FOLDER``: exit code 1 where something is wrong."""
    parser = Parser(prog="python -m nanoeuler.corpus verify", description="Is a corpus what its manifest says?")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a prepared corpus, or a folder of llm.c's shards")
    folder = parser.parse_args(arguments).folder
    with byte_bar() as bar:
        task = bar.add_task("", total=bytes_to_read(folder))
        problems = verify(folder, lambda size: bar.advance(task, size))
    for problem in problems:
        print(visible(problem), file=sys.stderr)
    if problems:
        print(f"{plural(len(problems), 'problem')} in {folder}", file=sys.stderr)
        return 1
    if (folder / manifest.FILE).exists():
        print(f"{folder}: {plural(len(shard_files(folder)), 'shard')}, all as the manifest says")
    else:
        print(
            f"{folder}: {plural(len(shard_files(folder)), 'shard')} of the right size; there is no manifest to say more"
        )
    return 0


def show_main(arguments: list[str]) -> None:
    """``show FOLDER --document N``: the text, or with ``--tokens`` the ids, on stdout; where it lies on stderr."""
    parser = Parser(prog="python -m nanoeuler.corpus show", description="Print a document of a corpus, decoded.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a prepared corpus, or a folder of llm.c's shards")
    parser.add_argument("--document", type=number(int, 0), default=0, metavar="N", help="its number, from 0 on [0]")
    parser.add_argument("--split", choices=SPLITS, default="train", help="[train]")
    parser.add_argument("--tokens", action="store_true", help="print the token ids instead of the text")
    parser.add_argument("--tokenizer", default="gpt2", help="of shards without a manifest, as for prepare [gpt2]")
    given = parser.parse_args(arguments)
    shard_files(given.folder)  # for its errors
    prepared = (given.folder / manifest.FILE).exists()
    tokenizer = load_tokenizer(given.folder) if prepared else _tokenizer(given.tokenizer)
    assert tokenizer.end_of_text is not None  # neither prepare nor _tokenizer has one without
    document = find_document(given.folder, given.split, given.document, tokenizer.end_of_text)
    place = f"{document.shard} at token {document.offset:,}, {plural(len(document.tokens), 'token')}"
    print(f"document {given.document:,} of {given.split}: {place}", file=sys.stderr)
    if given.tokens:
        print(" ".join(map(str, document.tokens.tolist())))
        return
    text = tokenizer.decode(document.tokens)
    if is_terminal(sys.stdout):
        encoding = sys.stdout.encoding or "utf-8"
        print(visible(text).encode(encoding, "replace").decode(encoding))
    else:
        sys.stdout.buffer.write(text.encode())


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "prepare": prepare_main,
    "verify": verify_main,
    "show": show_main,
}


def _prepare_parser() -> Parser:
    parser = Parser(
        prog="python -m nanoeuler.corpus prepare",
        description="Text into token shards for training. Interrupted at any moment and started again with the same "
        "command it goes on, and ends with the same files.",
    )
    parser.add_argument(
        "source",
        nargs="+",
        metavar="NAME|PATH",
        help=f"{', '.join(NAMES)}; a hub's data set as owner/name or owner/name:config; or files, folders and globs",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="where the shards go, such as data/NAME"
    )
    parser.add_argument("--tokenizer", default="gpt2", help="gpt2, or the folder or file of one [gpt2]")
    parser.add_argument(
        "--workers", type=number(int, 1), default=available_cores(), metavar="N", help="processes [the cores]"
    )
    parser.add_argument(
        "--restart", action="store_true", help="give up what an interrupted preparation has done in the folder"
    )
    which = parser.add_argument_group("which documents")
    which.add_argument(
        "--text-column", type=_name, metavar="NAME", help="of the text [text, or the only column of strings]"
    )
    which.add_argument("--revision", help="of a hub's data set: a branch, tag or commit [the newest]")
    which.add_argument(
        "--separator",
        type=_separator,
        metavar="TEXT",
        help=r"between the documents of a .txt file, such as '\n\n' for a blank line [<|endoftext|>]",
    )
    which.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="CONDITION",
        help='keep rows that meet it, such as "int_score >= 4"; may be given several times',
    )
    which.add_argument(
        "--min-chars", type=number(int, 0), default=0, metavar="N", help="leave shorter documents out [0]"
    )
    which.add_argument("--max-chars", type=number(int, 1), metavar="N", help="leave longer documents out")
    which.add_argument(
        "--no-deduplicate", dest="deduplicate", action="store_false", help="keep documents whose text came before"
    )
    which.add_argument("--limit", type=number(int, 1), metavar="N", help="stop after so many documents")
    shards = parser.add_argument_group("shards")
    shards.add_argument(
        "--val-fraction", type=_share, default=0.005, metavar="SHARE", help="of the documents, to validate on [0.005]"
    )
    shards.add_argument(
        "--shard-tokens", type=number(int, 1, MOST_TOKENS), default=100_000_000, metavar="N", help="at most [100000000]"
    )
    return parser


def _tokenizer(wanted: str) -> Tokenizer:
    """Return the tokenizer that ``--tokenizer`` names.

    Raises:
        UserError: there is none, or it has no token that could stand between documents.
    """
    why = "has no end-of-text token to set documents apart"
    instead = "take gpt2, or one that `python -m nanoeuler.tokenizer train` made"
    if wanted == "char":
        raise UserError(f"--tokenizer char: its vocabulary is one text's characters, and it {why}; {instead}")
    tokenizer = make_tokenizer(wanted, text="")
    if tokenizer.end_of_text is None:
        raise UserError(f"--tokenizer {wanted}: it {why}; {instead}")
    return tokenizer


def _tell(folder: Path, corpus: Manifest, settings: Settings, progress: Progress) -> None:
    """Say what has come of it."""
    for split in SPLITS:
        documents, tokens, text_bytes = (corpus.total(split, what) for what in ("documents", "tokens", "text_bytes"))
        if documents:
            progress.note(
                f"{split:<5} {plural(documents, 'document')}, {plural(tokens, 'token')} "
                f"({text_bytes / (tokens - documents):.2f} bytes each) in {plural(len(corpus.of(split)), 'shard')}"
            )
    for reason, rows in corpus.skipped.items():
        not_met = " is not met" if reason in corpus.settings.get("filter", ()) else ""
        progress.note(f"left out {plural(rows, 'row')}: {reason}{not_met}")
    empty = next((split for split in SPLITS if not corpus.of(split)), None)
    if empty and settings.val_fraction:
        cut = (
            ": a text file is one document, unless --separator says where it is cut (or train on the file itself, "
            "whose end is then for validation: --data.dataset FILE --data.tokenizer_path TOKENIZER)"
            if _has_text_files(corpus)
            else ""
        )
        progress.warning(
            f"no document fell to {'validation' if empty == 'val' else 'training'}, which is by the hash of each "
            f"({settings.val_fraction:g} to validation). Another --val-fraction helps; so do more documents{cut}"
        )
    progress.note(f"{folder}: done")
    if empty is None:
        progress.note(f"to train on it: python -m nanoeuler.train --data.dataset {shlex.quote(str(folder))}")


def _has_text_files(corpus: Manifest) -> bool:
    """Return whether a corpus was made of text that a separator cuts into documents."""
    kinds = [kind_asked_for(Path(file["file"])) for file in corpus.source.get("files", [])]  # or built in
    return any(kind == "txt" for kind, _ in kinds)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have the signals that end a process raise :class:`SystemExit`, as Ctrl-C raises an exception: all is put away.

    Those that it is to ignore, as ``nohup`` has it, stay ignored.
    """

    def end(received: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + received)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows hangs up on nobody
    old = {name: signal.getsignal(name) for name in map(signal.Signals.__getitem__, names)}
    for name, handler in old.items():
        if handler != signal.SIG_IGN:
            signal.signal(name, end)
    try:
        yield
    finally:
        for name, handler in old.items():
            signal.signal(name, handler)


def _share(text: str) -> float:
    """Read an option that is a share: from 0 on and below 1."""
    number = float(text)
    if not 0 <= number < 1:
        raise ValueError
    return number


def _name(text: str) -> str:
    """Read an option that is a name: any text but none."""
    if not text:
        raise ValueError
    return text


def _separator(text: str) -> str:
    r"""Read an option that is a text, with ``\n``, ``\r`` and ``\t`` for what is hard to type in a shell."""
    return _name(text).replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


_name.__name__ = "name, not empty,"
_separator.__name__ = "separator, not empty,"
_share.__name__ = "share, from 0 on and below 1,"

if __name__ == "__main__":
    sys.exit(run_command(main))

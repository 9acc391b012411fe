"""Train a model: ``python -m nanoeuler.train [--config FILE] [--training.learning_rate 3e-4 ...]``.

With no argument a small model learns TinyShakespeare, or the built-in plays where that cannot be had; with --init-from
a model that is there already learns on. The run leaves everything in its directory; started again, it goes on from its
last checkpoint.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nanoeuler.checkpoint import Checkpoint, find_checkpoint, list_checkpoints, read_checkpoint
from nanoeuler.config import Config, Parser, add_config_options, config_from_options
from nanoeuler.corpus import Batches, Corpus, PreparedCorpus, load_corpus, plays
from nanoeuler.corpus.corpus import fingerprint
from nanoeuler.device import HELP, op_table
from nanoeuler.errors import UserError, run_command
from nanoeuler.files import locked, replace_file, writing
from nanoeuler.init_from import Start, find_start, load_start, tokenizer_of
from nanoeuler.plan import available_on, check_memory, reserve
from nanoeuler.step import cut_batch
from nanoeuler.tokenizer import Tokenizer
from nanoeuler.trainer import Data, Trainer

#: Keys that change what a run shows and keeps but not what it learns: they may differ when it goes on.
FREE_KEYS = {
    "eval_interval",
    "eval_batches",
    "final_eval_batches",
    "sample_interval",
    "sample_tokens",
    "sample_prompt",
    "checkpoint_interval",
    "keep_checkpoints",
    "workers",
}

#: What a run leaves in its directory.
LEFT_BY_A_RUN = ["checkpoints", "config.json", "metrics.jsonl", "report.html", "samples", "tensorboard"]


def main(arguments: list[str]) -> int:
    """Train; return the exit code."""
    options = _parser().parse_args(arguments)
    config = config_from_options(options)
    ops = op_table(options.device, config.training.dtype)
    corpus = load_corpus(config.data.dataset)
    if options.run == "":
        raise UserError("--run is empty: give the directory of the run")
    run = Path(options.run or default_run(options.config, config, corpus))
    goes_on = config.training.init_from and options.resume is not False and list_checkpoints(run)
    start = find_start(config, last_checkpoint(run)[0] if goes_on else None)
    config, data = prepare(config, corpus, start)
    check_memory(config, available_on(options.device), options.device)
    if options.device == "gpu":
        reserve(config)
    with run_directory(run):
        return _trainer(config, data, ops, run, start, options.resume).train()


def _trainer(config: Config, data: Data, ops: Any, run: Path, start: Start | None, resume: bool | None) -> Trainer:
    """Return a run that is ready to go; what it was read from is let go again."""
    checkpoint, notes = find_resume(run, config, data, resume)
    pieces = len(cut_batch(config.model, config.training)) if checkpoint is None else checkpoint.config.training.pieces
    config = with_pieces(config, pieces)
    with writing(run / "config.json"):
        replace_file(run / "config.json", config.to_json().encode())
    weights = None
    if start is not None and checkpoint is None:
        weights, more = load_start(config)
        notes += [*more, *start.notes]
    return Trainer(config, data, ops, run, checkpoint, notes, weights)


def default_run(file: str | None, config: Config, corpus: Corpus) -> str:
    """Return where a run goes that was given no directory: after its configuration, or its text.

    A run on the plays for want of TinyShakespeare gets a directory of its own, so that the same command starts anew
    once TinyShakespeare is there.
    """
    if file is None:
        return f"runs/{corpus.name}"
    instead = config.data.dataset is None and corpus.name == plays.NAME
    return f"runs/{Path(file).stem}{'-' + plays.NAME if instead else ''}"


def prepare(config: Config, corpus: Corpus, start: Start | None = None) -> tuple[Config, Data]:
    """Turn a corpus into batches; return the configuration with all that it leaves to others, and the data.

    Args:
        config: as it was asked for.
        corpus: to learn from.
        start: what the run takes over from weights that are there already.

    Raises:
        UserError: a split is too short; a shard is missing or damaged; the tokenizer cannot be had, is another than
            that of the corpus, or has more tokens than the model; or nothing shows ``data.doc_mask`` the documents.
    """
    tokenizer = tokenizer_of(start, config.data.tokenizer_path, corpus)
    document_start = _document_start(corpus, tokenizer) if config.data.doc_mask else None
    config = _resolved(config, corpus, tokenizer, start)
    model, training, vocab_size = config.model, config.training, config.model.vocabulary
    tokens = [part.tokens(tokenizer, vocab_size, config.data.val_fraction) for part in corpus.parts]
    sizes = training.batch_size, model.max_seq_len, model.num_prediction_heads
    batches = Batches(tokens, *sizes, training.seed, corpus.shares, vocab_size)
    digest = fingerprint([each.fingerprint for each in tokens], corpus.shares)
    per_token = sum(float(share) * each.bytes_per_token for share, each in zip(corpus.shares, tokens, strict=True))
    floor = tokens[0].floor if len(tokens) == 1 else None
    ends = () if start is None else start.end_ids
    return config, Data(corpus, digest, tokenizer, batches, per_token, floor, document_start, ends)


def _resolved(config: Config, corpus: Corpus, tokenizer: Tokenizer, start: Start | None) -> Config:
    """Return the configuration with what it leaves to the corpus, or to the weights that it starts from, filled in.

    The tokenizer of a prepared corpus is its own, whether or not it was named; that of a text is named, unless it came
    along with weights. So a run goes on however its tokenizer was asked for.
    """
    model, data = config.model if start is None else start.model, config.data
    own = any(isinstance(part, PreparedCorpus) and part.manifest for part in corpus.parts)
    came_along = start is not None and data.tokenizer_path is None
    kind = None if own or came_along else data.tokenizer_path or tokenizer.kind
    data = data.model_copy(update={"dataset": data.dataset or corpus.name, "tokenizer_path": kind})
    if model.vocab_size is None:
        model = model.model_copy(update={"vocab_size": tokenizer.vocab_size})
    return config.model_copy(update={"model": model, "data": data})


def _document_start(corpus: Corpus, tokenizer: Tokenizer) -> int:
    """Return the token that begins each document.

    Raises:
        UserError: nothing tells where documents begin.
    """
    instead = "leave it out, or take a prepared corpus (python -m nanoeuler.corpus)"
    if not any(isinstance(part, PreparedCorpus) for part in corpus.parts):  # a tokenizer makes no end-of-text of text
        raise UserError(f"data.doc_mask keeps attention within documents, and a text is a single one: {instead}")
    if tokenizer.end_of_text is None:
        raise UserError(
            f"data.doc_mask keeps attention within documents, and the tokenizer ({tokenizer.kind}) has no end-of-text "
            f"token to tell where one begins: {instead}"
        )
    return tokenizer.end_of_text


def find_resume(run: Path, config: Config, data: Data, resume: bool | None) -> tuple[Checkpoint | None, list[str]]:
    """Return the checkpoint to go on from, or None to start anew, and what the user should know of it.

    Raises:
        UserError: there is a checkpoint of another configuration or text, or one was asked for and none is good.
    """
    if resume is False:
        return None, _move_aside(run)
    if not list_checkpoints(run):
        if resume:
            raise UserError(f"{run} has no checkpoint to resume from: leave --resume out to start a new run there")
        return None, []
    path, damaged = last_checkpoint(run)
    checkpoint = read_checkpoint(path)
    changed = differences(checkpoint.config, with_pieces(config, checkpoint.config.training.pieces))
    if changed:
        raise UserError(
            f"{run} holds a run of another configuration ({'; '.join(changed)}). Give this one a directory of its own "
            "with --run DIR, or move the old run aside and start anew with --no-resume"
        )
    same_tokenizer = checkpoint.tokenizer.fingerprint == data.tokenizer.fingerprint
    if not same_tokenizer or checkpoint.progress.get("text_sha256") != data.text_sha256:
        raise UserError(
            f"{path} was trained on another text{'' if same_tokenizer else ', or with another tokenizer,'} than this "
            f"one ({data.corpus.reason}): give this run a directory of its own with --run DIR"
        )
    notes = [f"passed over a damaged checkpoint: {line}" for line in damaged]
    return checkpoint, [*notes, f"going on from {path}"]


def last_checkpoint(run: Path) -> tuple[Path, list[str]]:
    """Return a run's last checkpoint that is whole, and what is wrong with each later one.

    Raises:
        UserError: none is whole.
    """
    try:
        return find_checkpoint(run)
    except UserError as error:
        raise UserError(f"{error}\nTo start anew, with the old run moved aside, give --no-resume") from None


def with_pieces(config: Config, pieces: int) -> Config:
    """Return the configuration with its number of pieces set, where it says nothing.

    It is chosen once, when a run starts, since gradients that are summed in other pieces differ in their last bits.
    """
    if config.training.pieces:
        return config
    return config.model_copy(update={"training": config.training.model_copy(update={"pieces": pieces})})


def differences(old: Config, new: Config) -> list[str]:
    """Return the keys in which two configurations differ so that they are different runs, with both values."""
    found = []
    for section, values in new.model_dump().items():
        before: dict[str, Any] = getattr(old, section).model_dump()
        for key, value in values.items():
            if before[key] != value and key not in FREE_KEYS:
                found.append(f"{section}.{key} was {before[key]!r}, now {value!r}")
    return found


@contextmanager
def run_directory(run: Path) -> Iterator[None]:
    """Make the run's directory and keep other processes out of it for as long as this one trains there.

    Raises:
        UserError: it cannot be made or written to, or another process trains in it.
    """
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
    with locked(run / ".lock", f"another process is training in {run}: give this run a directory of its own"):
        yield


def _move_aside(run: Path) -> list[str]:
    """Move what an earlier run left, and nothing else, into a directory beside it, so that nothing is lost."""
    old = [run / name for name in LEFT_BY_A_RUN if (run / name).exists()]
    if not old:
        return []
    number, beside = 1, run.resolve()
    while (aside := beside.with_name(f"{beside.name}.old-{number}")).exists():
        number += 1
    with writing(aside):
        aside.mkdir()
        for path in old:
            path.rename(aside / path.name)
    return [f"what was in {run} is in {aside} now"]


def _parser() -> Parser:
    parser = Parser(prog="python -m nanoeuler.train", description=__doc__)
    parser.add_argument("--run", metavar="DIR", help="where the run leaves everything [runs/NAME]")
    parser.add_argument("--device", default="cpu", help=HELP)
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        help="go on from the run's last checkpoint [if it has one of the same configuration]; "
        "--no-resume moves an old run aside",
    )
    add_config_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

"""How good is a model? ``python -m nanoeuler.evaluate MODEL --text FILE --task hellaswag=hellaswag_val.jsonl``."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from nanoeuler.config import Parser, number
from nanoeuler.console import format_count, plural, say
from nanoeuler.device import HELP, op_table
from nanoeuler.errors import UserError, run_command
from nanoeuler.evaluate.engine import BATCH_TOKENS, LONGEST, Engine
from nanoeuler.evaluate.items import Item
from nanoeuler.evaluate.likelihood import likelihoods
from nanoeuler.evaluate.progress import Progress
from nanoeuler.evaluate.report import task_lines, task_record, text_line, text_record
from nanoeuler.evaluate.sources import NO_TOKENIZER, Source, corpus_sources, text_source
from nanoeuler.evaluate.tasks import TASKS, measure, parse_task, read_items
from nanoeuler.evaluate.text import text_loss
from nanoeuler.files import written_whole
from nanoeuler.parameters import parameter_count, parameter_shapes
from nanoeuler.tokenizer import Tokenizer, make_tokenizer
from nanoeuler.weights import load_pretrained


def main(arguments: list[str]) -> int:
    """Load a model and print one line for each text and each task, as soon as it is done."""
    options = _parser().parse_args(arguments)
    if not (options.text or options.corpus or options.task):
        raise UserError("nothing to evaluate on: give --text FILE, --corpus FOLDER or --task NAME=PATH")
    op_table(options.device)  # for its error, before anything is read
    named = [parse_task(task) for task in options.task]
    asked = [(name, path, read_items(name, path, options.shots, options.limit)) for name, path in named]
    model = load_pretrained(options.model)
    tokenizer = make_tokenizer(options.tokenizer, "") if options.tokenizer else model.tokenizer
    if asked and tokenizer is None:
        raise UserError(f"{options.model}: {NO_TOKENIZER}")
    sources = _sources(options, tokenizer, model.config.vocabulary)
    engine = Engine(model.config, model.weights, options.device, options.length, options.batch_tokens)
    stride = options.stride or max(1, engine.length // 2)
    if stride > engine.length:
        raise UserError(f"--stride {stride} is more than the {engine.length} tokens of a window")
    parameters = parameter_count(parameter_shapes(model.config))
    report: dict[str, Any] = {"model": options.model, "parameters": parameters, "length": engine.length}
    say(f"{options.model}: {format_count(parameters)} parameters, up to {plural(engine.length, 'token')} at once")
    with engine:
        for source in sources:
            result = _evaluate_text(engine, source, stride, options.tokens)
            _add(report, "texts", result, options.json)
        for name, path, items in asked:
            assert tokenizer  # as was seen above
            result = _evaluate_task(engine, name, items, tokenizer)
            _add(report, "tasks", {"task": name, "path": str(path), **result}, options.json)
    return 0


def _evaluate_text(engine: Engine, source: Source, stride: int, limit: int | None) -> dict[str, Any]:
    with Progress(source.name) as progress:
        loss = text_loss(engine, source, progress, stride, limit)
    say(text_line(source.name, loss))
    return {"text": source.name, "stride": stride, **text_record(loss)}


def _evaluate_task(engine: Engine, name: str, items: list[Item], tokenizer: Tokenizer) -> dict[str, Any]:
    with Progress(name) as progress:
        found = likelihoods(engine, items, tokenizer, progress, "greedy" in TASKS[name].measures)
    result = measure(name, items, found)
    for line in task_lines(name, result):
        say(line)
    return task_record(result, items, found)


def _add(report: dict[str, Any], kind: str, result: dict[str, Any], path: Path | None) -> None:
    """Add a result to the report, and write it as it is: an interruption then loses nothing that is done."""
    report.setdefault(kind, []).append(result)
    if path:
        with written_whole(path) as file:
            file.write((json.dumps(report, indent=2, allow_nan=False) + "\n").encode())


def _sources(options: Namespace, tokenizer: Tokenizer | None, vocab_size: int) -> list[Source]:
    sources = [text_source(path, tokenizer) for path in options.text]
    for where in options.corpus:
        sources += corpus_sources(where, options.split, tokenizer, vocab_size)
    return sources


def _parser() -> Parser:
    parser = Parser(prog="python -m nanoeuler.evaluate", description=__doc__)
    parser.add_argument(
        "model", metavar="MODEL", help="a run, a checkpoint, a Hugging Face folder or id, or a .bin file"
    )
    parser.add_argument("--device", default="cpu", help=HELP)
    parser.add_argument("--tokenizer", metavar="PATH", help="a name or path, for a model without one [the model's]")
    parser.add_argument(
        "--length",
        type=number(int, 1),
        metavar="N",
        help=f"most tokens at once [what the model takes, up to {LONGEST}]",
    )
    sizes = ", ".join(f"{size} on {device}" for device, size in BATCH_TOKENS.items())
    parser.add_argument(
        "--batch-tokens", type=number(int, 1), metavar="N", help=f"of a batch, one row at least [{sizes}]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there, with those of every item")
    text = parser.add_argument_group("loss on text, in nats per token, as perplexity, and in bits per byte")
    text.add_argument("--text", type=Path, action="append", default=[], metavar="FILE", help="a text, as one document")
    text.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME",
        help="what --data.dataset takes, such as a folder of shards; or one shard",
    )
    text.add_argument("--split", choices=("val", "train"), default="val", help="of a corpus [val]")
    text.add_argument("--tokens", type=number(int, 1), metavar="N", help="score only the first N tokens of each")
    text.add_argument(
        "--stride",
        type=number(int, 1),
        metavar="N",
        help="windows are so far apart; each scores the N last [length / 2]",
    )
    tasks = parser.add_argument_group("choices by their likelihood")
    tasks.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"{', '.join(TASKS)}, and the file as it is published; several times for several",
    )
    tasks.add_argument(
        "--limit", type=number(int, 1), metavar="N", help="only the first N items, of MMLU of each subject"
    )
    tasks.add_argument(
        "--shots", type=number(int, 0), default=5, metavar="N", help="examples before a question of MMLU [5]"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(run_command(main))

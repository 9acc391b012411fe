"""Text from a trained model, as it comes: ``python -m nanoeuler.generate --checkpoint RUN --prompt "ROMEO:"``."""

import codecs
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from nanoeuler.checkpoint import find_checkpoint, read_checkpoint
from nanoeuler.config import Parser, number
from nanoeuler.console import visible
from nanoeuler.corpus import check_vocabulary
from nanoeuler.device import HELP, op_table
from nanoeuler.errors import UserError, run_command
from nanoeuler.model import Transformer
from nanoeuler.sampling import Sampling, generate, sample_prompt
from nanoeuler.tokenizer import Tokenizer


def main(arguments: list[str]) -> int:
    """Load a checkpoint and print samples."""
    options = _parser().parse_args(arguments)
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.min_p, options.repetition_penalty)
    ops = op_table(options.device)
    path, damaged = find_checkpoint(Path(options.checkpoint))
    for line in damaged:
        print(f"warning: passed over {line}", file=sys.stderr)
    checkpoint = read_checkpoint(path, moments=False)
    tokenizer, config = checkpoint.tokenizer, checkpoint.config.model
    prompt = sample_prompt(tokenizer, "\n") if options.prompt is None else tokenizer.encode(options.prompt)
    check_vocabulary(prompt, config.vocabulary)
    if prompt.size == 0:
        raise UserError("the prompt is empty: give at least one character with --prompt")
    dtype = checkpoint.weights.dtype if options.device == "cpu" else np.dtype(np.float32)  # no kernel knows float64
    weights = ops.empty(checkpoint.weights.size, dtype)
    ops.from_numpy(weights, checkpoint.weights)
    model = Transformer(config, ops, weights, 1, config.max_seq_len, "generation")
    for sample in range(options.samples):
        if sample > 0:
            print("\n" + "-" * 40)
        tokens = generate(model, prompt, tokenizer.vocab_size, sampling, (options.seed, sample))
        print_stream(tokenizer, [*prompt.tolist()], islice(tokens, min(options.tokens, sys.maxsize)))
    print()
    return 0


def print_stream(tokenizer: Tokenizer, prompt: list[int], tokens: Iterable[int]) -> None:
    """Print a prompt and then every token as soon as it is there; a character of several tokens when it is whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    show = visible if sys.stdout.isatty() else str  # nothing that a terminal would take for a command
    encoding = sys.stdout.encoding or "utf-8"

    def write(text: str) -> None:
        sys.stdout.write(show(text).encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()

    write(decoder.decode(tokenizer.decode_any(prompt)))
    for token in tokens:
        write(decoder.decode(tokenizer.decode_any([token])))
    write(decoder.decode(b"", final=True))


def _parser() -> Parser:
    parser = Parser(prog="python -m nanoeuler.generate", description=__doc__)
    parser.add_argument("--checkpoint", required=True, metavar="RUN", help="a run's folder, or one checkpoint of it")
    parser.add_argument("--prompt", metavar="TEXT", help="what the text starts with [a new line]")
    parser.add_argument("--tokens", type=number(int, 1), default=500, metavar="N", help="tokens in a sample [500]")
    parser.add_argument("--samples", type=number(int, 1), default=1, metavar="N", help="samples [1]")
    parser.add_argument(
        "--temperature", type=number(float, 0), default=0.8, help="divides the logits; 0 takes the likeliest [0.8]"
    )
    parser.add_argument("--top-k", type=number(int, 0), default=0, help="only the k likeliest; 0 all [0]")
    parser.add_argument(
        "--top-p", type=number(float, 0, 1), default=1.0, help="only the likeliest that reach p together [1]"
    )
    parser.add_argument(
        "--min-p", type=number(float, 0, 1), default=0.0, help="only those of p times the likeliest one's share [0]"
    )
    parser.add_argument(
        "--repetition-penalty", type=number(float, 0.01), default=1.0, help="above 1 disfavours used tokens [1]"
    )
    parser.add_argument("--seed", type=number(int, 0), default=0, help="the same seed gives the same text [0]")
    parser.add_argument("--device", default="cpu", help=HELP)
    return parser


if __name__ == "__main__":
    raise SystemExit(run_command(main))

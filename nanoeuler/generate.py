"""Text from a model, as it comes: ``python -m nanoeuler.generate --checkpoint RUN --prompt "ROMEO:"``.

The model is one of our runs, or any other that :func:`~nanoeuler.weights.open_model` knows: a folder in Hugging Face's
layout, a file of llm.c or llama2.c, or a hub's owner/name.
"""

import codecs
import sys
from argparse import Namespace
from collections.abc import Iterable
from itertools import islice, takewhile

import numpy as np

from nanoeuler.config import Parser, number
from nanoeuler.console import visible
from nanoeuler.corpus import check_vocabulary
from nanoeuler.device import HELP, op_table
from nanoeuler.errors import UserError, run_command
from nanoeuler.model import Transformer
from nanoeuler.plan import available_on, check_generation
from nanoeuler.sampling import Sampling, generate, sample_prompt, with_prefix
from nanoeuler.tokenizer import Tokenizer
from nanoeuler.tokenizer.chat import encode_chat
from nanoeuler.weights.pretrained import end_ids, needed_tokenizer, open_model, read_weights


def main(arguments: list[str]) -> int:
    """Load a model and print samples."""
    options = _parser().parse_args(arguments)
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.min_p, options.repetition_penalty)
    ops = op_table(options.device)
    files = open_model(options.checkpoint)
    for line in files.note.splitlines():
        print(f"warning: {line}", file=sys.stderr)
    config, tokenizer = files.config, needed_tokenizer(files)
    prompt, shown = choose_prompt(tokenizer, options)
    check_vocabulary(prompt, config.vocabulary)

    # No kernel knows float64. And what is not needed is not allocated: contexts of 100,000 tokens are common.
    wide = options.device == "cpu" and any(tensor.dtype == "float64" for tensor in files.tensors.values())
    dtype, length = np.dtype(np.float64 if wide else np.float32), min(config.max_seq_len, prompt.size + options.tokens)
    check_generation(config, length, dtype, available_on(options.device), options.device)
    on_host = read_weights(files, dtype)
    weights = ops.empty(on_host.size, dtype)
    ops.from_numpy(weights, on_host)
    del on_host
    model = Transformer(config, ops, weights, 1, length, "generation")
    ends = () if options.ignore_end else end_ids(files, tokenizer)
    for sample in range(options.samples):
        if sample > 0:
            print("\n" + "-" * 40)
        tokens = generate(model, prompt, tokenizer.vocab_size, sampling, (options.seed, sample))
        until_end = takewhile(lambda token: token not in ends, islice(tokens, min(options.tokens, sys.maxsize)))
        print_stream(tokenizer, prompt.tolist(), until_end, shown)
    print()
    return 0


def choose_prompt(tokenizer: Tokenizer, options: Namespace) -> tuple[np.ndarray, str | None]:
    """Return the tokens that a text begins with, (n,) int32, and what of it is shown; None is all that they stand for.

    Raises:
        UserError: the tokenizer cannot encode the prompt, or has no template for a chat, or the prompt is empty.
    """
    if options.chat is not None:
        if options.prompt is not None:
            raise UserError("--prompt and --chat: give one of them")
        return encode_chat(tokenizer, [{"role": "user", "content": options.chat}]), ""
    if options.prompt is None:
        if tokenizer.prefix:
            return with_prefix(tokenizer, np.zeros(0, np.int32)), ""
        return sample_prompt(tokenizer, "\n"), None
    prompt = with_prefix(tokenizer, tokenizer.encode(options.prompt))
    if prompt.size == 0:
        raise UserError("the prompt is empty: give at least one character with --prompt")
    return prompt, options.prompt


def print_stream(tokenizer: Tokenizer, prompt: list[int], tokens: Iterable[int], shown: str | None = None) -> None:
    """Print a prompt and then every token as soon as it is there; a character of several tokens when it is whole.

    Args:
        tokenizer: of the tokens.
        prompt: the tokens before, at least one.
        tokens: to print.
        shown: what stands for the prompt; its tokens as they are decoded if None.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    show = visible if sys.stdout.isatty() else str  # nothing that a terminal would take for a command
    encoding = sys.stdout.encoding or "utf-8"

    def write(text: str) -> None:
        sys.stdout.write(show(text).encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()

    write(decoder.decode(tokenizer.decode_any(prompt) if shown is None else shown.encode("utf-8")))
    last = prompt[-1:]
    for token in tokens:  # after the one before it: the first of a text loses its space in SentencePiece's vocabularies
        both = tokenizer.decode_any([*last, token])
        write(decoder.decode(both[len(tokenizer.decode_any(last)) :]))
        last = [token]
    write(decoder.decode(b"", final=True))


def _parser() -> Parser:
    parser = Parser(prog="python -m nanoeuler.generate", description=__doc__)
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="MODEL",
        help="a run's folder or one checkpoint of it, a folder in Hugging Face's layout, a .bin file of llm.c or "
        "llama2.c, or a hub's owner/name[@revision]",
    )
    parser.add_argument("--prompt", metavar="TEXT", help="what the text starts with [a new line, or the model's BOS]")
    parser.add_argument("--chat", metavar="TEXT", help="ask a model that has a chat template; its answer is printed")
    parser.add_argument("--tokens", type=number(int, 1), default=500, metavar="N", help="most tokens in a sample [500]")
    parser.add_argument("--ignore-end", action="store_true", help="go on after a token that ends a text")
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

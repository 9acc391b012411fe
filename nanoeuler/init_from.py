"""``training.init_from``: a run that starts from weights which are there already, and takes their architecture over.

The architecture is the weights'. What a run may still choose is in :data:`FREE`; any other key of the model section
may be written as long as it says what the weights say. The tokenizer comes along, unless another is asked for.

The run's own checkpoint is what it goes on from: once there is one, neither the weights nor a hub is asked again.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoeuler.config import Config, ModelConfig, load_config
from nanoeuler.console import format_count
from nanoeuler.corpus import Corpus, PreparedCorpus, TextCorpus, choose_tokenizer
from nanoeuler.errors import UserError
from nanoeuler.parameters import initial_weights, named_views, parameter_count, parameter_shapes
from nanoeuler.precision import storage
from nanoeuler.tokenizer import Tokenizer, load_tokenizer
from nanoeuler.weights.directory import read_end_ids
from nanoeuler.weights.pretrained import end_ids, load_pretrained, outline_model, read_tokenizer

#: Keys of the model section that a run may set as it likes.
FREE = {"max_seq_len", "dropout", "init_std", "num_prediction_heads", "prediction_loss_weight"}
#: The longest sequence of a run that does not say how long it should be: activations are kept for every token of one.
DEFAULT_LENGTH = 1024


@dataclass(frozen=True)
class Start:
    """What a run takes over: from weights that are there already or, once it has one, from its own checkpoint."""

    source: str
    model: ModelConfig
    tokenizer: Tokenizer | None  # None where there is none beside the weights, or another is named
    end_ids: tuple[int, ...]  # tokens that end a generation
    notes: list[str]


def find_start(config: Config, checkpoint: Path | None) -> Start | None:
    """Return what a run takes over, none of the weights being read; None where it starts from initial weights.

    Args:
        config: as it was asked for.
        checkpoint: the run's own, if it has one to go on from.

    Raises:
        UserError: there is no such model, it is of an architecture that we lack, the configuration contradicts it, or
            its tokenizer is of a kind that we do not know and no other is named.
    """
    source, named = config.training.init_from, config.data.tokenizer_path is not None
    if source is None:
        return None
    if checkpoint is not None:
        earlier = load_config(checkpoint.parent.parent / "config.json")  # of the run
        model = earlier.model.model_copy(update=config.model.written())
        return Start(source, model, None if named else load_tokenizer(checkpoint), read_end_ids(checkpoint), [])
    outline = outline_model(source)
    model, notes = take_over(config.model, outline.config, source)
    tokenizer = None if named else read_tokenizer(outline)
    ends = () if named else end_ids(outline, tokenizer)  # of another vocabulary they would be other tokens
    return Start(source, model, tokenizer, ends, notes)


def take_over(wanted: ModelConfig, theirs: ModelConfig, source: str) -> tuple[ModelConfig, list[str]]:
    """Return the architecture of a run that starts from weights, and what the user should know of it.

    Args:
        wanted: as it was configured; only what was written there counts.
        theirs: the architecture of the weights.
        source: where they are from, for the messages.

    Raises:
        UserError: a key says something else than the weights, or the sequences are longer than the learned positions.
    """
    written = wanted.written()
    against = [
        f"model.{key} is {getattr(theirs, key)!r} there, and {value!r} is asked for"
        for key, value in written.items()
        if key not in FREE and value != getattr(theirs, key)
    ]
    if against:
        raise UserError(
            f"the architecture comes from the weights of {source}, and the configuration says otherwise: "
            f"{'; '.join(against)}. Leave {'these keys' if len(against) > 1 else 'this key'} out"
        )
    chosen = {key: value for key, value in written.items() if key in FREE}
    length, longest, notes = chosen.get("max_seq_len"), theirs.max_seq_len, []
    if length is None and longest > DEFAULT_LENGTH:
        chosen["max_seq_len"] = DEFAULT_LENGTH
        notes.append(
            f"sequences of {DEFAULT_LENGTH} tokens; these weights were made for up to {longest:,}: --model.max_seq_len"
        )
    elif length is not None and length > longest and theirs.position == "learned":
        raise UserError(
            f"model.max_seq_len {length} is more than the {longest} learned positions in the weights of {source}: "
            f"at most {longest}"
        )
    elif length is not None and length > longest:
        notes.append(f"sequences of {length:,} tokens are longer than the {longest:,} that these weights were made for")
    return theirs.model_copy(update=chosen), notes


def starting_weights(
    theirs: ModelConfig, weights: np.ndarray, model: ModelConfig, seed: int
) -> tuple[np.ndarray, list[str]]:
    """Return a run's flat buffer of weights, and what the user should know of it.

    What both models have is taken over, of learned positions as many as the run needs; prediction heads that the
    weights lack start as in a new run, and those that the run does not want are left out.

    Args:
        theirs: the architecture of the weights.
        weights: flat buffer, laid out for it.
        model: the architecture of the run, as :func:`take_over` returns it.
        seed: decides the new heads.
    """
    old, new = theirs.num_prediction_heads, model.num_prediction_heads
    shapes, before = parameter_shapes(model), parameter_shapes(theirs)
    if shapes == before:
        return weights, []
    flat, there = initial_weights(model, seed, weights.dtype), named_views(weights, before)
    for name, view in named_views(flat, shapes).items():
        if name in there:
            view[...] = there[name][: len(view)]
    notes = []
    if new > old:
        notes.append(f"prediction heads: {old} from the weights, {new - old} new")
    elif new < old:
        notes.append(f"prediction heads: {new} of the {old} in the weights")
    return flat, notes


def load_start(config: Config) -> tuple[np.ndarray, list[str]]:
    """Return the weights that a run starts from, and what the user should know of them.

    Raises:
        UserError: as :func:`~nanoeuler.weights.pretrained.load_pretrained`.
    """
    source = config.training.init_from
    assert source is not None  # the caller has asked
    loaded = load_pretrained(source, storage(config.training.dtype).master)
    count = format_count(parameter_count(parameter_shapes(loaded.config)))
    weights, notes = starting_weights(loaded.config, loaded.weights, config.model, config.training.seed)
    said = loaded.files.note.splitlines()
    return weights, [f"starting from {source} ({loaded.files.format}, {count} parameters)", *said, *notes]


def tokenizer_of(start: Start | None, wanted: str | None, corpus: Corpus) -> Tokenizer:
    """Return the tokenizer of a run: the one that is wanted, else that of the weights, else as without weights.

    Args:
        start: what the run takes over, if anything.
        wanted: ``data.tokenizer_path``.
        corpus: what it learns from.

    Raises:
        UserError: a corpus was prepared with another one, it cannot be had, or the weights of a text's have none.
    """
    if start is None or wanted:
        return choose_tokenizer(wanted, corpus.parts)
    if start.tokenizer is not None:
        _check_prepared(start.tokenizer, corpus, start.source)
        return start.tokenizer
    if any(isinstance(part, TextCorpus) for part in corpus.parts):
        raise UserError(
            f"{start.source}: there is no tokenizer beside the weights, and a text takes the one that they learned "
            "with: name it with --data.tokenizer_path"
        )
    return choose_tokenizer(None, corpus.parts)


def _check_prepared(tokenizer: Tokenizer, corpus: Corpus, source: str) -> None:
    """Check that no part of a corpus was prepared with another tokenizer than that of the weights."""
    for part in corpus.parts:
        if not isinstance(part, PreparedCorpus):
            continue
        own = part.own_tokenizer()
        if own is not None and own.fingerprint != tokenizer.fingerprint:
            raise UserError(
                f"{part.folder} was prepared with another tokenizer ({own.kind}, {own.vocab_size:,} tokens) than that "
                f"of the weights of {source} ({tokenizer.kind}, {tokenizer.vocab_size:,} tokens), to which its ids "
                "mean other things: prepare it again with --tokenizer and the folder of theirs"
            )

"""A model from one format into another: ``python -m nanoeuler.convert SRC DST``.

DST is a folder for Hugging Face's format, or a .bin file: llm.c's for a GPT-2, llama2.c's for a Llama. It is written
whole or not at all, and the tokenizer comes along.
"""

import math
from argparse import Namespace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from nanoeuler.config import ModelConfig, Parser
from nanoeuler.console import format_bytes, format_count, plural, say
from nanoeuler.errors import UserError, run_command
from nanoeuler.files import folder_written_whole, written_whole
from nanoeuler.parameters import flat_size, named_views, parameter_count, parameter_shapes
from nanoeuler.plan import OVERHEAD_BYTES, available_on
from nanoeuler.tokenizer import Tokenizer
from nanoeuler.tokenizer.sentencepiece import LLAMA2C_FILE, llama2c_file
from nanoeuler.weights import ModelFiles, open_model
from nanoeuler.weights.directory import write_model_files
from nanoeuler.weights.llama2c import check_llama2c, write_llama2c
from nanoeuler.weights.llmc import GPT2_VOCABULARY, check_llmc, write_llmc
from nanoeuler.weights.mapping import model_family
from nanoeuler.weights.pretrained import SOURCES, read_tokenizer, read_weights
from nanoeuler.weights.tensors import DTYPES

HUGGINGFACE, LLMC, LLAMA2C = "huggingface", "llm.c", "llama2.c"
#: The formats, and the dtypes that each can hold.
FORMATS = {HUGGINGFACE: DTYPES, LLMC: ("float32", "bfloat16"), LLAMA2C: ("float32",)}

#: Dtypes of which every number is one of another dtype, too: nothing is rounded.
NARROWER = {
    "float64": ("float32", "float16", "bfloat16"),
    "float32": ("float16", "bfloat16"),
    "float16": (),
    "bfloat16": (),
}


def main(arguments: list[str]) -> None:
    """Convert a model, and say what has been done.

    Raises:
        UserError: there is no model, the format cannot hold it, it does not fit into memory, or it cannot be written.
    """
    options = _parser().parse_args(arguments)
    files, target = open_model(options.source), Path(options.destination).resolve()
    config, form = files.config, options.to or guess_format(target, files.config)
    dtype = choose_dtype(form, files, options.dtype)
    check_format(form, config)
    check_target(target, form, files.path.resolve(), options.force)
    check_memory(config, form, dtype, available_on("cpu"))
    tokenizer, trouble = _tokenizer_of(files)
    companion = tokenizer_beside(target, form, tokenizer, options.force)
    views = named_views(read_weights(files, _buffer_dtype(dtype)), parameter_shapes(config))
    if form == LLMC:
        write_llmc(target, config, views, dtype)
    elif form == LLAMA2C:
        write_llama2c(target, config, views)
    else:
        try:
            with folder_written_whole(target) as folder:
                write_model_files(folder, config, views, dtype, tokenizer, files.end_ids)
        except SafetensorError as error:
            raise UserError(f"{target}: cannot write it: {error}") from None
    for path, content in companion.items():
        with written_whole(path) as file:
            file.write(content)
    _say_what_was_done(options, files, form, dtype)
    if files.note:
        say(f"note     {files.note}")
    about, usable = _about_tokenizer(form, config, tokenizer, companion)
    say(f"tokens   {trouble or about}")
    say(f"next     python -m nanoeuler.{'generate --checkpoint' if usable else 'inspect'} {options.destination}")


def guess_format(target: Path, config: ModelConfig) -> str:
    """Return the format that a destination looks like.

    Raises:
        UserError: it ends in .bin, and no format with such files has a place for this family.
    """
    if target.suffix != ".bin":
        return HUGGINGFACE
    family = model_family(config)
    if family not in ("gpt2", "llama"):
        raise UserError(
            f"{target}: .bin files are llm.c's, for a GPT-2, or llama2.c's, for a Llama, and this model is of the "
            f"family {family}: give a folder"
        )
    return LLMC if family == "gpt2" else LLAMA2C


def stored_dtype(files: ModelFiles) -> str:
    """Return the dtype of a model's files; of several the one that holds them all."""
    dtypes = {tensor.dtype for tensor in files.tensors.values()}
    if len(dtypes) == 1:
        return dtypes.pop()
    return "float64" if "float64" in dtypes else "float32"


def choose_dtype(form: str, files: ModelFiles, wanted: str | None) -> str:
    """Return the dtype to write: the wanted one; else that of the source, or float32 where the format lacks it.

    Raises:
        UserError: the format has not the wanted one.
    """
    if wanted is None:
        stored = stored_dtype(files)
        return stored if stored in FORMATS[form] else "float32"
    if wanted not in FORMATS[form]:
        raise UserError(f"--dtype {wanted}: {form} has no such files; it has {' and '.join(FORMATS[form])}")
    return wanted


def check_format(form: str, config: ModelConfig) -> None:
    """Check that a format has a place for an architecture.

    Raises:
        UserError: it has not; the message names every difference.
    """
    if form != HUGGINGFACE:
        {LLMC: check_llmc, LLAMA2C: check_llama2c}[form](config)


def check_target(target: Path, form: str, source: Path, force: bool) -> None:
    """Check that nothing is lost by writing to a destination. Both paths are resolved: no link is left in them.

    Raises:
        UserError: it is the source, or has it inside, or is a part of it; there is something already, and ``force`` is
            not given, or what is there is not a model.
    """
    if source.is_relative_to(target) or (target.exists() and target.is_relative_to(source)):
        raise UserError(f"{target}: this is, has or belongs to the model that is to be converted: {source}")
    if form != HUGGINGFACE and target.is_dir():
        raise UserError(f"{target}: a folder, and a model of {form} is a file: give {target / 'model.bin'}")
    if form == HUGGINGFACE and target.exists() and not target.is_dir():
        raise UserError(f"{target}: a file, and a model of Hugging Face's format is a folder")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not force:
        raise UserError(f"{target}: there already; --force replaces it")
    if target.is_dir() and not _is_model_alone(target):
        raise UserError(
            f"{target}: has more in it than a model, and --force replaces nothing else: give another folder"
        )


def _is_model_alone(folder: Path) -> bool:
    """Return whether a folder is a model, and no run or checkpoint of a run, and has no other folder in it."""
    names = {path.name for path in folder.iterdir()}
    is_model = "config.json" in names and any(name.endswith(".safetensors") for name in names)
    return is_model and "training.json" not in names and not any(path.is_dir() for path in folder.iterdir())


def tokenizer_beside(target: Path, form: str, tokenizer: Tokenizer | None, force: bool) -> dict[Path, bytes]:
    """Return the file that a tokenizer becomes beside a .bin file, by its path, if the format has any.

    Raises:
        UserError: another tokenizer is there, and ``force`` is not given.
    """
    data = None if form != LLAMA2C or tokenizer is None else llama2c_file(tokenizer)
    if data is None:
        return {}
    path = target.with_name(LLAMA2C_FILE)
    if path == target:
        raise UserError(f"{target}: llama2.c has its tokenizer under this name; give another one, such as model.bin")
    if path.exists() and not force and path.read_bytes() != data:
        raise UserError(f"{path}: another tokenizer is there already; --force replaces it, or give another folder")
    return {path: data}


def check_memory(config: ModelConfig, form: str, dtype: str, available: int | None) -> None:
    """Refuse a model that does not fit into memory.

    Raises:
        UserError: it takes more than is available.
    """
    shapes = parameter_shapes(config)
    buffer = flat_size(shapes) * _buffer_dtype(dtype).itemsize
    copies = parameter_count(shapes) if form == HUGGINGFACE else 3 * max(map(math.prod, shapes.values()))
    needed = buffer + copies * 4 + OVERHEAD_BYTES
    if available is not None and needed > available:
        raise UserError(
            f"to convert this model takes {format_bytes(needed)} of memory, {format_bytes(buffer)} of it for its "
            f"weights, and {format_bytes(available)} are available"
        )


def _buffer_dtype(dtype: str) -> np.dtype:
    """Return what weights are held in between: nothing that is read into it is rounded before it is written."""
    return np.dtype(np.float64 if dtype == "float64" else np.float32)


def _tokenizer_of(files: ModelFiles) -> tuple[Tokenizer | None, str]:
    """Return a model's tokenizer, or None and what is wrong with it."""
    try:
        return read_tokenizer(files), ""
    except UserError as error:
        return None, f"the tokenizer stays behind: {error}"


def _say_what_was_done(options: Namespace, files: ModelFiles, form: str, dtype: str) -> None:
    target, stored, heads = Path(options.destination), stored_dtype(files), files.config.num_prediction_heads - 1
    count = format_count(parameter_count(parameter_shapes(files.config)))
    size = sum(path.stat().st_size for path in (target.iterdir() if target.is_dir() else [target]))
    rounded = "" if stored in (dtype, *NARROWER[dtype]) else ", rounded"
    say(f"read     {options.source}: {files.format}, {model_family(files.config)}, {count} parameters, {stored}")
    say(f"written  {target}: {form}, {dtype}{rounded}, {format_bytes(size)}")
    if heads and form != HUGGINGFACE:
        say(f"without  {plural(heads, 'further prediction head')}: {form} has no place for them")


def _about_tokenizer(
    form: str, config: ModelConfig, tokenizer: Tokenizer | None, companion: dict[Path, bytes]
) -> tuple[str, bool]:
    """Return what has become of a tokenizer, in words, and whether the model has one where it is now."""
    if form == LLMC:
        usable = config.vocabulary == GPT2_VOCABULARY
        return "llm.c takes GPT-2's vocabulary for granted" + ("" if usable else ", and this model has another"), usable
    if tokenizer is None:
        return "there is no tokenizer beside the source, so none is written", False
    if form == LLAMA2C and not companion:
        return f"no {LLAMA2C_FILE}: there is no place in one for a tokenizer of the kind {tokenizer.kind}", False
    return f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens: " + (", ".join(map(str, companion)) or "in it"), True


def _parser() -> Parser:
    parser = Parser(prog="python -m nanoeuler.convert", description=__doc__)
    parser.add_argument("source", metavar="SRC", help=SOURCES)
    parser.add_argument("destination", metavar="DST", help="folder, or a .bin file")
    parser.add_argument("--to", choices=FORMATS, help="format of DST [what DST looks like]")
    parser.add_argument("--dtype", choices=DTYPES, help="of the numbers in DST [as in SRC]")
    parser.add_argument("--force", action="store_true", help="replace a model that is at DST already")
    return parser


if __name__ == "__main__":
    raise SystemExit(run_command(main))

"""A model of the Hugging Face hub, fetched into the library's cache: an id becomes a local folder.

`huggingface_hub <https://huggingface.co/docs/huggingface_hub>`_ resumes what was cut off, keeps what it has fetched,
and honours HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE. The configuration comes first, so that an architecture
that we lack is refused before any weight is fetched; the weights come last, so that where they are all is. The commit
is looked up once: a model that changes meanwhile is not mixed from two.
"""

import re
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

from nanoeuler.console import is_terminal
from nanoeuler.errors import UserError
from nanoeuler.files import sha256_of_file
from nanoeuler.hub_trouble import MODEL, Patience
from nanoeuler.tokenizer.files import read_json
from nanoeuler.weights.directory import INDEX, MODEL_CONFIG, PICKLES, WEIGHTS, pickle_message, read_model_config

#: owner/name, or owner/name@revision.
ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?", re.ASCII)
#: Seconds before each new attempt; the library has attempts of its own besides.
PAUSES = (1.0, 4.0)
#: What stands beside the weights and is wanted: tokenizers of every kind, and what ends a generation.
SMALL = (
    "generation_config.json",
    "chat_template.jinja",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "*.tiktoken",
    "nanoeuler_tokenizer.json",
)
#: Files that are weights of a kind that is not fetched, besides pickles.
OTHER_WEIGHTS = ("*.gguf", "*.h5", "*.msgpack", "*.safetensors")


def is_model_id(text: str) -> bool:
    """Return whether a text has the form of a hub's id.

    >>> is_model_id("owner/name"), is_model_id("owner/name@main"), is_model_id("a/b/c"), is_model_id("./name")
    (True, True, False, False)
    """
    return bool(ID.fullmatch(text)) and not text.startswith(".")


def find_model(model_id: str, weights: bool = True) -> Path:
    """Return the folder that a model of the hub is in, having fetched what was not there.

    Args:
        model_id: owner/name, or owner/name@revision.
        weights: False leaves them at the hub, for a look at the configuration and the tokenizer.

    Raises:
        UserError: huggingface_hub is not installed; the hub is away, knows no such model or does not let us have it;
            the model is of an architecture that we lack, or has no weights in safetensors.
    """
    match = ID.fullmatch(model_id)
    if not match:
        raise UserError(f"'{model_id}' is not the id of a model: that is owner/name, or owner/name@revision")
    model = _Model(match["name"], match["revision"])
    kept = model.kept()
    names = model.names(patiently=kept is None)
    if kept and names is None:
        return kept
    return model.fetch(names or [], weights)


class _Model:
    """A model at a revision: at first a branch or None, and once its configuration is here the commit of that."""

    def __init__(self, name: str, revision: str | None) -> None:
        self.name, self.revision = name, revision
        self.hub = _library(name)
        self.patience = Patience(name, revision, MODEL, pauses=PAUSES)

    def kept(self) -> Path | None:
        """Return the folder in the cache if all weights are there."""
        try:
            config = self.hub.hf_hub_download(self.name, MODEL_CONFIG, revision=self.revision, local_files_only=True)
        except self.hub.utils.LocalEntryNotFoundError:
            return None
        folder = Path(config).parent
        if not (folder / WEIGHTS).exists():
            try:
                _shards(folder / INDEX, [path.name for path in folder.iterdir()])
            except UserError:  # no index, or not all that it speaks of
                return None
        return folder

    def names(self, patiently: bool) -> list[str] | None:
        """Return the names of the model's files at the hub; None where it does not say them and we are not patient."""

        def ask() -> list[str]:
            info = self.hub.HfApi().model_info(self.name, revision=self.revision)
            return sorted(sibling.rfilename for sibling in info.siblings)

        if patiently:
            return self.patience.attempt(ask)
        try:
            return ask()
        except Exception:  # whatever the hub says now: a model that was once let to us is here
            return None

    def fetch(self, names: list[str], weights: bool) -> Path:
        """Fetch the configuration, then the other small files, then the weights; return the folder."""
        self.patience.is_known = True
        if MODEL_CONFIG not in names:
            raise UserError(f"{self.name}: it has no {MODEL_CONFIG}, so it is no model that can be loaded")
        config = self._download(MODEL_CONFIG)
        try:
            read_model_config(config.parent)
        except UserError as error:
            raise UserError(f"{self.name}: {str(error).removeprefix(f'{config}: ')}") from None
        self.revision = config.parent.name
        for name in _matching(names, SMALL):
            self._download(name)
        if weights and WEIGHTS in names:
            self._download_weights(WEIGHTS)
        elif weights and INDEX in names:
            for name in _shards(self._download(INDEX), names):
                self._download_weights(name)
        elif weights:
            raise UserError(_no_weights(self.name, names))
        return config.parent

    def _download(self, file: str) -> Path:
        """Return the path of a file of the model, which is fetched unless it is in the cache."""
        download = self.hub.hf_hub_download
        return Path(self.patience.attempt(lambda: download(self.name, file, revision=self.revision)))

    def _download_weights(self, file: str) -> None:
        """Fetch a file of weights; what has just come is held against its SHA-256, which the cache names it by."""
        cached = self.hub.try_to_load_from_cache(self.name, file, revision=self.revision)
        path = self._download(file)
        kept = path.resolve()
        if isinstance(cached, str) or not re.fullmatch("[0-9a-f]{64}", kept.name):
            return
        if (found := sha256_of_file(kept)) != kept.name:
            kept.unlink()
            path.unlink(missing_ok=True)
            raise UserError(
                f"{self.name}: {file} was damaged on its way: its sha256 is {found}, and the hub says {kept.name}; "
                "it was removed, and the same command fetches it again"
            )


def _shards(index: Path, names: list[str]) -> list[str]:
    """Return the files that an index speaks of.

    Raises:
        UserError: it is damaged, or one of them is not among the names.
    """
    record = read_json(index)
    table = record.get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(file, str) for file in table.values()):
        raise UserError(f"{index}: damaged: it has no weight_map that says which file each tensor is in")
    shards = sorted(set(table.values()))
    for shard in shards:
        if shard not in names:
            raise UserError(f"{index}: it speaks of {shard}, and there is no such file")
    return shards


def _no_weights(name: str, files: list[str]) -> str:
    """Return what there is instead of weights in safetensors, and what to do."""
    if pickles := _matching(files, PICKLES):
        return pickle_message(name, pickles[0])
    others = _matching(files, OTHER_WEIGHTS)
    return f"{name}: no {WEIGHTS} in it; {others[0]} is not read from here" if others else f"{name}: no weights in it"


def _matching(files: list[str], patterns: tuple[str, ...]) -> list[str]:
    return [file for file in files if any(fnmatch(file, pattern) for pattern in patterns)]


def _library(name: str) -> Any:
    """Return the module huggingface_hub, with bars on a terminal alone, and with words left to us."""
    try:
        hub = import_module("huggingface_hub")
        import_module("huggingface_hub.utils")  # an attribute of it only then
    except ImportError:
        raise UserError(f"{name}: fetching it from the hub takes huggingface_hub: pip install -e '.[hub]'") from None
    hub.utils.logging.set_verbosity(hub.utils.logging.CRITICAL)
    if not is_terminal(sys.stderr):
        hub.utils.disable_progress_bars()
    return hub

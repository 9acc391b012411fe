"""The tokenizers of model families: ids as Hugging Face's library gives them, and files that travel byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import AWKWARD, TEXT

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import load_tokenizer

pytest.importorskip("tokenizers", reason="the oracle of these tests is tokenizers")
from tokenizer.families import CHATML, FAMILIES, characters, qwen

BYTE_LEVEL = ("llama3", "qwen", "smollm", "nemo")
every_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp("family") / "model") for name, make in FAMILIES.items()}


def theirs(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


TEXTS = st.one_of(
    st.text(),
    st.sampled_from(["so quickly", "zqzq zqzqz"]),
    st.text("  \n\tthe▁quick0123٣'s.é́e東🚀"),
    st.sampled_from([TEXT, *AWKWARD, "a\u0301\u0327 Å ﬁ"]),
)


@every_family
@settings(max_examples=250, deadline=None)
@given(text=TEXTS)
def test_ids_are_those_of_their_library(family: str, folders: dict[str, Path], text: str) -> None:
    ours, other = cached(folders[family])
    ids = ours.encode(text, "all").tolist()
    assert ids == other.encode(text, add_special_tokens=False).ids
    if family != "qwen" and not any(token in text for token in ours.special):  # Qwen's changes text
        assert ours.decode(ids if family in BYTE_LEVEL else [ours.bos, *ids]) == undone(family, text)


def undone(family: str, text: str) -> str:
    """Return what a text is once it has been ids: in the vocabularies of characters ▁ is a space."""
    if not family.startswith(("llama2", "m")):
        return text
    text = text.replace("▁", " ")
    return text.removeprefix(" ") if family in ("mistral", "metaspace always", "metaspace never") else text


CACHE: dict[Path, Any] = {}


def cached(folder: Path) -> Any:
    if folder not in CACHE:
        CACHE[folder] = load_tokenizer(folder), theirs(folder)
    return CACHE[folder]


@every_family
def test_special_tokens_within_a_text(family: str, folders: dict[str, Path]) -> None:
    ours, other = cached(folders[family])
    token = list(ours.special)[-1]
    for text in (f"the{token}quick", f"{token} the {token}", token, f"a {token}{token}b", f" {token}"):
        assert ours.encode(text, "all").tolist() == other.encode(text, add_special_tokens=False).ids, text
        assert ours.special[token] not in ours.encode(text).tolist()


@every_family
def test_what_a_text_begins_with(family: str, folders: dict[str, Path]) -> None:
    ours, other = cached(folders[family])
    assert [*ours.prefix, *ours.encode("the").tolist()] == other.encode("the").ids
    assert bool(ours.prefix) == (family not in ("qwen", "smollm"))


def test_begin_and_end(folders: dict[str, Path]) -> None:
    names = {}
    for family, folder in folders.items():
        tokenizer = load_tokenizer(folder)
        name_of = {i: token for token, i in tokenizer.special.items()}
        names[family] = [name_of.get(i) for i in (tokenizer.bos, tokenizer.eos, tokenizer.end_of_text)]
    assert names["llama3"] == ["<|begin_of_text|>", "<|end_of_text|>", "<|begin_of_text|>"]
    assert names["qwen"] == [None, "<|im_end|>", "<|im_end|>"]
    assert names["smollm"] == ["<|im_start|>", "<|im_end|>", "<|im_end|>"]
    assert names["llama2"] == names["mistral"] == ["<s>", "</s>", "<s>"]


@every_family
def test_saved_and_loaded_with_all_files(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders[family]
    tokenizer = load_tokenizer(folder)
    tokenizer.save(tmp_path)
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    again = load_tokenizer(tmp_path)
    for key in (
        "fingerprint",
        "vocab_size",
        "prefix",
        "bos",
        "eos",
        "end_of_text",
        "chat_template",
        "files",
        "special",
    ):
        assert getattr(again, key) == getattr(tokenizer, key), key
    again.save(tmp_path / "twice")
    assert load_tokenizer(tmp_path / "twice").fingerprint == tokenizer.fingerprint


@every_family
def test_transformers_loads_what_we_save(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    ours = load_tokenizer(folders[family])
    ours.save(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the quick", "  two", "é東🚀"):
        assert loaded(text)["input_ids"] == [*ours.prefix, *ours.encode(text).tolist()]


def test_fingerprints_differ_and_go_to_other_processes(folders: dict[str, Path]) -> None:
    import pickle

    prints = {load_tokenizer(folder).fingerprint for folder in folders.values()}
    assert len(prints) == len(folders)
    tokenizer = load_tokenizer(folders["qwen"])
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode("e\u0301").tolist() == tokenizer.encode("\u00e9").tolist()
    assert again.fingerprint == tokenizer.fingerprint


@every_family
def test_a_copy_for_another_process_is_the_same(family: str, folders: dict[str, Path]) -> None:
    import pickle

    tokenizer = load_tokenizer(folders[family])
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode("the quick").tolist() == tokenizer.encode("the quick").tolist()
    for key in ("prefix", "bos", "eos", "end_of_text", "chat_template", "token_names", "files", "fingerprint"):
        assert getattr(again, key) == getattr(tokenizer, key), key


@every_family
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_text_of_ids_is_theirs(family: str, folders: dict[str, Path], text: str) -> None:
    ours, other = cached(folders[family])
    ids = ours.encode(text, "all").tolist()
    expected = other.decode(ids, skip_special_tokens=False)
    assert ours.decode(ids if family in BYTE_LEVEL else [ours.bos, *ids]) == expected


@every_family
def test_a_file_of_another_name(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folders[family])
    (tmp_path / "mine.json").write_bytes(tokenizer.files["tokenizer.json"])
    named = load_tokenizer(tmp_path / "mine.json")
    named.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == named.fingerprint == tokenizer.fingerprint
    assert (tmp_path / "saved" / "tokenizer.json").read_bytes() == tokenizer.files["tokenizer.json"]


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_special_tokens_that_take_text_beside_them_are_refused(flag: str, tmp_path: Path) -> None:
    from tokenizer.families import llama2

    edited(llama2(tmp_path), "tokenizer.json", lambda record: record["added_tokens"][2].update({flag: True}))
    with pytest.raises(UserError, match=f"takes text beside it .{flag}"):
        load_tokenizer(tmp_path)


def edited(folder: Path, name: str, change: Any) -> Path:
    record = json.loads((folder / name).read_text("utf-8"))
    change(record)
    (folder / name).write_text(json.dumps(record), encoding="utf-8")
    return folder


def test_the_template_in_a_file_of_its_own_wins(tmp_path: Path) -> None:
    assert load_tokenizer(qwen(tmp_path)).chat_template == CHATML
    named = [{"name": ["x"]}, {"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]
    assert (
        load_tokenizer(edited(tmp_path, "tokenizer_config.json", lambda c: c.update(chat_template=named))).chat_template
        == "b"
    )
    (tmp_path / "chat_template.jinja").write_text("c", encoding="utf-8")
    assert load_tokenizer(tmp_path).chat_template == "c"


def test_special_tokens_of_the_older_file(tmp_path: Path) -> None:
    edited(qwen(tmp_path), "tokenizer_config.json", lambda config: config.pop("eos_token"))
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}', encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.eos == tokenizer.special["<|endoftext|>"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("tokenizer_config.json", lambda c: c.update(eos_token=[1]), "a special token is"),
        ("tokenizer_config.json", lambda c: c.update(chat_template=7), "chat_template is int"),
        ("tokenizer.json", lambda t: t["post_processor"].update(single=7), "post_processor is damaged"),
        ("tokenizer.json", lambda t: t["post_processor"].update(single=[{"SpecialToken": {"id": "x"}}]), "post_proc"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].pop("<0x7F>"), "byte_fallback without the token '<0x7F>'"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].update({"<0x7F>": "x"}), "not all that a tokenizer.json has"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].update({"<0x7F>": 2**40}), "not all that a tokenizer.json"),
        ("tokenizer.json", lambda t: t["model"]["merges"].append(["t", "zzz"]), "needs the token 'zzz'"),
        ("tokenizer_config.json", lambda c: c.update(chat_template=[{"name": "default", "template": 7}]), "is int"),
        ("tokenizer.json", lambda t: t.update(added_tokens=[7]), "not all that a tokenizer.json has"),
        ("tokenizer.json", lambda t: t["added_tokens"][1].update(id=7), "'<s>' has another id in the vocabulary"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].update(zz=300), "two tokens with one id"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].update({"\ud800": 900}), "not all that a tokenizer.json has"),
        ("tokenizer.json", lambda t: t["model"]["vocab"].update({"": 900}), "not all that a tokenizer.json has"),
        ("tokenizer.json", lambda t: t["model"]["merges"].append(7), "not all that a tokenizer.json has"),
        ("tokenizer.json", lambda t: t["model"].update(dropout=0.1), "dropout is 0.1"),
        ("tokenizer.json", lambda t: t.update(normalizer={"type": "NFKC"}), "in another way than Llama 2's"),
        ("tokenizer.json", lambda t: t.update(pre_tokenizer={"type": "Metaspace", "replacement": "_"}), "another way"),
    ],
)  # fmt: skip
def test_damage_is_named(name: str, change: Any, said: str, tmp_path: Path) -> None:
    from tokenizer.families import llama2

    edited(llama2(tmp_path), name, change)
    with pytest.raises(UserError, match=said) as error:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_metaspace_that_splits_is_refused(tmp_path: Path) -> None:
    characters(tmp_path, None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})
    with pytest.raises(UserError, match="with split false"):
        load_tokenizer(tmp_path)

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import AWKWARD, texts

from nanoeuler.download import cache_folder
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import BPETokenizer, GPT2Tokenizer, gpt2, load_tokenizer, make_tokenizer
from nanoeuler.tokenizer.alphabet import to_characters

FILES = Path(os.environ.get("NANOEULER_DATA", "."), "gpt2_bpe").absolute()
pytestmark = pytest.mark.skipif(
    not (FILES / "encoder.json").exists() or not (FILES / "vocab.bpe").exists(),
    reason="NANOEULER_DATA does not name a folder with gpt2_bpe/encoder.json and gpt2_bpe/vocab.bpe",
)

#: Of checkpoints made before GPT-2's tokenizer was one of many.
OLD_FINGERPRINT = "f98bff6973b555a54f1159c2254b827e7f8b8412ba4909de208a573f5ec35dc6"
#: As in the code that came with GPT-2.
PUBLISHED = r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


@pytest.fixture(scope="module")
def tokenizer() -> GPT2Tokenizer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NANOEULER_DATA", str(FILES.parent))
        return make_tokenizer("gpt2", "")


@pytest.fixture(scope="module", params=["published", "tiktoken's"])
def oracle(request) -> tiktoken.Encoding:
    """Give tiktoken's encoding, built by its own reader from OpenAI's two files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")  # or else it would leave copies in the system's temporary folder
        ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(str(FILES / "vocab.bpe"), str(FILES / "encoder.json"))
    own = getattr(tiktoken_ext.openai_public, "r50k_pat_str", PUBLISHED)
    pattern = PUBLISHED if request.param == "published" else own
    special = {"<|endoftext|>": 50256}
    return tiktoken.Encoding(
        "oracle", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special, explicit_n_vocab=50257
    )


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: ascii(text[:20]))
def test_ids_are_tiktokens(tokenizer, oracle, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == oracle.encode_ordinary(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.end_of_text not in ids


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from(" \n\t\x1c\u00a0ab'slé1½_.😀")) | st.text())
def test_ids_are_tiktokens_on_any_text(tokenizer, oracle, text):
    assert tokenizer.encode(text).tolist() == oracle.encode_ordinary(text)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("  \n\x1c\u00a0\u3000\u0085a's1!")) | st.text())
def test_where_tiktoken_fails_ids_are_the_same(tokenizer, oracle, text):
    assert list(tokenizer._ranks_by_piece(text)) == oracle.encode_ordinary(text)


@pytest.mark.parametrize("end", ["", "b"])
@pytest.mark.parametrize("space", [" ", "\t", "\n", "\u3000"], ids=ascii)
def test_a_million_spaces_do_not_end_the_program(tokenizer, space, end):
    """On these tiktoken's regular expressions fail; cuts are where they are in a shorter run."""
    text = "a" + space * 1_200_000 + end
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    few = tokenizer.encode("a" + space * 1_200 + end)
    assert ids[:500].tolist() == few[:500].tolist()
    assert ids[-2:].tolist() == few[-2:].tolist()


def test_the_definition_gives_the_same_ids(tokenizer):
    text = " ".join(AWKWARD)
    assert tokenizer.encode_definition(text).tolist() == tokenizer.encode(text).tolist()


def test_merges_are_those_that_openai_published(tokenizer):
    lines = (FILES / "vocab.bpe").read_text("utf-8").splitlines()[1:]
    written = [" ".join(to_characters(tokenizer.tokens[i]) for i in pair) for pair in tokenizer.merges]
    assert written == lines


@pytest.mark.parametrize("name", ["", "encoder.json", "vocab.bpe"])
def test_from_the_published_files_it_is_the_same(tokenizer, name):
    loaded = load_tokenizer(FILES / name)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.end_of_text == 50256


def test_every_id_decodes(tokenizer, oracle):
    assert tokenizer.vocab_size == 50257
    assert tokenizer.end_of_text == 50256
    for i in range(50257):
        assert tokenizer.decode_bytes([i]) == oracle.decode_bytes([i])
    assert tokenizer.decode([50256]) == "<|endoftext|>"
    euro = tokenizer.encode("🇪🇺")
    assert len(euro) > 1
    assert tokenizer.decode(euro[:1]) == "\ufffd"


def test_what_is_not_unicode(tokenizer):
    with pytest.raises(UserError, match=r"U\+D83D at position 1"):
        tokenizer.encode("a\ud83d")


@pytest.fixture
def nowhere(empty_world, tmp_path, monkeypatch) -> list[str]:
    """Have no vocabulary at hand and no network; give the list of URLs asked for."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "tiktoken"))
    asked: list[str] = []

    def no_network(url: str, *_: object) -> None:
        asked.append(url)
        raise UserError(f"{url}: no network")

    monkeypatch.setattr(gpt2, "fetch", no_network)
    return asked


def test_nowhere_is_an_error_that_names_the_ways(nowhere):
    with pytest.raises(UserError, match="no network") as error:
        make_tokenizer("gpt2", "")
    for way in ("NANOEULER_DATA", "gpt2_bpe/encoder.json", "--data.tokenizer_path FOLDER", str(cache_folder())):
        assert way in str(error.value)
    assert len(nowhere) == 1


def test_in_our_cache_or_fetched_into_it(tokenizer, nowhere, monkeypatch):
    def fetch(url: str, path: Path, sha256: str, patience: float) -> None:
        assert hashlib.sha256(tokenizer.rank_file).hexdigest() == sha256
        tokenizer.save(path.parent)

    with monkeypatch.context() as patch:
        patch.setattr(gpt2, "fetch", fetch)
        assert make_tokenizer("gpt2", "").fingerprint == tokenizer.fingerprint
    assert make_tokenizer("gpt2", "").fingerprint == tokenizer.fingerprint
    assert nowhere == []
    (cache_folder() / "gpt2.tiktoken").write_bytes(tokenizer.rank_file[:-1])
    with pytest.raises(UserError, match="no network"):
        make_tokenizer("gpt2", "")  # a damaged copy in the cache is fetched again
    assert len(nowhere) == 1


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", None])
def test_in_tiktokens_cache(tokenizer, nowhere, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    folder = tmp_path / "data-gym-cache"
    if variable:
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder.mkdir()
    copy = folder / hashlib.sha1(gpt2.ENCODER_URL.encode()).hexdigest()
    shutil.copy(FILES / "encoder.json", copy)
    assert make_tokenizer("gpt2", "").fingerprint == tokenizer.fingerprint
    assert nowhere == []

    copy.write_bytes(b"damaged")  # tiktoken itself would delete it now
    with pytest.raises(UserError, match="no network"):
        make_tokenizer("gpt2", "")
    assert copy.read_bytes() == b"damaged"


def test_a_damaged_file_of_the_users_is_named_and_left_alone(nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("NANOEULER_DATA", str(tmp_path))
    file = tmp_path / "gpt2_bpe" / "encoder.json"
    file.parent.mkdir()
    damaged = (FILES / "encoder.json").read_bytes()[:-1]
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=f"expected {gpt2.ENCODER_SHA256}") as error:
        make_tokenizer("gpt2", "")
    assert str(file) in str(error.value)
    assert file.read_bytes() == damaged
    assert nowhere == []


def test_saved_it_needs_nothing_else(tokenizer, nowhere, tmp_path):
    tokenizer.save(tmp_path / "run")
    for loaded in (load_tokenizer(tmp_path / "run"), make_tokenizer(str(tmp_path / "run"), "")):
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode(AWKWARD[5]).tolist() == tokenizer.encode(AWKWARD[5]).tolist()


def test_saved_before_there_were_other_files_it_still_loads(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"tokenizer.json", "tokenizer_config.json", "gpt2.tiktoken"}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    record = {"version": 1, "kind": "gpt2", "fingerprint": OLD_FINGERPRINT}
    (tmp_path / "nanoeuler_tokenizer.json").write_text(json.dumps(record))
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, GPT2Tokenizer)
    assert loaded.fingerprint == BPETokenizer(tokenizer.merges).fingerprint == OLD_FINGERPRINT


def test_transformers_loads_the_saved_folder(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in AWKWARD:
        assert theirs(text).input_ids == tokenizer.encode(text, allowed_special="all").tolist()


@pytest.fixture(scope="module")
def huggingface(tokenizer, tmp_path_factory):
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers is not installed")
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@settings(max_examples=300, deadline=None)
@given(text=texts())
def test_hugging_faces_library_gives_the_same_ids_from_what_we_write(tokenizer, huggingface, text):
    assert huggingface.encode(text).ids == tokenizer.encode(text).tolist()


def test_the_saved_ranks_are_in_tiktokens_format(tokenizer, oracle, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    tokenizer.save(tmp_path)
    assert tiktoken.load.load_tiktoken_bpe(str(tmp_path / "gpt2.tiktoken")) == oracle._mergeable_ranks


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read"), (b"", "not the ranks of GPT-2"), (b"IQ== 0\n", "not the ranks of GPT-2")],
)
def test_damaged_saved_ranks(tokenizer, tmp_path, content, said):
    tokenizer.save(tmp_path)
    file = tmp_path / "gpt2.tiktoken"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        load_tokenizer(tmp_path)
    assert str(file) in str(error.value)

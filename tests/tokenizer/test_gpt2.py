import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoeuler.corpus.download import cache_folder
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import GPT2Tokenizer, gpt2, load_tokenizer, make_tokenizer

FILES = Path(os.environ.get("NANOEULER_DATA", "."), "gpt2_bpe").absolute()
pytestmark = pytest.mark.skipif(
    not (FILES / "encoder.json").exists() or not (FILES / "vocab.bpe").exists(),
    reason="NANOEULER_DATA does not name a folder with gpt2_bpe/encoder.json and gpt2_bpe/vocab.bpe",
)

#: As in the code that came with GPT-2.
PUBLISHED = r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

AWKWARD = [
    "",
    " ",
    "Hello, world!",
    "<|endoftext|>",
    "a<|endoftext|>\n<|endoftext|> b",
    "I'll don't we've he'd they're O'S 'S ''s",
    "   leading and trailing   ",
    "\n\n\n  \n\t\r\n tabs\t\tand\r\nlines\n",
    "x\u00a0y\u2003z\u3000\u2028\u0085w \x1c\x1f x",
    "naïve café e\u0301 ﬁ ß İ",
    "日本語のテキスト 한국어 العربية हिन्दी",
    "😀👩‍👩‍👧‍👦🇪🇺 \U0010ffff\ufeff\ufffd",
    "1234567890 ½ ² ⅷ ١٢٣ 3.14e-10",
    "\0\x01\x7f\x80",
    "a" * 5000,
    "!" * 5000 + " " * 5000,
    " " * 5000 + "x",
    "def f(x):\n        return x  # comment\n",
]


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


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_ids_are_tiktokens(tokenizer, oracle, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == oracle.encode_ordinary(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.end_of_text not in ids


@settings(max_examples=200)
@given(text=st.text(alphabet=st.sampled_from(" \n\t\x1c\u00a0ab'slé1½_.😀")) | st.text())
def test_ids_are_tiktokens_on_any_text(tokenizer, oracle, text):
    assert tokenizer.encode(text).tolist() == oracle.encode_ordinary(text)


@settings(max_examples=200)
@given(text=st.text(alphabet=st.sampled_from("  \n\x1c\u00a0\u3000\u0085a's")))
def test_long_runs_of_space_are_cut_where_the_pattern_cuts(tokenizer, oracle, text):
    with pytest.MonkeyPatch.context() as patch:  # let three characters be long
        patch.setattr(gpt2, "LONG_SPACE", re.compile(gpt2.LONG_SPACE.pattern.replace("100000", "3"), re.DOTALL))
        assert tokenizer.encode(text).tolist() == oracle.encode_ordinary(text)


def test_a_million_spaces_do_not_end_the_program(tokenizer):
    text = "a" + " " * 1_200_000 + "b"  # tiktoken alone panics here
    assert tokenizer.decode(tokenizer.encode(text)) == text


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
def nowhere(tmp_path, monkeypatch) -> list[str]:
    """Have no vocabulary at hand and no network; give the list of URLs asked for."""
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("NANOEULER_DATA", raising=False)
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

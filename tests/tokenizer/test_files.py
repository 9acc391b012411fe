"""vocab.json + merges.txt, encoder.json + vocab.bpe, and rank files; and which file of a folder is read."""

import base64
import json

import pytest
import tiktoken.load
from hypothesis import given, settings
from tokenizer.byte_pairs import learn
from tokenizer.texts import AWKWARD, TEXT, texts

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import BPETokenizer, load_tokenizer, make_tokenizer
from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.patterns import PATTERNS
from nanoeuler.tokenizer.ranks import PUBLISHED, read_ranks, write_ranks
from nanoeuler.tokenizer.vocab_merges import NAMES, read_vocab_merges, write_vocab_merges

MERGES = learn(TEXT, 60)


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return BPETokenizer(MERGES, special={"<|endoftext|>": 256 + len(MERGES), "[PAD]": 257 + len(MERGES)})


@pytest.fixture(params=NAMES)
def pair(request, tokenizer, tmp_path):
    return write_vocab_merges(tmp_path, tokenizer, request.param)


def test_two_files_there_and_back(tokenizer, pair):
    vocab, merges = pair
    assert merges.read_text("utf-8").startswith("#version: 0.2\n")
    for path in (vocab.parent, vocab, merges):
        assert load_tokenizer(path).fingerprint == tokenizer.fingerprint
    assert load_tokenizer(vocab).special == tokenizer.special


def test_lines_may_end_as_on_windows_and_the_version_is_optional(tokenizer, pair):
    vocab, merges = pair
    lines = merges.read_bytes().splitlines()[1:]
    merges.write_bytes(b"\r\n".join(lines) + b"\r\n\r\n")
    assert load_tokenizer(vocab).fingerprint == tokenizer.fingerprint


def test_transformers_reads_the_two_files(tokenizer, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers is not installed")
    vocab, merges = write_vocab_merges(tmp_path, tokenizer)
    theirs = tokenizers.ByteLevelBPETokenizer(str(vocab), str(merges))
    for text in AWKWARD:
        assert theirs.encode(text).ids == tokenizer.encode(text).tolist()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Q Q", r":3: the merge of 'Q' and 'Q' needs the token 'QQ'"),
        ("Q", ":3: a merge is two tokens"),
        ("a b c", ":3: a merge is two tokens"),
        ("a  b", ":3: a merge is two tokens"),
        ("\x00 a", ":3: the merge of '\\\\x00' and 'a' needs"),
    ],
)
def test_a_damaged_line_of_merges_is_named(pair, line, said):
    vocab, merges = pair
    lines = merges.read_text("utf-8").split("\n")
    merges.write_text("\n".join([*lines[:2], line, *lines[2:]]), "utf-8")
    with pytest.raises(UserError, match=merges.name + said):
        load_tokenizer(vocab)


def test_merges_cut_off_or_missing(pair):
    vocab, merges = pair
    text = merges.read_text("utf-8")
    merges.write_text(text[: len(text) // 2], "utf-8")
    with pytest.raises(UserError, match=r"no merge makes the token|needs the token|two tokens"):
        load_tokenizer(vocab)
    merges.unlink()
    with pytest.raises(UserError, match=f"{merges.name}: cannot read it: No such file"):
        load_tokenizer(vocab.parent)


def test_a_vocabulary_that_is_damaged(pair):
    vocab, _ = pair
    good = vocab.read_text("utf-8")
    for damaged, said in [
        (good[:50], ":1: damaged or cut off"),
        (good.replace('"!": 0', '"!": 1', 1), "both have id 1"),
        (good.replace('"!": 0, ', "", 1), "no token for byte 0x21"),
        (good.replace('"!": 0', '"\\"": 0', 1), "is there twice"),
        (good.replace('"!": 0', '"!": -1', 1), "id of '!' is -1"),
        (good.replace('"!": 0', '"!": 1e9', 1), "id of '!' is 1000000000.0"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
    ]:
        assert damaged != good
        vocab.write_text(damaged, "utf-8")
        with pytest.raises(UserError, match=said) as error:
            load_tokenizer(vocab)
        assert str(vocab) in str(error.value)


def test_formats_that_cannot_hold_a_tokenizer(tmp_path):
    without = BPETokenizer.from_ranks([*BYTES, b"abcd"], "gpt2", {})
    with pytest.raises(UserError, match="tokens that no merge makes"):
        write_vocab_merges(tmp_path, without)
    with pytest.raises(UserError, match="no place for a pattern"):
        write_vocab_merges(tmp_path, BPETokenizer([], "gpt4"))
    with pytest.raises(UserError, match="cannot say that 'end' is a special token"):
        write_vocab_merges(tmp_path, BPETokenizer([], special={"end": 256}))
    with pytest.raises(UserError, match="cannot say that '<>' is a special token"):
        write_vocab_merges(tmp_path, BPETokenizer([(27, 29)], special={"<>": 257}))  # the merge makes <> too
    tokens = BPETokenizer(MERGES[:2]).tokens
    with pytest.raises(UserError, match="not in the order"):
        write_ranks(tmp_path / "x.tiktoken", BPETokenizer.from_ranks(tokens, "gpt2", {}, [*range(256), 257, 256]))
    assert list(tmp_path.iterdir()) == []


def test_ranks_there_and_back_and_tiktoken_agrees(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    (path,) = write_ranks(tmp_path / "x.tiktoken", tokenizer)
    assert read_ranks(str(path), "gpt2", tokenizer.special).fingerprint == tokenizer.fingerprint
    loaded = read_ranks(path, "gpt2")
    assert loaded.special == {"<|endoftext|>": tokenizer.end_of_text}
    assert loaded.merges == tokenizer.merges
    ranks = tiktoken.load.load_tiktoken_bpe(str(path))
    theirs = tiktoken.Encoding("x", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={})
    for text in AWKWARD:
        assert loaded.encode(text).tolist() == theirs.encode_ordinary(text)


def test_ranks_whose_pattern_nobody_knows_are_not_guessed_at(tmp_path):
    tokenizer = BPETokenizer(MERGES, "gpt4", {"<|end|>": 999})
    (path,) = write_ranks(tmp_path / "x.tiktoken", tokenizer)
    for place in (path, tmp_path):
        with pytest.raises(UserError, match="does not say by which pattern") as error:
            load_tokenizer(place)
        assert f"read_ranks({str(path)!r}, pattern=" in str(error.value)
    BPETokenizer(MERGES, "gpt2").save(tmp_path / "other")
    record = tmp_path / "nanoeuler_tokenizer.json"
    record.write_bytes((tmp_path / "other" / record.name).read_bytes())
    assert load_tokenizer(path).pattern == PATTERNS["gpt2"]  # as our own file beside it says of these very ranks
    make_tokenizer("byte", "").save(tmp_path)
    with pytest.raises(UserError, match="does not say by which pattern"):
        load_tokenizer(path)
    BPETokenizer(MERGES[:-1], "gpt2").save(tmp_path)
    with pytest.raises(UserError, match="does not say by which pattern"):
        load_tokenizer(path)


def test_what_is_known_of_published_ranks_is_what_tiktoken_says(monkeypatch):
    def ranks_by_hash(url, expected_hash):
        return expected_hash

    public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", ranks_by_hash)
    for name in ("p50k_base", "cl100k_base", "o200k_base"):
        theirs = public.ENCODING_CONSTRUCTORS[name]()
        assert PUBLISHED[theirs["mergeable_ranks"]][1] == theirs["special_tokens"], name


@pytest.fixture(scope="module")
def scattered():
    """Give a tokenizer whose ids leave others out, and tiktoken's."""
    tokens = BPETokenizer(MERGES).tokens
    ids = [*range(300, 300 + 256), *range(600, 600 + len(MERGES))]
    theirs = tiktoken.Encoding(
        "x", pat_str=PATTERNS["gpt4"], mergeable_ranks=dict(zip(tokens, ids, strict=True)), special_tokens={"<a>": 5}
    )
    return BPETokenizer.from_ranks(tokens, "gpt4", {"<a>": 5}, ids), theirs


@settings(max_examples=200, deadline=None)
@given(text=texts())
def test_ids_may_be_anything(scattered, text):
    ours, theirs = scattered
    assert ours.encode(text).tolist() == theirs.encode_ordinary(text)
    assert ours.encode(text + "<a>", "all").tolist() == theirs.encode(text + "<a>", allowed_special="all")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", ":4: damaged: a line is a token in base64"),
        (b"QQ==", ":4: damaged"),
        (b"QQ== x", ":4: damaged"),
        (b"QQ== -1", ":4: damaged"),
        (b"Q 999", ":4: damaged"),
        (b"\xff\xff 999", ":4: damaged"),
        (b" 999", ":4: damaged"),
        (b"QUFB 1", ":4: the rank 1 is there a second time"),
        (b"IQ== 999", ":4: the token '!' is there a second time"),
        (b"QUFB 99999999999", "ids are whole numbers"),
    ],
)
def test_a_damaged_line_of_ranks_is_named(tokenizer, tmp_path, line, said):
    (path,) = write_ranks(tmp_path / "x.tiktoken", tokenizer)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(UserError, match=said) as error:
        read_ranks(path, "gpt2")
    assert str(path) in str(error.value)


def test_a_byte_that_is_missing(tokenizer, tmp_path):
    (path,) = write_ranks(tmp_path / "x.tiktoken", tokenizer)
    path.write_bytes(path.read_bytes().replace(base64.b64encode(b"a") + b" ", base64.b64encode(b"ZZZZ") + b" "))
    with pytest.raises(UserError, match=r"no token for byte 0x61 \(1 of the 256"):
        read_ranks(path, "gpt2")
    path.write_bytes(b"")
    with pytest.raises(UserError, match="256 of the 256"):
        read_ranks(path, "gpt2")


def test_the_first_kind_in_a_folder_is_read(tokenizer, tmp_path):
    write_ranks(tmp_path / "a.tiktoken", tokenizer)
    write_ranks(tmp_path / "b.tiktoken", tokenizer)
    with pytest.raises(UserError, match=r"several tokenizers: a.tiktoken, b.tiktoken"):
        load_tokenizer(tmp_path)
    write_vocab_merges(tmp_path, BPETokenizer(MERGES[:3]))
    assert load_tokenizer(tmp_path).vocab_size == 260
    BPETokenizer(MERGES[:2]).save(tmp_path)
    (tmp_path / "nanoeuler_tokenizer.json").unlink()
    assert load_tokenizer(tmp_path).vocab_size == 259
    make_tokenizer("byte", "").save(tmp_path)
    assert load_tokenizer(tmp_path).kind == "byte"


@pytest.mark.parametrize("name", ["x.txt", "x.json", "x.bin", "x.tiktoken", "tokenizer.json", "vocab.json"])
def test_files_that_are_no_tokenizers(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(UserError, match=r"no saved tokenizer here|cannot read it"):
        load_tokenizer(path)
    path.write_text("{}")
    with pytest.raises(UserError) as error:
        load_tokenizer(path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("name", ["no\0name", "x" * 5000, "\udc80", ""])
def test_names_that_no_file_can_have(name):
    with pytest.raises(UserError):
        make_tokenizer(name, "")


def test_a_saved_record_that_says_something_else(tmp_path):
    BPETokenizer(MERGES).save(tmp_path)
    path = tmp_path / "nanoeuler_tokenizer.json"
    good = json.loads(path.read_text())
    for change in [
        {"vocab": {}},
        {"vocab": []},
        {"vocab": {**good["vocab"], "a": 1}},
        {"vocab": {**good["vocab"], " ": 900}},
        {"vocab": dict(reversed(good["vocab"].items()))},
        {"vocab": {**good["vocab"], "a": None}},
        {"vocab": {**good["vocab"], "a": 10**20}},
        {"pattern": "gpt4"},
        {"pattern": 7},
        {"pattern": "("},
        {"special": {}},
        {"special": [1]},
        {"special": {"<a>": "x"}},
    ]:
        path.write_text(json.dumps(good | change))
        with pytest.raises(UserError, match="damaged") as error:
            load_tokenizer(tmp_path)
        assert str(path) in str(error.value)


def test_what_cannot_be_written_leaves_nothing(tokenizer, tmp_path):
    (tmp_path / "file").touch()
    for write in (tokenizer.save, lambda out: write_vocab_merges(out, tokenizer)):
        with pytest.raises(UserError, match="cannot write"):
            write(tmp_path / "file" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_read_vocab_merges_takes_a_pattern(tokenizer, tmp_path):
    vocab, merges = write_vocab_merges(tmp_path, tokenizer)
    assert read_vocab_merges(vocab, merges, "gpt4").pattern == PATTERNS["gpt4"]

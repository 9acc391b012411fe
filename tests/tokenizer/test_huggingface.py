"""``tokenizer.json``: what we write, read by tokenizers and transformers, and what they write, read by us."""

import json

import pytest
from hypothesis import given, settings
from tokenizer.byte_pairs import learn
from tokenizer.texts import AWKWARD, TEXT, texts

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import BPETokenizer, load_tokenizer
from nanoeuler.tokenizer.alphabet import BYTES

tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers is not installed")

MERGES = {pattern: learn(TEXT, 150, pattern) for pattern in ("gpt2", "gpt4", "gpt4o")}
NEXT = rf"merges\[{len(MERGES['gpt2'])}\]"


@pytest.fixture(scope="module", params=MERGES)
def tokenizer(request) -> BPETokenizer:
    merges = MERGES[request.param]
    end = 256 + len(merges)
    return BPETokenizer(
        merges, request.param, {"<|endoftext|>": end, "<|im_start|>": end + 1, "<|im_start|>x": end + 9}
    )


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(folder):
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@settings(max_examples=300, deadline=None)
@given(text=texts())
def test_tokenizers_gives_the_same_ids(tokenizer, theirs, text):
    assert theirs.encode(text).ids == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("text", [*AWKWARD, "<|im_start|>x <|im_start|>y<|endoftext|>"], ids=lambda t: ascii(t[:20]))
def test_tokenizers_gives_the_same_ids_and_special_tokens(tokenizer, theirs, text):
    ids = tokenizer.encode(text, allowed_special="all").tolist()
    assert theirs.encode(text).ids == ids
    assert theirs.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)


def test_transformers_loads_the_folder(tokenizer, folder):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs(TEXT).input_ids == tokenizer.encode(TEXT).tolist()
    assert theirs.decode(tokenizer.encode(TEXT)) == TEXT
    assert theirs.eos_token_id == tokenizer.end_of_text
    assert theirs(TEXT + "<|endoftext|>").input_ids == tokenizer.encode(TEXT + "<|endoftext|>", "all").tolist()


def test_transformers_loads_the_folder_of_a_model(tokenizer, folder, tmp_path):
    """Where config.json names an architecture whose own tokenizer is another."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)(TEXT).input_ids == tokenizer.encode(TEXT).tolist()


def test_what_we_write_we_read(tokenizer, folder):
    assert load_tokenizer(folder / "tokenizer.json").fingerprint == tokenizer.fingerprint


@pytest.fixture(scope="module", params=["special first", "special last", "split", "ignore_merges"])
def trained_elsewhere(request, tmp_path_factory):
    """Give a tokenizer as the tokenizers library trains and saves them, and its file."""
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=request.param == "ignore_merges"))
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=request.param != "split")
    theirs.pre_tokenizer = byte_level
    if request.param == "split":
        cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\d{1,2}|\p{L}+|[^\d\p{L}]"), "isolated")
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([cut, byte_level])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<pad>"] if request.param == "special first" else [],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([TEXT], trainer)
    if request.param == "special last":
        theirs.add_special_tokens(["<|endoftext|>"])
    path = tmp_path_factory.mktemp("theirs") / "tokenizer.json"
    theirs.save(str(path))
    return theirs, load_tokenizer(path)


@settings(max_examples=200, deadline=None)
@given(text=texts())
def test_a_file_of_theirs(trained_elsewhere, text):
    theirs, ours = trained_elsewhere
    assert ours.encode(text).tolist() == theirs.encode(text).ids
    assert ours.encode_definition(text).tolist() == theirs.encode(text).ids
    assert ours.vocab_size == theirs.get_vocab_size()


def test_merges_as_pairs_and_as_strings_are_the_same(folder, tokenizer, tmp_path):
    record = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    record["model"]["merges"] = [merge.split(" ") for merge in record["model"]["merges"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(record), "utf-8")
    assert load_tokenizer(path).fingerprint == tokenizer.fingerprint


def test_a_vocabulary_of_ranks_is_written_with_every_pair(tmp_path):
    """As transformers makes Llama 3's from its rank file; we read what we write, and tokenizers agrees."""
    ours = BPETokenizer.from_ranks([*BYTES, b"abcd", b"bc", b"xyz", b"xy", b"yz"], "gpt2", {})
    ours.save(tmp_path)
    record = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert record["model"]["ignore_merges"]
    assert record["model"]["merges"] == ["b c", "x yz", "xy z", "x y", "y z"]
    assert load_tokenizer(tmp_path / "tokenizer.json").fingerprint == ours.fingerprint
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("abcd abcde bc", "xyz wxyz xyzxy"):
        assert theirs.encode(text).ids == ours.encode(text).tolist() == ours.encode_definition(text).tolist()


@pytest.fixture(
    scope="module",
    params=[
        r" ?\p{L}+|\s+|[^\s\p{L}]",
        r"\p{Han}+|\p{L}{1,4}|[\s\S]",
        r"(?<=\s)\d+|(?<!a)b(?=c)|[^\d]+?|\d",
        r"(?:a|b)+?c|\p{N}++|(?!x)[\s\S]{1,2}|x",
        r"(?i:'s|'t|'ll)|[^\r\n]+|[\r\n]{2,}|\n|\r",
        r"[$^.|]+|\.|\$|.|\n",
    ],
)
def cut_by_a_pattern_of_its_own(request, tmp_path_factory):
    tokenizer = BPETokenizer(learn(TEXT, 50), request.param)
    folder = tmp_path_factory.mktemp("own")
    tokenizer.save(folder)
    return tokenizer, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@settings(max_examples=200, deadline=None)
@given(text=texts())
def test_patterns_that_are_written_are_read_alike(cut_by_a_pattern_of_its_own, text):
    ours, theirs = cut_by_a_pattern_of_its_own
    assert theirs.encode(text).ids == ours.encode(text).tolist()


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{N}{1,3}+|\P{N}+",
        r"(?s:.)",
        r"\w+|\W",
        r"\b\p{L}+|[\s\S]",
        r"^a|[\s\S]",
        r"a$|[\s\S]",
        r"(?i:ss)|[\s\S]",
        r"(?i)k|[\s\S]",
        r"(?<=a+)b|[\s\S]",
        r"(?P<a>a)|[\s\S]",
        r"\x61|[\s\S]",
        r"\pL+|\PL",
    ],
)
def test_a_pattern_that_they_would_read_otherwise_is_not_written_for_them(tmp_path, pattern):
    tokenizer = BPETokenizer([], pattern)
    tokenizer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nanoeuler_tokenizer.json"]
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


def change(**settings):
    return lambda record: record["model"].update(settings)


def replace(**parts):
    return lambda record: record.update(parts)


def special(**settings):
    return lambda record: record["added_tokens"][0].update(settings)


def cut_by(*steps):
    return replace(pre_tokenizer={"type": "Sequence", "pretokenizers": list(steps)})


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": "a|[^a]+"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (replace(normalizer={"type": "NFKC"}), "changes text first .normalizer 'NFKC'"),
        (cut_by({"type": "Digits", "individual_digits": False}, BYTE_LEVEL | {"use_regex": True}), "individual_digits"),
        (cut_by({"type": "Digits", "individual_digits": True}, BYTE_LEVEL), "cut what is between"),
        (change(type="Unigram"), "of the kind 'Unigram'"),
        (cut_by(SPLIT | {"pattern": {"Regex": r"(?s:.)"}}, BYTE_LEVEL), r"'\(\?s:\.\)' in the pattern"),
        (change(dropout=0.1), "dropout is 0.1"),
        (change(unk_token="<unk>"), "unk_token is '<unk>'"),
        (change(byte_fallback=True), "byte_fallback without the token '<0x00>'|in another way than Llama 2's"),
        (change(continuing_subword_prefix="##"), "continuing_subword_prefix"),
        (change(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (replace(pre_tokenizer=None), "cut by None"),
        (replace(pre_tokenizer={"type": "Whitespace"}), "cut by 'Whitespace'"),
        (replace(pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": True}), "add_prefix_space"),
        (replace(pre_tokenizer={"type": "ByteLevel"}), "add_prefix_space"),
        (replace(pre_tokenizer=BYTE_LEVEL), "here it is none"),
        (cut_by(SPLIT, BYTE_LEVEL | {"use_regex": True}), "here it is two"),
        (cut_by(SPLIT, SPLIT, BYTE_LEVEL), "cut by 'Split', 'Split', 'ByteLevel'"),
        (cut_by(SPLIT | {"behavior": "Removed"}, BYTE_LEVEL), "behavior Isolated"),
        (cut_by(SPLIT | {"invert": True}, BYTE_LEVEL), "not inverted"),
        (cut_by(SPLIT | {"pattern": {"String": "a"}}, BYTE_LEVEL), "by a Regex"),
        (cut_by(SPLIT | {"pattern": {"Regex": "("}}, BYTE_LEVEL), "pattern"),
        (cut_by(SPLIT | {"pattern": {"Regex": "a$|[^a]+|a"}}, BYTE_LEVEL), r"'\$\|\[\^a\]\+\|a' in the pattern"),
        (special(lstrip=True), "takes text beside it .lstrip"),
        (special(id=3), "another id in the vocabulary than 3"),
        (lambda record: record["model"]["vocab"].update({"<|endoftext|>": 3}), "another id in the vocabulary than"),
        (lambda record: record["model"]["vocab"].pop("a"), "the token 'a', which is not there|byte 0x61"),
        (lambda record: record["model"]["vocab"].update({"a": 5}), "both have id 5"),
        (lambda record: record["model"]["vocab"].update({"a": "x"}), "id of 'a' is 'x'"),
        (lambda record: record["model"]["vocab"].update({"a b": 900}), "' ' stands for no byte"),
        (lambda record: record["model"]["vocab"].update({"zz": 900}), "no merge makes the token 'zz'"),
        (lambda record: record["model"]["merges"].append("z z"), NEXT + ": the merge of 'z' and 'z'"),
        (lambda record: record["model"]["merges"].append("z"), NEXT + ": a merge is two tokens"),
        (lambda record: record["model"]["merges"].append(7), NEXT),
        (lambda record: record["model"]["merges"].append(record["model"]["merges"][0]), "several merges"),
        (lambda record: record["model"]["merges"].reverse(), "only a later merge makes"),
        (lambda record: record["model"].pop("merges"), "not all that a tokenizer.json has"),
        (lambda record: record.pop("model"), "not all that a tokenizer.json has"),
        (replace(added_tokens=[7]), "not all that a tokenizer.json has"),
        (replace(model=[]), "not all that a tokenizer.json has"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, damage, said):
    BPETokenizer(MERGES["gpt2"]).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    record = json.loads(path.read_text("utf-8"))
    damage(record)
    path.write_text(json.dumps(record), "utf-8")
    with pytest.raises(UserError, match=said) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)


def test_damaged_json_is_named_with_its_line(tmp_path):
    BPETokenizer(MERGES["gpt2"]).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match=r"tokenizer\.json:\d+: damaged or cut off"):
        load_tokenizer(path)
    path.write_bytes(good.replace(b'      "b": ', b'      "a": '))
    with pytest.raises(UserError, match="'a' is there twice"):
        load_tokenizer(path)
    path.write_bytes(good.replace(b'"model"', b'"mod\xff"'))
    with pytest.raises(UserError, match=r"tokenizer\.json:\d+: not UTF-8"):
        load_tokenizer(path)


def test_a_merge_out_of_its_order(tmp_path):
    """Of abc, the first two are merged before the merge of a and bc that is listed."""
    BPETokenizer.from_ranks([*BYTES, b"ab", b"bc", b"abc"], "gpt2", {}).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    record = json.loads(path.read_text("utf-8"))
    assert record["model"]["merges"] == ["a b", "b c", "ab c"]
    record["model"]["merges"][2] = "a bc"
    path.write_text(json.dumps(record), "utf-8")
    with pytest.raises(UserError, match=r"model.merges\[2\]: a merge that the bytes of its own token do not come to"):
        load_tokenizer(path)

import numpy as np
import pytest
from corpora import OTHER_TOKENIZER, TOKENIZER, encode, make_documents, write_corpus
from evaluate.tiny_models import V, make_tokenizer

from nanoeuler.corpus.shards import NARROW, WIDE, write_shard
from nanoeuler.errors import UserError
from nanoeuler.evaluate.sources import corpus_sources, text_source


def all_tokens(source):
    return source.stream.windows(np.zeros(1, int), len(source.stream))[0].tolist()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Enter a man, né.\r\n" * 20, encoding="utf-8", newline="")
    return path


def test_a_text_with_nothing_in_front(text):
    tokenizer = make_tokenizer()
    source = text_source(text, tokenizer)
    assert all_tokens(source) == tokenizer.encode(text.read_bytes().decode()).tolist()
    assert (source.first, source.text_bytes, source.name) == (1, None, str(text))


def test_a_text_with_a_prefix(text):
    tokenizer = make_tokenizer(prefix=(346, 345))
    source = text_source(text, tokenizer)
    assert all_tokens(source) == [346, 345, *tokenizer.encode(text.read_bytes().decode()).tolist()]
    assert (source.first, source.text_bytes) == (2, len(text.read_bytes()))


def test_errors_of_a_text(text, tmp_path):
    with pytest.raises(UserError, match=r"text.txt: the model's files have no tokenizer: give it with --tokenizer"):
        text_source(text, None)
    with pytest.raises(UserError, match="nowhere: no such file"):
        text_source(tmp_path / "nowhere", make_tokenizer())
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-16"):
        text_source(text, make_tokenizer())


def test_shards_of_others(tmp_path):
    tokens = {split: np.random.default_rng(i).integers(0, 300, 50) for i, split in enumerate(("train", "val"))}
    for split in tokens:
        write_shard(tmp_path / f"x_{split}_000000.bin", tokens[split], NARROW)
    for split in tokens:
        (source,) = corpus_sources(str(tmp_path), split, make_tokenizer(), V)
        assert all_tokens(source) == tokens[split].tolist()
        assert source.first == 1
    (source,) = corpus_sources(str(tmp_path / "x_train_000000.bin"), "val", make_tokenizer(), V)
    assert all_tokens(source) == tokens["train"].tolist()
    assert source.name == str(tmp_path / "x_train_000000.bin")
    write_shard(tmp_path / "wide.bin", tokens["val"], WIDE)
    with pytest.raises(UserError, match="it is not GPT-2's, for the ids are uint32: give it with --tokenizer FOLDER"):
        corpus_sources(str(tmp_path / "wide.bin"), "val", None, V)


def test_the_end_of_a_text_is_for_validation(text):
    tokenizer = make_tokenizer()
    whole = tokenizer.encode(text.read_bytes().decode()).tolist()
    (val,), (train,) = (corpus_sources(str(text), split, tokenizer, V) for split in ("val", "train"))
    assert all_tokens(train) + all_tokens(val) == whole
    assert len(val.stream) == pytest.approx(len(whole) / 10, abs=1)
    assert val.name == "text (val)"
    with pytest.raises(UserError, match="have no tokenizer"):
        corpus_sources(str(text), "val", None, V)
    with pytest.raises(UserError, match="beyond the model's vocabulary of 100"):
        corpus_sources(str(text), "val", tokenizer, 100)


def test_a_prepared_corpus_knows_its_tokenizer(tmp_path):
    write_corpus(tmp_path / "owls")
    for tokenizer in (None, TOKENIZER):
        (source,) = corpus_sources(str(tmp_path / "owls"), "val", tokenizer, V)
        assert all_tokens(source) == encode(make_documents(15, 8)).tolist()
        assert source.tokenizer.fingerprint == TOKENIZER.fingerprint
    with pytest.raises(UserError, match="owls was prepared with another tokenizer than the model's"):
        corpus_sources(str(tmp_path / "owls"), "val", OTHER_TOKENIZER, V)


def test_several_corpora(tmp_path):
    for name in ("owls", "bears"):
        write_corpus(tmp_path / name)
    mixture = f"{tmp_path / 'owls'}=0.5,{tmp_path / 'bears'}=0.5"
    assert [source.name for source in corpus_sources(mixture, "val", None, V)] == ["owls (val)", "bears (val)"]


def test_no_corpus():
    with pytest.raises(UserError, match="'nowhere' is neither a known corpus nor a file that exists; --corpus takes"):
        corpus_sources("nowhere", "val", None, V)

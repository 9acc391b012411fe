from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from corpora import OTHER_TOKENIZER, TOKENIZER, write_corpus, write_llmc

from nanoeuler.corpus import TextCorpus, choose_tokenizer
from nanoeuler.corpus import prepared as prepared_module
from nanoeuler.corpus.corpus import fingerprint
from nanoeuler.corpus.prepared import open_corpus
from nanoeuler.errors import UserError

TEXTS = [TextCorpus("a", "owl", ""), TextCorpus("b", "moon", "")]


def test_of_texts_it_is_char_over_all_of_them_or_the_one_that_is_wanted():
    assert choose_tokenizer(None, TEXTS).decode(range(6)) == "lmnow\ufffd"
    assert choose_tokenizer("char", TEXTS).vocab_size == 5
    assert choose_tokenizer("byte", TEXTS).kind == "byte"


@pytest.mark.parametrize("wanted", [None, "bpe", "tokenizer"])
def test_of_a_prepared_corpus_it_is_its_own_and_texts_go_along(wanted):
    write_corpus(Path("owls"))
    TOKENIZER.save("tokenizer")
    for parts in ([open_corpus(Path("owls"))], [TEXTS[0], open_corpus(Path("owls"))]):
        assert choose_tokenizer(wanted, parts).fingerprint == TOKENIZER.fingerprint


def test_gpt2_is_not_looked_for_where_the_corpus_has_it(monkeypatch):
    def gpt2(self: Any) -> Any:
        return type("GPT2", (), {"kind": "gpt2", "fingerprint": "1"})()

    write_corpus(Path("owls"))
    monkeypatch.setattr(prepared_module.PreparedCorpus, "own_tokenizer", gpt2)
    assert choose_tokenizer("gpt2", [open_corpus(Path("owls"))]).kind == "gpt2"


def test_of_llmcs_shards_it_is_gpt2_or_the_one_that_is_wanted(monkeypatch):
    write_llmc(Path("llmc"))
    corpus = open_corpus(Path("llmc"))
    monkeypatch.setattr(prepared_module, "make_tokenizer", lambda name, text: (name, text))
    assert choose_tokenizer(None, [corpus]) == ("gpt2", "")
    assert choose_tokenizer("byte", [corpus]).kind == "byte"


def test_corpora_of_different_tokenizers_are_named():
    write_corpus(Path("owls"))
    write_corpus(Path("mice"), tokenizer=OTHER_TOKENIZER)
    owls, mice = (open_corpus(Path(name)) for name in ("owls", "mice"))
    with pytest.raises(UserError) as error:
        choose_tokenizer(None, [owls, mice])
    assert str(error.value) == (
        f"mice was prepared with another tokenizer (bpe, 259 tokens, {OTHER_TOKENIZER.fingerprint[:8]}) than owls "
        f"(bpe, 259 tokens, {TOKENIZER.fingerprint[:8]}): prepare it again with the same --tokenizer"
    )
    with pytest.raises(UserError, match=r"owls was prepared with another .* than data.tokenizer_path byte \(byte, 256"):
        choose_tokenizer("byte", [owls])


def test_a_fingerprint_of_several_depends_on_each_and_on_the_shares():
    half, third = [Fraction(1, 2)] * 2, [Fraction(1, 3), Fraction(2, 3)]
    assert fingerprint(["x"], [Fraction(1)]) == "x"
    found = {fingerprint(each, shares) for each in (["x", "y"], ["y", "x"], ["x", "z"]) for shares in (half, third)}
    assert len(found) == 6

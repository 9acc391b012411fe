"""Loss, perplexity and bits per byte of a text: what transformers computes over the same windows."""

import io
import math

import numpy as np
import pytest
from evaluate.tiny_models import T, V, make_models, make_tokenizer, plain_strided_loss

from nanoeuler.corpus import plays
from nanoeuler.corpus.stream import array_stream
from nanoeuler.errors import UserError
from nanoeuler.evaluate.engine import Engine
from nanoeuler.evaluate.progress import Progress
from nanoeuler.evaluate.sources import Source, text_source
from nanoeuler.evaluate.text import text_loss

TEXT = plays.generate(2500)[:500] + " naïve — 名前\n"


@pytest.fixture
def progress():
    with Progress("a text", io.StringIO()) as progress:
        yield progress


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def models(request):
    return make_models(request.param)


def write(folder, text=TEXT):
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("length", "stride", "prefix"), [(T, T // 2, ()), (T, T, (346,)), (17, 5, (346,)), (40, 3, ())]
)
def test_as_transformers(models, tmp_path, progress, length, stride, prefix):
    theirs, config, weights = models
    tokenizer = make_tokenizer(prefix)
    ids = [*prefix, *tokenizer.encode(TEXT).tolist()]
    expected = plain_strided_loss(theirs, ids, 1, length, stride)
    with Engine(config, weights, length=length, batch_tokens=4 * length) as engine:
        found = text_loss(engine, text_source(write(tmp_path), tokenizer), progress, stride)
    assert found.tokens == len(expected) == len(ids) - 1
    assert found.loss == pytest.approx(np.mean(expected), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(np.mean(expected)), rel=1e-4)
    scored_text = TEXT.encode() if prefix else TEXT.encode()[len(tokenizer.decode_bytes(ids[:1])) :]
    assert found.text_bytes == len(scored_text)
    assert found.bits_per_byte == pytest.approx(sum(expected) / math.log(2) / len(scored_text), rel=1e-5)


def test_batches_and_devices_do_not_change_it(models, tmp_path, progress):
    _, config, weights = models
    source, found = text_source(write(tmp_path), make_tokenizer()), []
    for tokens in (1, 100, 5000):
        with Engine(config, weights, length=32, batch_tokens=tokens) as engine:
            found.append(text_loss(engine, source, progress, 16, limit=150))
    assert [each.tokens for each in found] == [150] * 3
    assert [each.nats for each in found] == pytest.approx([found[0].nats] * 3, rel=1e-6)


def test_bytes_are_those_of_what_is_scored(models, tmp_path, progress):
    _, config, weights = models
    tokenizer = make_tokenizer(prefix=(346,))
    with Engine(config, weights) as engine:
        found = text_loss(engine, text_source(write(tmp_path), tokenizer), progress, 16, limit=20)
    assert (found.tokens, found.text_bytes) == (20, len(tokenizer.decode_bytes(tokenizer.encode(TEXT)[:20])))


def test_a_shorter_stride_gives_more_context(models, tmp_path, progress):
    _, config, weights = models
    source = text_source(write(tmp_path), make_tokenizer())
    with Engine(config, weights, length=32) as engine:
        assert text_loss(engine, source, progress, 16).nats != text_loss(engine, source, progress, 32).nats


def test_special_tokens_are_scored_but_are_no_text(models, progress):
    _, config, weights = models
    tokenizer = make_tokenizer()
    document = np.append(tokenizer.end_of_text, tokenizer.encode("A man."))
    stream = array_stream(np.concatenate([document, document]))
    with Engine(config, weights) as engine:
        found = text_loss(engine, Source("shards", stream, tokenizer), progress, 8)
        assert (found.tokens, found.text_bytes) == (2 * len(document) - 1, 2 * len("A man."))
        stream = array_stream(np.full(5, tokenizer.end_of_text))
        assert text_loss(engine, Source("shards", stream, tokenizer), progress, 8).bits_per_byte is None


def test_errors(models, progress):
    _, config, weights = models
    tokenizer = make_tokenizer()
    with Engine(config, weights, length=8) as engine:
        with pytest.raises(UserError, match="one: 1 tokens are too few"):
            text_loss(engine, Source("one", array_stream(np.zeros(1, int)), tokenizer), progress, 8)
        ids = np.zeros(50, int)
        ids[37] = V
        with pytest.raises(UserError, match=f"token {V} at position 37 is beyond the model's vocabulary of {V}"):
            text_loss(engine, Source("large", array_stream(ids), tokenizer), progress, 8)
    with (
        Engine(config, np.full_like(weights, np.nan), length=8) as engine,
        pytest.raises(UserError, match="nan: the model's loss is nan"),
    ):
        text_loss(engine, Source("nan", array_stream(np.zeros(50, int)), tokenizer), progress, 8)

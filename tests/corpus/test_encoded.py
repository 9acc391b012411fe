import numpy as np
from corpus.small_corpora import TOKENIZER

from nanoeuler.corpus.encoded import encode_documents
from nanoeuler.corpus.seen import hash_document


def test_a_batch_as_tokens():
    documents = ["the owl", "", "🌱"]
    encoded = encode_documents(TOKENIZER, documents)
    assert encoded.tokens.dtype == np.uint16
    expected = [[258, *TOKENIZER.encode(document)] for document in documents]
    assert encoded.tokens.tolist() == [token for document in expected for token in document]
    assert encoded.lengths.tolist() == list(map(len, expected))
    assert encoded.text_bytes.tolist() == [7, 0, 4]
    assert encoded.hashes.tolist() == [hash_document(document.encode()) for document in documents]


def test_an_empty_batch():
    encoded = encode_documents(TOKENIZER, [])
    assert [len(a) for a in vars(encoded).values()] == [0, 0, 0, 0]

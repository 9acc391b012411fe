import json
from dataclasses import replace

import pytest

from nanoeuler.corpus.manifest import Manifest, Shard, is_as_written, read_manifest, write_manifest
from nanoeuler.errors import UserError

SHARDS = [
    Shard("owls_train_000000.bin", "train", 3, 20, 60, 1064, "a" * 64),
    Shard("owls_train_000001.bin", "train", 2, 10, 30, 1044, "b" * 64),
    Shard("owls_val_000000.bin", "val", 1, 4, 9, 1032, "c" * 64),
]
MANIFEST = Manifest(
    "owls",
    {"kind": "files", "asked_for": ["wölfe.txt"]},
    {"limit": None},
    {"kind": "bpe", "fingerprint": "f", "vocab_size": 259, "end_of_text": 258},
    SHARDS,
    {"empty": 2},
)


def test_what_is_written_is_read(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST


def test_it_is_json_for_people_with_totals(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    text = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert "wölfe.txt" in text
    totals = json.loads(text)["totals"]
    assert totals["train"] == {"documents": 5, "tokens": 30, "text_bytes": 90}
    assert totals["val"] == {"documents": 1, "tokens": 4, "text_bytes": 9}


def test_a_change_to_it_is_found(tmp_path):
    """Of a value, not of white space; a manifest of others, without the sum, is as good as it is."""
    path = tmp_path / "manifest.json"
    write_manifest(tmp_path, MANIFEST)
    assert is_as_written(tmp_path)
    written = json.loads(path.read_bytes())
    path.write_text(json.dumps(written))
    assert is_as_written(tmp_path)
    for part, key, value in [(None, "name", "x"), ("source", "kind", "x"), ("totals", "train", 0), ("skipped", "a", 1)]:
        record = json.loads(json.dumps(written))
        (record if part is None else record[part])[key] = value
        path.write_text(json.dumps(record))
        assert not is_as_written(tmp_path)
        del record["sha256"]
        path.write_text(json.dumps(record))
        assert is_as_written(tmp_path)


def test_a_splits_shards_and_their_sums():
    assert MANIFEST.of("train") == SHARDS[:2]
    assert MANIFEST.total("train", "tokens") == 30


def test_the_fingerprint_is_of_the_tokens_and_their_splits():
    same = [
        replace(MANIFEST, name="other", skipped={}),
        replace(MANIFEST, shards=[replace(s, file="x") for s in SHARDS]),
    ]
    assert {m.fingerprint for m in same} == {MANIFEST.fingerprint}
    others = [
        SHARDS[:2],
        SHARDS[::-1],
        [replace(SHARDS[0], split="val"), *SHARDS[1:]],
        [replace(SHARDS[0], sha256="d" * 64), *SHARDS[1:]],
    ]
    assert MANIFEST.fingerprint not in {replace(MANIFEST, shards=shards).fingerprint for shards in others}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda record: record.pop("shards"), "damaged: not all that a manifest says"),
        (lambda record: record.update(more=1), "damaged: not all that a manifest says"),
        (lambda record: record["shards"][0].pop("sha256"), "damaged: not all that a manifest says"),
        (lambda record: record["shards"][0].update(split="test"), "damaged: not all that a manifest says"),
        (lambda record: record["shards"][0].update(file="../owls.bin"), "damaged: not all that a manifest says"),
        (lambda record: record["shards"][0].update(tokens="many"), "damaged: not all that a manifest says"),
        (lambda record: record["tokenizer"].pop("end_of_text"), "damaged: not all that a manifest says"),
        (lambda record: record.update(tokenizer=3), "damaged: not all that a manifest says"),
        (lambda record: record.update(version=2), "not a manifest of the version that this nanoeuler reads, 1"),
    ],
)
def test_a_damaged_one(tmp_path, change, complaint):
    write_manifest(tmp_path, MANIFEST)
    record = json.loads((tmp_path / "manifest.json").read_bytes())
    change(record)
    (tmp_path / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=complaint):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b'{"shards": 3}', b'{"shards": [3]}'])
def test_what_is_no_manifest(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"manifest\.json: (damaged|not a manifest)"):
        read_manifest(tmp_path)


def test_no_manifest(tmp_path):
    with pytest.raises(UserError, match="no prepared corpus here"):
        read_manifest(tmp_path)

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tokenizer.byte_pairs import learn
from tokenizer.texts import TEXT

from nanoeuler.errors import run_command
from nanoeuler.tokenizer import BPETokenizer, CharTokenizer, load_tokenizer, train
from nanoeuler.tokenizer.__main__ import main
from nanoeuler.tokenizer.alphabet import BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    BPETokenizer(learn(TEXT, 50)).save(folder)
    return str(folder)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, "utf-8")
    return path


def run(*arguments: object) -> int:
    return run_command(main, [str(argument) for argument in arguments])


def feed(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, ids=np.arange(3))
    return file.getvalue()


class TestTrain:
    def test_then_all_the_rest(self, text, tmp_path, capsys):
        out = tmp_path / "out"
        assert run("train", "--input", text, "--vocab-size", 300, "--out", out, "--workers", 1) == 0
        said = capsys.readouterr().out
        assert "vocabulary 300: 256 bytes, 43 merges, 1 special token\n" in said
        assert f"inspect --tokenizer {out}\n" in said
        tokenizer = load_tokenizer(out)
        size, tokens = len(TEXT.encode()), len(tokenizer.encode(TEXT))
        assert f"{size / tokens:.2f} bytes per token on the first" in said
        assert tokenizer.vocab_size == 300
        assert tokenizer.end_of_text == 299
        assert sorted(path.name for path in out.iterdir()) == sorted(train.FORMATS["nanoeuler"])
        assert all(str(out / name) in said for name in train.FORMATS["nanoeuler"])
        assert run("train", "--input", text, "--vocab-size", 290, "--out", out, "--workers", 1) == 0  # over itself
        assert load_tokenizer(out).vocab_size == 290

    @pytest.mark.parametrize("kind", ["huggingface", "gpt2", "tiktoken"])
    def test_every_format_is_read_back(self, text, tmp_path, kind, capsys):
        out = tmp_path / "out"
        assert run("train", "--input", text, "--vocab-size", 280, "--out", out, "--format", kind, "--workers", 1) == 0
        assert sorted(path.name for path in out.iterdir()) == sorted(train.FORMATS[kind])
        tokenizer = load_tokenizer(out)
        assert tokenizer.vocab_size == 280
        for name in train.FORMATS[kind][:1]:
            assert load_tokenizer(out / name).fingerprint == tokenizer.fingerprint
        assert ("a rank file has neither pattern" in capsys.readouterr().out) == (kind == "tiktoken")

    def test_special_tokens_stand_between_documents(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_text("xyxyxy<|end|>" * 50)
        assert run("train", "--input", path, "--out", tmp_path / "out", "--special", "<|end|>", "--workers", 1) == 0
        tokenizer = load_tokenizer(tmp_path / "out")
        assert set(b"".join(tokenizer.tokens[256:])) == set(b"xy")
        assert list(tokenizer.special) == ["<|endoftext|>", "<|end|>"]

    def test_a_folder_teaches_what_its_files_do(self, tmp_path):
        (tmp_path / "chat").mkdir()
        (tmp_path / "chat/a.txt").write_text("<|user|>ho ho<|bot|>user bot user\n" * 20, encoding="utf-8")
        for i, path in enumerate((tmp_path / "chat", tmp_path / "chat/a.txt")):
            special = ("--special", "<|user|>", "<|bot|>", "--vocab-size", 270)
            assert run("train", "--input", path, "--out", tmp_path / f"{i}", *special) == 0
        one, two = (load_tokenizer(tmp_path / name) for name in "01")
        assert one.fingerprint == two.fingerprint

    def test_other_kinds_of_files(self, tmp_path, capsys):
        path = tmp_path / "lines.jsonl"
        rows = [json.dumps({"body": TEXT, "n": 1}), "{broken", json.dumps({"body": TEXT, "n": 2})]
        path.write_text("\n".join(rows), "utf-8")
        out = tmp_path / "out"
        assert run("train", "--input", path, "--text-column", "body", "--vocab-size", 280, "--out", out) == 0
        captured = capsys.readouterr()
        assert "left out 1 row: " in captured.out
        assert "line 2" in captured.err
        (tmp_path / "twice.txt").write_text(TEXT * 2, "utf-8")
        assert run("train", "--input", tmp_path / "twice.txt", "--vocab-size", 280, "--out", tmp_path / "two") == 0
        assert load_tokenizer(out).merges == load_tokenizer(tmp_path / "two").merges

    def test_no_text_at_all(self, tmp_path, capsys):
        (tmp_path / "empty.txt").touch()
        assert run("train", "--input", tmp_path / "empty.txt", "--out", tmp_path / "out") == 2
        assert "no text in the input" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_what_it_says_can_be_printed_anywhere_and_pasted_into_a_shell(self, text, tmp_path, capsys):
        out = tmp_path / "two words\x1b[31m"
        special = ["\x1b[2J", "a\nb"]
        assert run("train", "--input", text, "--out", out, "--vocab-size", 300, "--special", *special) == 0
        said = capsys.readouterr().out
        assert "--tokenizer '" + str(out).replace("\x1b", r"\x1b") + "'\n" in said
        assert "41 merges, 3 special tokens\n" in said
        assert run("inspect", "--tokenizer", out) == 0
        said += capsys.readouterr().out
        assert r"'<|endoftext|>' 297, '\x1b[2J' 298, 'a\nb' 299" in said
        assert "\x1b" not in said

    def test_a_word_for_the_same_thing_is_said_once(self, text, tmp_path, capsys):
        assert run("train", "--input", text, "--out", tmp_path / "out", "--vocab-size", 300, "--workers", 1) == 0
        assert capsys.readouterr().err.count("counting") == 1

    def test_pairs_that_are_too_rare(self, text, tmp_path, capsys):
        assert run("train", "--input", text, "--out", tmp_path / "out", "--min-frequency", 6) == 0
        assert "fewer than asked for: the text has no more pairs to merge that occur 6 times" in capsys.readouterr().out

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may write anywhere")
    def test_a_folder_that_may_not_be_written_to_is_named_at_once(self, text, tmp_path, capsys):
        (tmp_path / "locked").mkdir(0o555)
        assert run("train", "--input", text, "--out", tmp_path / "locked" / "out") == 2
        said = capsys.readouterr().err
        assert f"{tmp_path / 'locked'} is read-only" in said
        assert "counting" not in said

    def test_a_text_that_has_no_more_pairs(self, tmp_path, capsys):
        (tmp_path / "text.txt").write_text("aaaa")
        assert run("train", "--input", tmp_path / "text.txt", "--out", tmp_path / "out", "--workers", 1) == 0
        assert "3,837 merges fewer than asked for" in capsys.readouterr().out
        assert load_tokenizer(tmp_path / "out").vocab_size == 259

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--vocab-size", 200], "'200' is not a whole number from 257 to 1114112"),
            (["--vocab-size", 257, "--special", "<a>"], "the bytes and special tokens alone are 258"),
            (["--vocab-size", "many"], "--vocab-size"),
            (["--vocab-size", 10**9], "not a whole number from 257 to 1114112"),
            (["--pattern", "gpt22"], "unknown pattern 'gpt22' (did you mean 'gpt2'?)"),
            (["--pattern", "("], "pattern"),
            (["--format", "gpt2", "--pattern", "gpt4"], "has no place for a pattern"),
            (["--vocabsize", 300], "unknown option '--vocabsize' (did you mean '--vocab-size'?)"),
            (["--format", "gguf"], "--format"),
            (["--workers", "-1"], "--workers"),
            (["--min-frequency", "-1"], "--min-frequency"),
            (["--special", ""], "special token cannot be empty"),
            (["--special", "end", "--format", "gpt2"], "cannot say that 'end' is a special token"),
            (["--special", "a", "--format", "huggingface"], "'a' is written like another token"),
            (
                ["--pattern", r"\w+|\W|$", "--format", "huggingface"],
                "may mean one thing to tiktoken and another to Hugging Face",
            ),
        ],
    )
    def test_options_that_make_no_sense(self, text, tmp_path, capsys, options, said):
        assert run("train", "--input", text, "--out", tmp_path / "out", *options) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_input_and_output_that_cannot_be(self, text, tmp_path, capsys):
        assert run("train", "--input", tmp_path / "no.txt", "--out", tmp_path / "out") == 2
        assert str(tmp_path / "no.txt") in capsys.readouterr().err
        (tmp_path / "bad.txt").write_bytes(b"good\nb\xffad")
        assert run("train", "--input", tmp_path / "bad.txt", "--out", tmp_path / "out", "--workers", 1) == 2
        assert "not UTF-8" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        assert run("train", "--input", text, "--out", text) == 2
        assert "goes into a folder" in capsys.readouterr().err
        assert run("train", "--input", text, "--out", text / "out") == 2
        assert f"cannot write there: {text} is a file" in capsys.readouterr().err
        (tmp_path / "vocab.json").touch()
        assert run("train", "--input", text, "--out", tmp_path) == 2
        assert "another tokenizer's vocab.json" in capsys.readouterr().err

    def test_interrupted_it_leaves_nothing(self, text, tmp_path, monkeypatch, capsys):
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(train, "train_bpe", interrupt)
        assert run("train", "--input", text, "--out", tmp_path / "out", "--workers", 1) == 130
        assert not (tmp_path / "out").exists()


class TestEncodeAndDecode:
    def test_there_and_back(self, folder, text, capsys, monkeypatch, tmp_path):
        tokenizer = load_tokenizer(folder)
        for source in (["--text", TEXT], [text], ["-"], []):
            feed(monkeypatch, TEXT.encode())
            assert run("encode", "--tokenizer", folder, *source) == 0
            ids = capsys.readouterr().out
            assert ids.split() == [str(i) for i in tokenizer.encode(TEXT)]
        (tmp_path / "ids.txt").write_text(ids)
        listed = str(tokenizer.encode(TEXT).tolist())
        for source in (ids.split(), [ids], [listed], [ids.replace(" ", ",")], [tmp_path / "ids.txt"], ["-"], []):
            feed(monkeypatch, ids.replace(" ", ", ").encode())
            assert run("decode", "--tokenizer", folder, *source) == 0
            assert capsys.readouterr().out == TEXT

    def test_through_an_array(self, folder, text, capsys, tmp_path):
        path = tmp_path / "ids.npy"
        assert run("encode", "--tokenizer", folder, text, "--out", path) == 0
        ids = load_tokenizer(folder).encode(TEXT)
        assert np.load(path).tolist() == ids.tolist()
        assert capsys.readouterr().out == f"{path}: {len(ids):,} ids\n"
        assert run("encode", "--tokenizer", "byte", "--text", "a", "--out", tmp_path / "one.npy") == 0
        assert capsys.readouterr().out.endswith("one.npy: 1 id\n")
        assert run("decode", "--tokenizer", folder, path) == 0
        assert capsys.readouterr().out == TEXT

    def test_special_tokens_are_asked_for(self, folder, capsys):
        end = load_tokenizer(folder).end_of_text
        assert run("encode", "--tokenizer", folder, "--text", "<|endoftext|>", "--special") == 0
        assert capsys.readouterr().out == f"{end}\n"
        assert run("encode", "--tokenizer", folder, "--text", "<|endoftext|>") == 0
        assert str(end) not in capsys.readouterr().out.split()

    def test_ids_that_are_no_tokens(self, capsys):
        assert run("decode", "--tokenizer", "byte", "97", "-1", "256", "9" * 30, "98") == 0
        assert capsys.readouterr().out == "a\ufffd\ufffd\ufffdb"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["encode", "--tokenizer", "byte", "missing.txt"], "missing.txt: cannot read it"),
            (["encode", "--tokenizer", "byte", "--text", "a", "missing.txt"], "which is the text?"),
            (["encode", "--tokenizer", "bite", "--text", "a"], "did you mean 'byte'?"),
            (["encode", "--tokenizer", "byte", "--text", "\udcff"], "not valid Unicode"),
            (["encode", "--text", "a"], "--tokenizer"),
            (["encode", "--tokenizer", "byte"], "standard input:2: not UTF-8 text: byte 5 is 0xff"),
            (["decode", "--tokenizer", "byte", "1", "x"], "the command line: 'x' is no token id"),
            (["encode", "--tokenizer", "byte", "--text", "a", "--out", "ids.txt"], "a name that ends in .npy"),
            (["decode", "--tokenizer", "byte", "1.5"], "1.5: cannot read it"),
            (["decode", "--tokenizer", "byte", "1", "1.5"], "'1.5' is no token id"),
            (["decode", "--tokenizer", "byte", "missing.npy"], "missing.npy: cannot read it"),
            (["decode", "--tokenizer", "char", "1"], "characters of a char tokenizer"),
            (["decode", "--tokeniser", "byte", "1"], "--tokenizer"),
            (["inspect", "--tokenizer", "byte", "--file", "missing.txt"], "missing.txt: cannot read it"),
            (["inspect", "--tokenizer", "byte", "--file", "a", "--text", "b"], "which is the text?"),
            (["trian"], "unknown command 'trian' (did you mean 'train'?)"),
        ],
    )
    def test_errors_say_what_is_wrong(self, arguments, said, capsys, monkeypatch):
        feed(monkeypatch, b"ab\ncd\xffef")
        assert run(*arguments) == 2
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"text", id="text"),
            pytest.param(np.arange(3.0), id="floats"),
            pytest.param(archive(), id="several arrays"),
            pytest.param(saved(np.arange(3)).replace(b"(3,)", b"(9999999999999,)"), id="too large"),
            pytest.param(saved(np.arange(3))[:-1], id="cut off"),
        ],
    )
    def test_arrays_of_something_else(self, content, tmp_path, capsys):
        path = tmp_path / "ids.npy"
        path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
        assert run("decode", "--tokenizer", "byte", path) == 2
        assert str(path) in capsys.readouterr().err


class TestInspect:
    def test_what_it_shows(self, folder, capsys):
        assert run("inspect", "--tokenizer", folder, "--merges", 2, "--longest", 1, "--text", "the then\n東") == 0
        said = capsys.readouterr().out
        tokenizer = load_tokenizer(folder)
        assert f"bpe tokenizer, {tokenizer.vocab_size} ids" in said
        assert "pattern      gpt2: " in said
        a, b = (tokenizer.tokens[i].decode() for i in tokenizer.merges[0])
        assert f"    256  {a!r} + {b!r}" in said
        assert "    257  " in said
        assert "    258  " not in said
        longest = max(tokenizer.tokens, key=len)
        assert repr(longest.decode()) in said
        ids = tokenizer.encode("the then\n東")
        assert f"12 B of text, {len(ids)} tokens: {12 / len(ids):.2f} bytes per token" in said
        cut = said.rstrip("\n").split("\n")[-2:]
        assert cut[0].replace("|", "") == "the then⏎"
        assert cut[1] in (r"\xe6|\x9d|\xb1", "東", r"\xe6|\x9d\xb1", r"\xe6\x9d|\xb1")
        assert cut[0].count("|") + cut[1].count("|") == len(ids) - 2

    def test_ids_below(self, capsys):
        assert run("inspect", "--tokenizer", "byte", "--text", "ab\nc", "--ids", "--longest", 0) == 0
        assert capsys.readouterr().out.endswith("a|b|⏎\n  97 98 10\nc\n  99\n")

    def test_of_every_kind(self, capsys, text):
        for kind in ("byte", "char"):
            assert run("inspect", "--tokenizer", kind, "--file", text) == 0
            assert f"{kind} tokenizer" in capsys.readouterr().out

    def test_of_a_saved_char_tokenizer_its_own_characters_are_shown(self, tmp_path, capsys):
        CharTokenizer("hello\x1b").save(tmp_path)
        assert run("inspect", "--tokenizer", tmp_path) == 0
        assert capsys.readouterr().out.endswith("\\x1b|e|h|l|o\n")

    def test_what_is_long_is_cut(self, tmp_path, capsys):
        a = BYTES.index(b"a")
        special = {f"<{i}>": 300 + i for i in range(300)}
        BPETokenizer([(a, a), *((i, i) for i in range(256, 275))], special=special).save(tmp_path)
        assert run("inspect", "--tokenizer", tmp_path, "--text", "ab" * 2000) == 0
        said = capsys.readouterr().out
        assert "'<9>' 309 and 290 more\n" in said
        assert f"'{'a' * 60}'... 1,048,576 bytes\n" in said
        assert said.endswith("b\n... these were the first 2,000 of 4,000 characters\n")
        assert len(said) < 10_000

    def test_few_colours_differ_too(self, capsys, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLORTERM", raising=False)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        assert run("inspect", "--tokenizer", "byte", "--text", "aaaaa", "--longest", 0) == 0
        last = capsys.readouterr().out.rstrip("\n").split("\n")[-1]
        assert len(set(re.findall("\x1b\\[30;4\\dm", last))) == 5

    def test_in_colours_on_a_terminal(self, capsys, monkeypatch):
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLORTERM", "truecolor")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        assert run("inspect", "--tokenizer", "byte", "--text", "a\x1b", "--longest", 0) == 0
        last = capsys.readouterr().out.rstrip("\n").split("\n")[-1]
        assert "|" not in last
        assert last.count("\x1b[30;48;2;") == 2
        assert r"\x1b" in last  # and not the character itself
        monkeypatch.setenv("NO_COLOR", "1")
        assert run("inspect", "--tokenizer", "byte", "--text", "ab", "--longest", 0) == 0
        assert capsys.readouterr().out.endswith("a|b\n")


def test_usage(capsys):
    for arguments in ([], ["--help"]):
        assert run(*arguments) == 0
        assert "train     learn the merges" in capsys.readouterr().out


def test_in_a_pipe_whose_reader_has_gone(folder, text):
    command = [sys.executable, "-m", "nanoeuler.tokenizer", "encode", "--tokenizer", folder]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        process = subprocess.run(
            command, input=(TEXT * 100).encode(), stdout=gone, stderr=subprocess.PIPE, timeout=120, check=False
        )
    assert process.returncode == 141
    assert process.stderr == b""


def test_in_a_terminal_of_few_characters(folder):
    command = [sys.executable, "-m", "nanoeuler.tokenizer", "inspect", "--tokenizer", folder, "--text", "é東"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    process = subprocess.run(command, capture_output=True, timeout=120, check=False, env=environment)
    assert process.returncode == 0, process.stderr
    assert b"\\xe9" in process.stdout

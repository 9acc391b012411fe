"""``python -m nanoeuler.corpus``: as people run it, and what they are told."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from corpus.hub_server import FINEWEB_EDU, write_fineweb_edu
from corpus.small_corpora import TOKENIZER, InlineWorkers, contents, make_documents, read_as_llmc, split_documents

from nanoeuler.corpus import prepare as module
from nanoeuler.corpus.__main__ import _ended_by_signals as ended_by_signals
from nanoeuler.corpus.__main__ import main
from nanoeuler.corpus.manifest import read_manifest
from nanoeuler.corpus.shards import NARROW, write_shard
from nanoeuler.errors import run_command

DOCUMENTS = list(dict.fromkeys(make_documents(60)))


@pytest.fixture
def command(monkeypatch, capsys):
    """Give a function that runs the command in this process and returns exit code, stdout and stderr."""
    monkeypatch.setattr(module, "Workers", InlineWorkers)

    def run(*arguments):
        code = run_command(main, [str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def tokenizer(tmp_path):
    """Give the folder of a tokenizer."""
    TOKENIZER.save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def owls(tmp_path):
    """Give a file of documents."""
    path = tmp_path / "owls.jsonl"
    lines = [json.dumps({"text": text, "score": i % 5}) for i, text in enumerate(DOCUMENTS)]
    path.write_text("\n".join([*lines[:30], "{broken", *lines[30:]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def prepared(command, owls, tokenizer, tmp_path):
    """Give the folder of a corpus that the command has prepared."""
    options = ["--tokenizer", tokenizer, "--val-fraction", 0.2, "--shard-tokens", 500]
    code, _out, err = command("prepare", owls, "--out", tmp_path / "owls", *options)
    assert (code, err) == (0, "")
    return tmp_path / "owls"


def text_of(folder, split):
    shards = read_manifest(folder).of(split)
    return split_documents([token for shard in shards for token in read_as_llmc(folder / shard.file)])


class TestPrepare:
    def test_a_file_with_a_broken_line(self, command, owls, tokenizer, tmp_path):
        options = ["--tokenizer", tokenizer, "--val-fraction", 0.2, "--shard-tokens", 500]
        code, out, err = command("prepare", owls, "--out", tmp_path / "owls", *options)
        assert (code, err) == (0, "")
        train, val = text_of(tmp_path / "owls", "train"), text_of(tmp_path / "owls", "val")
        assert sorted(train + val) == sorted(text for text in DOCUMENTS if not text.isspace())
        assert f"train {len(train)} documents" in out
        assert f"val   {len(val)} documents" in out
        assert "left out 1 row: not valid JSON" in out
        assert out.endswith(f"owls: done\nto train on it: python -m nanoeuler.train --data.dataset {tmp_path}/owls\n")
        assert "line 31" in out

    def test_conditions_lengths_and_limit(self, command, owls, tokenizer, tmp_path):
        options = [
            "--filter",
            "score >= 3",
            "--filter",
            "score != 4",
            "--min-chars",
            20,
            "--max-chars",
            90,
            "--limit",
            4,
        ]
        where = ["--out", tmp_path / "owls", "--tokenizer", tokenizer, "--val-fraction", 0]
        code, out, err = command("prepare", owls, *where, *options)
        assert (code, err) == (0, "")
        expected = [text for i, text in enumerate(DOCUMENTS) if i % 5 == 3 and 20 <= len(text) <= 90]
        assert text_of(tmp_path / "owls", "train") == expected[:4]
        settings = read_manifest(tmp_path / "owls").settings
        assert settings["filter"] == ["score >= 3", "score != 4"]
        assert "warning" not in out

    def test_again_it_says_that_all_is_done(self, command, prepared, owls, tokenizer):
        before = contents(prepared)
        options = ["--tokenizer", tokenizer, "--val-fraction", 0.2, "--shard-tokens", 500]
        code, out, err = command("prepare", owls, "--out", prepared, *options)
        assert (code, err) == (0, "")
        assert "done" in out
        assert contents(prepared) == before

    def test_other_settings_are_named(self, command, prepared, owls, tokenizer):
        code, _out, err = command("prepare", owls, "--out", prepared, "--tokenizer", tokenizer, "--limit", 5)
        assert code == 2
        assert "settings.limit was None, now 5" in err
        assert "--out" in err

    def test_text_with_a_separator_of_ones_own(self, command, tokenizer, tmp_path):
        (tmp_path / "a.txt").write_text("one==\ntwo\nand==\nthree")
        where = ["--out", tmp_path / "a", "--tokenizer", tokenizer, "--val-fraction", 0]
        assert command("prepare", tmp_path / "a.txt", *where, "--separator", r"==\n")[0] == 0
        assert text_of(tmp_path / "a", "train") == ["one", "two\nand", "three"]

    def test_too_few_documents_to_validate_on(self, command, tokenizer, tmp_path):
        (tmp_path / "a.txt").write_text("one document")
        code, out, _err = command("prepare", tmp_path / "a.txt", "--out", tmp_path / "a", "--tokenizer", tokenizer)
        assert code == 0
        assert "warning: no document fell to validation" in out
        assert "--val-fraction" in out
        assert "--separator" in out
        assert "to train on it" not in out
        (tmp_path / "b.jsonl").write_text('"one document"\n')
        _code, out, _err = command("prepare", tmp_path / "b.jsonl", "--out", tmp_path / "b", "--tokenizer", tokenizer)
        assert "--val-fraction" in out
        assert "--separator" not in out

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["--tokenizer", "char"], "no end-of-text token to set documents apart; take gpt2"),
            (["--tokenizer", "byte"], "no end-of-text token to set documents apart; take gpt2"),
            (["--tokenizer", "gtp2"], "did you mean 'gpt2'?"),
            (["--val-fraction", "1"], "argument --val-fraction: invalid share, from 0 on and below 1, value: '1'"),
            (["--shard-tokens", "0"], "argument --shard-tokens: '0' is not a whole number from 1 to 2147483647"),
            (["--workers", "none"], "'none' is not a whole number of at least 1"),
            (["--filter", "score = 3"], "'score = 3' is not a condition; write == instead of ="),
            (["--separator", ""], "argument --separator: invalid separator, not empty, value: ''"),
            (["--text-column", ""], "argument --text-column: invalid name, not empty, value: ''"),
            (["--min-chars", "9", "--max-chars", "5"], "--max-chars 5 is less than --min-chars 9"),
            (["--revision", "main"], "--revision is of the hub's data sets"),
            (["--text-column", "txet"], "did you mean 'text'?"),
            (["--fliter", "score >= 3"], "unknown option '--fliter' (did you mean '--filter'?)"),
        ],
    )
    def test_what_is_wrong_is_told(self, command, owls, tokenizer, tmp_path, arguments, complaint):
        where = ["--out", tmp_path / "out", *([] if "--tokenizer" in arguments else ["--tokenizer", tokenizer])]
        code, _out, err = command("prepare", owls, *where, *arguments)
        assert code == 2
        assert complaint in err
        assert "Traceback" not in err
        assert not (tmp_path / "out").exists()

    def test_out_is_asked_for(self, command, owls):
        code, _out, err = command("prepare", owls)
        assert code == 2
        assert "--out" in err


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
def test_signals_that_end_a_process_end_it_in_order_but_those_that_nohup_has_ignored():
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as caught, ended_by_signals():  # noqa: PT012 (only the second raises)
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert caught.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, old)


class TestVerifyAndShow:
    def test_a_good_corpus(self, command, prepared):
        shards = len(list(prepared.glob("*.bin")))
        assert command("verify", prepared) == (0, f"{prepared}: {shards} shards, all as the manifest says\n", "")

    def test_a_bad_one(self, command, prepared):
        (prepared / "owls_val_000000.bin").unlink()
        code, out, err = command("verify", prepared)
        assert (code, out) == (1, "")
        assert "owls_val_000000.bin: missing" in err
        assert err.endswith(f"1 problem in {prepared}\n")

    def test_a_document_and_where_it_lies(self, command, prepared):
        expected = text_of(prepared, "val")[3]
        code, out, err = command("show", prepared, "--document", 3, "--split", "val")
        assert (code, out) == (0, expected)
        assert f"document 3 of val: {prepared}/owls_val_000000.bin at token" in err

    def test_its_tokens(self, command, prepared):
        _code, out, _err = command("show", prepared, "--tokens")
        assert TOKENIZER.decode([int(word) for word in out.split()]) == text_of(prepared, "train")[0]

    def test_one_too_many(self, command, prepared):
        count = read_manifest(prepared).total("train", "documents")
        code, _out, err = command("show", prepared, "--document", count)
        assert code == 2
        assert f"no document {count} in train: it has {count} documents, numbered 0 to {count - 1}" in err

    def test_a_terminal_gets_no_commands(self, command, prepared, monkeypatch):
        text = "red \x1b[31m"
        monkeypatch.setattr(type(TOKENIZER), "decode", lambda self, ids: text)
        assert command("show", prepared)[1] == text
        monkeypatch.setattr(sys.modules[main.__module__], "is_terminal", lambda file: True)
        assert command("show", prepared)[1] == "red \\x1b[31m\n"

    def test_shards_of_llmc(self, command, tokenizer, tmp_path):
        folder = tmp_path / "llmc"
        ids = [258, *TOKENIZER.encode("the owl"), 258, *TOKENIZER.encode("a moon")]
        write_shard(folder / "owls_train_000001.bin", module.np.array(ids), NARROW)
        code, out, _err = command("verify", folder)
        assert (code, out) == (0, f"{folder}: 1 shard of the right size; there is no manifest to say more\n")
        assert command("show", folder, "--document", 1, "--tokenizer", tokenizer)[1] == "a moon"

    @pytest.mark.parametrize("name", ["verify", "show"])
    def test_nothing_there(self, command, tmp_path, name):
        code, _out, err = command(name, tmp_path / "nowhere")
        assert code == 2
        assert "nowhere: no such folder" in err
        (tmp_path / "file").write_text("")
        assert "file: not a folder" in command(name, tmp_path / "file")[2]


def test_the_list_of_commands(command):
    code, out, err = command()
    assert all(word in out for word in ("prepare", "verify", "show"))
    code, out, err = command("prepair")
    assert (code, out) == (2, "")
    assert "did you mean 'prepare'?" in err


class TestInProcessesOfItsOwn:
    """What cannot be tried in this process: kills, signals, limits, the genuine libraries of the hub."""

    @pytest.fixture
    def many(self, tmp_path):
        path = tmp_path / "many.jsonl"
        lines = [json.dumps({"text": text}) for text in make_documents(12_000)]
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def arguments(self, source, folder, tokenizer, workers=2):
        options = ["--tokenizer", tokenizer, "--workers", workers, "--shard-tokens", 20_000, "--val-fraction", 0.1]
        return [str(word) for word in ("prepare", source, "--out", folder, *options)]

    def run(self, *arguments, **more):
        command = [sys.executable, "-W", "error", "-m", "nanoeuler.corpus", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)

    @pytest.fixture
    def undisturbed(self, many, tokenizer, tmp_path):
        folder = tmp_path / "undisturbed" / "many"
        done = self.run(*self.arguments(many, folder, tokenizer, workers=1))
        assert (done.returncode, done.stderr) == (0, "")
        return contents(folder)

    @pytest.mark.slow
    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill so")
    def test_killed_stopped_and_out_of_room_it_ends_with_the_same_bytes(self, many, tokenizer, tmp_path, undisturbed):
        resource = pytest.importorskip("resource", reason="this system has no such limits")
        folder, source = tmp_path / "disturbed" / "many", random.Random(0)
        arguments = self.arguments(many, folder, tokenizer)
        codes = []
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            start = len(list(folder.glob("*.bin")))
            command = [sys.executable, "-m", "nanoeuler.corpus", *arguments]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                while len(list(folder.glob("*.bin"))) < start + 2 and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(source.random() / 50)
                process.send_signal(number)
                _out, err = process.communicate(timeout=60)
            assert "Traceback" not in err
            codes.append(process.returncode)
            assert not (folder / "manifest.json").exists()
        assert codes == [-9, 143, 130, -9]

        def little_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))

        full = self.run(*arguments, preexec_fn=little_room)
        assert full.returncode == 2
        assert "cannot write" in full.stderr
        assert "File too large" in full.stderr
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "going on after" in done.stdout
        assert contents(folder) == undisturbed

    @pytest.mark.slow
    def test_a_data_set_whose_branch_moves_is_gone_on_with_as_it_was(self, hub, tokenizer, tmp_path):
        """Stopped in the second of three files; then one is added, and the branch has another commit."""
        pytest.importorskip("datasets", reason="needs the extra 'data'")
        write_fineweb_edu(hub.folder, files=3)
        code = (
            "import sys\nfrom nanoeuler.corpus import documents\ndocuments.BATCH_DOCUMENTS = 7\n"
            "from nanoeuler.corpus.__main__ import main\nfrom nanoeuler.errors import run_command\n"
            "if __name__ == '__main__': sys.exit(run_command(main))"
        )
        options = ["--val-fraction", "0.2", "--tokenizer", tokenizer, "--workers", "1"]

        def prepare(folder, *more):
            return hub.run(code, *map(str, ["prepare", "fineweb-edu", "--out", folder, *options, *more]))

        assert prepare(tmp_path / "undisturbed/edu").returncode == 0
        hub.misbehave("10BT/002.*parquet", status=500)
        broken = prepare(tmp_path / "edu")
        assert (broken.returncode, "goes on" in broken.stderr) == (2, True)
        hub.troubles.clear()
        commit = hub.keep_commit(FINEWEB_EDU)
        (hub.folder / FINEWEB_EDU / "sample/10BT/000_00000.parquet").write_bytes(b"another")
        assert hub.commit(FINEWEB_EDU) != commit
        done = prepare(tmp_path / "edu")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"fineweb-edu:sample-10BT: revision {commit}, as before" in done.stdout
        assert contents(tmp_path / "edu") == contents(tmp_path / "undisturbed/edu")
        assert prepare(tmp_path / "edu").returncode == 0
        gone = prepare(tmp_path / "edu", "--revision", "main")
        assert gone.returncode == 2

    @pytest.mark.slow
    def test_fineweb_edu_from_a_hub(self, hub, tokenizer, tmp_path):
        pytest.importorskip("datasets", reason="needs the extra 'data'")
        rows = write_fineweb_edu(hub.folder)
        code = "import sys\nfrom nanoeuler.corpus.__main__ import main\nfrom nanoeuler.errors import run_command\n"
        code += "if __name__ == '__main__': sys.exit(run_command(main))"
        options = ["--filter", "int_score >= 4", "--limit", "30", "--val-fraction", "0.2", "--tokenizer", tokenizer]
        arguments = ["prepare", "fineweb-edu", "--out", tmp_path / "edu", *options]
        done = hub.run(code, *map(str, arguments))
        assert (done.returncode, done.stderr) == (0, "")
        good = [row["text"] for row in rows if row["int_score"] >= 4]
        train, val = text_of(tmp_path / "edu", "train"), text_of(tmp_path / "edu", "val")
        assert sorted(train + val) == sorted(good[:30])
        corpus = read_manifest(tmp_path / "edu")
        assert corpus.source["revision"] == hub.commit(FINEWEB_EDU)
        assert corpus.skipped.keys() == {"int_score >= 4"}
        assert self.run("verify", str(tmp_path / "edu")).returncode == 0

"""Worker processes: the same as in one, errors told, nobody left behind."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from corpus.small_corpora import TOKENIZER, make_documents

from nanoeuler.corpus.encoded import encode_documents, encode_with
from nanoeuler.errors import UserError
from nanoeuler.workers import Workers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(path)
    return str(path)


def test_processes_give_what_one_gives(folder):
    batches = [make_documents(20, seed) for seed in range(6)]
    with Workers(2, encode_with, folder) as workers:
        found = [workers.submit(batch) for batch in batches]
        for batch, future in zip(batches, found, strict=True):
            for name, array in vars(encode_documents(TOKENIZER, batch)).items():
                np.testing.assert_array_equal(getattr(future.result(), name), array)


def test_an_error_of_a_worker_is_told_and_it_works_on(folder):
    with Workers(1, encode_with, folder) as workers:
        with pytest.raises(UserError, match="not valid Unicode"):
            workers.submit(["\ud800"]).result()
        assert len(workers.submit(["a"]).result().tokens) == 2


def test_no_tokenizer(tmp_path):
    with Workers(1, encode_with, str(tmp_path)) as workers, pytest.raises(UserError, match="no saved tokenizer"):
        workers.submit(["a"]).result()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill so")
def test_a_worker_that_is_killed_is_an_error_and_not_a_wait(folder):
    with Workers(1, encode_with, folder) as workers:
        workers.submit(["a"]).result()
        future = workers.submit(["the owl " * 2_000_000])  # seconds of work
        os.kill(workers._processes[0].pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"killed by SIGKILL.* memory ran out.*fewer --workers"):
            future.result(60)
        with pytest.raises(UserError, match="killed by SIGKILL"):
            workers.submit(["a"]).result(60)


PARENT = """
import sys, time
from nanoeuler.corpus.encoded import encode_with
from nanoeuler.workers import Workers
with Workers(2, encode_with, sys.argv[1]) as workers:
    for future in [workers.submit(["a"]) for _ in range(4)]:
        future.result()
    print(*(process.pid for process in workers._processes), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill so")
def test_workers_end_when_their_parent_is_killed(folder, tmp_path):
    psutil = pytest.importorskip("psutil", reason="psutil is not installed")
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script, folder], stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in workers):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.05)


def test_interrupts_of_the_terminal_do_not_reach_them(folder):
    with Workers(1, encode_with, folder) as workers:
        workers.submit(["a"]).result()
        os.kill(workers._processes[0].pid, signal.SIGINT)
        assert len(workers.submit(["a"]).result(60).tokens) == 2

"""What a run measures: whole lines of strict JSON, the same in TensorBoard, and a log that a crash cannot spoil."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nanoeuler.errors import UserError
from nanoeuler.metrics import MetricsLog, read_metrics


def write_steps(run, first, last, resume_step=None):
    with MetricsLog(run, resume_step) as log:
        for step in range(first, last + 1):
            log.step(step, train_loss=10.0 - step, learning_rate=0.1 * step)


def steps_of(run):
    return [record["step"] for record in read_metrics(run / "metrics.jsonl")]


def read_events(run):
    module = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(module, reason="tensorboard is not installed").EventAccumulator(
        str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0}
    )
    accumulator.Reload()
    return accumulator


def test_a_record_holds_every_field_that_was_given(tmp_path):
    numbers = {
        "train_loss": 1.5,
        "smoothed_loss": np.float32(1.75),
        "learning_rate": 3e-4,
        "grad_norm": np.float64(0.5),
        "tokens_per_second": 51_200,
        "elapsed_seconds": 12.25,
        "val_loss": 1.25,
        "val_bits_per_byte": 1.5,
    }
    with MetricsLog(tmp_path / "new" / "run") as log:
        log.step(np.int64(7), **numbers)
        log.step(8, train_loss=1.0, skipped=True)
        assert log.path == tmp_path / "new" / "run" / "metrics.jsonl"
    first, second = read_metrics(log.path)
    assert first == {"step": 7, **numbers}
    assert second == {"step": 8, "train_loss": 1.0, "skipped": True}


def test_numbers_that_json_lacks_are_null_and_named(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.step(1, train_loss=math.nan, grad_norm=np.float32(math.inf), learning_rate=0.1, skipped=True)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads(log.path.read_text(), parse_constant=refuse)
    assert record == {
        "step": 1,
        "train_loss": None,
        "learning_rate": 0.1,
        "grad_norm": None,
        "skipped": True,
        "non_finite": ["train_loss", "grad_norm"],
    }


def test_each_line_is_on_disk_whole_before_the_next_step(tmp_path):
    with MetricsLog(tmp_path) as log:
        for step in range(1, 4):
            log.step(step, train_loss=1.0)
            assert log.path.read_bytes().count(b"\n") == step  # seen through another file handle, without a flush
            assert log.path.read_bytes().endswith(b"}\n")


def test_killed_at_any_moment_every_step_logged_is_there(tmp_path):
    code = (
        "import os, sys; from nanoeuler.metrics import MetricsLog; log = MetricsLog(sys.argv[1])\n"
        "for step in range(1, 51): log.step(step, train_loss=1.0)\n"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=False).returncode == 9
    assert steps_of(tmp_path) == list(range(1, 51))


def test_resuming_drops_the_steps_after_the_checkpoint(tmp_path):
    write_steps(tmp_path, 1, 10)
    kept = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:6]
    write_steps(tmp_path, 7, 8, resume_step=6)
    assert steps_of(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(b"".join(kept))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "tensorboard"]


def test_a_new_run_starts_an_empty_log(tmp_path):
    write_steps(tmp_path, 1, 3)
    write_steps(tmp_path, 1, 2)
    assert steps_of(tmp_path) == [1, 2]


def test_resuming_without_an_old_log_is_fine(tmp_path):
    write_steps(tmp_path, 6, 7, resume_step=5)
    assert steps_of(tmp_path) == [6, 7]


@pytest.mark.parametrize(
    "tail", [b'{"step": 4, "train_lo', b"\0" * 40, b"{", b'{"train_loss": 1}\n', b"[4]\n", b"\xff\n"]
)
def test_a_last_line_cut_short_is_left_out_and_dropped(tmp_path, tail):
    write_steps(tmp_path, 1, 3)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + tail)
    assert steps_of(tmp_path) == [1, 2, 3]
    write_steps(tmp_path, 4, 4, resume_step=3)
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    assert path.read_bytes().count(b"\n") == 4


def test_a_last_record_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}')
    write_steps(tmp_path, 3, 3, resume_step=2)
    assert steps_of(tmp_path) == [1, 2, 3]


def test_an_empty_file_has_no_records(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.touch()
    assert read_metrics(path) == []


def test_a_damaged_line_in_the_middle_is_an_error_and_nothing_is_lost(tmp_path):
    path = tmp_path / "metrics.jsonl"
    content = b'{"step": 1}\n{"st\n{"step": 3}\n'
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2 "):
        MetricsLog(tmp_path, resume_step=3)
    assert path.read_bytes() == content


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent\.jsonl: cannot read"):
        read_metrics(tmp_path / "absent.jsonl")


def test_a_path_that_cannot_be_a_run_directory_is_named(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match=r"run.metrics\.jsonl: cannot write"):
        MetricsLog(tmp_path / "run")
    (tmp_path / "tensorboard").write_text("a file where the folder goes")
    with pytest.raises(UserError, match="tensorboard: cannot write"):
        MetricsLog(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    log = MetricsLog(tmp_path)
    log.step(1, train_loss=1.0)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._file.fileno())
    os.close(full)
    with pytest.raises(UserError, match=r"metrics\.jsonl: cannot write: .*space"):
        log.step(2, train_loss=1.0)
    log.close()
    assert steps_of(tmp_path) == [1]


def test_a_line_that_fits_only_in_part_is_taken_back(tmp_path):
    resource = pytest.importorskip("resource", reason="file size limits are a Unix feature")
    log = MetricsLog(tmp_path)
    log.step(1, train_loss=1.0)
    whole = log.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))
    try:
        with pytest.raises(UserError, match=r"metrics\.jsonl: cannot write"):
            log.step(2, train_loss=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.path.read_bytes() == whole
    log.step(2, train_loss=1.0)  # there is room again
    log.close()
    assert steps_of(tmp_path) == [1, 2]


def test_the_first_error_is_the_one_that_is_raised(tmp_path, monkeypatch):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(ZeroDivisionError), MetricsLog(tmp_path) as log:  # noqa: PT012
        monkeypatch.setattr(log._events, "close", fail)
        log._events._writer.close()
        raise ZeroDivisionError


def test_tensorboard_shows_the_same_numbers(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.step(1, train_loss=2.5, learning_rate=0.5, grad_norm=math.inf, tokens_per_second=1000, smoothed_loss=2.5)
        log.step(2, train_loss=2.0, learning_rate=0.25, grad_norm=1.5, val_loss=2.25, val_bits_per_byte=3.0)
        log.sample(2, "# no heading\n<b>\x1b")
    events = read_events(tmp_path)
    shown = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert shown == {
        "loss/train": [(1, 2.5), (2, 2.0)],
        "loss/val": [(2, 2.25)],
        "learning_rate": [(1, 0.5), (2, 0.25)],
        "grad_norm": [(1, math.inf), (2, 1.5)],
        "tokens_per_second": [(1, 1000.0)],
    }
    (sample,) = events.Tensors("sample/text_summary")
    assert sample.step == 2
    assert list(sample.tensor_proto.string_val) == [b"    # no heading\n    <b>\\x1b"]


def test_tensorboard_forgets_the_steps_after_the_checkpoint(tmp_path):
    write_steps(tmp_path, 1, 10)
    write_steps(tmp_path, 5, 6, resume_step=4)
    write_steps(tmp_path, 6, 7, resume_step=5)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3  # within one second, and none overwrote another
    events = read_events(tmp_path)
    assert [e.step for e in events.Scalars("loss/train")] == [1, 2, 3, 4, 5, 6, 7]


def test_an_evaluation_is_in_the_event_file_at_once(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.step(1, train_loss=1.0, val_loss=1.5)
        assert [e.step for e in read_events(tmp_path).Scalars("loss/val")] == [1]


def test_importing_is_light_and_closing_leaves_no_thread_or_warning(tmp_path):
    code = (
        "import sys, threading; from nanoeuler.metrics import MetricsLog\n"
        "assert 'tensorboardX' not in sys.modules\n"
        "with MetricsLog(sys.argv[1]) as log: log.step(1, train_loss=1e300, val_loss=2.0); log.sample(1, 'x')\n"
        "log.close(); assert threading.active_count() == 1"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""Checkpoints: what is written comes back bit for bit, and nothing that goes wrong costs the last good one."""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from nanoeuler.checkpoint import Checkpoint, find_checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig, TrainingConfig
from nanoeuler.errors import UserError
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("abcdefgh \n")
FILES = [
    "SHA256SUMS",
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "nanoeuler_tokenizer.json",
    "optimizer.safetensors",
    "training.json",
]


def make_checkpoint(seed: int = 0, dtype: str = "float32", **model: Any) -> Checkpoint:
    """Return a small checkpoint whose every number follows from the seed."""
    small = {"vocab_size": 10, "max_seq_len": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 16}
    config = Config(model=ModelConfig(**(small | model)), training=TrainingConfig(dtype=dtype))
    shapes = parameter_shapes(config.model)
    stored = np.dtype("float64" if dtype == "float64" else "float32")  # tf32 and bf16 are of products, not of weights
    bits = np.random.default_rng(seed).integers(0, 256, (3, flat_size(shapes), stored.itemsize), np.uint8)
    weights, m, v = bits.view(stored)[..., 0]  # any bits: NaN with payloads, denormals, both zeros
    flat = np.zeros_like(weights)  # zeros between the tensors
    for name, view in named_views(flat, shapes).items():
        view[...] = named_views(weights, shapes)[name]
    return Checkpoint(config, flat, (m, v), {"seed": seed, "loss": 0.1 + 0.2, "rng": 2**127 + seed}, TOKENIZER)


def assert_same(checkpoint: Checkpoint, other: Checkpoint) -> None:
    assert other.config == checkpoint.config
    assert (other.weights.dtype, other.weights.shape) == (checkpoint.weights.dtype, checkpoint.weights.shape)
    assert other.weights.tobytes() == checkpoint.weights.tobytes()
    assert checkpoint.moments is not None
    assert other.moments is not None
    for mine, theirs in zip(checkpoint.moments, other.moments, strict=True):
        assert (theirs.dtype, theirs.tobytes()) == (mine.dtype, mine.tobytes())
    assert {key: value for key, value in other.progress.items() if key != "step"} == checkpoint.progress
    assert other.tokenizer.fingerprint == checkpoint.tokenizer.fingerprint


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


# --- round trips

MODELS: dict[str, dict[str, Any]] = {
    "euler": {},
    "euler, grouped queries, prediction heads": {"num_kv_heads": 2, "num_prediction_heads": 3},
    "euler, tied": {"tie_embeddings": True, "num_kv_heads": 1},
    "gpt2": {"preset": "gpt2"},
    "gpt2, prediction heads": {"preset": "gpt2", "num_prediction_heads": 2},
    "gpt2, grouped queries: our own layout": {"preset": "gpt2", "num_kv_heads": 2, "tie_embeddings": False},
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "tf32", "bf16"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_round_trip_keeps_every_bit(model: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(dtype=dtype, **model)
    path = write_checkpoint(tmp_path, 500, checkpoint, keep=1)
    assert path == tmp_path / "checkpoints" / "step-00000500"
    heads = ["prediction_heads.safetensors"] if model.get("num_prediction_heads", 1) > 1 else []
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES + heads)
    again = read_checkpoint(path)
    assert_same(checkpoint, again)
    assert again.progress["step"] == 500
    assert again.weights.flags.writeable
    assert again.weights.flags.c_contiguous


def test_writing_changes_nothing_that_it_is_given(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(preset="gpt2")
    write_checkpoint(tmp_path, 1, checkpoint, keep=1)
    assert_same(make_checkpoint(preset="gpt2"), checkpoint)


def test_moments_are_optional(tmp_path: Path) -> None:
    checkpoint = make_checkpoint()
    path = write_checkpoint(tmp_path, 1, checkpoint, keep=1)
    without = read_checkpoint(path, moments=False)
    assert without.moments is None
    assert without.weights.tobytes() == checkpoint.weights.tobytes()
    path = write_checkpoint(tmp_path, 2, replace(checkpoint, moments=None), keep=1)
    assert not (path / "optimizer.safetensors").exists()
    assert read_checkpoint(path).moments is None


@pytest.mark.parametrize("model", [MODELS["euler, grouped queries, prediction heads"], MODELS["gpt2"]])
def test_transformers_loads_the_directory(model: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    checkpoint = make_checkpoint(**model)
    path = write_checkpoint(tmp_path, 1, checkpoint, keep=1)
    name = "GPT2LMHeadModel" if model.get("preset") == "gpt2" else "LlamaForCausalLM"
    loaded, loading = getattr(transformers, name).from_pretrained(path, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    assert not loading["unexpected_keys"]
    state = loaded.state_dict()
    for key, tensor in load_file(path / "model.safetensors").items():
        assert state[key].numpy().tobytes() == tensor.tobytes(), key


def test_the_directory_can_be_checked_and_read_by_others(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, make_checkpoint(), keep=1)
    lines = [line.split("  ") for line in (path / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    assert sorted(name for _, name in lines) == FILES[1:]
    for digest, name in lines:
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == digest
    modes = {(path / name).stat().st_mode & 0o777 for name in FILES if name != "nanoeuler_tokenizer.json"}
    assert len(modes) == 1  # the user's own umask: safetensors alone would leave 0o600
    if shutil.which("sha256sum") is None:
        pytest.skip("the tool sha256sum is not installed")
    check = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=path, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    assert check.stdout.count(": OK\n") == len(FILES) - 1


# --- which checkpoint


def test_find_takes_a_run_its_checkpoints_or_one_of_them(tmp_path: Path) -> None:
    for step in (5, 10, 7):
        path = write_checkpoint(tmp_path, step, make_checkpoint(step), keep=9)
    newest = tmp_path / "checkpoints" / "step-00000010"
    assert find_checkpoint(tmp_path) == (newest, [])
    assert find_checkpoint(tmp_path / "checkpoints") == (newest, [])
    assert find_checkpoint(path) == (path, [])
    shutil.copytree(path, tmp_path / "elsewhere")  # a copy under any name
    assert find_checkpoint(tmp_path / "elsewhere") == (tmp_path / "elsewhere", [])
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")  # a run's own files do not make it a checkpoint
    assert find_checkpoint(tmp_path) == (newest, [])


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000):
        write_checkpoint(tmp_path, step, make_checkpoint(), keep=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-100000000", "step-99999999"]
    write_checkpoint(tmp_path, 100_000_001, make_checkpoint(), keep=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-100000001", "step-100000000"]


def test_find_passes_over_damaged_ones_and_names_them(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, make_checkpoint(step), keep=3)
    folder = tmp_path / "checkpoints"
    flip(folder / "step-00000003" / "model.safetensors", 1000)
    (folder / "step-00000002" / "training.json").unlink()
    path, warnings = find_checkpoint(tmp_path)
    assert path == folder / "step-00000001"
    assert len(warnings) == 2
    assert "step-00000003/model.safetensors: damaged" in warnings[0]
    assert warnings[1].endswith("step-00000002/training.json: missing")
    with pytest.raises(UserError, match=r"step-00000003/model\.safetensors: damaged"):
        find_checkpoint(folder / "step-00000003")
    (folder / "step-00000001" / "SHA256SUMS").write_bytes(b"")
    with pytest.raises(UserError, match=r"(?s)no checkpoint in .* is intact.*step-00000003.*-00000002.*-00000001"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("place", ["", "nowhere", "file"])
def test_find_where_there_is_none(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a run?", encoding="utf-8")
    with pytest.raises(UserError, match=f"{place}: (give a run's directory|cannot be read: Not a directory)"):
        find_checkpoint(tmp_path / place)
    assert place == "file" or list_checkpoints(tmp_path / place) == []


def test_the_last_n_are_kept(tmp_path: Path) -> None:
    kept = []
    for step in range(10, 60, 10):
        write_checkpoint(tmp_path, step, make_checkpoint(step), keep=3)
        kept.append(names(tmp_path))
    assert [len(each) for each in kept] == [1, 2, 3, 3, 3]
    assert kept[-1] == ["step-00000030", "step-00000040", "step-00000050"]
    write_checkpoint(tmp_path, 60, make_checkpoint(60), keep=1)
    assert names(tmp_path) == ["step-00000060"]


def test_the_one_just_written_is_kept_whatever_later_steps_there_are(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write_checkpoint(tmp_path, step, make_checkpoint(step), keep=3)
    flip(tmp_path / "checkpoints" / "step-00000030" / "model.safetensors", 1000)  # so the run goes on from 20
    write_checkpoint(tmp_path, 25, make_checkpoint(25), keep=1)
    assert names(tmp_path) == ["step-00000025", "step-00000030"]
    assert find_checkpoint(tmp_path)[0].name == "step-00000025"


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    for seed in (1, 2):
        path = write_checkpoint(tmp_path, 10, make_checkpoint(seed), keep=3)
    assert names(tmp_path) == ["step-00000010"]
    assert_same(make_checkpoint(2), read_checkpoint(path))


# --- crashes


def test_leftovers_are_cleared_away_and_other_files_are_not(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, make_checkpoint(10), keep=3)
    folder = tmp_path / "checkpoints"
    for name in (".step-00000020.new", ".step-00000010.old", ".step-00000005.removed", ".step-00000020.removed"):
        shutil.copytree(folder / "step-00000010", folder / name)
        (folder / name / "model.safetensors").unlink()
    for name in ("notes", ".step-00000020.bak"):
        (folder / name).write_text("mine", encoding="utf-8")
    assert find_checkpoint(tmp_path) == (folder / "step-00000010", [])
    write_checkpoint(tmp_path, 20, make_checkpoint(20), keep=3)
    assert names(tmp_path) == [".step-00000020.bak", "notes", "step-00000010", "step-00000020"]


def test_a_crash_while_one_replaces_another_of_the_same_step(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 10, make_checkpoint(1), keep=3)
    path.rename(path.with_name(".step-00000010.old"))
    found, warnings = find_checkpoint(tmp_path)
    assert warnings == []
    assert_same(make_checkpoint(1), read_checkpoint(found))
    write_checkpoint(tmp_path, 20, make_checkpoint(2), keep=3)
    assert names(tmp_path) == ["step-00000010", "step-00000020"]


def test_all_is_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.fstat(fd).st_ino), fsync(fd))[1])
    monkeypatch.setattr(Path, "rename", lambda self, target: (events.append("rename"), rename(self, target))[1])
    path = write_checkpoint(tmp_path, 10, make_checkpoint(), keep=1)
    renamed = events.index("rename")
    assert {file.stat().st_ino for file in [path, *path.iterdir()]} <= set(events[:renamed])
    assert events[renamed + 1] == path.parent.stat().st_ino


KILLED = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    import numpy as np
    from tests_of_checkpoint import assert_same, make_checkpoint
    from nanoeuler.checkpoint import find_checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
    from nanoeuler.errors import UserError

    run = Path(sys.argv[1])
    checkpoints = {seed: make_checkpoint(seed) for seed in range(8)}

    def write(step, seed):
        write_checkpoint(run, step, checkpoints[seed], keep=2)

    def whole_one():
        "The step and seed of the newest checkpoint. Every one that has a name must be equal to one that was written."
        path, warnings = find_checkpoint(run)
        assert not warnings, warnings
        for path in reversed(list_checkpoints(run)):
            checkpoint = read_checkpoint(path)
            assert_same(checkpoints[checkpoint.progress["seed"]], checkpoint)
        return checkpoint.progress["step"], checkpoint.progress["seed"]

    def fork(work):
        "Do the work in a child, and return its process id."
        child = os.fork()
        if not child:
            work()
            os._exit(0)
        return child

    def at_every_operation(work, allowed):
        "Kill a child before its n-th file operation, for every n until it ends by itself."
        for n in range(1, 1000):
            def count(event, arguments, left=[n]):
                if event in OPERATIONS:
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
            child = fork(lambda: (sys.addaudithook(count), work()))
            ended = os.waitpid(child, 0)[1] == 0
            assert whole_one() in allowed, (n, whole_one(), allowed)
            if ended:
                return n
        raise AssertionError("never came to an end")

    OPERATIONS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod"}
    write(1, 1)
    write(2, 2)
    replacing = at_every_operation(lambda: write(2, 3), allowed=[(2, 2), (2, 3)])
    assert whole_one() == (2, 3)
    adding = at_every_operation(lambda: write(4, 4), allowed=[(2, 3), (4, 4)])
    assert whole_one() == (4, 4)

    def loop(step):
        while True:
            step += 1
            write(step, step % 8)

    newest, at_times = 4, 0
    generator, deadline = np.random.default_rng(0), time.monotonic() + float(sys.argv[2])
    while at_times < 10 or time.monotonic() < deadline:
        child = fork(lambda: loop(newest))
        time.sleep(generator.uniform(0.001, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        step, seed = whole_one()
        assert step >= newest and seed == step % 8
        newest, at_times = step, at_times + 1
    write(10**6, 0)
    assert len(os.listdir(run / "checkpoints")) == len(list_checkpoints(run)) == 2
    print(replacing, adding, at_times)
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork and no kill -9")
def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    """Before each of Python's file operations, and at random times, which also fall into safetensors' writing."""
    (tmp_path / "tests_of_checkpoint.py").write_bytes(Path(__file__).read_bytes())
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    (tmp_path / "run").mkdir()
    result = subprocess.run(
        [sys.executable, "killed.py", "run", "2"],
        cwd=tmp_path,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    replacing, adding, at_times = map(int, result.stdout.split())
    assert replacing > 30
    assert adding > 30
    assert at_times >= 10


def test_ctrl_c_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, 1, make_checkpoint(1), keep=2)
    monkeypatch.setattr(type(TOKENIZER), "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, 2, make_checkpoint(2), keep=2)
    assert names(tmp_path) == ["step-00000001"]


def interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


# --- disks and directories that refuse

FULL = textwrap.dedent(
    """
    import resource, signal, sys
    from dataclasses import replace
    from pathlib import Path
    from tests_of_checkpoint import make_checkpoint, names
    from nanoeuler.checkpoint import find_checkpoint, write_checkpoint
    from nanoeuler.errors import UserError
    from nanoeuler.tokenizer import CharTokenizer

    run, chinese = Path(sys.argv[1]), CharTokenizer("".join(map(chr, range(0x4E00, 0x9FA6))))  # the largest file
    write_checkpoint(run, 1, replace(make_checkpoint(1), tokenizer=chinese), keep=1)

    def contents():
        return {file.name: file.read_bytes() for file in find_checkpoint(run)[0].iterdir()}

    before = contents()
    sizes = sorted({len(content) for content in before.values()})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for size in sizes:  # each time another file is the one that does not fit
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, resource.RLIM_INFINITY))
        for step in (1, 2):
            try:
                write_checkpoint(run, step, replace(make_checkpoint(step), tokenizer=chinese), keep=1)
            except UserError as error:
                assert "File too large" in str(error), error
                assert str(error).endswith("The last good checkpoint is " + str(find_checkpoint(run)[0])), error
            else:
                raise AssertionError("it fitted")
            assert names(run) == ["step-00000001"]
            assert before == contents()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    write_checkpoint(run, 2, make_checkpoint(2), keep=1)
    print(len(sizes))
    """
)


def test_a_file_that_does_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="this system cannot limit the size of files")
    (tmp_path / "tests_of_checkpoint.py").write_bytes(Path(__file__).read_bytes())
    (tmp_path / "full.py").write_text(FULL, encoding="utf-8")
    (tmp_path / "run").mkdir()
    result = subprocess.run([sys.executable, "full.py", "run"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 5
    assert find_checkpoint(tmp_path / "run")[0].name == "step-00000002"


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Yield a directory on a file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if mount is None or not hasattr(os, "geteuid") or os.geteuid() != 0 or subprocess.run(command).returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    one = write_checkpoint(small_disk, 1, make_checkpoint(1), keep=9)
    refused = 0
    for room in range(0, 160_000, 8_000):  # what room is left decides which file does not fit
        (small_disk / "filler").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - room))
        message = refusal_to_write(small_disk, 2)
        (small_disk / "filler").unlink()
        if not message:
            break
        refused += 1
        assert "No space left on device" in message
        assert message.endswith(f"The last good checkpoint is {one}")
        assert names(small_disk) == ["step-00000001"]
        assert_same(make_checkpoint(1), read_checkpoint(one))
    assert 5 < refused < 20
    assert_same(make_checkpoint(2), read_checkpoint(find_checkpoint(small_disk)[0]))


def refusal_to_write(run: Path, step: int) -> str:
    try:
        write_checkpoint(run, step, make_checkpoint(step), keep=9)
    except UserError as error:
        return str(error)
    return ""


def test_the_first_checkpoint_does_not_fit(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 240_000)
    with pytest.raises(UserError, match=r"No space left on device.*There is no earlier good checkpoint$"):
        write_checkpoint(small_disk, 1, make_checkpoint(), keep=1)
    assert names(small_disk) == []


def test_a_read_only_disk(small_disk: Path) -> None:
    one = write_checkpoint(small_disk, 1, make_checkpoint(1), keep=1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    message = refusal_to_write(small_disk, 2)
    assert message.endswith(f"Read-only file system. The last good checkpoint is {one}")
    assert_same(make_checkpoint(1), read_checkpoint(one))


def test_a_run_directory_that_is_gone_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No such file or directory\. There is no earlier good checkpoint$"):
        write_checkpoint(tmp_path / "gone", 1, make_checkpoint(), keep=1)
    assert not (tmp_path / "gone").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"cannot write the checkpoint of step 1 into .*checkpoints: (File exists|Not a)"
    ):
        write_checkpoint(tmp_path / "run", 1, make_checkpoint(), keep=1)
    assert (tmp_path / "run" / "checkpoints").is_file()


def test_a_read_only_run_directory(tmp_path: Path) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("permissions do not bind root")
    one = write_checkpoint(tmp_path, 1, make_checkpoint(), keep=1)
    one.parent.chmod(0o500)
    try:
        with pytest.raises(UserError, match=f"Permission denied. The last good checkpoint is {one}"):
            write_checkpoint(tmp_path, 2, make_checkpoint(), keep=1)
        one.parent.chmod(0o000)
        for path in (tmp_path, one.parent, one):
            with pytest.raises(UserError, match="cannot be read: Permission denied"):
                find_checkpoint(path)
    finally:
        one.parent.chmod(0o700)
    assert find_checkpoint(tmp_path) == (one, [])


# --- damage


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    return write_checkpoint(run, 1, make_checkpoint(num_kv_heads=2), keep=1)


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """Return a good checkpoint that may be damaged."""
    return Path(shutil.copytree(good, tmp_path / "checkpoints" / "step-00000001"))


def refusal(path: Path) -> str:
    """Return the message with which a checkpoint is refused; find_checkpoint's must be no weaker."""
    with pytest.raises(UserError) as error:
        read_checkpoint(path)
    return str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit(name: str, copy: Path) -> None:
    file = copy / name
    size = file.stat().st_size * 8
    header = 8 * 8 if name.endswith("safetensors") else 0  # its length in 8 bytes, then JSON, then the numbers
    for bit in sorted({0, 5, 62, header + 3, header + 700, size // 2, size - 9, size - 1}):
        flip(file, bit)
        assert refusal(copy).startswith(str(copy)), bit
        assert name == "SHA256SUMS" or refusal(copy) == f"{file}: damaged: its SHA-256 is not the one in SHA256SUMS"
        with pytest.raises(UserError, match="step-00000001/"):
            find_checkpoint(copy)
        flip(file, bit)
    read_checkpoint(copy)


def test_a_flipped_bit_anywhere_in_the_checksums(copy: Path) -> None:
    size = (copy / "SHA256SUMS").stat().st_size * 8
    for bit in range(0, size, 29):
        flip(copy / "SHA256SUMS", bit)
        assert refusal(copy).startswith(str(copy))
        flip(copy / "SHA256SUMS", bit)


@pytest.mark.parametrize("name", FILES)
def test_truncation(name: str, copy: Path) -> None:
    file = copy / name
    whole = file.read_bytes()
    lines = [i + 1 for i, byte in enumerate(whole) if byte == 10] if name == "SHA256SUMS" else []
    for length in {0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 2, *lines} - {len(whole)}:
        file.write_bytes(whole[:length])
        assert refusal(copy).startswith(str(copy)), length
        file.write_bytes(whole)
    read_checkpoint(copy)


def test_checksums_cut_off_after_a_line(tmp_path: Path) -> None:
    class TwoFiles(CharTokenizer):
        def save(self, directory: str | Path) -> None:
            super().save(directory)
            (Path(directory) / "vocabulary.txt").write_text("sorted after all others", encoding="utf-8")

    path = write_checkpoint(tmp_path, 1, replace(make_checkpoint(), tokenizer=TwoFiles("abc")), keep=1)
    lines = (path / "SHA256SUMS").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(FILES)
    for length in range(len(lines)):
        (path / "SHA256SUMS").write_bytes(b"".join(lines[:length]))
        assert refusal(path).startswith(f"{path / 'SHA256SUMS'}: damaged")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(name: str, copy: Path) -> None:
    (copy / name).unlink()
    assert refusal(copy).startswith(f"{copy / name}: missing")
    (copy / name).mkdir()
    assert refusal(copy).startswith(f"{copy / name}: cannot be read: Is a directory")


def test_checksums_that_are_no_checksums(copy: Path) -> None:
    whole = (copy / "SHA256SUMS").read_bytes()
    for content in (b"\xff\xfe", b"\n", b"0" * 64, whole + b"x\n", whole + whole, whole.upper(), b"../" + whole):
        (copy / "SHA256SUMS").write_bytes(content)
        assert refusal(copy).startswith(f"{copy / 'SHA256SUMS'}: ")


# --- what the checksums say is whole, and is not a checkpoint of this run


def edited(copy: Path, change: Callable[[], Any]) -> str:
    """Return the message with which a checkpoint is refused after a change that its checksums agree with."""
    change()
    files = sorted(file for file in copy.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (copy / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return refusal(copy)


def edit_json(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(file.read_bytes())
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_another_architecture(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write_checkpoint(tmp_path / "other", 1, make_checkpoint(num_kv_heads=2, num_layers=3), keep=1)
    message = edited(copy, lambda: shutil.copy(other / "model.safetensors", copy))
    assert message.startswith(f"{copy / 'model.safetensors'}: tensor model.layers.2.")
    message = edited(copy, lambda: shutil.copy(other / "config.json", copy))
    assert message.startswith(f"{copy / 'config.json'}: another architecture than that in training.json")
    assert message.endswith("num_layers 3 (2)")


def test_a_model_of_somebody_else(copy: Path) -> None:
    message = edited(copy, lambda: edit_json(copy / "config.json", lambda config: config.update(model_type="mixtral")))
    assert message.startswith(f"{copy / 'config.json'}: a model of the type 'mixtral'")


def test_another_tokenizer(copy: Path) -> None:
    message = edited(copy, lambda: CharTokenizer("abc").save(copy))
    assert message == (
        f"{copy}: another tokenizer than the model was trained with: its vocab_size is 3, and training.json says 10"
    )
    message = edited(copy, lambda: CharTokenizer("ABCDEFGH \n").save(copy))
    assert f"{copy}: another tokenizer than the model was trained with: its fingerprint is " in message
    message = edited(copy, lambda: (copy / "nanoeuler_tokenizer.json").unlink())
    assert str(copy) in message
    assert "nanoeuler_tokenizer.json" in message


def test_other_numbers(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    wide = {name: np.zeros(tensor.shape) for name, tensor in weights.items()}
    message = edited(copy, lambda: save_file(wide, copy / "model.safetensors"))
    assert message.startswith(f"{copy / 'model.safetensors'}: tensor ")
    assert "is float64" in message


def test_other_moments(copy: Path) -> None:
    file = copy / "optimizer.safetensors"
    moments = load_file(file)
    message = edited(copy, lambda: save_file(moments | {"v": moments["v"][:-1].copy()}, file))
    assert message.startswith(f"{file}: moments are float32 ")
    assert edited(copy, lambda: save_file({"m": moments["m"]}, file)).startswith(f"{file}: ")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "config.json", "training.json"])
def test_files_that_are_something_else(name: str, copy: Path) -> None:
    for content in (b"", b"[1, 2]", b"{}", b"\xff" * 100, b'{"config": 1, "progress": 2, "tokenizer": 3}'):
        message = edited(copy, lambda content=content: (copy / name).write_bytes(content))
        assert message.startswith(f"{copy / name}:")


def test_progress_that_is_none(copy: Path) -> None:
    message = edited(copy, lambda: edit_json(copy / "training.json", lambda training: training.update(progress=3)))
    assert message.startswith(f"{copy / 'training.json'}: not what a checkpoint holds")


def test_training_json_of_a_later_version(copy: Path) -> None:
    change = lambda training: training["config"]["training"].update(momentum=3)  # noqa: E731
    message = edited(copy, lambda: edit_json(copy / "training.json", change))
    assert message.startswith(f"{copy / 'training.json'}: unknown key 'training.momentum'")


def test_bfloat16_weights(copy: Path) -> None:
    torch = pytest.importorskip("torch", reason="NumPy has no bfloat16, PyTorch has")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    with safe_open(copy / "model.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name).to(torch.bfloat16) for name in file.keys()}  # noqa: SIM118
    message = edited(copy, lambda: safetensors_torch.save_file(tensors, copy / "model.safetensors"))
    assert message.startswith(f"{copy / 'model.safetensors'}: ")

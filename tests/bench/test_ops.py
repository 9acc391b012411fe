"""The benchmark of the ops: that no op is without its entry, the arithmetic, and the report. No time is judged."""

import functools
import inspect
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nanoeuler import cpu
from nanoeuler.bench import measure, ops, ops_clock, ops_measure, ops_roofs
from nanoeuler.bench.__main__ import main
from nanoeuler.bench.contender import EAGER, OURS
from nanoeuler.bench.ops_arguments import in_order, make_arguments
from nanoeuler.bench.ops_clock import EventClock, HostClock, Sample
from nanoeuler.bench.ops_entries import OP_BENCHES, SIZES, OpBench, starts_of_documents, zipf
from nanoeuler.bench.ops_measure import Bench
from nanoeuler.bench.ops_recorded import NOT_OURS, Timed, recorded
from nanoeuler.errors import UserError

#: What the op table has besides ops.
INFRASTRUCTURE = {"Team", "empty", "from_numpy", "parallel", "repeated", "rope_tables", "to_numpy", "workers"}
TINY = SIZES["tiny"]
B, T, C, H, K, F, V, P = 2, 24, 32, 4, 2, 48, 65, 10_000
N, D = B * T, C // H
ENTRIES = {entry.name: entry for entry in OP_BENCHES}
every_entry = pytest.mark.parametrize("entry", OP_BENCHES, ids=lambda entry: entry.name)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small roofs, and little memory to read between two calls."""
    monkeypatch.setattr(ops_clock, "COLD_BYTES", 2**16)
    monkeypatch.setattr(ops_roofs, "COPY_BYTES", 2**16)
    monkeypatch.setattr(measure, "SGEMM_SIZE", 32)
    monkeypatch.setenv("COLUMNS", "200")


def need_kernels() -> Any:
    """Return the op table of the kernels, where Numba is there."""
    pytest.importorskip("numba", reason="kernels are written with numba: python -m pip install -e '.[gpu]'")
    from nanoeuler.device import op_table

    return op_table("sim")


def on_cpu(**others: Any) -> Bench:
    """Return what the ops of the CPU are timed with, without roofs."""
    return Bench("float32", TINY, cpu, HostClock(), **others)


# The entries.


def test_every_op_has_an_entry() -> None:
    assert {entry.op for entry in OP_BENCHES} == set(cpu.__all__) - INFRASTRUCTURE
    assert len(ENTRIES) == len(OP_BENCHES)


@every_entry
def test_every_parameter_is_given_and_said_to_be_read_or_written(entry: OpBench) -> None:
    parameters = set(inspect.signature(getattr(cpu, entry.op)).parameters)
    given = [*entry.written, *entry.read, *entry.added, *entry.constants]
    assert sorted(given) == sorted(parameters)
    assert set(entry.touched) <= set(entry.shapes)
    told = inspect.getdoc(getattr(cpu, entry.op)) or ""
    for name in entry.written:
        assert f"{name}: " not in told or "written" in told.partition(f"{name}: ")[2].partition("\n")[0]
    for name in entry.added:
        line = told.partition(f"{name}: ")[2].partition("\n")[0]
        assert "added to" in line or "updated" in line


HEAD = "linear_backward, head"
MOVED = {  # bytes in float32, counted by hand
    "rmsnorm_forward": 4 * (2 * N * C + N + C),
    "layernorm_backward": 4 * (3 * N * C + 2 * N + C + 2 * 2 * C),  # dweight and dbias are read and written
    "linear_forward, feed-forward": 4 * (N * C + N * F + F * C + F),
    HEAD: 4 * (2 * N * C + N * V + V * C + 2 * V * C),
    "attention_forward": 4 * (2 * B * T * H * D + 2 * B * T * K * D + B * H * T),
    "rope_forward": 4 * (2 * B * T * H * D + 2 * T * D // 2),
    "swiglu_backward": 4 * (2 * N * 2 * F + N * F),
    "cross_entropy_backward": 4 * (2 * N * V + N + 1) + 4 * N,  # and the targets
    "adamw": 4 * (3 * 2 * P + P + 1),
    "accumulate": 4 * (2 * P + 2 * P),
    "total": 4 * (N + 2),
    "fill": 4 * P,
    "dropout_forward": 4 * 2 * N * C + 8,
}


@pytest.mark.parametrize("name", MOVED)
def test_moved_bytes(name: str) -> None:
    assert ENTRIES[name].moved_bytes(TINY, "float32") == ENTRIES[name].moved_bytes(TINY, "tf32") == MOVED[name]


def test_only_rows_that_the_tokens_use_are_moved() -> None:
    used = len(set(zipf(N, V).tolist()))
    assert used < V
    forward, backward = (ENTRIES[f"embedding_{way}"].moved_bytes(TINY, "float32") for way in ("forward", "backward"))
    assert forward == 4 * (N * C + N + used * C + T * C)
    assert backward == 4 * (N * C + N + 2 * used * C + 2 * T * C)


def test_bytes_in_bfloat16_but_for_what_is_float32_in_it_too() -> None:
    def moved(name: str) -> int:
        return ENTRIES[name].moved_bytes(TINY, "bf16")

    assert moved("rmsnorm_forward") == 2 * (2 * N * C + C) + 4 * N
    assert moved("attention_forward") == 2 * (2 * B * T * H * D + 2 * B * T * K * D) + 4 * B * H * T
    assert moved(HEAD) == 2 * (2 * N * C + N * V + V * C) + 4 * 2 * V * C
    assert moved("adamw") == MOVED["adamw"]
    assert moved("global_norm") == 4 * (P + 1)


def test_flops() -> None:
    assert ENTRIES["rmsnorm_forward"].flops is None
    flops = {name: entry.flops(TINY.extents) for name, entry in ENTRIES.items() if entry.flops}
    assert flops["linear_forward, feed-forward"] == 2 * N * C * F
    assert flops["linear_backward, head"] == 2 * 2 * N * C * V
    pairs = sum(t + 1 for t in range(T))  # query t meets the keys up to its own
    assert flops["attention_forward"] == B * H * pairs * 2 * 2 * D  # q k and p v, a multiply-add each
    assert flops["attention_backward"] == 2.5 * flops["attention_forward"]
    seen = pairs * B - starts_of_documents(B, T).sum()  # but for those of other documents
    assert flops["attention_forward, documents"] == H * seen * 2 * 2 * D
    assert flops["attention_backward, documents"] == 2.5 * flops["attention_forward, documents"]
    assert len(flops) == 8


def test_documents_of_a_sequence() -> None:
    starts = starts_of_documents(3, 100)
    assert starts.dtype == np.int32
    assert all(len(set(sequence.tolist())) == 4 for sequence in starts)
    assert (np.diff(starts, axis=1) >= 0).all()
    assert all(starts[b, t] == t for b in range(3) for t in set(starts[b].tolist()))
    assert len({sequence.tobytes() for sequence in starts}) == 3
    assert starts_of_documents(1, 1).tolist() == [[0]]
    np.testing.assert_array_equal(starts, starts_of_documents(3, 100))


def test_size_of_gpt2() -> None:
    e = SIZES["124m"].extents
    assert (e["N"], e["C"], e["D"], e["F"], e["V"]) == (8192, 768, 64, 3072, 50257)
    assert e["P"] == 124_439_808
    assert ENTRIES["linear_forward, head"].flops(e) == 2 * 8192 * 768 * 50257


def test_tokens_are_as_frequent_as_words_of_a_text() -> None:
    tokens = zipf(200_000, 1000)
    assert tokens.dtype == np.int32
    assert tokens.min() == 0
    assert tokens.max() < 1000
    share = np.bincount(tokens) / tokens.size
    assert share[0] == pytest.approx(math.log(2) / math.log(1000), rel=0.05)
    assert share[9] == pytest.approx(math.log(11 / 10) / math.log(1000), rel=0.1)
    np.testing.assert_array_equal(tokens, zipf(200_000, 1000))


# The arguments.


@every_entry
def test_every_op_runs_on_its_arguments(entry: OpBench) -> None:
    a = make_arguments(entry, cpu, TINY, "float32")
    for name in entry.written:
        a[name][...] = np.nan
    for _ in range(3):
        getattr(cpu, entry.op)(*in_order(entry.op, a))
    for name in entry.written | entry.added:
        assert a[name].shape == TINY.shape(entry.shapes[name])
        assert np.isfinite(a[name]).all(), name
        assert entry.op == "fill" or np.abs(a[name]).max() > 0, name


def test_heads_lie_side_by_side_as_in_the_model() -> None:
    a = make_arguments(ENTRIES["attention_backward"], cpu, TINY, "float32")
    for names in (("q", "k", "v"), ("dq", "dk", "dv")):
        assert [a[name].shape for name in names] == [(B, T, H, D), (B, T, K, D), (B, T, K, D)]
        assert {a[name].strides for name in names} == {(4 * T * (H + 2 * K) * D, 4 * (H + 2 * K) * D, 4 * D, 4)}
        assert a[names[1]].ctypes.data - a[names[0]].ctypes.data == 4 * H * D


def test_backwards_get_what_their_forward_leaves() -> None:
    a = make_arguments(ENTRIES["layernorm_backward"], cpu, TINY, "float32")
    np.testing.assert_allclose(a["mean"], a["x"].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(a["rstd"], 1 / np.sqrt(a["x"].var(axis=1) + 1e-5), rtol=1e-4)
    a = make_arguments(ENTRIES["residual_rmsnorm_backward"], cpu, TINY, "float32")
    np.testing.assert_allclose(a["rstd"], 1 / np.sqrt((a["total"] ** 2).mean(axis=1) + 1e-5), rtol=1e-4)
    a = make_arguments(ENTRIES["attention_backward"], cpu, TINY, "float32")
    out, lse = np.empty_like(a["out"]), np.empty_like(a["lse"])
    cpu.attention_forward(out, lse, a["q"], a["k"], a["v"])
    np.testing.assert_array_equal(a["lse"], lse)


def test_arguments_in_bfloat16() -> None:
    kernels = need_kernels()
    a = make_arguments(ENTRIES["linear_backward, feed-forward"], kernels, TINY, "bf16")
    types = {name: x.dtype.name for name, x in a.items()}
    assert types == dict.fromkeys(("dx", "dout", "x", "weight"), "uint16") | {"dweight": "float32", "dbias": "float32"}
    exact = make_arguments(ENTRIES["linear_backward, feed-forward"], kernels, TINY, "float32")
    np.testing.assert_allclose(kernels.to_numpy(a["x"]), exact["x"], rtol=2**-8)


# PyTorch's side.


def test_every_op_has_an_equivalent_in_pytorch() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed, and this test compares with it")
    from nanoeuler.bench.ops_pytorch import EQUIVALENTS

    assert set(EQUIVALENTS) == {entry.op for entry in OP_BENCHES}


@every_entry
def test_pytorch_does_the_same(entry: OpBench) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed, and this test compares with it")
    from nanoeuler.bench import ops_pytorch

    a = make_arguments(entry, cpu, TINY, "float32")
    theirs = ops_pytorch.equivalent(entry.op, a, "float32")
    getattr(cpu, entry.op)(*in_order(entry.op, a))
    before = {name: np.array(x) for name, x in a.items() if isinstance(x, np.ndarray)}
    outputs = theirs()
    assert ops_pytorch.difference(entry.op, outputs, a) < 1e-5
    for name, x in before.items():
        np.testing.assert_array_equal(a[name], x, err_msg=f"PyTorch changed {name}")
    for name in {*entry.written, *entry.added} & set(ops_pytorch.EQUIVALENTS[entry.op][0].split()):
        a[name][...] += 1
        assert ops_pytorch.difference(entry.op, outputs, a) > 1e-3
        a[name][...] = np.nan
        assert math.isnan(ops_pytorch.difference(entry.op, outputs, a))
        a[name][...] = before[name]


def test_pytorch_takes_part() -> None:
    """On the CPU, as it does on a GPU."""
    pytest.importorskip("torch", reason="PyTorch is not installed, and this test compares with it")
    from nanoeuler.bench import ops_pytorch

    result = ops_measure.measure_op(ENTRIES["rmsnorm_backward"], on_cpu(pytorch=ops_pytorch), 1)
    assert list(result["contenders"]) == [OURS, EAGER]
    ours, theirs = (result["contenders"][name]["run_seconds"]["median"] for name in (OURS, EAGER))
    assert result["contenders"][EAGER]["our_time"]["of_medians"] == pytest.approx(ours / theirs)


def test_pytorch_that_differs_or_fails_is_left_out() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA out of memory: so much\nand more")

    given = {"release": lambda: None, "TOLERANCES": {"float32": 1e-3}, "equivalent": lambda *_: lambda: 0}
    for difference, reason in ((0.5, "differ from ours by 0.5"), (math.nan, "differ from ours by nan")):
        pytorch = SimpleNamespace(**given, difference=lambda *_, d=difference: d)
        result = ops_measure.measure_op(ENTRIES["copy"], on_cpu(pytorch=pytorch), 1)
        assert list(result["contenders"]) == [OURS]
        assert reason in result["skipped"][EAGER]
    pytorch = SimpleNamespace(**given | {"equivalent": fail})
    result = ops_measure.measure_op(ENTRIES["copy"], on_cpu(pytorch=pytorch), 1)
    assert result["skipped"] == {EAGER: "what it needs besides does not fit in memory"}


def test_pytorch_that_cannot_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = on_cpu()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert ops_measure.with_pytorch(bench) == (bench, {EAGER: "it is not installed (pip install torch)"})
    nothing = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), __version__="9.9")
    monkeypatch.setitem(sys.modules, "torch", nothing)
    assert ops_measure.with_pytorch(bench) == (bench, {EAGER: "its version 9.9 sees no GPU"})


# The clocks.


class Gpu:
    """A GPU as :class:`EventClock` sees it: it works through a queue, on a clock of its own; Numba's names."""

    def __init__(self) -> None:
        self.host = self.device = 0.0  # seconds: the host's time, and when the queue will be empty
        self.log: list[str] = []

    def work(self, name: str, host: float, device: float) -> None:
        """Launch something that costs the host and then the GPU some time."""
        self.log.append(name)
        self.host += host
        self.device = max(self.device, self.host) + device

    def event(self) -> SimpleNamespace:
        """Return an event: it notes when the GPU comes to it."""
        event = SimpleNamespace(time=math.nan)

        def record() -> None:
            self.host += 1e-6
            event.time = max(self.device, self.host)

        event.record, event.query = record, lambda: self.host >= event.time
        return event

    @staticmethod
    def event_elapsed_time(start: Any, end: Any) -> float:
        """Return milliseconds."""
        return 1000 * (end.time - start.time)

    def synchronize(self) -> None:
        """Let the host wait."""
        self.host = max(self.host, self.device)

    def seconds_of(self, run: Any, *arguments: Any) -> float:
        """Stand in for measure.seconds_of."""
        before = self.host
        run(*arguments)
        return self.host - before


def event_clock(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, launch: float, read: float) -> EventClock:
    """Return a clock on it; a cold read takes so long to launch, and to do. Runs are repeated as they are."""
    monkeypatch.setattr(measure, "seconds_of", gpu.seconds_of)
    monkeypatch.setattr(ops_clock, "cold_read", lambda ops, size: partial(gpu.work, "cold", launch, read))
    monkeypatch.setattr(ops_clock, "recorded", lambda run: Timed(run, run, True))
    return EventClock(None, gpu)


@pytest.mark.parametrize("kernel", [5e-6, 3e-3, 2.0])
def test_events_see_the_gpu_alone_and_launches_are_counted_apart(
    kernel: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launching takes far longer than a small kernel; only what the GPU does with cold caches is its time."""
    gpu = Gpu()
    clock = event_clock(gpu, monkeypatch, 1e-5, 8e-5)
    run = partial(gpu.work, "run", 2e-4, kernel)
    sample = clock.sample(clock.prepared(run))
    assert sample.seconds == pytest.approx(kernel, rel=1e-3)
    assert sample.launch == pytest.approx(2e-4)
    assert sample.hidden
    assert gpu.log[:2] == ["run", "run"]  # the launch, and the call that says how long it takes
    calls = {5e-6: 50, 3e-3: 6, 2.0: 1}[kernel]
    reads = (1, 2, 4)  # the last is enough to launch in time
    assert gpu.log[2:] == [name for n in reads for _ in range(calls) for name in (*["cold"] * n, "run")]
    assert clock.until_done(run) == pytest.approx(kernel + 2e-4)


def test_what_is_timed_is_the_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call from Python takes 200 µs of the host's time, its graph 5: that is behind one read, and no more is read."""
    gpu = Gpu()
    clock = event_clock(gpu, monkeypatch, 5e-6, 2e-4)
    run, repeat = partial(gpu.work, "run", 2e-4, 8e-6), partial(gpu.work, "graph", 5e-6, 8e-6)
    sample = clock.sample(Timed(run, repeat, True))
    assert (sample.seconds, sample.launch, sample.hidden) == (pytest.approx(8e-6), pytest.approx(2e-4), True)
    assert gpu.log == ["run", "graph", *["cold", "graph"] * 50]


def test_a_gpu_that_waits_for_the_host_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launching a read takes as long as the read: no number of them gives the host a lead, and the time is too long."""
    gpu = Gpu()
    clock = event_clock(gpu, monkeypatch, 6e-5, 6e-5)
    sample = clock.sample(clock.prepared(partial(gpu.work, "run", 2e-4, 8e-6)))
    assert sample.hidden is False
    assert sample.seconds > 1e-4
    assert gpu.log.count("cold") == 50 * (1 + 2 + 4 + 8 + 16)


def test_caches_are_cold_when_a_call_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(ops_clock, "cold_read", lambda ops, size: partial(log.append, "cold"))
    monkeypatch.setattr(measure, "seconds_of", lambda run: (log.append("start"), run(), log.append("end"), 0.5)[-1])
    for clock, expected in (
        (HostClock(cpu), ["cold", "start", "run", "end"]),
        (HostClock(), ["start", "run", "end"]),
    ):
        log.clear()
        assert clock.sample(clock.prepared(partial(log.append, "run"))) == Sample(0.5)
        assert log == expected


def test_turns_rotate_and_their_first_call_is_not_timed() -> None:
    log: list[str] = []
    clock = HostClock()
    samples = ops_clock.time_in_turns({name: clock.prepared(partial(log.append, name)) for name in "abc"}, clock, 4)
    assert "".join(log) == "aaaabbbbccccbbbbccccaaaa"
    assert [len(turn) for turn in samples["a"]] == [3, 3]


class OnDevice:
    """An array as launch sees one that lies on a GPU."""

    dtype, __cuda_array_interface__ = np.dtype(np.float32), {"data": (256, False)}


@pytest.mark.parametrize("captured", [True, False])
def test_launches_are_recorded_once(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards neither the run's Python nor a binding is repeated: one graph is started, or what is bound is done."""
    need_kernels()
    from nanoeuler.gpu import graph, launch

    log: list[str] = []

    class Kernel:
        def __getitem__(self, configuration: Any) -> Any:
            log.append("bind")
            return lambda *arguments: log.append("kernel")

    def run() -> None:
        log.append("python")
        launch.launch(Kernel(), 2, 64, OnDevice())

    def capture(work: Any) -> Any:
        work("stream")
        return (SimpleNamespace(launch=lambda: log.append("graph")), "") if captured else (None, "no capture here")

    monkeypatch.setattr(graph.Graph, "capture", staticmethod(capture))
    timed = recorded(run)
    assert (timed.run, timed.graph, timed.without_graph) == (run, captured, "" if captured else "no capture here")
    log.clear()
    timed.repeat()
    timed.repeat()
    assert log == ["graph" if captured else "kernel"] * 2


def test_what_launches_nothing_of_ours_is_called_as_it_is() -> None:
    """PyTorch, and the driver's copy."""
    need_kernels()
    log: list[str] = []
    run = partial(log.append, "run")
    assert recorded(run) == Timed(run, run, False, NOT_OURS)
    assert log == ["run"]


def test_roofs_count_what_they_do() -> None:
    with cpu.Team(2):
        roofs = ops_roofs.on_cpu(2)
        for roof in roofs.values():
            roof.run()
    assert roofs["copy"].work == 2 * 2**16
    assert roofs["product"].work == 2 * 2 * 32**3


# Versions.


def test_versions_are_compared_before_they_are_timed() -> None:
    """One that writes nothing, one that is wrong, one that fails, and one that is right."""

    def version(name: str, change: Any) -> SimpleNamespace:
        @functools.wraps(cpu.rmsnorm_forward)
        def run(out: np.ndarray, *others: Any) -> None:
            if name != "idle":
                cpu.rmsnorm_forward(out, *others)
                change(out)

        return SimpleNamespace(name=name, idea=f"it is {name}", run=run)

    def fail(_: Any) -> None:
        raise ValueError("no such thing\nat all")

    ladder = [
        version("idle", None),
        version("wrong", lambda out: out.__setitem__((3, 5), 0)),
        version("failing", fail),
        version("right", lambda out: None),
        SimpleNamespace(name="in use", idea="the best", run=cpu.rmsnorm_forward),
    ]
    result = ops_measure.measure_op(ENTRIES["rmsnorm_forward"], on_cpu(ladders={"rmsnorm_forward": ladder}), 1)
    assert list(result["contenders"]) == [OURS, "right"]
    assert [contender["idea"] for contender in result["contenders"].values()] == ["the best", "it is right"]
    assert set(result["skipped"]) == {"idle", "wrong", "failing"}
    assert "nan" in result["skipped"]["idle"]
    assert "its results differ from ours by" in result["skipped"]["wrong"]
    assert result["skipped"]["failing"] == "it failed here: ValueError: no such thing"


def test_versions_that_add_start_from_0() -> None:
    """As the op did: the difference would be as large as the gradient else."""
    run = SimpleNamespace(name="same", idea="", run=cpu.linear_backward)
    ladders = {"linear_backward": [run, run]}
    entry = ENTRIES["linear_backward, feed-forward"]
    assert ops_measure.measure_op(entry, on_cpu(ladders=ladders), 1)["skipped"] == {}


def test_ladders_end_with_an_op() -> None:
    need_kernels()
    for op, versions in ops_measure.find_ladders().items():
        assert op in {entry.op for entry in OP_BENCHES}
        assert not {version.name for version in versions} & {OURS, EAGER, ops_measure.KERNEL}


def test_our_kernel_stands_beside_cublas() -> None:
    """And the op is left as it was."""
    need_kernels()
    from nanoeuler.gpu.linear import products

    used: list[bool] = []
    ops_measure.without_cublas(lambda: used.append(products.use_cublas))()
    assert (used, products.use_cublas) == ([False], True)
    result = ops_measure.measure_op(ENTRIES["linear_forward, head"], on_cpu(cublas=True), 1)
    assert list(result["contenders"]) == [OURS, ops_measure.KERNEL]
    assert list(ops_measure.measure_op(ENTRIES["fill"], on_cpu(cublas=True), 1)["contenders"]) == [OURS]


def test_op_that_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(size: int, dtype: Any) -> None:
        raise RuntimeError("[CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in trouble")

    monkeypatch.setattr("nanoeuler.bench.ops_arguments._array", lambda ops, shape, dtype: full(1, dtype))
    main(["ops", "--size", "tiny", "--ops", "copy,residual", "--steps", "1"])
    output = capsys.readouterr().out
    assert f"residual_forward without {OURS}: its arrays do not fit in memory" in output


# The command.


def test_command_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ops.json"
    main(["ops", "--device", "cpu", "--size", "tiny", "--steps", "2", "--workers", "2", "--json", str(file)])
    report = json.loads(file.read_text())
    assert (report["device"], report["dtype"], report["size"]["name"]) == ("cpu", "float32", "tiny")
    assert report["machine"]["workers"] == 2
    assert report["skipped"] == {}
    assert [(op["op"], op["case"]) for op in report["ops"]] == [(entry.op, entry.case) for entry in OP_BENCHES]
    for op in report["ops"]:
        (numbers,) = op["contenders"].values()
        median = numbers["run_seconds"]["median"]
        assert [len(turn) for turn in numbers["run_seconds"]["rounds"]] == [3]
        assert numbers["first_seconds"] > 0
        assert numbers["launch_seconds"] is None
        assert (numbers["graph"], numbers["launches_hidden"]) == (None, None)  # nothing is launched
        assert numbers["bytes_per_second"] == pytest.approx(op["bytes"] / median)
        if op["flops"] is None:
            assert op["roof"]["name"] == "copy"
            rate = numbers["bytes_per_second"]
        else:
            assert op["roof"]["name"] == "product"
            rate = op["flops"] / median
            assert numbers["flops_per_second"] == pytest.approx(rate)
        assert numbers["share"] == pytest.approx(rate / op["roof"]["per_second"])
    assert set(report["roofs"]) == {"copy", "product"}
    output = capsys.readouterr().out
    for text in ("cpu, size tiny", "GFLOP/s", "% of copy", "% of product", "linear_backward, head", "adamw", "µs"):
        assert text in output
    assert "first call" not in output  # nothing is compiled
    assert (report["first_calls"], report["smallest"]) == ({}, None)
    assert [path.name for path in tmp_path.iterdir()] == ["ops.json"]


def test_command_on_the_simulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_kernels()
    file = tmp_path / "ops.json"
    main(["ops", "--device", "sim", "--ladder", "--ops", "cross_entropy", "--steps", "1", "--json", str(file)])
    report = json.loads(file.read_text())
    assert report["roofs"] == {}
    for op in report["ops"]:
        assert op["roof"] is None
        assert op["skipped"] == {}
        for numbers in op["contenders"].values():
            assert numbers["run_seconds"]["median"] > 0
            assert not {"share", "bytes_per_second", "flops_per_second"} & set(numbers)
    assert [len(op["contenders"]) > 3 for op in report["ops"]] == [False, True]
    output = capsys.readouterr().out
    for text in (
        "sim, size tiny",
        "first call",
        "the ladder of cross_entropy_backward",
        "in use",
        "say nothing about a GPU",
    ):
        assert text in output
    assert "B/s" not in output
    seconds = sum(op["contenders"][OURS]["first_seconds"] for op in report["ops"])
    assert report["first_calls"]["our_seconds"] == pytest.approx(seconds)
    assert "for 2 ops, and before them" in output


ON_STAND_IN = """
import sys
from nanoeuler import device
from nanoeuler.bench import ops_clock, ops_roofs
from nanoeuler.bench.__main__ import main
from nanoeuler.gpu import cublas

device.why_no_gpu = lambda: None
cublas.available = lambda: False
ops_clock.GPU_COLD_BYTES = ops_roofs.COPY_BYTES = 4096
ops_roofs.PRODUCT_SIZE, ops_clock.MOST_CALLS, ops_clock.MOST_READS = 16, 2, 2
main(sys.argv[1:])
"""


def test_command_on_a_gpu_that_a_stand_in_plays(tmp_path: Path) -> None:
    """The way of a GPU, launch by launch on device arrays, in a process of its own."""
    need_kernels()
    file = tmp_path / "ops.json"
    options = ["--device", "gpu", "--size", "tiny", "--ops", "copy,linear_forward", "--steps", "1", "--no-torch"]
    command = [sys.executable, "-c", ON_STAND_IN, "ops", *options, "--json", str(file)]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "COLUMNS": "200"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert [op["op"] for op in report["ops"]] == ["copy", "linear_forward", "linear_forward"]
    for op in report["ops"]:
        assert op["skipped"] == {}
        numbers = op["contenders"][OURS]
        assert numbers["launch_seconds"] > 0
        assert numbers["share"] > 0
        assert numbers["graph"] is False  # the stand-in captures nothing
        assert "graphs cannot be built here" in numbers["without_graph"]
        assert numbers["launches_hidden"] is False  # and it does its work at once
    copy, product = (report["ops"][i]["roof"] for i in (0, 1))
    assert (copy["about"], copy["without_graph"]) == ("the driver's copy, device to device", NOT_OURS)
    assert product["about"] == "our kernel"
    assert report["smallest"]["seconds"] > 0
    assert report["first_calls"]["our_seconds"] > 0
    assert report["first_calls"]["setup_seconds"] > 0
    for text in (
        "launch",
        "≤ ",
        "launched one by one, 3 of 3: graphs cannot be built here",
        "may have waited for the host",
        "roofs not launched in time: of 3 of 3 ops",
        "a launch that sets one number takes",
        "for 3 ops, and before them",
        "kernels are compiled in every process",
    ):
        assert text in done.stdout


def test_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine = ops.describe_machine(1) | {"load": 99.0}
    monkeypatch.setattr(ops, "describe_machine", lambda workers, *packages: dict(machine))
    main(["ops", "--size", "tiny", "--ops", "total", "--steps", "1"])
    assert "warning: others are at work on this machine (load 99.0)" in capsys.readouterr().err


def test_ops_are_chosen_by_name() -> None:
    chosen = [entry.name for entry in ops.select("linear, rope_backward,total,linear_forward")]
    linear = [name for name in ENTRIES if name.startswith("linear")]
    assert chosen == [*linear, "rope_backward", "total"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "gpx"], r"unknown device 'gpx' \(did you mean 'gpu'\?\); --device takes cpu, gpu, sim"),
        (["--size", "smal"], r"unknown size 'smal' \(did you mean 'small'\?\); --size takes tiny, small, 124m"),
        (["--ops", "linear,rmsnrom"], r"unknown op 'rmsnrom' \(did you mean 'rmsnorm'\?\); ops are embedding, dropout"),
        (["--ops", "rope_forwrad"], r"unknown op 'rope_forwrad' \(did you mean 'rope_forward'\?\)"),
        (
            ["--device", "sim", "--dtype", "bf61"],
            r"unknown dtype 'bf61' \(did you mean 'bf16'\?\); --dtype takes float32, tf32, bf16",
        ),
        (["--dtype", "bf16"], "--device cpu computes in float32: --dtype bf16 takes --device gpu or sim"),
        (["--ladder"], "--ladder takes --device gpu or sim"),
        (["--device", "sim", "--dtype", "bf16", "--ladder"], "the ladders are of kernels in float32"),
        (["--steps", "0"], "--steps: '0' is not a whole number of at least 1"),
        (["--stpes", "2"], r"unknown option '--stpes' \(did you mean '--steps'\?\)"),
        (["--json", "nowhere/ops.json"], "--json nowhere/ops.json: cannot write it"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(["ops", *arguments])

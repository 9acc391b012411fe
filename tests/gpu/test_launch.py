"""Launches: where they run, what they are given, how they are recorded and repeated."""

from typing import Any, ClassVar

import numpy as np
import pytest

from nanoeuler.gpu import graph, launch, memory
from nanoeuler.gpu.backend import cuda
from nanoeuler.gpu.bfloat16 import from_bfloat16, narrow, to_bfloat16, widen
from nanoeuler.gpu.launch import executing, recording, repeated


@cuda.jit
def add_scaled(out: Any, x: Any, scale: Any) -> None:
    """Add ``scale x``: a thread an element."""
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = narrow(widen(out[i]) + widen(x[i]) * scale)


def test_a_launch_on_host_arrays_runs_on_the_cpu() -> None:
    out, x = np.ones(5, np.float32), np.arange(5, dtype=np.float32)
    launch.launch(add_scaled, 1, 32, out, x, 0.5)
    assert out.tolist() == [1, 1.5, 2, 2.5, 3]


def test_floats_are_given_as_float32_and_integers_as_they_are() -> None:
    with recording(execute=False) as work:
        launch.launch(add_scaled, 1, 32, np.zeros(3, np.float32), np.zeros(3, np.float32), 0.1)
        launch.launch(add_scaled, 1, 32, np.zeros(3, np.float32), np.zeros(3, np.float32), 2)
    assert type(work[0].args[2]) is np.float32
    assert type(work[1].args[2]) is int


def test_arrays_of_bfloat16_get_the_kernel_that_converts() -> None:
    out, x = to_bfloat16(np.ones(5)), to_bfloat16(np.arange(5))
    launch.launch(add_scaled, 1, 32, out, x, 0.5)
    assert from_bfloat16(out).tolist() == [1, 1.5, 2, 2.5, 3]
    with recording(execute=False) as work:
        launch.launch(add_scaled, 1, 32, out, x, 0.5)
        launch.launch(add_scaled, 1, 32, out, x, 0.5, low=False)
    assert work[0].kernel is not add_scaled
    assert work[1].kernel is add_scaled


@pytest.mark.parametrize("grid", [0, (3, 0), (0, 1, 1)])
def test_an_empty_grid_launches_nothing(grid: Any) -> None:
    with recording() as work:
        launch.launch(add_scaled, grid, 32, np.zeros(0, np.float32), np.zeros(0, np.float32), 1.0)
    assert work == []


def test_the_executor_can_be_chosen_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(launch.simt, "run", lambda *a, **k: asked.append((k["executor"], k["order"], k["seed"])))
    arrays = np.zeros(3, np.float32), np.zeros(3, np.float32)
    with executing("checked", "random", 7):
        launch.launch(add_scaled, 1, 32, *arrays, 1.0)
        with pytest.raises(ZeroDivisionError), executing("ptx"):
            raise ZeroDivisionError
        launch.launch(add_scaled, 1, 32, *arrays, 1.0)
    launch.launch(add_scaled, 1, 32, *arrays, 1.0)
    assert asked == [("checked", "random", 7), ("checked", "random", 7), ("compiled", "forward", 0)]


def test_recording_without_running_leaves_arrays_alone() -> None:
    out = np.ones(3, np.float32)
    with recording(execute=False) as work:
        launch.launch(add_scaled, 2, 32, out, out, 1.0)
    assert out.tolist() == [1, 1, 1]
    assert [(w.grid, w.block) for w in work] == [(2, 32)]


def test_a_repeated_function_is_called_once_and_its_launches_every_time() -> None:
    out, x, calls = np.zeros(3, np.float32), np.ones(3, np.float32), []

    def function() -> None:
        calls.append(1)
        launch.launch(add_scaled, 1, 32, out, x, 2.0)
        launch.launch(add_scaled, 1, 32, out, x, 0.5)

    again = repeated(function)
    for i in range(3):
        again()
        assert out.tolist() == [2.5 * (i + 1)] * 3
    x[:] = 2  # read anew every time
    again()
    assert out.tolist() == [12.5] * 3
    assert len(calls) == 1


def test_what_a_repetition_would_leave_out_is_refused_while_recording() -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(RuntimeError, match="copied to the host"):
        repeated(lambda: memory.to_numpy(x) and None)()
    with pytest.raises(RuntimeError, match="copied to the device"):
        repeated(lambda: memory.from_numpy(x, x))()


class OnDevice:
    """An array that says it lies in the GPU's memory."""

    dtype, ndim, size, shape = np.dtype(np.float32), 1, 4, (4,)
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}


class Kernel:
    """Stands for a compiled kernel: tells which launches were bound, and which were made on which stream."""

    py_func = None

    def __init__(self) -> None:
        self.bound: list[Any] = []
        self.made: list[Any] = []

    def __getitem__(self, configuration: Any) -> Any:
        self.bound.append(configuration)
        return lambda *args: self.made.append((configuration[2], args))


class Builder:
    """Stands for a graph builder of cuda.core."""

    def __init__(self, kernel: Kernel, fails: str = "") -> None:
        self.kernel, self.fails, self.ended, self.launched = kernel, fails, False, 0

    def begin_building(self, mode: str) -> None:
        if self.fails == "begin":
            raise RuntimeError("no capture here")

    def end_building(self) -> None:
        self.ended = True

    def complete(self) -> "Builder":
        return self

    def launch(self, stream: Any) -> None:
        self.launched += 1


def test_launches_on_the_gpu_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph.Graph, "capture", staticmethod(lambda work: (None, "none today")))
    kernel, x = Kernel(), OnDevice()
    again = repeated(lambda: [launch.launch(kernel, 2, 64, x, 1.5, shared_bytes=8) for _ in range(2)] and None)
    for _ in range(4):
        again()
    assert again.graph is None
    assert again.without_graph == "none today"
    assert len(kernel.made) == 8
    assert set(kernel.bound) == {(2, 64, 0, 8)}
    assert len(kernel.bound) == 4  # two when recorded, two bound for all repetitions


def captured(monkeypatch: pytest.MonkeyPatch, builder: Builder) -> Any:
    """Let graphs be captured by a stand-in."""

    def capture(work: Any) -> Any:
        try:
            builder.begin_building("thread_local")
            work(builder)
            builder.end_building()
        except RuntimeError as error:
            return None, str(error)
        return graph.Graph(builder, "default"), ""

    monkeypatch.setattr(graph.Graph, "capture", staticmethod(capture))


def test_a_captured_step_is_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = Kernel(), OnDevice()
    builder = Builder(kernel)
    captured(monkeypatch, builder)
    library = []

    def function() -> None:
        launch.launch(kernel, 2, 64, x)
        launch.call(lambda: library.append(launch.current_stream()))

    again = repeated(function)
    for _ in range(3):
        again()
    assert [stream for stream, _ in kernel.made] == [0, builder]  # once for real, once into the graph
    assert library == [0, builder]
    assert builder.launched == 2
    assert launch.current_stream() == 0


def test_where_nothing_can_be_captured_launches_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = Kernel(), OnDevice()
    captured(monkeypatch, Builder(kernel, fails="begin"))
    again = repeated(lambda: launch.launch(kernel, 2, 64, x))
    for _ in range(3):
        again()
    assert again.graph is None
    assert again.without_graph == "no capture here"
    assert [stream for stream, _ in kernel.made] == [0, 0, 0]


def test_a_capture_that_fails_says_why_and_raises_nothing() -> None:
    def work(stream: Any) -> None:
        raise AssertionError("never reached without a GPU")

    found, why = graph.Graph.capture(work)
    assert found is None
    assert "cannot be" in why

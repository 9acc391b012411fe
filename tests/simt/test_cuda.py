"""The stand-in for numba.cuda: its host API does what a GPU's does, and numba-cuda's own place is left as it was."""

import asyncio
import importlib
import sys
import typing

import numpy as np
import pytest
from simt.kernels.toolkit import need_toolkit

from nanoeuler.errors import UserError
from nanoeuler.simt import UnsupportedError, cuda, names
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.cuda import float32, int32
from nanoeuler.simt.cuda import random as cuda_random
from nanoeuler.simt.cuda.dispatch import Runner, launches_go_to
from nanoeuler.simt.cuda.install import genuine, installed
from nanoeuler.simt.faults import NEGATIVE_INDEX, UNINITIALISED, Fault
from nanoeuler.simt.launch import Launch


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += x[i]


@cuda.jit
def copy(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


def watched(faults: list[Fault]) -> Runner:
    """Return a runner that collects the faults of each launch."""

    def execute(kernel: typing.Any, launch: Launch, args: tuple) -> None:
        faults.extend(collect_faults(kernel, launch, args))

    return Runner(execute)


def recorded(launches: list) -> Runner:
    """Return a runner that runs nothing and keeps what it was given."""
    return Runner(lambda kernel, launch, args: launches.append((launch, args)))


# Names of kernels


def test_every_kernel_name_is_there_with_a_docstring_and_known_by_identity() -> None:
    for name in names.CALLS | {index.split(".")[0] for index in names.INDICES}:
        prefix, _, attribute = name.rpartition(".")
        stub = getattr(getattr(cuda, prefix), attribute) if prefix else getattr(cuda, name)
        assert stub.__doc__, name
        assert prefix or names.cuda_name(stub) == name or name in names.VECTORS
    assert names.cuda_name(cuda) == ""
    assert names.cuda_name(cuda.libdevice) == "libdevice"
    assert cuda.libdevice.sinf.__doc__


@pytest.mark.parametrize(
    "use",
    [lambda: cuda.grid(1), lambda: cuda.atomic.add(1, 2, 3), lambda: cuda.threadIdx.x, lambda: cuda.cg.this_grid()],
)
def test_a_kernel_name_used_by_the_host_says_where_it_works(use: typing.Callable) -> None:
    with pytest.raises(AttributeError, match="inside a kernel only"):
        use()


def test_scalar_and_vector_types_are_those_of_numba() -> None:
    from numba import types

    assert cuda.float32 is types.float32
    assert cuda.boolean is types.boolean
    assert cuda.float32x4.__doc__ == "Return a vector of 4 float32 with components x, y, z, w."
    assert {"jit", "grid", "float32", "int4"} <= set(cuda.__all__)


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        cuda.no_such_name  # noqa: B018


# jit


def test_all_forms_of_jit() -> None:
    def function(x):
        x[0] = 3

    signature = "void(float32[:])"
    forms = [cuda.jit(function), cuda.jit()(function), cuda.jit(signature)(function), cuda.jit([signature])(function)]
    forms += [cuda.jit((float32[:],))(function), cuda.jit(fastmath=True, max_registers=32)(function)]
    for kernel in forms:
        x = np.zeros(2, np.float32)
        kernel[1, 1](x)
        assert x.tolist() == [3, 0]
        assert kernel.py_func is function
        assert kernel.__name__ == "function"


def test_jit_refuses_what_numba_refuses() -> None:
    with pytest.raises(TypeError, match="void return type"):
        cuda.jit("float32(float32)")(lambda x: x)
    with pytest.raises(NotImplementedError, match="bounds checking"):
        cuda.jit(boundscheck=True)
    with pytest.raises(TypeError, match=r"no option 'fastmaths' \(did you mean 'fastmath'\?\)"):
        cuda.jit(fastmaths=True)
    with pytest.raises(TypeError, match="was given a int"):
        cuda.jit(3)
    with pytest.raises(UnsupportedError, match=r"'dot'.*Python"):
        cuda.declare_device("dot", "float32(float32)")
    with pytest.raises(UnsupportedError, match="@cuda"):
        cuda.vectorize(["float32(float32)"])


def test_a_kernel_is_launched_with_a_configuration() -> None:
    launches: list = []
    with launches_go_to(recorded(launches)):
        double[(2, 3), (4, 5, 6), cuda.stream(), 128](np.zeros(1))
        double[np.int64(2), 32](np.zeros(1))
        double.forall(300)(np.zeros(1))
        double.forall(300, tpb=100)(np.zeros(1))
        double.forall(0)(np.zeros(1))
        double.configure(1, 2).dispatcher.specialize(np.zeros(1))[1, 1](np.zeros(1))
    shapes = [(launch.grid, launch.block, launch.shared_bytes) for launch, _ in launches]
    assert shapes[:2] == [((2, 3, 1), (4, 5, 6), 128), ((2, 1, 1), (32, 1, 1), 0)]
    assert shapes[2:] == [((3, 1, 1), (128, 1, 1), 0), ((3, 1, 1), (100, 1, 1), 0), ((1, 1, 1), (1, 1, 1), 0)]


@pytest.mark.parametrize(
    ("launch", "error", "message"),
    [
        (lambda: double(np.zeros(1)), ValueError, "launch configuration was not specified"),
        (lambda: double[None, 1](np.zeros(1)), ValueError, "launch configuration was not specified"),
        (lambda: double[(1,)](np.zeros(1)), ValueError, "at least the griddim and blockdim"),
        (lambda: double[(1, 1, 1, 1), 1], ValueError, "1, 2 or 3 integers"),
        (lambda: double[2.0, 32], TypeError, r"griddim must be a sequence of integers, got \[2.0\]"),
        (lambda: double.forall(-1), ValueError, "negative task count"),
        (lambda: double[1, 2048](np.zeros(1)), UserError, "1024"),
        (lambda: double[0, 32](np.zeros(1)), UserError, "its x is 0"),
        (lambda: double[1, 32](), TypeError, "not enough arguments for kernel double: expected 1, got 0"),
        (lambda: double[1, 32](1, 2), TypeError, "too many arguments"),
        (lambda: double[1, 32]([1.0]), TypeError, r"argument 'x' of kernel double is a list.*np.array"),
        (lambda: double[1, 32]("text"), TypeError, "is a str"),
        (lambda: double[1, 32](None), TypeError, "is a NoneType"),
        (lambda: double[1, 32](np.zeros((4, 4))[:, ::2]), ValueError, "gaps in memory"),
        (lambda: double.inspect_asm(), AttributeError, "compile_report"),
    ],
)
def test_a_launch_that_cannot_be_says_why(launch: typing.Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        launch()


def test_a_device_function_is_not_launched() -> None:
    device = cuda.jit(device=True)(lambda x: x)
    with pytest.raises(ValueError, match="which only kernels call"):
        device[1, 1](1)


def test_a_kernel_can_be_a_method_and_have_defaults() -> None:
    class Model:
        @cuda.jit
        def kernel(x, scale=3):  # noqa: N805
            x[0] = scale

    x = np.zeros(1)
    Model.kernel[1, 1](x)
    assert x[0] == 3


# Signatures


@cuda.jit("void(float32[:], float32, int8, boolean)")
def typed(x, a, n, flag):
    x[0] = a


def test_a_signature_converts_scalars() -> None:
    launches: list = []
    with launches_go_to(recorded(launches)):
        typed[1, 1](np.zeros(1, np.float32), 1, 300, 1)
    _, scale, number, flag = launches[0][1]
    assert type(scale) is np.float32
    assert type(number) is np.int8
    assert number == 44  # it wraps, as in C
    assert flag is True


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(1), 1, 1, True), r"array\(float64, 1d, C\).*array\(float32, 1d, A\).*would read its memory"),
        ((np.zeros((1, 1), np.float32), 1, 1, True), "2d"),
        ((3, 1, 1, True), "'x' of kernel typed is int64"),
        ((np.zeros(1, np.float32), 1, 1.5, True), "argument 'n' of kernel typed is float64.*int8"),
        ((np.zeros(1, np.float32), 1j, 1, True), "'a'.*complex"),
        ((cuda.to_device(np.zeros(1)), 1, 1, True), "float64"),
    ],
)
def test_a_signature_refuses_arguments_that_do_not_fit(args: tuple, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        typed[1, 1](*args)


def test_a_signature_with_a_contiguous_array_refuses_another_layout() -> None:
    @cuda.jit("void(float32[:, ::1])")
    def rows(x):
        x[0, 0] = 1

    rows[1, 1](np.zeros((2, 3), np.float32))
    with pytest.raises(TypeError, match="2d, F"):
        rows[1, 1](np.zeros((2, 3), np.float32, order="F"))


def test_of_several_signatures_the_exact_one_counts() -> None:
    launches: list = []
    kernel = cuda.jit([(int32[:], float32), (int32[:], cuda.int64)])(lambda x, a: None)
    with launches_go_to(recorded(launches)):
        kernel[1, 1](np.zeros(1, np.int32), 2)
        kernel[1, 1](np.zeros(1, np.int32), np.float64(2))
    assert [type(args[1]) for _, args in launches] == [np.int64, np.float32]
    with pytest.raises(TypeError, match=r"No matching definition for argument type.*float32"):
        kernel[1, 1](np.zeros(1, np.float32), 2)


# Arrays


def test_host_arrays_are_copied_back_in_the_order_of_the_parameters() -> None:
    x = np.arange(3.0)
    copy[1, 32](x, x * 2)
    assert x.tolist() == [0, 2, 4]
    copy[1, 32](x, x[::1])  # one array twice: the copy of the second, unchanged, comes back last

    @cuda.jit
    def clear(out, unchanged):
        out[cuda.grid(1)] = 0

    clear[1, 3](x, x)
    assert x.tolist() == [0, 2, 4]


def test_in_and_out_copy_one_way() -> None:
    x, out = np.ones(3), np.zeros(3)
    double[1, 32](cuda.In(x))
    assert x.tolist() == [1, 1, 1]
    double[1, 32](cuda.InOut(x))
    assert x.tolist() == [2, 2, 2]
    faults: list[Fault] = []
    with launches_go_to(watched(faults)):
        copy[1, 32](cuda.Out(out), x)
        assert (faults, out.tolist()) == ([], [2, 2, 2])
        double[1, 32](cuda.Out(out))
    assert {fault.kind for fault in faults} == {UNINITIALISED}


def test_a_read_only_array_stays_as_it_is() -> None:
    x = np.ones(3)
    x.flags.writeable = False
    out = np.zeros(3)
    copy[1, 32](out, x)
    assert out.tolist() == [1, 1, 1]


def test_device_memory_counts_as_never_written_until_it_is() -> None:
    faults: list[Fault] = []
    with launches_go_to(watched(faults)):
        d = cuda.device_array((2, 3), np.float32, order="F")
        double[1, 32](d.reshape(6, order="F"))
        assert {fault.kind for fault in faults} == {UNINITIALISED}
        faults.clear()
        for make in (
            lambda d: d.__setitem__(slice(None), 3),
            lambda d: d.copy_to_device(np.ones(6, np.float32)),
            lambda d: copy[1, 32](d, np.ones(6, np.float32)),
            lambda d: [part.copy_to_device(np.ones(2, np.float32)) for part in d.split(2)],
        ):
            d = cuda.device_array(6, np.float32)
            make(d)
            double[1, 32](d)
        assert faults == []
        d = cuda.device_array(6, np.float32)
        d[1:4] = 3
        double[1, 32](d[1:4])
        assert faults == []
        double[1, 32](d[:2])
        assert [(fault.kind, fault.index) for fault in faults] == [(UNINITIALISED, (0,))]
    d = cuda.device_array(6, np.float32)
    double[1, 32](d)  # unwatched: nothing is known of its memory from here on
    with launches_go_to(watched(faults := [])):
        double[1, 32](d)
    assert faults == []


def test_a_device_array_is_read_written_and_viewed_like_numbas() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    d = cuda.to_device(x)
    assert (d.shape, d.size, d.ndim, d.dtype, d.nbytes, d.strides) == ((3, 4), 12, 2, np.float32, 48, (16, 4))
    assert d[1, 2] == 6
    assert d[-1][1:3].copy_to_host().tolist() == [9, 10]
    d[0] = [7, 8, 9, 10]
    d[1, 1] = 0
    d[2, :2] = cuda.to_device(np.float32([5, 6]))
    assert d.copy_to_host().tolist() == [[7, 8, 9, 10], [4, 0, 6, 7], [5, 6, 10, 11]]
    assert x[0, 0] == 0  # the host's array is another
    assert d.reshape(2, 6).ravel().shape == (12,)
    assert d.reshape((4, -1)).shape == (4, 3)
    assert d.view(np.int32).dtype == np.int32
    assert d.T.copy_to_host().tolist() == d.copy_to_host().T.tolist()
    assert np.sum(d) == d.copy_to_host().sum()
    assert len(list(d)) == len(d) == 3
    assert d.is_c_contiguous()
    assert not d.is_f_contiguous()
    assert cuda.is_cuda_array(d)
    assert not cuda.is_cuda_array(x)
    assert cuda.as_cuda_array(d) is cuda.to_device(d) is d
    out = np.empty_like(x)
    assert d.copy_to_host(out) is out
    assert cuda.device_array_like(np.asfortranarray(x)).is_f_contiguous()


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda d: d + 1, TypeError),
        (lambda d: d.copy_to_host(np.zeros((3, 4))), TypeError),
        (lambda d: d.copy_to_host(np.zeros((4, 3), np.float32)), ValueError),
        (lambda d: d.copy_to_host(np.zeros((3, 4), np.float32, order="F")), ValueError),
        (lambda d: d.copy_to_device(np.zeros((3, 4))), TypeError),
        (lambda d: d[[0, 1]], TypeError),
        (lambda d: d[3, 0], IndexError),
        (lambda d: d[:, ::2].ravel(), NotImplementedError),
        (lambda d: d.reshape(2, 2, 3).transpose(), NotImplementedError),
        (lambda d: cuda.device_array(2.5), TypeError),
        (lambda d: cuda.as_cuda_array(np.zeros(1)), TypeError),
        (lambda d: np.array(d, copy=False), ValueError),
    ],
)
def test_a_device_array_refuses_what_a_gpus_refuses(use: typing.Callable, error: type[Exception]) -> None:
    d = cuda.to_device(np.zeros((3, 4), np.float32))
    with pytest.raises(error):
        use(d)


def test_memory_of_another_library_is_not_taken() -> None:
    class Foreign:
        __cuda_array_interface__: typing.ClassVar[dict] = {}

    with pytest.raises(UnsupportedError, match="NumPy array"):
        double[1, 1](Foreign())


def test_mapped_and_managed_arrays_are_shared_with_the_host() -> None:
    for array in (cuda.mapped_array(3), cuda.managed_array(3), cuda.mapped_array_like(np.zeros(3))):
        array[:] = 2
        double[1, 32](array)
        assert array.tolist() == array.copy_to_host().tolist() == [4, 4, 4]
    x = np.ones(3)
    with cuda.pinned(x), cuda.mapped(x) as d:
        double[1, 32](d)
    assert x.tolist() == [2, 2, 2]
    assert type(cuda.pinned_array_like(x)) is np.ndarray


def test_records_are_elements_of_device_arrays() -> None:
    kind = np.dtype([("a", np.int32), ("b", np.float32)], align=True)
    d = cuda.to_device(np.array([(1, 2), (3, 4)], kind))
    assert d[1]["b"] == 4
    d[0]["a"] = 9
    assert d.copy_to_host().tolist() == [(9, 2), (3, 4)]


# Devices


def test_streams_and_events_do_their_work_at_once() -> None:
    stream, calls = cuda.stream(), []
    with stream.auto_synchronize() as same:
        assert same is stream
        stream.add_callback(lambda *told: calls.append(told), "argument")
    assert calls == [(stream, 0, "argument")]

    async def wait() -> object:
        return await stream.async_done()

    assert asyncio.run(wait()) is stream
    assert int(cuda.external_stream(77)) == 77
    assert int(cuda.default_stream()) == 0
    begin, end = cuda.event(), cuda.event()
    with pytest.raises(ValueError, match="recorded"):
        begin.elapsed_time(end)
    begin.record()
    end.record(stream)
    end.synchronize()
    assert end.query()
    assert 0 <= cuda.event_elapsed_time(begin, end) == begin.elapsed_time(end)


def test_a_script_finds_the_device_that_it_asks_for(capsys: pytest.CaptureFixture) -> None:
    assert cuda.is_available()
    assert cuda.cuda_error() is None
    device = cuda.get_current_device()
    assert (device.WARP_SIZE, device.MAX_THREADS_PER_BLOCK, device.compute_capability) == (32, 1024, (9, 0))
    assert cuda.select_device(0) is device is cuda.gpus[0] is cuda.gpus.current
    assert len(cuda.list_devices()) == 1
    with pytest.raises(IndexError):
        cuda.select_device(1)
    with cuda.gpus[0], cuda.defer_cleanup(), cuda.profiling():
        free, total = cuda.current_context().get_memory_info()
        assert 0 < free <= total
    for call in (cuda.synchronize, cuda.current_context().reset, cuda.profile_start, cuda.profile_stop, cuda.close):
        call()
    assert cuda.detect()
    assert "no GPU" in capsys.readouterr().out


# Reduction and random numbers


@pytest.mark.parametrize("size", [0, 1, 5, 127, 128, 129, 1000])
def test_reduce_folds_any_number_of_elements(size: int) -> None:
    x = np.random.default_rng(size).integers(-50, 50, size)
    faults: list[Fault] = []
    largest = cuda.Reduce(max_of)
    with launches_go_to(watched(faults)):
        assert cuda.reduce(sum_of)(x, init=7) == x.sum() + 7
        assert cuda.reduce(lambda a, b: a + b)(x, init=7) == x.sum() + 7
        assert largest(cuda.to_device(x), init=-100) == max([-100, *x])
        out = cuda.device_array(2, x.dtype)
        assert size == 0 or largest(x, size=1, res=out, init=-100) is None
        assert size == 0 or out[0] == x[0]
    assert faults == []


def sum_of(a, b):
    return a + b


def max_of(a, b):
    return a if a > b else b


def test_reduce_takes_one_axis() -> None:
    with pytest.raises(TypeError, match="1D"):
        cuda.Reduce(max_of)(np.zeros((2, 2)))


@cuda.jit
def draw(out, states):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 0] = cuda_random.xoroshiro128p_uniform_float32(states, i)
        out[i, 1] = cuda_random.xoroshiro128p_uniform_float64(states, i)
        out[i, 2] = cuda_random.xoroshiro128p_normal_float32(states, i)
        out[i, 3] = cuda_random.xoroshiro128p_normal_float64(states, i)


@pytest.mark.parametrize("run", ["compiled", "checked"])
def test_random_numbers_are_those_of_numba_cuda(run: str) -> None:
    pytest.importorskip("numba_cuda", reason="compares with numba-cuda's own: pip install numba-cuda")
    theirs = importlib.import_module("numba.cuda.random")
    states = np.empty(5, theirs.xoroshiro128p_dtype)
    theirs.init_xoroshiro128p_states_cpu(states, 42, 3)
    ours = cuda_random.create_xoroshiro128p_states(5, 42, subsequence_start=3)
    assert (ours.copy_to_host() == states).all()
    kinds = ("uniform_float32", "uniform_float64", "normal_float32", "normal_float64")
    draws = [getattr(theirs, f"xoroshiro128p_{kind}") for kind in kinds]
    expected = np.array([[function(states, i) for function in draws] for i in range(5)])
    out, faults = np.zeros((5, 4)), []
    if run == "compiled":
        draw[1, 32](out, ours)
    else:
        with launches_go_to(watched(faults)):
            draw[1, 32](out, ours)
    np.testing.assert_array_equal(out[:, :2], expected[:, :2])
    np.testing.assert_allclose(out[:, 2:], expected[:, 2:], rtol=1e-6)
    assert (ours.copy_to_host() == states).all()
    assert faults == []


def test_a_small_seed_gives_states_far_apart() -> None:
    states = cuda_random.create_xoroshiro128p_states(100, 1).copy_to_host()
    assert len(np.unique(states)) == 100
    again = cuda_random.create_xoroshiro128p_states(50, 1, subsequence_start=50).copy_to_host()
    assert (states[50:] == again).all()


# In numba.cuda's place


def test_installed_takes_the_place_of_numba_cuda_and_gives_it_back() -> None:
    import numba

    before = {name: module for name, module in sys.modules.items() if name.startswith("numba.cuda")}
    finders = list(sys.meta_path)
    with installed():
        from numba import cuda as imported
        from numba.cuda import grid, libdevice
        from numba.cuda.random import xoroshiro128p_next

        assert imported is numba.cuda is cuda
        assert grid is cuda.grid
        assert libdevice is cuda.libdevice
        assert xoroshiro128p_next is cuda_random.xoroshiro128p_next
        with pytest.raises(UnsupportedError, match="target 'cuda'"):
            numba.vectorize(["float32(float32)"], target="cuda")(lambda x: x)
    after = {name: module for name, module in sys.modules.items() if name.startswith("numba.cuda")}
    assert before.items() <= after.items()
    assert sys.meta_path == finders
    assert not any("nanoeuler" in module.__name__ for module in after.values())


def test_what_the_stand_in_lacks_is_numba_cudas() -> None:
    pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install numba-cuda")
    with installed():
        from numba.cuda.extending import intrinsic
        from numba.cuda.types import float32 as imported

        assert imported is float32
        assert callable(intrinsic)
        with genuine() as real:
            assert real.__name__ == "numba.cuda"
            assert importlib.import_module("numba.cuda") is real
        assert importlib.import_module("numba.cuda") is cuda
        assert cuda.KernelRuntimeError is real.KernelRuntimeError
        with pytest.raises(ModuleNotFoundError, match="no_such_part"):
            importlib.import_module("numba.cuda.no_such_part")


def test_without_numba_cuda_the_stand_in_serves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("numba.cuda")]:
        monkeypatch.delitem(sys.modules, name)
    import numba

    if hasattr(numba, "cuda"):
        monkeypatch.setattr(numba, "cuda", numba.cuda)  # to be there again afterwards
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    with installed():
        from numba import cuda as imported

        assert imported is cuda
        with pytest.raises(AttributeError, match=r"KernelRuntimeError.*not installed"):
            imported.KernelRuntimeError  # noqa: B018
        with pytest.raises(ModuleNotFoundError, match=r"numba\.cuda\.extending"):
            importlib.import_module("numba.cuda.extending")
    x = np.ones(3)
    double[1, 32](x)
    assert x.tolist() == [2, 2, 2]


def test_ptx_is_that_of_numba_cuda() -> None:
    need_toolkit()

    @cuda.jit(device=True)
    def inner(x, i):
        return cuda.libdevice.sqrtf(x[i])

    @cuda.jit
    def outer(x):
        shared = cuda.shared.array(32, float32)
        shared[cuda.threadIdx.x] = inner(x, cuda.grid(1))
        cuda.syncthreads()
        x[cuda.threadIdx.x] = shared[31 - cuda.threadIdx.x]

    try:
        text, returned = cuda.compile_ptx(outer, (float32[:],))
    except Exception as error:
        if "nvvm" not in str(error).lower():
            raise
        pytest.skip(f"needs NVVM: pip install nvidia-nvvm ({error})")
    assert ".target sm_90" in text
    assert "bar.sync" in text
    assert "sqrt" in text
    assert str(returned) == "none"


def test_a_negative_index_of_the_script_is_reported_through_a_device_array() -> None:
    @cuda.jit
    def before(out, x):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i - 1]

    faults: list[Fault] = []
    with launches_go_to(watched(faults)):
        before[1, 4](cuda.device_array(4), cuda.to_device(np.zeros(4)))
    assert [(fault.kind, fault.array, fault.index) for fault in faults] == [(NEGATIVE_INDEX, "x", (-1,))]

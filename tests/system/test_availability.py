"""Why there is no usable GPU: each reason in its turn, and None only where nothing is in the way."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from simt.kernels.toolkit import need_toolkit
from system.stand_in import compile_driver

from nanoeuler.system import availability
from nanoeuler.system.availability import SETTINGS, is_set, setting_trouble, why_no_gpu
from nanoeuler.system.driver import Driver, Gpu
from nanoeuler.system.toolkit import COMPILER, Part
from nanoeuler.system.trouble import Trouble

GPU = Gpu("H200", (9, 0), 140 << 30, 139 << 30)
OLD = Gpu("V100", (7, 0), 32 << 30, 31 << 30)
TOOLKIT = {name: Part("a file", "conda", (13, 0), capabilities=((9, 0),)) for name in COMPILER}


class World:
    """A machine on which all is well, until a test changes something."""

    def __init__(self) -> None:
        self.driver = Driver((13, 0), (GPU,))
        self.packages: dict[str, Trouble] = {}
        self.parts = dict(TOOLKIT)
        self.cuda: Any = SimpleNamespace(compile_all=None, is_available=lambda: True, cuda_error=lambda: None)
        self.asked: list[int | None] = []

    def ask(self, contexts: int | None = None) -> Driver:
        self.asked.append(contexts)
        return self.driver


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(availability.sys, "platform", "linux")
    monkeypatch.setattr(availability, "ask_driver", world.ask)
    monkeypatch.setattr(availability, "package_trouble", lambda name, module="": world.packages.get(name))
    monkeypatch.setattr(availability, "find_toolkit", lambda: world.parts)
    monkeypatch.setattr(availability.importlib, "import_module", lambda name: world.cuda)
    monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))  # whose settings are then those of the environment
    for name in SETTINGS:
        monkeypatch.delenv(f"NUMBA_{name}", raising=False)
    return world


def set_variable(name: str) -> Callable[[World, pytest.MonkeyPatch], None]:
    return lambda world, patch: patch.setenv(name, "1")


def change(**values: Any) -> Callable[[World, pytest.MonkeyPatch], None]:
    return lambda world, patch: vars(world).update(values)


#: What goes wrong, and what is said then: in the order in which it is to be mended.
REASONS: list[tuple[Callable[[World, pytest.MonkeyPatch], None], str]] = [
    (change(driver=Driver(trouble=Trouble("no driver", "install it"))), "no driver: install it"),
    (change(driver=Driver((13, 0), (OLD,))), "compute capability 7.0"),
    (change(packages={"numba": Trouble("numba is not installed", "pip")}), "numba is not installed: pip"),
    (change(packages={"numba-cuda": Trouble("numba-cuda is broken", "pip")}), "numba-cuda is broken: pip"),
    (set_variable("NUMBA_ENABLE_CUDASIM"), "unset NUMBA_ENABLE_CUDASIM"),
    (set_variable("NUMBA_DISABLE_CUDA"), "unset NUMBA_DISABLE_CUDA"),
    (set_variable("NUMBA_DISABLE_JIT"), "unset NUMBA_DISABLE_JIT"),
    (change(cuda=SimpleNamespace()), "_numba_cuda_redirector.pth"),
    (change(parts=TOOLKIT | {"NVVM": Part(error="not found")}), "NVVM of the CUDA toolkit is missing"),
    (change(driver=Driver((12, 4), (GPU,))), "driver knows CUDA 12.4"),
    (change(parts=TOOLKIT | {"nvJitLink": Part("", "", (12, 9))}), "nvJitLink of CUDA 12.9 cannot read"),
    (
        change(
            cuda=SimpleNamespace(
                compile_all=None, is_available=lambda: False, cuda_error=lambda: "the stars\nare wrong"
            )
        ),
        "numba-cuda finds no GPU that it can use (the stars)",
    ),
]


def test_nothing_in_the_way_is_none(world: World) -> None:
    assert why_no_gpu() is None


@pytest.mark.parametrize(("spoil", "said"), REASONS, ids=[said for _, said in REASONS])
def test_each_reason_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[World, pytest.MonkeyPatch], None], said: str
) -> None:
    spoil(world, monkeypatch)
    reason = why_no_gpu()
    assert reason is not None
    assert said in reason
    assert "\n" not in reason


def test_hardware_comes_before_what_a_command_mends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for spoil, said in reversed(REASONS[1:9]):
        spoil(world, monkeypatch)
        if "numba is not" in said:
            world.packages["numba-cuda"] = Trouble("later", "")
        assert said in (why_no_gpu() or "")


def test_macos_has_no_cuda_and_is_asked_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability.sys, "platform", "darwin")
    reason = why_no_gpu()
    assert reason is not None
    assert reason.startswith("CUDA does not exist on macOS: use --device cpu, or --device sim")
    assert world.asked == []


def test_other_gpus_are_asked_only_where_the_first_cannot_be_used(world: World) -> None:
    world.driver = Driver((13, 0), (GPU, GPU))
    assert why_no_gpu() is None
    assert world.asked == [1]
    world.driver = Driver((13, 0), (OLD, GPU))
    assert "CUDA_VISIBLE_DEVICES=1" in (why_no_gpu() or "")
    assert world.asked == [1, 1, None]


@pytest.mark.parametrize("error", [RuntimeError("out of luck\nline 2"), SystemExit(3), AttributeError("no such thing")])
def test_it_never_raises(world: World, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken(contexts: int | None = None) -> Driver:
        raise error

    monkeypatch.setattr(availability, "ask_driver", broken)
    reason = why_no_gpu()
    assert reason is not None
    assert type(error).__name__ in reason
    assert "python -m nanoeuler.doctor" in reason
    assert "\n" not in reason


def test_settings_are_read_from_numba_or_before_it_is_imported_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUMBA_DISABLE_CUDA", raising=False)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    for value, on in (("1", True), ("0", False), ("yes", False)):
        monkeypatch.setenv("NUMBA_DISABLE_CUDA", value)
        assert is_set("DISABLE_CUDA") == on
    numba = ModuleType("numba")
    numba.config = SimpleNamespace(DISABLE_CUDA=1)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.delenv("NUMBA_DISABLE_CUDA")
    assert setting_trouble("DISABLE_CUDA") == (
        "disable_cuda in .numba_config.yaml switches the GPU off",
        "delete that line of the file",
    )
    assert setting_trouble("DISABLE_JIT") is None


def run(code: str, **variables: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_optional_is_imported_before_there_is_a_gpu() -> None:
    code = (
        "import sys; from nanoeuler.device import why_no_gpu as asked\n"
        "from nanoeuler.system.availability import why_no_gpu\n"
        "print(sorted({'numba', 'cuda', 'llvmlite', 'torch', 'nanoeuler.gpu'} & set(sys.modules)))"
    )
    assert run(code) == "[]"


WHY = "from nanoeuler.system.availability import why_no_gpu; print(why_no_gpu())"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    need_toolkit()
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "None"),
        ({"FAKE_CUDA_VERSION": "11080"}, "driver knows CUDA 11.8"),
        ({"FAKE_CUDA_INIT": "100", "CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' leaves no GPU to be seen"),
        ({"FAKE_CUDA_INIT": "803"}, "of two releases"),
        ({"FAKE_CUDA_CAPABILITY": "61"}, "GPU 0 (Fake GPU) has compute capability 6.1"),
        ({"FAKE_CUDA_RETAIN": "2"}, "the memory of GPU 0 (Fake GPU) is taken"),
        ({"FAKE_CUDA_FREE_MIB": "5"}, "5 of 16384 MiB are free"),
        ({"NUMBA_ENABLE_CUDASIM": "1"}, "NUMBA_ENABLE_CUDASIM=1 puts Numba's simulator in the GPU's place"),
        ({"NUMBA_DISABLE_CUDA": "1"}, "NUMBA_DISABLE_CUDA=1 switches the GPU off"),
    ],
    ids=lambda value: " ".join(value) or "well" if isinstance(value, dict) else "",
)
def test_with_a_driver_that_a_process_loads(stand_in: dict[str, str], variables: dict[str, str], said: str) -> None:
    assert said in run(WHY, **stand_in, **variables)


def test_a_library_that_is_no_library_is_told(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("LD_LIBRARY_PATH is Linux's")  # elsewhere the folder is not looked into
    (tmp_path / "libcuda.so.1").write_text("this is no library")
    assert "does not load" in run(WHY, LD_LIBRARY_PATH=str(tmp_path))

"""What is said of NVIDIA's driver and its GPUs, by a stand-in for the driver and folders that stand for the system."""

import os
from pathlib import Path

import pytest
from system.stand_in import ERRORS, Card, StandIn

from nanoeuler.system import driver
from nanoeuler.system.driver import Gpu, ask_driver, driver_release, gpu_trouble, no_driver, no_start

MISSING = "libcuda.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that stands for /, in an environment that says nothing of GPUs."""
    monkeypatch.setattr(driver, "ROOT", tmp_path)
    monkeypatch.setattr(driver.sys, "platform", "linux")
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def install(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    monkeypatch.setattr(driver, "open_driver", lambda: library)


def test_the_driver_describes_itself_and_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn(Card("A", (7, 5), 100, 60), Card("B", (12, 0), 200, 150), version=12090)
    install(monkeypatch, library)
    said = ask_driver()
    assert said.release == (12, 9)
    assert said.gpus == (Gpu("A", (7, 5), 100, 60), Gpu("B", (12, 0), 200, 150))
    assert said.trouble is None
    assert library.held == 0
    assert library.current == []


def test_only_so_many_gpus_are_asked_for_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn(*[Card() for _ in range(8)])
    install(monkeypatch, library)
    assert [gpu.free is not None for gpu in ask_driver(contexts=1).gpus] == [True] + [False] * 7
    assert library.asked == 1


@pytest.mark.parametrize("card", [Card(retain=2), Card(tell=999)], ids=["no context", "no answer"])
def test_a_gpu_that_does_not_tell_its_memory_has_an_error_and_no_context_is_left(
    monkeypatch: pytest.MonkeyPatch, card: Card
) -> None:
    library = StandIn(card)
    install(monkeypatch, library)
    [gpu] = ask_driver().gpus
    assert gpu.error == ERRORS[card.retain or card.tell]
    assert gpu.free is None
    assert library.held == 0
    assert library.current == []


@pytest.mark.parametrize(
    ("code", "what", "mend"),
    [
        (34, "stub", "LD_LIBRARY_PATH"),
        (803, "two releases", "reboot"),
        (804, "compatibility package", "LD_LIBRARY_PATH"),
        (802, "NVSwitch", "systemctl start nvidia-fabricmanager"),
        (805, "MPS", "unset CUDA_MPS_PIPE_DIRECTORY"),
        (2, "memory", "nvidia-smi"),
        (999, "CUDA_ERROR_UNKNOWN", "modprobe nvidia_uvm"),
        (12345, "error 12345", "modprobe nvidia_uvm"),
    ],
)
def test_a_driver_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, code: int, what: str, mend: str
) -> None:
    install(monkeypatch, StandIn(Card(), start=code))
    said = ask_driver()
    assert said.release == (13, 0)
    assert said.gpus == ()
    assert said.trouble is not None
    assert what in said.trouble.what
    assert mend in said.trouble.mend


def test_a_library_that_is_no_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, object())
    said = ask_driver()
    assert said.release is None
    assert said.trouble is not None
    assert "another one" in said.trouble.what
    assert "cuInit" in said.trouble.what


def test_the_release_is_known_without_starting_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, StandIn(start=999, version=12040))
    assert driver_release() == (12, 4)

    def missing() -> None:
        raise OSError(MISSING)

    monkeypatch.setattr(driver, "open_driver", missing)
    assert driver_release() is None


def test_what_is_missing_without_a_driver_depends_on_the_system(system: Path) -> None:
    assert no_driver(MISSING).what == "no NVIDIA driver is installed (no libcuda.so.1)"
    put(system, "sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n")
    put(system, "sys/bus/pci/devices/0000:00:01.0/class", "0x030000\n")
    assert no_driver(MISSING).what == "no NVIDIA GPU shows in this machine (no libcuda.so.1)"
    assert "--device sim" in no_driver(MISSING).mend
    put(system, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x10de\n")
    put(system, "sys/bus/pci/devices/0000:00:02.0/class", "0x040300\n")  # its sound
    assert "no NVIDIA GPU" in no_driver(MISSING).what
    put(system, "sys/bus/pci/devices/0000:00:03.0/vendor", "0x10de\n")
    put(system, "sys/bus/pci/devices/0000:00:03.0/class", "0x030200\n")
    assert "no driver for it" in no_driver(MISSING).what
    assert "install NVIDIA's driver" in no_driver(MISSING).mend
    put(system, "proc/driver/nvidia/version", "580")
    assert "in the kernel" in no_driver(MISSING).what
    assert "libnvidia-compute" in no_driver(MISSING).mend
    put(system, ".dockerenv")
    assert "not in this container" in no_driver(MISSING).what
    assert "--gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in no_driver(MISSING).mend
    (system / "proc/driver/nvidia/version").unlink()
    assert "NVIDIA_DRIVER_CAPABILITIES" not in no_driver(MISSING).mend
    put(system, "proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert "WSL" in no_driver(MISSING).what
    assert "wsl --update" in no_driver(MISSING).mend


def test_a_library_that_does_not_load_is_not_taken_for_a_missing_one(system: Path) -> None:
    trouble = no_driver("libcuda.so.1: invalid ELF header")
    assert "does not load (libcuda.so.1: invalid ELF header)" in trouble.what
    assert "install it again" in trouble.mend
    other = "libnvidia-gpucomp.so.580: cannot open shared object file: No such file or directory"
    assert "does not load" in no_driver(other).what


def test_windows_has_no_such_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.sys, "platform", "win32")
    trouble = no_driver("Could not find module 'nvcuda.dll'")
    assert "not installed (Could not find module 'nvcuda.dll')" in trouble.what
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert no_start("CUDA_ERROR_NO_DEVICE").mend == "set CUDA_VISIBLE_DEVICES="


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("CUDA_VISIBLE_DEVICES", "", "unset CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISIBLE_DEVICES", "-1", "unset CUDA_VISIBLE_DEVICES"),
        ("NVIDIA_VISIBLE_DEVICES", "void", "docker run --gpus all"),
    ],
)
def test_a_variable_that_hides_every_gpu_is_named(
    system: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, mend: str
) -> None:
    monkeypatch.setenv(name, value)
    install(monkeypatch, StandIn(start=100))
    trouble = ask_driver().trouble
    assert trouble is not None
    assert f"{name}={value!r}" in trouble.what
    assert mend in trouble.mend


def test_a_driver_without_gpus_says_what_the_system_shows(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")  # hides nothing
    install(monkeypatch, StandIn(start=0))  # it starts, and counts none
    said = ask_driver()
    assert said.trouble is not None
    assert "no /dev/nvidia0" in said.trouble.what
    assert "modprobe nvidia" in said.trouble.mend
    put(system, "run/.containerenv")
    assert "docker run --gpus all" in no_start("CUDA_ERROR_NO_DEVICE").mend
    put(system, "dev/nvidia0")
    assert no_start("CUDA_ERROR_NO_DEVICE").what == "NVIDIA's driver sees no GPU"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert f"may not use {system / 'dev/nvidia0'}" in no_start("CUDA_ERROR_NO_DEVICE").what
    assert "usermod" in no_start("CUDA_ERROR_NO_DEVICE").mend


GOOD = Gpu("H200", (9, 0), 140 << 30, 139 << 30)


@pytest.mark.parametrize(
    ("gpu", "what", "mend"),
    [
        (Gpu("V100", (7, 0), 32 << 30, 31 << 30), "GPU 0 (V100) has compute capability 7.0, below 7.5", "--device cpu"),
        (Gpu("T4", (7, 5), 16 << 30, 9 << 20), "the memory of GPU 0 (T4) is taken, 9 of 16384 MiB", "nvidia-smi"),
        (Gpu("T4", (7, 5), 16 << 30, error=ERRORS[2]), "the memory of GPU 0 (T4) is taken", "nvidia-smi"),
        (Gpu("T4", (7, 5), 16 << 30, error=ERRORS[46]), "one process or none", "--compute-mode=DEFAULT"),
        (Gpu("T4", (7, 5), 16 << 30, error=ERRORS[999]), "cannot be used (CUDA_ERROR_UNKNOWN)", "reboot"),
    ],
    ids=["old", "full", "no context", "taken alone", "ill"],
)
def test_a_gpu_that_cannot_be_used(gpu: Gpu, what: str, mend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = gpu_trouble((gpu,))
    assert trouble is not None
    assert what in trouble.what
    assert mend in trouble.mend
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    beside = gpu_trouble((gpu, gpu, GOOD))
    assert beside is not None
    assert beside.what == trouble.what
    assert beside.mend.startswith("export CUDA_VISIBLE_DEVICES=2 takes GPU 2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6,7")
    chosen = gpu_trouble((gpu, gpu, GOOD))
    assert chosen is not None
    assert chosen.mend.startswith("export CUDA_VISIBLE_DEVICES=7 ")


def test_only_the_first_gpu_counts() -> None:
    assert gpu_trouble(()) is None
    assert gpu_trouble((GOOD, Gpu("V100", (7, 0), 32 << 30))) is None
    assert gpu_trouble((Gpu("T4", (7, 5), 16 << 30),)) is None  # nobody asked for its memory
    unasked = gpu_trouble((Gpu("V100", (7, 0), 32 << 30, 1 << 30), Gpu("H200", (9, 0), 140 << 30)))
    assert unasked is not None
    assert "CUDA_VISIBLE_DEVICES" not in unasked.mend  # whether the other one is free is not known

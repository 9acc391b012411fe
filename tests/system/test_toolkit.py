"""The CUDA toolkit: found as it is installed, and judged beside a driver and a GPU that are made up."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from simt.kernels.toolkit import need_toolkit

from nanoeuler.system import toolkit
from nanoeuler.system.driver import Driver, Gpu
from nanoeuler.system.toolkit import (
    COMPILER,
    WHEELS,
    Part,
    compiles_for,
    find_toolkit,
    home_trouble,
    newer_wheels,
    newest_ptx,
    release_trouble,
    toolkit_trouble,
    wheels,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
CAPABILITIES = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))
CU13 = "in nanoeuler's folder, python -m pip install -e '.[gpu,compile]'"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


def parts(**changed: Part) -> dict[str, Part]:
    """Return a whole toolkit of CUDA 13.0, but for what is given."""
    whole = {
        "NVVM": Part("libnvvm.so", "conda", (13, 0), ptx=(9, 0)),
        "libdevice": Part("libdevice.10.bc", "conda"),
        "NVRTC": Part("libnvrtc.so", "conda", (13, 0), capabilities=CAPABILITIES),
        "nvJitLink": Part("libnvJitLink.so", "conda", (13, 0)),
    }
    return whole | changed


def driver(release: tuple[int, int] = (13, 0), capability: tuple[int, int] = (9, 0)) -> Driver:
    return Driver(release, (Gpu("a GPU", capability, 1 << 34, 1 << 33),))


def test_the_toolkit_that_is_installed_is_found_whole() -> None:
    need_toolkit()
    found = find_toolkit()
    for name in COMPILER:
        assert found[name].error == ""
        assert Path(found[name].path).is_file()
        assert found[name].source
    release = found["NVVM"].release
    assert release is not None
    assert release == found["NVRTC"].release
    assert found["NVVM"].ptx == newest_ptx(release)
    assert (9, 0) in found["NVRTC"].capabilities
    assert toolkit_trouble(found, (13, 0)) is None


def test_releases_are_those_of_the_wheels() -> None:
    need_toolkit()
    found = find_toolkit()
    for part, wheel in (
        ("NVVM", WHEELS[0]),
        ("NVRTC", WHEELS[1]),
        ("nvJitLink", WHEELS[2]),
        ("CUDA runtime", WHEELS[3]),
    ):
        if found[part].source != "site-packages":
            pytest.skip("the toolkit is not from wheels")
        release = found[part].release
        assert release is not None
        try:
            version = metadata.version(wheel)
        except metadata.PackageNotFoundError:
            pytest.skip("the wheels are those of CUDA 12, which have other names")
        assert version.startswith(f"{release[0]}.{release[1]}."), part


def test_a_library_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs numba-cuda")

    def load(name: str) -> Any:
        if name == "nvrtc":
            raise OSError("libnvrtc.so.13: file too short\nand a traceback")
        raise pathfinder.DynamicLibNotFoundError("a screenful\nof folders")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    found = find_toolkit()
    assert found["NVVM"].error == found["nvJitLink"].error == found["cuBLAS"].error == "not found"
    assert found["NVRTC"].error == "OSError: libnvrtc.so.13: file too short"


def test_a_library_of_the_name_that_answers_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs numba-cuda")
    loaded = pathfinder.LoadedDL("/a/libnvvm.so", False, 0, "CUDA_PATH")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda name: loaded)

    class Old:
        def __init__(self, path: str) -> None:
            self.path = path

        def nvvmIRVersion(self, *numbers: Any) -> int:  # noqa: N802
            return 9

    monkeypatch.setattr(toolkit.ctypes, "CDLL", Old)
    found = find_toolkit()
    assert "code 9" in found["NVVM"].error
    assert "nvrtcVersion" in found["NVRTC"].error


def test_without_numba_cuda_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    found = find_toolkit()
    assert found["NVVM"].error == "not looked for, which takes numba-cuda"


def test_missing_parts_are_named_with_the_command_for_this_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    one = toolkit_trouble(parts(NVVM=Part(error="not found")), (13, 2))
    assert one == ("NVVM of the CUDA toolkit is missing", CU13)
    two = toolkit_trouble(parts(NVVM=Part(error="not found"), libdevice=Part(error="no file")), (12, 4))
    assert two is not None
    assert two.what == "NVVM and libdevice of the CUDA toolkit are missing (no file)"
    assert "numba-cuda[cu12]" in two.mend
    assert toolkit_trouble(parts(), None) is None
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    blamed = toolkit_trouble(parts(libdevice=Part(error="not found")), None)
    assert blamed is not None
    assert blamed.what.endswith("; CUDA_HOME=/nowhere is no folder")


def test_a_folder_that_is_no_toolkit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_trouble() is None
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert home_trouble() == (f"CUDA_HOME={tmp_path} is no CUDA toolkit: it has no folder nvvm", "unset CUDA_HOME")
    assert home_trouble("CUDA_PATH") is None
    (tmp_path / "nvvm").mkdir()
    assert home_trouble() is None
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "gone"))
    assert home_trouble() == (f"CUDA_PATH={tmp_path / 'gone'} is no folder", "unset CUDA_PATH")


@pytest.mark.parametrize("release", [(13, 0), (13, 2), (14, 0)])
def test_a_driver_of_the_same_or_a_newer_release_takes_what_is_compiled(release: tuple[int, int]) -> None:
    assert release_trouble(parts(), driver(release)) is None


def test_a_driver_of_the_same_major_release_takes_what_a_newer_toolkit_compiles() -> None:
    newer = Part(release=(13, 5))
    whole = parts(NVVM=newer, nvJitLink=newer, NVRTC=Part(release=(13, 5), capabilities=CAPABILITIES))
    assert release_trouble(whole, driver((13, 0))) is None


@pytest.mark.parametrize("release", [(12, 9), (12, 4), (11, 8)])
def test_a_driver_of_an_older_major_release_refuses_it(release: tuple[int, int]) -> None:
    trouble = release_trouble(parts(), driver(release))
    assert trouble is not None
    assert f"driver knows CUDA {release[0]}.{release[1]}" in trouble.what
    assert "CUDA 13.0" in trouble.what
    assert "update NVIDIA's driver to 580 or newer" in trouble.mend
    assert ("numba-cuda[cu12]" in trouble.mend) == (release[0] == 12)


def test_a_linker_older_than_a_compiler_cannot_read_it() -> None:
    trouble = release_trouble(parts(NVVM=Part(release=(13, 2))), driver((13, 2)))
    assert trouble == ("nvJitLink of CUDA 13.0 cannot read what NVVM of CUDA 13.2 writes", CU13)
    assert release_trouble(parts(nvJitLink=Part(release=(13, 2))), driver((13, 2))) is None


def test_a_gpu_newer_than_the_toolkit_needs_a_newer_toolkit() -> None:
    trouble = release_trouble(parts(), driver((13, 3), capability=(15, 0)))
    assert trouble is not None
    assert "compute capability 15.0, and the toolkit compiles for 7.5, 8.0" in trouble.what
    assert trouble.mend == newer_wheels((13, 0), (13, 3))
    assert "'nvidia-nvvm==13.3.*'" in trouble.mend
    assert newer_wheels((13, 3), (13, 3)).startswith("update NVIDIA's driver")


@pytest.mark.parametrize(
    ("capability", "compiled"),
    [((8, 0), True), ((8, 9), True), ((7, 0), False), ((9, 0), True), ((10, 3), False), ((12, 1), False)],
)
def test_which_gpus_are_compiled_for(capability: tuple[int, int], compiled: bool) -> None:
    assert compiles_for(capability, CAPABILITIES) == compiled


def test_nothing_is_said_of_a_toolkit_that_is_not_there() -> None:
    missing = {name: Part(error="not found") for name in COMPILER}
    assert release_trouble(missing, driver()) is None


@pytest.mark.parametrize(
    ("release", "ptx"),
    [((12, 0), (8, 0)), ((12, 4), (8, 4)), ((12, 6), (8, 5)), ((12, 9), (8, 8)), ((13, 0), (9, 0)), ((13, 5), (9, 5))],
)
def test_ptx_of_a_release(release: tuple[int, int], ptx: tuple[int, int]) -> None:
    assert newest_ptx(release) == ptx


def test_ptx_of_a_release_that_nobody_knows_yet() -> None:
    assert newest_ptx((14, 0)) is None
    assert newest_ptx((12, 10)) is None


def test_commands_name_extras_and_wheels_that_the_project_has() -> None:
    text = PROJECT.read_text()
    assert all(f'"{wheel}==13.0.*' in text for wheel in WHEELS)
    commands = [wheels(release) for release in (None, (13, 0), (13, 2))]
    for extra in {name for command in commands for name in re.findall(r"\.\[([\w,]+)\]", command)[0].split(",")}:
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE), extra

"""The doctor on machines on which something is wrong: it says what, and what to do, and never breaks itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from system.stand_in import compile_driver

import nanoeuler
from nanoeuler import doctor
from nanoeuler.doctor import collect, examine, printable, verdict
from nanoeuler.system import probes
from nanoeuler.system.driver import Driver, Gpu
from nanoeuler.system.probes import VERDICTS, Line
from nanoeuler.system.toolkit import COMPILER, Part
from nanoeuler.system.trouble import Trouble

GIB = 2**30


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = ("NUMBA_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "nanoeuler.doctor", *options]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)


def report(**variables: str) -> dict[str, Any]:
    """Return what ``--json`` prints, which is what its schema says, whatever is wrong with the machine."""
    done = run("--json", **variables)
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert set(said) == {"nanoeuler", "items", "devices"}
    assert said["nanoeuler"] == nanoeuler.__version__
    assert list(said["devices"]) == ["cpu", "sim", "gpu"]
    for device in said["devices"].values():
        assert set(device) == {"works", "why", "mend"}
        assert bool(device["why"]) == bool(device["mend"]) == (not device["works"])
    for item in said["items"]:
        assert set(item) == {"item", "found", "verdict", "why", "mend"}
        assert item["verdict"] in VERDICTS
        assert bool(item["why"]) == bool(item["mend"]) == (item["verdict"] != "ok"), item
        assert item["found"] or item["why"], item
    names = [item["item"] for item in said["items"]]
    assert len(set(names)) == len(names)
    assert {"Python", "nanoeuler", "numpy", "BLAS", "PyTorch", "numba", "driver", "PTX"} <= set(names)
    assert done.returncode == (0 if said["devices"]["cpu"]["works"] else 1)
    return said | {"by_name": {item["item"]: item for item in said["items"]}}


def test_the_table_has_a_line_for_each_item_and_each_device() -> None:
    done = run()
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    for item in ("Python", "nanoeuler", "numpy", "BLAS", "cores and memory", "numba", "driver", "PTX", "kernel cache"):
        assert f"\n  {item} " in done.stdout
    assert "\n--device cpu: works\n" in done.stdout
    assert "\n--device gpu: " in done.stdout
    assert "'.[" in done.stdout or "works\n--device gpu: works" in done.stdout  # brackets are no markup


def test_settings_that_are_wrong_are_named_each_with_what_mends_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said = report(
        NUMBA_ENABLE_CUDASIM="1",
        CUDA_HOME=str(tmp_path / "gone"),
        CUDA_VISIBLE_DEVICES="",
        NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"),
    )
    lines = said["by_name"]
    assert said["devices"]["cpu"]["works"]
    assert not said["devices"]["gpu"]["works"]
    assert lines["CUDA_HOME"]["mend"] == "unset CUDA_HOME"
    assert "is no folder" in lines["CUDA_HOME"]["why"]
    assert lines["CUDA_VISIBLE_DEVICES"]["mend"] == "unset CUDA_VISIBLE_DEVICES"
    if lines["numba"]["verdict"] != "ok":
        pytest.skip("what follows is about numba, which is not installed")
    assert lines["NUMBA_ENABLE_CUDASIM"]["mend"] == "unset NUMBA_ENABLE_CUDASIM"
    assert "NotADirectoryError" in lines["kernel cache"]["why"]
    assert "NUMBA_CACHE_DIR" in lines["kernel cache"]["mend"]
    assert said["devices"]["sim"]["works"]  # neither the simulator nor the cache keeps kernels from the CPU


#: Makes a process believe that packages are not installed: it is imported before anything else.
HIDE = """
import sys
from importlib import metadata
hidden, version = {names!r}, metadata.version
def asked(name):
    if name in hidden:
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = asked
sys.modules.update({{name.replace("-", "_"): None for name in hidden}})
"""


def test_packages_that_are_missing_come_with_their_command(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(names=["numba", "llvmlite", "numba-cuda", "torch", "cuda"]))
    said = report(PYTHONPATH=str(tmp_path))
    lines = said["by_name"]
    install = "in nanoeuler's folder, python -m pip install -e '.[gpu]'"
    for name in ("numba", "llvmlite", "numba-cuda"):
        assert (lines[name]["verdict"], lines[name]["mend"]) == ("missing", install)
    assert lines["CUDA toolkit"]["verdict"] == "missing"
    assert "'.[gpu,compile]'" in lines["CUDA toolkit"]["mend"]
    assert lines["PyTorch"]["verdict"] == "note"
    assert said["devices"]["cpu"]["works"]
    assert said["devices"]["sim"] == {"works": False, "why": "numba is not installed", "mend": install}


def test_broken_packages_are_named_and_training_does_not_work(tmp_path: Path) -> None:
    for name, code in {
        "numpy": "raise ImportError('libblas is gone\\nsecond line')",
        "rich": "raise SystemExit(7)",
        "tiktoken": "import os; os._exit(3)",
        "llvmlite": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    }.items():
        (tmp_path / f"{name}.py").write_text(code)
    said = report(PYTHONPATH=str(tmp_path))
    lines = said["by_name"]
    assert "does not import (ImportError: libblas is gone)" in lines["numpy"]["why"]
    assert lines["numpy"]["mend"] == f"rename or remove {tmp_path / 'numpy.py'}, which Python takes for numpy"
    assert "SystemExit: 7" in lines["rich"]["why"]
    assert lines["tiktoken"]["why"] == "the process that looked at it ended with code 3"
    assert lines["threadpoolctl"]["verdict"] == "ok"  # another process went on
    if lines["llvmlite"]["found"] or lines["llvmlite"]["verdict"] == "wrong":
        assert "SIGKILL" in lines["llvmlite"]["why"]
    assert "libblas is gone" in said["devices"]["cpu"]["why"]
    done = run(PYTHONPATH=str(tmp_path))  # without rich
    assert done.returncode == 1
    assert "\nnumpy                wrong " in done.stdout
    assert "\n--device cpu: numpy" in done.stdout


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return compile_driver(tmp_path_factory.mktemp("driver"))


def test_a_toolkit_newer_than_the_driver_is_wrong(stand_in: dict[str, str]) -> None:
    said = report(FAKE_CUDA_VERSION="12040", **stand_in)
    lines = said["by_name"]
    assert lines["driver"]["found"] == "CUDA 12.4"
    assert lines["GPU 0"]["found"] == "Fake GPU, compute capability 9.0, 14.6 of 16.0 GiB free"
    assert "up to 8.4" in lines["PTX"]["found"]
    toolkit = [lines.get(part, {}).get("found", "") for part in ("NVVM", "NVRTC", "nvJitLink", "libdevice")]
    if lines["numba-cuda"]["verdict"] != "ok" or not all(toolkit) or not toolkit[0].startswith("13"):
        pytest.skip("there is no toolkit of CUDA 13 to be newer than a driver of 12.4")
    assert lines["PTX"]["verdict"] == "wrong"
    assert "driver knows CUDA 12.4" in lines["PTX"]["why"]
    assert said["devices"]["gpu"]["why"] == lines["PTX"]["why"]
    assert "numba-cuda[cu12]" in said["devices"]["gpu"]["mend"]


def test_a_driver_that_crashes_takes_no_other_line_with_it(stand_in: dict[str, str]) -> None:
    said = report(FAKE_CUDA_CRASH="1", **stand_in)
    assert "crashed (SIGSEGV)" in said["by_name"]["driver"]["why"]
    assert "nvidia-smi" in said["by_name"]["driver"]["mend"]
    assert not said["devices"]["gpu"]["works"]
    assert said["devices"]["cpu"]["works"]
    assert said["by_name"]["numba"]["verdict"] in ("ok", "missing")


# The processes, one by one.


def child(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def line(name: str) -> str:
    return json.dumps([name, [{"item": name}]])


def test_what_a_process_dies_of_is_the_line_of_the_item_it_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(names: list[str]) -> "subprocess.Popen[bytes]":
        started.append(names)
        return child(f"print({line('PTX')!r})")

    monkeypatch.setattr(doctor, "start", start)
    first = child(f"import os; print({line('numba')!r}, flush=True); print('not json'); print('[1, '); os.abort()")
    found = collect(["numba", "driver", "PTX"], first)
    assert started == [["PTX"]]
    assert found["numba"] == [Line("numba")]
    assert "SIGABRT" in found["driver"][0].why or "code 3" in found["driver"][0].why
    assert found["PTX"] == [Line("PTX")]


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 3.0)
    monkeypatch.setattr(doctor, "DEADLINE", 2.0)
    hanging = child(f"import time; print({line('numba')!r}, flush=True); time.sleep(600)")
    found = collect(["numba", "driver", "PTX"], hanging)
    assert found["numba"] == [Line("numba")]
    assert found["driver"][0].why == "no answer within 2 seconds"
    assert "took too long" in found["PTX"][0].why
    assert hanging.returncode is not None


def test_where_no_process_can_be_started_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(doctor.subprocess, "Popen", refuse)
    small = {"cpu": {"Python": probes.python}, "kernels": {"numba": lambda: 1 / 0}, "gpu": {}}
    small["gpu"]["--device gpu"] = small["kernels"]["--device sim"] = lambda: [Line("--device")]
    small["kernels"]["llvmlite"] = lambda: [Line("llvmlite")]
    for module in (doctor, probes):
        monkeypatch.setattr(module, "probes", lambda: small)
    said = examine()
    assert [item["verdict"] for item in said["items"]] == ["ok", "wrong", "ok"]
    assert said["items"][1]["why"] == "ZeroDivisionError: division by zero"
    assert said["devices"]["cpu"]["works"]
    assert said["devices"]["gpu"]["works"]
    assert said["devices"]["sim"]["why"] == "numba: ZeroDivisionError: division by zero"


def test_a_device_needs_the_items_that_it_uses() -> None:
    names = [name for group in probes.probes().values() for name in group]

    def works(*bad: str) -> list[bool]:
        found = {name: [Line(name, "", "wrong" if name in bad else "ok", "why", "mend")] for name in names}
        return [bool(verdict(device, found)["works"]) for device in doctor.DEVICES]

    assert works() == [True, True, True]
    assert works("numpy") == [False, False, False]
    assert works("tiktoken") == [False, False, False]
    assert works("numba") == [True, False, True]  # the GPU's own line knows of numba
    assert works("--device gpu", "driver", "PTX", "numba-cuda", "CUDA toolkit") == [True, True, False]
    assert works("PyTorch", "environment", "kernel cache") == [True, True, True]


# The probes, one by one.


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with a GPU and all that it needs; tests change what the probes see."""
    gpu = Gpu("H200", (9, 0), 140 * GIB, 139 * GIB)
    seen: dict[str, Any] = {
        "driver": Driver((13, 0), (gpu,)),
        "parts": {name: Part(f"/lib/{name}", "conda", (13, 0), ptx=(9, 0)) for name in (*COMPILER, "cuBLAS")},
    }
    monkeypatch.setattr(probes, "_driver", lambda: seen["driver"])
    monkeypatch.setattr(probes, "driver_release", lambda: seen["driver"].release)
    monkeypatch.setattr(probes, "_toolkit", lambda: seen["parts"])
    monkeypatch.setattr(probes.sys, "platform", "linux")
    for name in (*probes.VARIABLES, *(n for n in os.environ if n.startswith("NUMBA_"))):
        monkeypatch.delenv(name, raising=False)
    return seen


def test_each_gpu_has_a_line_and_the_first_is_the_one_that_counts(machine: dict[str, Any]) -> None:
    old = Gpu("V100", (7, 0), 32 * GIB, 31 * GIB)
    machine["driver"] = Driver((13, 0), (*machine["driver"].gpus, old))
    lines = probes.driver()
    assert [(line.item, line.verdict) for line in lines] == [("driver", "ok"), ("GPU 0", "ok"), ("GPU 1", "note")]
    assert lines[1].found == "H200, compute capability 9.0, 139.0 of 140.0 GiB free"
    assert "GPU 1 (V100)" in lines[2].why
    machine["driver"] = Driver((13, 0), (old,))
    assert probes.driver()[1].verdict == "wrong"
    machine["driver"] = Driver((13, 0), (), Trouble("hidden", "unset it"))
    assert probes.driver() == [Line("driver", "CUDA 13.0", "wrong", "hidden", "unset it")]


def test_ptx_of_the_toolkit_beside_that_of_the_driver(machine: dict[str, Any]) -> None:
    assert probes.ptx() == [Line("PTX", "the toolkit writes 9.0, the driver reads up to 9.0")]
    machine["parts"]["NVVM"] = Part("a", "conda", (13, 5), ptx=(9, 5))
    machine["parts"]["nvJitLink"] = Part("a", "conda", (13, 5))
    [newer] = probes.ptx()
    assert newer.verdict == "note"
    assert "nvJitLink makes machine code" in newer.why
    assert "'.[gpu,compile]'" in newer.mend
    machine["driver"] = Driver((14, 1), machine["driver"].gpus)
    assert probes.ptx()[0].found.endswith("the driver reads an unknown one")
    machine["driver"] = Driver(trouble=Trouble("no driver", "install it"))
    assert (probes.ptx()[0].verdict, probes.ptx()[0].mend) == ("note", "install it")


def test_parts_of_the_toolkit_have_their_release_and_place(machine: dict[str, Any]) -> None:
    machine["parts"]["NVRTC"] = Part(error="not found")
    machine["parts"]["cuBLAS"] = Part(error="not found")
    machine["driver"] = Driver((12, 4))
    lines = {line.item: line for line in probes.toolkit()}
    assert lines["NVVM"].found == "13.0, conda: /lib/NVVM"
    assert lines["NVRTC"].verdict == "missing"
    assert "numba-cuda[cu12]" in lines["NVRTC"].mend
    assert lines["cuBLAS"].verdict == "note"
    assert "cublas" in lines["cuBLAS"].mend
    assert "nvdisasm" in lines


def test_a_wrong_cuda_home_is_wrong_where_the_toolkit_is_not_found(
    machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    [harmless] = probes.environment()
    assert harmless.verdict == "note"
    assert harmless.why == "CUDA_HOME=/nowhere is no folder; the toolkit is found elsewhere, so it does no harm now"
    machine["parts"]["libdevice"] = Part(error="not found")
    [harmful] = probes.environment()
    assert (harmful.verdict, harmful.why) == ("wrong", "CUDA_HOME=/nowhere is no folder")


def test_variables_are_shown_and_only_those_that_matter(
    machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [line.found for line in probes.environment()] == ["no variable that matters is set"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NUMBA_OPT", "2")
    monkeypatch.setenv("NUMBA_FORCE_CUDA_CC", "8.0")
    shown = {line.item: line for line in probes.environment()}
    assert set(shown) == {"OMP_NUM_THREADS", "NUMBA_OPT", "NUMBA_FORCE_CUDA_CC"}
    assert shown["OMP_NUM_THREADS"] == Line("OMP_NUM_THREADS", "'3'")
    assert shown["NUMBA_FORCE_CUDA_CC"].verdict == "note"


def test_nothing_of_cuda_is_wrong_on_macos(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes.sys, "platform", "darwin")
    for probe in (probes.numba_cuda, probes.toolkit, probes.driver, probes.ptx):
        [line] = probe()
        assert (line.verdict, line.why) == ("note", "does not exist on macOS")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied")])
def test_a_cache_that_is_full_or_read_only_costs_time_and_nothing_else(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = pytest.importorskip("nanoeuler.simt.compiled.cache", reason="needs numba")
    place = tmp_path / "a" / "b"
    monkeypatch.setattr(cache, "folder", lambda: place)
    assert probes.cache() == [Line("kernel cache", str(place))]
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind

    def refuse(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(probes.os, "fsync", refuse)
    [line] = probes.cache()
    assert line.verdict == "note"
    assert str(error.strerror) in line.why


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = pytest.importorskip("nanoeuler.simt.compiled.cache", reason="needs numba")

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "folder", nowhere)
    [line] = probes.cache()
    assert "Could not determine home directory" in line.why
    assert "NUMBA_CACHE_DIR" in line.mend


def test_a_kernel_that_does_not_run_is_no_device(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert probes.device_sim() == [Line("--device sim")]
    monkeypatch.setattr(probes, "first_trouble", lambda: None)

    def broken(empty: Any) -> None:
        raise RuntimeError("an illegal address\nwas met")

    monkeypatch.setattr(probes, "_kernel_trouble", broken)
    for probe in (probes.device_sim, probes.device_gpu):
        [line] = probe()
        assert line.verdict == "wrong"
        assert line.why == "a kernel does not run (RuntimeError: an illegal address)"
    monkeypatch.setattr(probes, "_kernel_trouble", lambda empty: None)
    assert probes.device_gpu() == [Line("--device gpu")]
    monkeypatch.setattr(probes, "first_trouble", lambda: Trouble("no driver", "install it"))
    assert probes.device_gpu() == [Line("--device gpu", "", "wrong", "no driver", "install it")]


def test_looking_at_tensorboardx_does_not_import_pytorch() -> None:
    code = (
        "import sys; from nanoeuler.system.probes import run_probe\n"
        "print(run_probe('tensorboardX')[0].verdict, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ok False\n"


def test_pip_and_the_folder_may_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes.project()[0].verdict == "ok"
    monkeypatch.setattr(probes.metadata, "version", lambda name: "0.0.1")
    [line] = probes.project()
    assert (line.verdict, line.why) == ("note", "pip knows version 0.0.1 of it")
    assert nanoeuler.__version__ in line.found


def test_a_blas_that_is_not_known_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    import threadpoolctl

    pool = {"user_api": "blas", "internal_api": "mkl", "version": "2025.0", "num_threads": 1}
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [pool, {"user_api": "openmp"}])
    assert probes.blas() == [Line("BLAS", "mkl 2025.0 (unknown), 1 thread")]
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [{"user_api": "openmp"}])
    assert probes.blas()[0].verdict == "note"


def test_what_a_terminal_would_obey_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii:
        encoding = "ascii"

    assert printable("a\x1b[31m\nb") == "a\\x1b[31m\nb"
    monkeypatch.setattr(doctor.sys, "stdout", Ascii())
    assert printable("café \udcff") == "caf\\xe9 \\udcff"


def test_an_unknown_option_ends_with_usage() -> None:
    done = run("--jsn")
    assert done.returncode == 2
    assert "usage" in done.stderr
    assert "--jsn" in done.stderr
    assert "--probe" not in run("--help").stdout

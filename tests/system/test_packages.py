"""Packages that are missing, too old, broken, or hidden by a file of the same name."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from nanoeuler.system import packages
from nanoeuler.system.packages import import_error, package_trouble, requirements, within


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, where nanoeuler wants some that nobody has."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(packages, "requirements", lambda: {"made-up": (">=1.5,<2", "gpu"), "plain": ("", "")})
    for name in ("made_up", "plain"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def put(site: Path, name: str, version: str, code: str = "") -> None:
    module = name.replace("-", "_")
    (site / module).mkdir()
    (site / module / "__init__.py").write_text(code)
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_package_that_is_there_is_no_trouble(site: Path) -> None:
    put(site, "made-up", "1.9.3")
    assert package_trouble("made-up") is None


def test_a_missing_package_comes_with_its_extra(site: Path) -> None:
    trouble = package_trouble("made-up")
    assert trouble == ("made-up is not installed", "in nanoeuler's folder, python -m pip install -e '.[gpu]'")
    assert package_trouble("plain") == ("plain is not installed", "in nanoeuler's folder, python -m pip install -e .")
    brought = package_trouble("what-made-up-needs", brought_by="made-up")
    assert brought is not None
    assert brought.mend.endswith("'.[gpu]'")


@pytest.mark.parametrize("version", ["1.4.9", "2.0"])
def test_a_version_outside_the_range_is_told_with_the_range(site: Path, version: str) -> None:
    put(site, "made-up", version)
    trouble = package_trouble("made-up")
    assert trouble is not None
    assert trouble.what == f"made-up {version} is installed, and nanoeuler needs >=1.5,<2"
    assert trouble.mend.endswith("'.[gpu]'")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('no libthing.so\\nand more')", "ImportError: no libthing.so"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise BaseException", "BaseException"),
        ("def", "SyntaxError: invalid syntax"),
    ],
)
def test_a_package_whose_import_raises_anything_is_broken(site: Path, code: str, said: str) -> None:
    put(site, "made-up", "1.6", code)
    trouble = package_trouble("made-up")
    assert trouble is not None
    assert trouble.what.startswith(f"made-up 1.6 does not import ({said}")
    assert "\n" not in trouble.what
    assert trouble.mend == "python -m pip install --force-reinstall 'made-up>=1.5,<2'"


def test_ctrl_c_in_an_import_is_no_fault_of_the_package(site: Path) -> None:
    put(site, "made-up", "1.6", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        package_trouble("made-up")


def test_a_file_that_python_takes_for_a_package_is_named(
    site: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site, "made-up", "1.6")
    elsewhere = tmp_path_factory.mktemp("work")
    (elsewhere / "made_up.py").write_text("raise RuntimeError('a script')")
    monkeypatch.syspath_prepend(elsewhere)
    trouble = package_trouble("made-up")
    assert trouble is not None
    assert "RuntimeError: a script" in trouble.what
    assert trouble.mend == f"rename or remove {elsewhere / 'made_up.py'}, which Python takes for made-up"


def test_a_module_may_have_another_name_and_a_warning_is_no_error(site: Path) -> None:
    put(site, "plain", "1.0", "import warnings; warnings.warn('old', DeprecationWarning, stacklevel=1)")
    assert import_error("plain") == ""
    assert import_error("plain.part").startswith("ModuleNotFoundError")
    trouble = package_trouble("plain", "plain.part")
    assert trouble is not None
    assert "plain.part" in trouble.what


def test_requirements_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy<3,>=2.0",
        'numba>=0.61; extra == "gpu"',
        "numba-cuda<0.31,>=0.30.4; sys_platform != 'darwin' and extra == 'gpu'",
        'nanoeuler[gpu]; extra == "test"',
        'numba>=0.1; extra == "later"',
        "bare",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    assert requirements() == {
        "numpy": ("<3,>=2.0", ""),
        "numba": (">=0.61", "gpu"),
        "numba-cuda": ("<0.31,>=0.30.4", "gpu"),
        "bare": ("", ""),
    }


@pytest.mark.parametrize(
    "error", [metadata.PackageNotFoundError("nanoeuler"), UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_metadata_that_cannot_be_read_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(name: str) -> list[str]:
        raise error

    monkeypatch.setattr(metadata, "requires", broken)
    assert requirements() == {}


def test_the_metadata_of_this_project_names_what_kernels_need() -> None:
    wanted = requirements()
    assert wanted["numpy"][1] == ""
    assert wanted["numba"][1] == wanted["numba-cuda"][1] == "gpu"
    assert wanted["nvidia-nvvm"][1] == "compile"


def test_versions_are_compared_as_pip_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert within("0.30.4", "<0.31,>=0.30.4")
    assert not within("0.31.0", "<0.31,>=0.30.4")
    assert within("0.100", ">=0.61")
    assert within("13.0.88", "==13.0.*")
    assert not within("13.1.1", "==13.0.*")
    assert within("2.5.0rc1", ">=2.4")
    assert within("2.13.0+cpu", ">=2.5")
    assert within("1", "")
    monkeypatch.setitem(sys.modules, "packaging.specifiers", None)
    assert within("0.1", ">=0.61")  # with nothing to compare by, nothing is refused

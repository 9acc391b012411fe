"""Every example in a docstring is run, and every public function and class has a docstring."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import nanoeuler

MODULES = [module.name for module in pkgutil.walk_packages(nanoeuler.__path__, "nanoeuler.")]


def load(name: str):
    if name in ("nanoeuler.bench.pytorch", "nanoeuler.bench.ops_pytorch"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    assert doctest.testmod(load(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in ("nanoeuler.errors",)) > 0


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_says_what_it_is(name):
    module = load(name)
    assert module.__doc__, name
    for key, value in vars(module).items():
        ours = key[0] != "_" and getattr(value, "__module__", None) == name
        if ours and (inspect.isclass(value) or inspect.isfunction(value)):
            assert value.__doc__, f"{name}.{key}"

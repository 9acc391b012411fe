"""Benchmarks: ``python -m nanoeuler.bench train`` times a training step beside PyTorch's on the same model.

:mod:`~nanoeuler.bench.workload` says what is run, :mod:`~nanoeuler.bench.pytorch` is the other side,
:mod:`~nanoeuler.bench.measure` times both in turns, :mod:`~nanoeuler.bench.memory` weighs each in a process of its own,
and :mod:`~nanoeuler.bench.train` is the command. ``python -m nanoeuler.bench simt`` times the executors of CUDA kernels
on the CPU beside Numba's simulator.
"""

"""What this machine has to compute with, and what stands in the way: packages, NVIDIA's driver, the CUDA toolkit.

Nothing here imports NumPy, Numba or :mod:`nanoeuler.gpu` before it is asked about them, so that it can say that they
are missing.
"""

"""Kernels that prove the instrument: those of :mod:`correct`, on which all must agree, and of :mod:`faulty`."""

"""Why no kernel can be launched on a GPU here; see :mod:`nanoeuler.system.availability`, which needs no Numba."""

from nanoeuler.system.availability import why_no_gpu

__all__ = ["why_no_gpu"]
